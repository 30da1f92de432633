"""Exports in this process, and small stores for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mqstore.cli.app import run
from mqstore.cli.export_options import report_of
from mqstore.cli.record_types import schema_of
from mqstore.pipeline.export import export, here
from mqstore.store.arrow.export_files import ExportHow
from mqstore.store.arrow.export_formats import FileKind

from ...cli.json_schema import errors

HERE = here(lambda size: None)


def exported(root: Path, target: Path, form: str = "parquet", **more: Any) -> dict[str, Any]:
    """Export in this process: the command's answer, as its schema says."""
    options = {"body": "plain", "split_bytes": "60000"}
    how = ExportHow(FileKind(form), **more)
    report = report_of(target, export([str(root)], options, how, target, HERE))
    assert list(errors(schema_of("export"), report)) == []
    return report


def small_store(root: Path, *messages: dict[str, Any]) -> Path:
    """A store of some messages, stored when they say."""
    file = root.with_suffix(".parquet")
    pq.write_table(pa.Table.from_pylist(list(messages)), file)
    words = ["put", str(root), "--from", str(file), "--keep-times", "--no-answers", "-q"]
    assert run([*words, "--set", "mappedFileSizeCommitLog=65536"]) == 0
    return root
