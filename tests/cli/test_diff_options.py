"""Which parts `diff` is asked for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mqstore.cli.app import run

from ..stores import unpack
from .two_stores import copy_of


def test_only_asks_for_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = unpack("5.3.3-killed-page", tmp_path)
    other = copy_of(a)
    shutil.rmtree(other / "index")
    assert run(["diff", str(a), str(other), "--only", "log,queues"]) == 0
    assert run(["diff", str(a), str(other), "--only", "index"]) == 1
    assert run(["diff", str(a), str(other), "--only", "indexes"]) == 2
    assert "there are messages, log, queues, index" in capsys.readouterr().err
