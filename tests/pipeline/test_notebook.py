"""docs/spark.md is so: its examples run in a plain session, its tables are those of the sources."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mqstore.pipeline.sources import log_stream, table_sources
from mqstore.store.arrow import log_columns, views
from mqstore.store.arrow.stores import OPTIONS

from ..stores import unpack

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "spark.md"
RUN = """
import doctest, sys
flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
results = doctest.testfile(sys.argv[1], module_relative=False, optionflags=flags)
assert results.attempted > 10
sys.exit(results.failed)
"""


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.skipif(shutil.which("java") is None, reason="a plain session needs a Java of its own")
def test_the_examples_run_in_a_plain_session(tmp_path: Path) -> None:
    """A process of its own: no setting of ours, as in somebody's notebook."""
    unpack("5.3.3-clean", tmp_path).rename(tmp_path / "store")
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(PAGE)],
        cwd=tmp_path,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_has_all_columns_and_options() -> None:
    text = PAGE.read_text(encoding="utf-8")
    stream = text.partition("## Following a log")[2].partition("## Writing")[0]
    assert re.findall(r"^\| `(\w+)` \|", stream, re.MULTILINE) == list(log_stream.OPTIONS)
    text = text.partition("## Following a log")[0] + text.partition("## Options of a read")[2]
    shown = dict(re.findall(r"^\| `(rocketmq-\w+)` \| [^|]+ \| ([^|]+) \|$", text, re.MULTILINE))
    wanted = {source.name(): list(source.table.all_columns()) for source in table_sources()}
    wanted["rocketmq-log"] = list(log_columns.COLUMNS)
    wanted["rocketmq-damage"] = list(views.COLUMNS)
    assert {name: re.findall(r"`(\w+)`", columns) for name, columns in shown.items()} == wanted
    options = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE))))
    assert options - {"paths"} == OPTIONS - {"paths"}
