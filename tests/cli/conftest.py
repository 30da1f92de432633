"""Stores that some tests of `verify` share, and how long commands wait."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from .. import stores


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some stores, not to be changed."""
    root = tmp_path_factory.mktemp("verify")
    for name in ("5.3.3-clean", "5.3.3-killed", "5.3.3-killed-page", "4.9.7-dledger"):
        stores.unpack(name, root)
    return root


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long our code would have slept, in seconds; it does not."""
    seconds_of: list[float] = []
    rest = time.sleep

    def sleep(seconds: float) -> None:
        """Threads that other tests left behind sleep as well: these are not counted."""
        ours = str(sys._getframe(1).f_globals["__name__"]).startswith("mqstore.")
        (seconds_of.append if ours else rest)(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    return seconds_of
