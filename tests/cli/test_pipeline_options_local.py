"""When a job on Spark is one that this process does quicker."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.cli.options import Common
from mqstore.cli.pipeline_options import Spark, warn_if_quicker_here

from ..stores import unpack


def test_spark_for_one_small_store_says_what_is_quicker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In one line, unless somebody asks for a master, or for quiet."""
    root = str(unpack("5.3.3-v2", tmp_path))
    for roots, spark, common, lines in (
        ([root], Spark(), Common(), 1),
        ([root], Spark(), Common(quiet=True), 0),
        ([root], Spark(master="local[2]"), Common(), 0),
        ([root, root], Spark(), Common(), 0),
        (["s3://bucket/store"], Spark(), Common(), 0),
    ):
        warn_if_quicker_here("stats", roots, spark, common)
        told_lines = capsys.readouterr().err.splitlines()
        assert len(told_lines) == lines
        assert all("mqstore stats is quicker" in line for line in told_lines)
