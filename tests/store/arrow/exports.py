"""Exports in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mqstore.cli.export_options import report_of
from mqstore.cli.record_types import schema_of
from mqstore.pipeline.export import export, here
from mqstore.store.arrow.export_files import ExportHow
from mqstore.store.arrow.export_formats import ExportFormat

from ...cli.json_schema import errors

HERE = here(lambda size: None)


def exported(root: Path, target: Path, form: str = "parquet", **more: Any) -> dict[str, Any]:
    """Export in this process: the command's answer, as its schema says."""
    options = {"body": "plain", "split_bytes": "60000"}
    how = ExportHow(ExportFormat(form), **more)
    report = report_of(target, export([str(root)], options, how, target, HERE))
    assert list(errors(schema_of("export"), report)) == []
    return report
