"""Removing what a session kept: whole, whatever interrupts it, and never what is still needed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.disk.lock import StoreLock
from mqstore.store.errors import InUse, InvalidInput, NotFound
from mqstore.store.session.undo import journal_to_purge, list_sessions, purge, session_to_undo

from ...recovery_cases import CONFIG
from ..put.faults import CountingFiles, Killed, KilledFiles
from ..recover.recovered import VERSION, recover
from .test_undo import everything, newest, take_back, undo_steps

pytestmark = pytest.mark.long


def test_purge(root: Path) -> None:
    _, applied = recover(root, CONFIG, VERSION)
    recovered, layout = everything(root), Layout.open(root, CONFIG)
    (session,) = list_sessions(layout)
    assert session.kept_bytes > 0
    assert purge(layout, newest(layout), Files()) == session.kept_bytes
    assert everything(root) == recovered
    assert not (root / ".mqstore" / applied.session).exists()
    assert list(list_sessions(layout)) == []


def test_purge_of_a_session_with_a_damaged_journal(root: Path) -> None:
    """It can never be taken back: its folder is of no use, and easily removed."""
    recover(root, CONFIG, VERSION)
    recovered, layout = everything(root), Layout.open(root, CONFIG)
    next((root / ".mqstore").glob("*/journal.json")).write_bytes(b"{")
    (session,) = list_sessions(layout)
    folder = root / ".mqstore" / session.name
    assert purge(layout, journal_to_purge(layout, session.name), Files()) == session.kept_bytes
    assert everything(root) == recovered and not folder.exists()
    recover(root, CONFIG, VERSION)


def test_an_interrupted_purge(root: Path, tmp_path: Path) -> None:
    """Wherever it was cut off, the other sessions can be listed and taken back, and the next purge removes the rest."""
    first = recover(root, CONFIG, VERSION)[1].session
    (root / "abort").write_text("")
    second = recover(root, CONFIG, VERSION)[1].session
    shutil.copytree(root, tmp_path / "counted", symlinks=True)
    counting, counted = CountingFiles(), Layout.open(tmp_path / "counted", CONFIG)
    purge(counted, journal_to_purge(counted, second), counting)
    for steps in range(len(counting.steps)):
        copy = tmp_path / str(steps)
        shutil.copytree(root, copy, symlinks=True)
        layout = Layout.open(copy, CONFIG)
        with pytest.raises(Killed):
            purge(layout, journal_to_purge(layout, second), KilledFiles(steps))
        listed = [session.name for session in list_sessions(layout)]
        assert listed in ([first, second], [first])
        if second not in listed:
            assert newest(layout).session == first
            with pytest.raises(NotFound, match="no such session"):
                session_to_undo(layout, second)
        if (layout.journal / second).exists():
            purge(layout, journal_to_purge(layout, second), Files())
        assert [session.name for session in list_sessions(layout)] == [first]
        assert {path.name for path in layout.journal.iterdir()} == {first}


def test_no_purge_of_a_session_that_a_process_is_beginning(root: Path) -> None:
    layout, name = Layout.open(root, CONFIG), "20260101T000000.000000Z"
    (layout.journal / name).mkdir(parents=True)
    (layout.journal / name / "000000.old").write_bytes(b"old")
    with StoreLock.take(layout.lock, Files()), pytest.raises(InUse):
        purge(layout, journal_to_purge(layout, name), Files())
    assert purge(layout, journal_to_purge(layout, name), Files()) > 0
    assert not layout.journal.exists()


def test_no_purge_of_what_is_needed(root: Path, tmp_path: Path) -> None:
    recover(root, CONFIG, VERSION)
    total = undo_steps(root, tmp_path)
    with pytest.raises(Killed):
        take_back(root, KilledFiles(total - 8))
    layout = Layout.open(root, CONFIG)
    with pytest.raises(InvalidInput, match="still needed"):
        purge(layout, newest(layout), Files())
