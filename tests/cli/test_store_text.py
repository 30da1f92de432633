"""The page of `inspect`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from .. import stores
from ..stores import unpack
from .datadriven import run_here


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return unpack("5.3.3-batchcq", tmp_path)


def test_one_is_no_plural(root: Path) -> None:
    shown = run_here(["inspect", str(root)]).stdout
    assert "2 topics, 3 queues, 182 messages" in shown
    shutil.rmtree(root / "batchconsumequeue")
    shown = run_here(["inspect", str(root)]).stdout
    assert "1 topic, 1 queue, 20 messages" in shown


def test_what_lmqs_name_is_no_further_message(tmp_path: Path) -> None:
    shown = run_here(["inspect", str(unpack("5.3.3-lmq", tmp_path))]).stdout
    assert "5 topics, 7 queues, 141 messages, named 187 times more by LMQs\n" in shown


def test_no_command_where_none_helps(tmp_path: Path) -> None:
    """The sentence says why no plan is made, and what to do about it: the same command would say it again."""
    store = stores.unpack("5.3.3-clean", tmp_path)
    words = ["inspect", str(store), "--set", "mappedFileSizeCommitLog=131072"]
    first = run_here(words).stdout.splitlines()[0]
    assert first.startswith("Do not start a broker: recovery is not possible yet: ")
    assert first.endswith("mappedFileSizeCommitLog should be 262144.")
    assert json.loads(run_here([*words, "--format", "json"]).stdout)["next"] == []
    told = run_here(["verify", *words[1:]]).stdout.partition("What now: ")[2].splitlines()
    assert [line.split()[:2] for line in told[1:] if line] == [["mqstore", "explain"]]


def test_a_page_fits_one_screen(tmp_path: Path) -> None:
    """Fifty lines, each not much wider than a terminal."""
    store = stores.unpack("5.3.3-killed", tmp_path)
    lines = run_here(["inspect", str(store), "--utc"]).stdout.splitlines()
    assert len(lines) <= 50
