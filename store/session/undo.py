"""Undo a repair, byte for byte, from its journal; list and purge sessions.

The order is that of `apply`: barrier, lock, then every stored copy is verified by its hash before anything is touched.
`undoing` is published first: from then on the session can only be undone; after an interruption at any point the next
run continues, and the barrier keeps brokers away meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..counted import listed
from ..disk.byte_reader import pieces
from ..disk.files import UNDONE, Files, noted_journal, remove_tree, sessions, write_new
from ..disk.layout import JOURNAL as SESSIONS
from ..disk.layout import ROCKSDB_CURRENT, Layout
from ..errors import Denied, InvalidInput, Missing, NotFound, Refused, StoreError, Unreadable
from ..findings.next_commands import proposed
from .apply import alone, check_journal_place, check_places, is_left_behind, listing, refuse_in_use, restore_times
from .journal import (
    DONE,
    SEALED,
    FileState,
    HalfStore,
    Journal,
    SessionState,
    Step,
    barriers,
    journal_option,
    left_over,
    unfinished,
)
from .stage import parts_elsewhere, sha256_of

_SHOWN = 3
"""Number of changed files that an error names."""
_NOT_UNDOING = (SessionState.APPLIED, SessionState.INTERRUPTED)
_TABLES = (".sst", ".blob")
"""Files of a RocksDB that are never changed, only merged into others."""


class Session(NamedTuple):
    """A session of the store. kept_bytes: disk usage of its folders, holes of sparse files not counted."""

    name: str
    command: str
    state: SessionState
    began_ms: int
    steps: int
    files: int
    kept_bytes: int


class Undone(NamedTuple):
    """resumed: an earlier undo had been interrupted. new_times: files whose modification time is not the old one."""

    session: str
    command: str
    resumed: bool
    steps: int
    files: int
    new_times: tuple[str, ...] = ()


def list_sessions(layout: Layout) -> Iterator[Session]:
    """Yield the sealed sessions of a store, oldest first. A damaged one has no command or steps. Raises Unreadable."""
    for folder in sessions(layout.journal):
        state = Journal(layout.root, folder, "").state
        if state is SessionState.UNSEALED:
            continue
        try:
            journal = Journal.load(layout.root, folder)
        except (Unreadable, Missing):
            journal, state = Journal(layout.root, folder, ""), SessionState.DAMAGED
        began = (folder / SEALED).stat().st_mtime_ns // 1_000_000
        kept = sum(_used_bytes(used) for used in folders_of(journal))
        files = len({step.path for step in journal.steps})
        steps = len(journal.steps)
        yield Session(journal.session, journal.command, state, began, steps, files, kept)


def folders_of(journal: Journal) -> set[Path]:
    """Return the folders of a session, one on each file system that it changed."""
    return {journal.folder, *(journal.folder_of(step) for step in journal.steps)}


def _used_bytes(folder: Path) -> int:
    if not folder.is_dir():
        return 0
    return sum(p.lstat().st_blocks * 512 for p in folder.rglob("*") if not p.is_dir())


def session_to_undo(layout: Layout, name: str | None = None) -> Journal | None:
    """Return the session called `name`, by default the newest one that can be undone.

    A session that is undone except for its start barrier counts. None: only the barrier of a session that was
    interrupted before it began is left. Raises NotFound if there is no such session or it was undone already, Refused
    (its journal is elsewhere), Unreadable.
    """
    check_journal_place(layout)
    over = (SessionState.UNSEALED,) if barriers(layout) else (SessionState.UNSEALED, SessionState.UNDONE)
    if name is not None:
        folder = next((f for f in sessions(layout.journal) if f.name == name), None)
        state = SessionState.UNSEALED if folder is None else Journal(layout.root, folder, "").state
        if folder is None or state is SessionState.UNSEALED:
            hint = f"{proposed(layout, 'undo', '--list')} names them"
            raise NotFound(f"no such session: {name}", path=layout.root, hint=hint)
        if state in over:
            raise NotFound(f"session {name} was taken back already", path=layout.root)
        return Journal.load(layout.root, folder)
    for folder in reversed(list(sessions(layout.journal))):
        if Journal(layout.root, folder, "").state not in over:
            return Journal.load(layout.root, folder)
    if barriers(layout):
        return None
    raise NotFound("nothing to undo", path=layout.root, hint=sessions_elsewhere(layout))


def kept_elsewhere(layout: Layout, *, undone: bool = True) -> list[Path]:
    """Return the journals made with --journal, by the notes in the store, which move with it. undone: also journals
    whose sessions are all undone.
    """
    found = dict[Path, None]()
    for folder in sessions(layout.root / SESSIONS):
        with suppress(StoreError):
            if (own := noted_journal(folder)) is not None and (undone or not (folder / UNDONE).exists()):
                found[own.parent] = None
    return [journal for journal in found if journal != layout.root / SESSIONS]


def use_journal_of_moved(layout: Layout) -> None:
    """Use the journal in the directory that --journal names if the store has been moved since then. The journal of a
    store that is still in its place is not used: this store is a copy.
    """
    if layout.journal_place is None or layout.journal.is_dir():
        return
    for journal in kept_elsewhere(layout):
        place = layout.journal_place.parent / journal.parent.name
        if (place / SESSIONS).is_dir() and not _is_of_another(layout, place / SESSIONS):
            layout.journal_place = place
            return


def _is_of_another(layout: Layout, journal: Path) -> bool:
    """Whether the store that the sessions name is still there. Sessions of older versions name none."""
    for folder in sessions(journal):
        with suppress(StoreError, OSError):
            named = Journal.load(layout.root, folder).made_for
            if named and Path(named).exists() and not Path(named).samefile(layout.root):
                return True
    return False


def sessions_elsewhere(layout: Layout) -> str:
    """Say where else sessions of this store may be, "" if nothing tells: in a journal that --journal named, or in the
    named one under the name that the store had before it was moved.
    """
    if layout.journal_place is not None and any(sessions(layout.journal)):
        return ""
    noted = kept_elsewhere(layout)
    if not any(journal.is_dir() for journal in noted) and (missing := kept_elsewhere(layout, undone=False)):
        where, again = journal_option(missing[0]), proposed(layout, "undo", "--list", "--journal", "DIR")
        return (
            f"sessions are kept in {where}, which is not there: is a disk not mounted? If it is elsewhere now: {again}"
        )
    known = [journal for journal in noted if any(sessions(journal))]
    if known and _is_of_another(layout, known[0]):
        return f"the sessions in {known[0]} are of a store that is still in its place: this one is a copy"
    if known:
        option = ("--journal", os.fspath(journal_option(known[0])))
        return f"sessions are kept in {known[0]}: {proposed(layout, 'undo', '--list', *option)}"
    place = layout.journal_place
    others = sorted(place.parent.glob(f"*/{SESSIONS}")) if place is not None else []
    names = [path.parent.name for path in others if any(sessions(path))]
    if place is None or not names:
        return ""
    return f"{place.parent} has sessions of stores in other places ({listed(names, _SHOWN)}): was it moved?"


def undo(
    layout: Layout, journal: Journal | None, files: Files, *, force: bool = False, wait_seconds: float = 0
) -> Undone:
    """Undo a session; None only removes the start barrier. force: even if the store has changed since.

    Raises InUse, Refused (the store has changed, a later session has to be undone first), Unreadable (a damaged
    journal, an I/O error), NoSpace. After an error nothing was touched, or `undo` can be run again.
    """
    left = left_over(layout)
    if isinstance(left, HalfStore):  # the barrier and the partial store stay as they are
        raise Refused(str(left), path=layout.root, hint=f"run: {left.command(layout)}")
    if journal is None:
        with alone(layout, files, wait_seconds):
            return Undone("", "recover", True, 0, 0)
    state, guarded = journal.state, bool(barriers(layout))
    _check_order(layout, journal)
    if state.half_way and not guarded and not force:
        raise Refused(
            f"session {journal.session} was interrupted and its start barrier is gone: a broker may have run since",
            path=layout.root,
            hint="--force undoes it anyway",
        )
    check_places(journal, files)
    made = [journal.store / name for name in journal.directories]
    with alone(layout, files, wait_seconds, made=made) as lock:
        if journal.state is not state:
            raise Refused("another mqstore changed the session first", path=layout.root, hint="try again")
        if state is SessionState.APPLIED and not force:
            _check_unchanged(layout, journal, files)
        open_since = force and state in _NOT_UNDOING and not (state.half_way and guarded)
        written = _written_since(layout, journal, files) if open_since else ()
        new_times = _undo_steps(journal, files, written) if state is not SessionState.UNDONE else ()
        lock.leave = journal.lock
        for folder in _further_folders(layout, journal):  # the journal may be moved, or deleted
            with suppress(StoreError):  # everything is undone: no more than a later message depends on the mark
                if not (folder / UNDONE).exists():
                    write_new(files, folder / UNDONE, b"")
    paths = {step.path for step in journal.steps}
    resumed = state in (SessionState.UNDO_INTERRUPTED, SessionState.UNDONE)
    return Undone(journal.session, journal.command, resumed, len(journal.steps), len(paths), new_times)


def _undo_steps(journal: Journal, files: Files, written: Sequence[str]) -> tuple[str, ...]:
    """Undo every step, the last first, and verify. Return the `new_times` of `Undone`. written: files that keep their
    new time.
    """
    if journal.state is not SessionState.UNDO_INTERRUPTED:
        for database in _changed_databases(journal):
            if database.gone:
                raise Refused(
                    "the RocksDB was compacted since then and cannot be restored: this table is gone",
                    path=database.gone[0],
                    hint="the session has no copy: it had not changed this table",
                )
        _prove_kept(journal)
        journal.begin_undo(files, written)
    later = journal.written()
    for step in reversed(journal.steps):
        _undo_step(journal, step, files, restore=step.path not in later)
    for database in _changed_databases(journal):
        for path in database.later:
            kept = journal.folder_of(database.step) / f"{database.step.number:06d}.{path.name}.later"
            _rename(path, kept, files)
    for name in reversed(journal.directories):
        directory = journal.store / name
        if directory.is_dir() and not any(directory.iterdir()):
            files.remove_directory(directory)
    _sync_directories(journal, files)
    new_times = _prove_restored(journal)
    journal.finish_undo(files)
    return new_times


class _ChangedDatabase(NamedTuple):
    """A RocksDB that a session has changed; its files belong together.

    step: the step of its CURRENT. later: files that were added since. gone: tables that the session did not change and
    that are missing now.
    """

    step: Step
    later: list[Path]
    gone: list[Path]


def _changed_databases(journal: Journal) -> Iterator[_ChangedDatabase]:
    """Yield the databases of a finished session. They can have changed since only if the undo is forced."""
    current = [step for step in journal.steps if Path(step.path).name == ROCKSDB_CURRENT]
    if not current or not (journal.folder / DONE).exists():
        return
    from ..queues.rocksdb_write import database_files, is_of_database

    own = {journal.path_of(step) for step in journal.steps}
    then = {journal.store / name for name in journal.listing()} - own
    for step in {journal.path_of(step): step for step in current}.values():
        folder = journal.path_of(step).parent
        kept = {path for path in then if path.parent == folder and is_of_database(path.name)}
        later = [path for path in database_files(folder) if path not in kept | own]
        gone = sorted(path for path in kept if path.suffix in _TABLES and not path.exists())
        yield _ChangedDatabase(step, later, gone)


def _sync_directories(journal: Journal, files: Files) -> None:
    """Sync the directories of all moved files: an interrupted run may have moved files without syncing."""
    moved = [step for step in journal.steps if not step.in_place]
    places = [place for step in moved for place in (journal.path_of(step).parent, journal.folder_of(step))]
    places += [(journal.store / name).parent for name in journal.directories]
    for place in dict.fromkeys(places):
        if place.is_dir():
            files.sync_directory(place)


def _check_order(layout: Layout, journal: Journal) -> None:
    """Check that no later session has to be undone first. Raises Refused."""
    other = unfinished(layout.root, layout.journal)
    if other is not None and other.session != journal.session:
        raise Refused(f"session {other.session} was interrupted", path=layout.root, hint="undo that session first")
    newest = session_to_undo(layout)
    if newest is not None and newest.session != journal.session:
        raise Refused(f"session {newest.session} came later", path=layout.root, hint="undo that session first")


def _changed_since(layout: Layout, journal: Journal, files: Files) -> set[Path]:
    """Return the files that are not as the session left them, each in its real directory. Raises Unreadable."""
    # a file has two paths if the configuration and the command line reach its directory differently
    resolve = cache(Path.resolve)  # many files share a directory
    rows = (journal.listing(), listing(layout, journal, files))
    places = ({(journal.store / name): row for name, row in each.items()} for each in rows)
    then, now = ({_really(path, resolve): row for path, row in each.items()} for each in places)
    return {path for path in then.keys() | now.keys() if then.get(path) != now.get(path)}


def _check_unchanged(layout: Layout, journal: Journal, files: Files) -> None:
    """Check that the store is as the repair left it. Raises Refused."""
    root = journal.store.resolve()
    others = _changed_since(layout, journal, files)
    changed = sorted(os.fspath(path.relative_to(root) if path.is_relative_to(root) else path) for path in others)
    if changed:
        raise Refused(
            f"the store has changed since session {journal.session}: {listed(changed, _SHOWN)}",
            path=layout.root,
            hint="--force undoes it anyway",
        )


def _written_since(layout: Layout, journal: Journal, files: Files) -> list[str]:
    """Return the files, as the journal names them, of which an undo restores only the bytes that the session replaced,
    and that somebody may have written to since then. Without a listing of a finished session their times tell.
    """
    whole = {step.path for step in journal.steps if step.old_sha256 and not step.in_place}
    then = {step.path: step.before for step in journal.steps if step.in_place and step.path not in whole}
    if (journal.folder / DONE).exists():
        changed = _changed_since(layout, journal, files)
        return [name for name in then if _really(journal.store / name) in changed]
    return [name for name, old in then.items() if old and _has_other_time(journal.store / name, old.modified_ns)]


def _has_other_time(path: Path, then_ns: int) -> bool:
    return path.exists() and FileState.of(path).modified_ns != then_ns


def _really(path: Path, resolve: Callable[[Path], Path] = Path.resolve) -> Path:
    """The path in its real directory; the file itself may be a link."""
    return resolve(path.parent) / path.name


def _prove_kept(journal: Journal) -> None:
    """Check that the journal's copies are undamaged and that each has a place to go back to.

    Raises Refused (a file that was changed in place is gone), Unreadable. Nothing has been touched then.
    """
    moved, changed = {step.path for step in journal.steps if step.kind == "move"}, set[str]()
    for step in journal.steps:
        folder, path = journal.folder_of(step), journal.path_of(step)
        if step.in_place:
            changed.add(step.path)
        if step.in_place and not path.exists() and step.path not in moved:
            raise Refused(
                "a file that the session changed is gone",
                path=path,
                hint="restore it from a copy and run undo again with --force (of an empty file of this name only the "
                "bytes that the session replaced come back, the others are zeros)",
            )
        kept = folder / (step.name("old") if step.in_place else step.name("moved"))
        if not step.in_place and not kept.exists():
            if not step.old_sha256:
                continue  # the step replaced no file
            if not path.exists():
                raise Unreadable("a file that the session kept is gone", path=kept)
            kept = path  # the repair did not reach this step
        if not step.in_place and step.path in changed:
            continue  # its hash is from before these changes: compared at the end of the undo
        if sha256_of(kept) != step.old_sha256:
            raise Unreadable("a file that the session kept is damaged", path=kept)


def _undo_step(journal: Journal, step: Step, files: Files, *, restore: bool) -> None:
    """Undo one step, again if need be, from any state between. restore: also the times of a file changed in place."""
    path, folder = journal.path_of(step), journal.folder_of(step)
    if step.in_place:
        with files.open(path) as file:
            file.pwrite_all(pieces(folder / step.name("old")), step.offset)
            if step.before is not None and file.size != step.before.size:
                file.truncate(step.before.size)
            file.sync()
        if restore:
            _restore_times(step, path, files)
        return
    if step.kind == "create" and not (folder / step.name("new")).exists():
        _rename(path, folder / step.name("new"), files)
    moved = folder / step.name("moved")
    if moved.exists():
        if path.exists():  # only with force: somebody else created it
            _rename(path, folder / f"{step.name('moved')}.later", files)
        _rename(moved, path, files)
    then, is_file = step.before, path.is_file() and not path.is_symlink()
    if then is not None and is_file and _has_other_time(path, then.modified_ns):
        _restore_times(step, path, files)  # the kept file of a copied store has the time of the copy


def _restore_times(step: Step, path: Path, files: Files) -> None:
    """Restore the times of a file, unless it belongs to another user: the bytes are worth more than a time."""
    with suppress(Denied):
        restore_times(step, path, files)


def _rename(source: Path, target: Path, files: Files) -> None:
    if source.exists():
        files.rename(source, target)
        files.sync_directory(source.parent)
        files.sync_directory(target.parent)


def _prove_restored(journal: Journal) -> tuple[str, ...]:
    """Check that every file has its old hash and size, and that new files are gone. Raises Unreadable.

    Return the files without their old time. A store is whole without that, and no further try would restore it: the
    file system of a copy may have coarser times.
    """
    first: dict[str, Step] = {}
    for step in journal.steps:
        first.setdefault(step.path, step)
        path = journal.path_of(step)
        if step.in_place:
            size = (journal.folder_of(step) / step.name("old")).stat().st_size
            same = sha256_of(path, step.offset, size) == step.old_sha256
        else:
            same = not step.old_sha256 or sha256_of(path) == step.old_sha256
        if not same:
            raise Unreadable("undo did not restore the bytes from before the session", path=path)
    new_times = []
    for step in first.values():
        path, then = journal.path_of(step), step.before
        if path.is_dir():  # its hash is compared above; directory times are not restored
            continue
        now = path.stat() if path.exists() else None
        if (now and now.st_size) != (then and then.size):
            raise Unreadable("undo did not restore the size from before the session", path=path)
        if now and then and now.st_mtime_ns != then.modified_ns:
            new_times.append(step.path)
    return tuple(new_times)


def _further_folders(layout: Layout, journal: Journal) -> set[Path]:
    """Return folders on other file systems whose note says that they belong to the session."""
    found = set()
    for place in {layout.root, *(real.parent for real in parts_elsewhere(layout))}:
        folder = place / SESSIONS / journal.session
        noted = noted_journal(folder)
        if noted is not None and journal.is_at(noted):
            found.add(folder)
    return found


def journal_to_purge(layout: Layout, name: str) -> Journal:
    """Load a session to be removed; of a damaged journal, or one whose purge was interrupted, only the folder is known.

    It cannot be undone, and removing it needs nothing else of the journal. Raises NotFound if there is no such session.
    """
    known = (f for f in sessions(layout.journal) if f.name == name and ((f / SEALED).exists() or is_left_behind(f)))
    if (folder := next(known, None)) is None:
        raise NotFound(f"no such session: {name}", path=layout.root)
    try:
        return Journal.load(layout.root, folder)
    except (Unreadable, Missing):
        return Journal(layout.root, folder, "")


def purge(layout: Layout, journal: Journal, files: Files) -> int:
    """Remove the folders of a session, which cannot be undone any more. Return the bytes freed.

    After an interruption the next run removes the rest.

    Raises InvalidInput for an interrupted session, InUse for one that a process is beginning, Unreadable.
    """
    state = journal.state
    if state.half_way:
        raise InvalidInput(f"session {journal.session} was interrupted: its folder is still needed")
    mark = UNDONE if (journal.folder / UNDONE).exists() else DONE
    if not (journal.folder / mark).exists():
        refuse_in_use(layout)
    every = folders_of(journal) | _further_folders(layout, journal)
    folders = [folder for folder in every if folder.is_dir()]
    freed = sum(_used_bytes(folder) for folder in folders)
    if state is not SessionState.UNSEALED:
        # without its seal a session does not count, however far the removal gets
        files.unlink(journal.folder / SEALED)
        files.sync_directory(journal.folder)
    for folder in sorted(folders, key=lambda each: each == journal.folder):
        remove_tree(folder, files, last=mark)  # it shows that the session is not one that is just begun
        outer = folder.parent
        # the directory beside a part on another disk is not the store's: an empty folder stays there
        if outer.name == SESSIONS and files.is_inside(outer.parent) and not any(outer.iterdir()):
            files.remove_directory(outer)
    return freed
