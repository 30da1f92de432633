"""What a command finds out of a whole store it finds out once, however many parts of it ask."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from mqstore.store.disk.byte_reader import Unread
from mqstore.store.disk.file_queue import MappedFile
from mqstore.store.log.commit_log import CommitLog
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


@pytest.mark.parametrize(("command", "passes"), [("verify", 1), ("recover", 1), ("repair", 1)])
def test_passes_over_a_sound_log(command: str, passes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only configuration is lost, one pass gives the verdict and what a plan goes by."""
    store = stores.unpack("5.3.3-clean", tmp_path)
    for file in (store / "config").glob("topics.json*"):
        file.unlink()
    read_around, begun = CommitLog.read_around, []

    def reading(log: CommitLog, buffer: memoryview, file: MappedFile, offset: int) -> tuple[int, list[Unread]]:
        if file.start + offset == 0:
            begun.append(len(buffer))
        return read_around(log, buffer, file, offset)

    monkeypatch.setattr(CommitLog, "read_around", reading)
    assert run_here([command, str(store), "--jobs", "1"]).code == 1
    assert len(begun) == passes
