"""The page of `inspect`."""

from __future__ import annotations

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


def test_a_page_fits_one_screen(tmp_path: Path) -> None:
    """Fifty lines, each not much wider than a terminal."""
    store = stores.unpack("5.3.3-killed", tmp_path)
    lines = run_here(["inspect", str(store), "--utc"]).stdout.splitlines()
    assert len(lines) <= 50
