"""What a command finds out of a whole store it finds out once, however many parts of it ask."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from mqstore.store.settings import generation
from mqstore.store.timer import read

from .. import stores
from .datadriven import run_here


@pytest.mark.parametrize("command", ["inspect", "verify", "recover", "repair"])
def test_generation_and_wheel(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stores.unpack("5.5.0-timer-killed", tmp_path)
    guesses = Mock(side_effect=generation._Evidence)
    wheels = Mock(side_effect=read.timer_wheel)
    monkeypatch.setattr(generation, "_Evidence", guesses)
    monkeypatch.setattr(read, "timer_wheel", wheels)
    assert run_here([command, str(store)]).code in (0, 3)
    assert (guesses.call_count, wheels.call_count <= 1) == (1, True)
