"""`export` into a data set that is there: the options, and tasks of Spark."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from mqstore.cli.app import run
from mqstore.pipeline.export import export, on_spark
from mqstore.store.arrow.data_set import Mode
from mqstore.store.arrow.export_files import ExportHow

from ..memory import tmp_path
from ..store.arrow.data_sets import OPTIONS, SIZES, exported, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["tmp_path"]


def test_the_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, out = put(tmp_path / "store", "a"), tmp_path / "out"
    for words in (["export"], ["pipeline", "export"]):
        command = [*words, str(root), "--to", str(out)]
        for more, told in (
            (["--append", "--overwrite"], "--append and --overwrite cannot be combined"),
            (["--overwrite", "--since-last"], "--overwrite and --since-last cannot be combined"),
            (["--since-last", "--since", "-1h"], "continues where the last export ended"),
            (["--since-last", "--until", "now"], "continues where the last export ended"),
        ):
            assert run([*command, *more]) == 2
            printed, err = capsys.readouterr()
            assert not printed and told in err and err.count("\n") == 1
    command = ["export", str(root), "--to", str(out), *SIZES]
    for mode, rows_there in (("--since-last", 1), ("--append", 2), ("--overwrite", 1)):
        assert run([*command, mode, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["mode"] == mode.removeprefix("--")
        assert pq.read_table(out).num_rows == rows_there
    assert run([*command, "--append", "--columns", "topic"]) == 5
    assert "--overwrite replaces what is there" in capsys.readouterr().err


def test_since_last_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Tasks add to what this process has written, and Spark reads all of it."""
    root, out = put(tmp_path / "store", "a", "b"), tmp_path / "out"
    exported(root, out)
    put(root, *(str(number) for number in range(30)))
    job = on_spark(lambda: nullcontext(spark))
    for wanted in (30, 0):
        report = export([str(root)], OPTIONS, ExportHow(), out, job, mode=Mode.SINCE_LAST)
        assert sum(file["rows"] for file in report["files"]) == wanted
    assert spark.read.parquet(str(out)).count() == 32
    export([str(root)], OPTIONS, ExportHow(), out, job, mode=Mode.OVERWRITE)
    assert spark.read.parquet(str(out)).count() == 32
