"""A recovery whose journal lies on another disk: `recover --journal DIR`."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from mqstore.store.disk.files import UNDONE, Files, OpenFile, confine, has_log_changed_by_session
from mqstore.store.disk.layout import JOURNAL, Layout
from mqstore.store.errors import NoSpace, NotFound, Refused, Unreadable
from mqstore.store.session.apply import apply
from mqstore.store.session.journal import (
    MOVES,
    SEALED,
    InterruptedChange,
    Journal,
    barriers,
    ended_by,
    left_over,
    unfinished,
)
from mqstore.store.session.undo import purge, session_to_undo, undo, use_journal_of_moved

from ...recovery_cases import CONFIG
from ..put.faults import CountingFiles, Killed, KilledFiles
from ..recover.recovered import Content, content, planned, recover, times

VERSION = "5.3.3"


@pytest.fixture(params=["same disk", "another disk"])
def place(request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for journals; the stores lie in memory, where the machine has such a place."""
    if request.param == "same disk":
        (tmp_path / "journals").mkdir()
        return tmp_path / "journals"
    other = tmp_path_factory.mktemp("journals")
    if other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no other file system here")
    return other


def layout_of(root: Path, place: Path | None) -> Layout:
    layout = Layout.open(root, CONFIG)
    if place is not None:
        layout.keep_journal_in(place)
    return layout


def recover_with(root: Path, place: Path | None, files: Files) -> None:
    layout = layout_of(root, place)
    confine(files, layout)
    apply(layout, None, lambda: planned(root, CONFIG, VERSION), files)


def test_the_same_as_beside_the_store(root: Path, place: Path, tmp_path: Path) -> None:
    before, then = content(root), times(root)
    whole = Path(shutil.copytree(root, tmp_path / "whole"))
    recover(whole, CONFIG, VERSION)
    recover_with(root, place, Files())
    assert content(root) == content(whole)
    layout = layout_of(root, place)
    assert layout.journal.is_relative_to(place) and list(layout.journal.glob(f"*/{SEALED}"))
    assert not list((root / JOURNAL).glob(f"*/{SEALED}"))
    files = Files()
    confine(files, layout)
    undo(layout, session_to_undo(layout), files)
    after = content(root)
    after.pop("lock", None)
    before.pop("lock", None)
    assert (after, times(root)) == (before, then)


@pytest.mark.few(1)
def test_cut_off_and_gone_on_with(root: Path, place: Path, tmp_path: Path) -> None:
    whole = Path(shutil.copytree(root, tmp_path / "whole"))
    counting = CountingFiles()
    recover_with(whole, place, counting)
    seen = set()
    for at in range(4, len(counting.steps), 19):
        copy = tmp_path / "cut"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(root, copy)
        with pytest.raises(Killed):
            recover_with(copy, place, KilledFiles(at))
        half_way = unfinished(copy, layout_of(copy, place).journal) is not None
        seen.add(half_way)
        if half_way:
            assert barriers(layout_of(copy, place))
            with pytest.raises(Refused, match="journal is in another directory"):
                recover_with(copy, None, Files())
            with pytest.raises(Refused, match="journal is in another directory"):
                session_to_undo(layout_of(copy, None))
        recover_with(copy, place, Files())
        assert content(copy) == content(whole), f"step {at}, {counting.steps[at]}"
        assert not barriers(layout_of(copy, place))
        shutil.rmtree(layout_of(copy, place).journal.parent)
    assert seen == {False, True}


@pytest.mark.parametrize("command", ["recover", "repair", *MOVES.values()])
def test_the_command_that_goes_on_is_named_without_the_option(command: str, root: Path, place: Path) -> None:
    """Only the barrier says where the journal is, and only the journal that queues were on their way elsewhere."""
    layout = layout_of(root, place)
    plan = planned(root, CONFIG, VERSION)
    for at in range(0, 400, 5):
        files = KilledFiles(at)
        confine(files, layout)
        with pytest.raises(Killed):
            apply(layout, plan, lambda: plan, files, command=command)
        if unfinished(root, layout.journal) is not None:
            break
    found = left_over(layout_of(root, None))
    assert isinstance(found, InterruptedChange) and found.session and found.journal == place
    name, *options = ended_by(command).split()
    wanted = ["mqstore", name, str(root), *options, "--apply", "--journal", str(place)]
    assert found.command(layout).split()[: len(wanted)] == wanted
    if command in MOVES.values():
        [journal] = layout.journal.glob("*/journal*")
        journal.write_bytes(b"not what was sealed")
        assert left_over(layout_of(root, None)) == found._replace(ended_by="recover")


def test_what_was_moved_stays_for_undo(root: Path, place: Path) -> None:
    """A later recovery without --journal does not clear away what an earlier session moved."""
    before = content(root)
    recover_with(root, place, Files())
    (root / "abort").touch()
    recover_with(root, None, Files())
    beside = layout_of(root, None)
    undo(beside, session_to_undo(beside), Files())
    (root / "abort").unlink()
    layout = layout_of(root, place)
    undo(layout, session_to_undo(layout), Files(), force=True)
    after = content(root)
    assert {k: v for k, v in after.items() if k != "lock"} == {k: v for k, v in before.items() if k != "lock"}


def test_the_note_in_the_store_tells_whether_its_session_was_undone(root: Path, place: Path) -> None:
    """Else messages of delay levels that the broker lacks would not count as undelivered any more."""
    layout, beside = layout_of(root, place), layout_of(root, None)
    recover_with(root, place, Files())
    assert has_log_changed_by_session(layout) and has_log_changed_by_session(beside)
    undo(layout, session_to_undo(layout), Files())
    assert list((root / JOURNAL).iterdir())
    assert not has_log_changed_by_session(layout) and not has_log_changed_by_session(beside)
    shutil.rmtree(layout.journal)
    assert not has_log_changed_by_session(beside)


def test_an_undo_needs_no_room_in_the_store(root: Path, place: Path) -> None:
    """A journal is often elsewhere because the disk of the store is full."""
    before = content(root)
    recover_with(root, place, Files())
    layout, files = layout_of(root, place), FullStore(root)
    undo(layout, session_to_undo(layout), files)
    assert content(root) == before
    with pytest.raises(NotFound):
        session_to_undo(layout)


class FullStore(Files):
    """The disk of a store takes no further name of a mark."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root

    def create(self, path: Path, *, like: Path | None = None) -> OpenFile:
        if path.name == UNDONE and path.is_relative_to(self.root):
            raise NoSpace("no inode left", path=path)
        return super().create(path, like=like)


def test_a_session_in_the_store_counts_with_a_journal_elsewhere(root: Path, place: Path) -> None:
    recover_with(root, None, Files())
    assert has_log_changed_by_session(layout_of(root, place))


def test_journals_of_several_stores(root: Path, place: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(root, tmp_path / "other" / root.name))
    recover_with(root, place, Files())
    with pytest.raises(NotFound, match="nothing to undo"):
        session_to_undo(layout_of(other, place))


def undone(layout: Layout, before: Content, then: dict[str, tuple[int, int]]) -> tuple[Journal, Files]:
    """Undo the session of a store that was moved, or whose journal was; all but the lock is as before."""
    use_journal_of_moved(layout)
    journal, files = session_to_undo(layout), Files()
    assert journal is not None
    confine(files, layout)
    undo(layout, journal, files)
    found = content(layout.root)
    assert {**found, "lock": None} == {**before, "lock": None}
    assert times(layout.root) == then
    return journal, files


def test_a_store_that_was_moved_finds_its_journal(root: Path, place: Path, tmp_path: Path) -> None:
    """By the note in it. A copy of a store that is still there does not: the sessions are of that one."""
    before, then = content(root), times(root)
    recover_with(root, place, Files())
    copy, moved = tmp_path / "copy", tmp_path / "moved"
    shutil.copytree(root, copy)
    of_copy = layout_of(copy, place)
    use_journal_of_moved(of_copy)
    with pytest.raises(NotFound, match=r"nothing to undo.*this one is a copy"):
        session_to_undo(of_copy)
    shutil.rmtree(copy)
    root.rename(moved)
    with pytest.raises(NotFound, match=f"mqstore undo {moved} --list .*--journal {place}"):
        session_to_undo(layout_of(moved, None))
    layout = layout_of(moved, place)
    journal, files = undone(layout, before, then)
    purge(layout, journal, files)
    assert not (moved / JOURNAL).exists()


@pytest.mark.parametrize("store_too", [False, True])
def test_a_journal_whose_disk_is_mounted_elsewhere_now(
    store_too: bool, root: Path, place: Path, tmp_path: Path
) -> None:
    """Its own folder is where it was found; without that place the note in the store says what is missing."""
    before, then = content(root), times(root)
    recover_with(root, place, Files())
    now = place.rename(place.with_name(f"{place.name}-now"))
    if store_too:
        root = root.rename(tmp_path / "moved")
    for named in (None, place):
        if named is not None:
            place.mkdir()
        with pytest.raises(NotFound, match=f"kept in {place}, which is not there: is a disk not mounted.*journal DIR"):
            session_to_undo(layout_of(root, named))
    layout = layout_of(root, now)
    journal, files = undone(layout, before, then)
    for used in (layout, layout_of(root, None)):
        with pytest.raises(NotFound) as error:
            session_to_undo(used)
        assert error.value.hint == "" and not has_log_changed_by_session(used)
    purge(layout, journal, files)
    assert not (root / JOURNAL).exists()


def test_a_damaged_journal_names_no_other_store(root: Path, place: Path, tmp_path: Path) -> None:
    """A moved store finds it, and says that it is damaged."""
    recover_with(root, place, Files())
    [path] = layout_of(root, place).journal.glob("*/journal.json")
    assert Journal.load(root, path.parent).made_for == str(root.resolve())
    text = path.read_text()
    moved = root.rename(tmp_path / "moved")
    for named in (os.fspath(tmp_path), "a\\u0000b"):
        path.write_text(text.replace(json.dumps(os.fspath(root)), f'"{named}"'))
        layout = layout_of(moved, place)
        use_journal_of_moved(layout)
        with pytest.raises(Unreadable, match="the journal is damaged"):
            session_to_undo(layout)
    (path.parent / SEALED).write_text(hashlib.sha256(path.read_bytes()).hexdigest())
    with pytest.raises(Unreadable, match="not a journal"):
        Journal.load(moved, path.parent)


def test_a_directory_with_sessions_of_other_stores_says_so(root: Path, place: Path, tmp_path: Path) -> None:
    """A session of an older version has left no note in the store."""
    recover_with(root, place, Files())
    shutil.rmtree(root / JOURNAL)
    moved = root.rename(tmp_path / "moved")
    layout = layout_of(moved, place)
    use_journal_of_moved(layout)
    with pytest.raises(NotFound, match=f"{place} has sessions of stores in other places .*was it moved"):
        session_to_undo(layout)
