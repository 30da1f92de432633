"""Taking a repair back, byte for byte, from what its journal kept.

The order is that of `apply`: barrier, lock, then everything that is kept is proven by its hash
before anything is touched. `undoing` is published first: from then on the session can only be taken
back, cut off at any point the next run goes on, and the barrier keeps brokers away meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..disk.byte_reader import pieces
from ..disk.files import Files, find_note, read_note, remove_tree, sessions
from ..disk.layout import JOURNAL as SESSIONS
from ..disk.layout import ROCKSDB_CURRENT, Layout
from ..errors import InvalidInput, Missing, NotFound, Refused, Unreadable
from .apply import alone, check_journal_place, check_places, listing
from .journal import (
    DONE,
    JOURNAL_IS_IN,
    SEALED,
    HalfStore,
    Journal,
    SessionState,
    Step,
    barriers,
    left_over,
    unfinished,
)
from .stage import sha256_of

_SHOWN = 3
"""Changed files that an error names."""
_TABLES = (".sst", ".blob")
"""Files of a RocksDB that are never changed, only merged into others."""


class Session(NamedTuple):
    """A session of the store. kept_bytes: what its folders hold, sparse files by what they use."""

    name: str
    command: str
    state: SessionState
    began_ms: int
    steps: int
    files: int
    kept_bytes: int


class Undone(NamedTuple):
    """A session that was taken back. resumed: that had been cut off before."""

    session: str
    command: str
    resumed: bool
    steps: int
    files: int


def list_sessions(layout: Layout) -> Iterator[Session]:
    """The sessions of a store, oldest first; those that never began are left out.

    One with a damaged journal has no command and no steps.

    Raises Unreadable.
    """
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
    """The folders of a session, one on each file system that it changed."""
    return {journal.folder, *(journal.folder_of(step) for step in journal.steps)}


def _used_bytes(folder: Path) -> int:
    if not folder.is_dir():
        return 0
    return sum(p.lstat().st_blocks * 512 for p in folder.rglob("*") if not p.is_dir())


def session_to_undo(layout: Layout, name: str | None = None) -> Journal | None:
    """The session called `name`, by default the newest that can be taken back.

    One that was taken back but for its start barrier counts; None where nothing but a barrier is
    left, of a session that was cut off before it began. Raises NotFound where there is none,
    or where it was taken back already, Refused (its journal is elsewhere), Unreadable.
    """
    check_journal_place(layout)
    over = (SessionState.UNSEALED,) if barriers(layout) else (SessionState.UNSEALED, SessionState.UNDONE)
    if name is not None:
        folder = next((f for f in sessions(layout.journal) if f.name == name), None)
        state = SessionState.UNSEALED if folder is None else Journal(layout.root, folder, "").state
        if folder is None or state is SessionState.UNSEALED:
            from ..findings.next_commands import proposed  # which looks at findings, and they at recoveries

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
    raise NotFound("nothing to undo", path=layout.root)


def undo(
    layout: Layout, journal: Journal | None, files: Files, *, force: bool = False, wait_seconds: float = 0
) -> Undone:
    """Take a session back; None only removes the start barrier. force: also where the store has changed since.

    Raises InUse, Refused (the store has changed, a later session stands in the way), Unreadable (a
    damaged journal, an I/O error), NoSpace. Nothing was touched then, or it can be run again.
    """
    left = left_over(layout)
    if isinstance(left, HalfStore):  # its barrier stays, and what there is of it
        raise Refused(str(left), path=layout.root, hint=f"run: {left.command(layout)}")
    if journal is None:
        with alone(layout, files, wait_seconds):
            return Undone("", "recover", True, 0, 0)
    state = journal.state
    _check_order(layout, journal)
    if state.half_way and not barriers(layout) and not force:
        raise Refused(
            f"session {journal.session} was cut off and its start barrier is gone: a broker may have run since then",
            path=layout.root,
            hint="--force undoes it anyway",
        )
    made = [journal.store / name for name in journal.directories]
    with alone(layout, files, wait_seconds, made=made) as lock:
        if journal.state is not state:
            raise Refused("another mqstore changed the session first", path=layout.root, hint="try again")
        if state is SessionState.APPLIED and not force:
            _check_unchanged(layout, journal, files)
        if state is not SessionState.UNDONE:
            _carry_back(journal, files)
        lock.leave = journal.lock
    paths = {step.path for step in journal.steps}
    resumed = state in (SessionState.UNDO_CUT_OFF, SessionState.UNDONE)
    return Undone(journal.session, journal.command, resumed, len(journal.steps), len(paths))


def _carry_back(journal: Journal, files: Files) -> None:
    """Undo every step, the last one first, and prove the result."""
    check_places(journal, files)
    if journal.state is not SessionState.UNDO_CUT_OFF:
        _check_databases(journal)
        _prove_kept(journal)
        journal.begin_undo(files)
    for step in reversed(journal.steps):
        _take_back(journal, step, files)
    for database in _databases(journal):
        for path in database.later:
            kept = journal.folder_of(database.step) / f"{database.step.number:06d}.{path.name}.later"
            _rename(path, kept, files)
    for name in reversed(journal.directories):
        directory = journal.store / name
        if directory.is_dir() and not any(directory.iterdir()):
            files.remove_directory(directory)
    _flush_names(journal, files)
    _prove_restored(journal)
    journal.finish_undo(files)


class _ChangedDatabase(NamedTuple):
    """A RocksDB that a session has changed; its files belong together.

    step: that of its CURRENT. later: its files that have come since. gone: its tables that the session left as
    they were, and that are not there any more.
    """

    step: Step
    later: list[Path]
    gone: list[Path]


def _databases(journal: Journal) -> Iterator[_ChangedDatabase]:
    """Those of a session that came to its end; only with force they have changed since."""
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


def _check_databases(journal: Journal) -> None:
    """What a RocksDB would need is there. Raises Refused."""
    for database in _databases(journal):
        if database.gone:
            raise Refused(
                "the RocksDB was compacted since then and cannot be restored: this table is gone",
                path=database.gone[0],
                hint="the session has no copy: it had not changed this table",
            )


def _flush_names(journal: Journal, files: Files) -> None:
    """Bring to the disk which file is where: whoever was cut off may have moved some and not flushed that."""
    moved = [step for step in journal.steps if not step.in_place]
    places = [place for step in moved for place in (journal.path_of(step).parent, journal.folder_of(step))]
    places += [(journal.store / name).parent for name in journal.directories]
    for place in dict.fromkeys(places):
        if place.is_dir():
            files.sync_directory(place)


def _check_order(layout: Layout, journal: Journal) -> None:
    """Only the newest session can be taken back. Raises Refused."""
    other = unfinished(layout.root, layout.journal)
    if other is not None and other.session != journal.session:
        raise Refused(f"session {other.session} was cut off", path=layout.root, hint="undo that session first")
    newest = session_to_undo(layout)
    if newest is not None and newest.session != journal.session:
        raise Refused(f"session {newest.session} came later", path=layout.root, hint="undo that session first")


def _check_unchanged(layout: Layout, journal: Journal, files: Files) -> None:
    """The store is as the repair left it. Raises Refused."""
    # one file has two names where the configuration names its directory by another way than the command the root
    resolve, root = cache(Path.resolve), journal.store.resolve()
    rows = (journal.listing(), listing(layout, journal, files))
    places = ({(journal.store / name): row for name, row in each.items()} for each in rows)
    then, now = ({resolve(path.parent) / path.name: row for path, row in each.items()} for each in places)
    paths = then.keys() | now.keys()
    others = (path for path in paths if then.get(path) != now.get(path))
    changed = sorted(os.fspath(path.relative_to(root) if path.is_relative_to(root) else path) for path in others)
    if changed:
        more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
        raise Refused(
            f"the store has changed since session {journal.session}: {', '.join(changed[:_SHOWN])}{more}",
            path=layout.root,
            hint="--force undoes it anyway",
        )


def _prove_kept(journal: Journal) -> None:
    """What the journal kept is what it was, and has a place to go back to.

    Raises Refused (a file that was changed in place is gone), Unreadable: nothing has been touched.
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
                hint="create a file of this name, of any length, and run undo again with --force",
            )
        kept = folder / (step.old_name if step.in_place else step.moved_name)
        if not step.in_place and not kept.exists():
            if not step.old_sha256:
                continue  # nothing was there
            if not path.exists():
                raise Unreadable("a file that the session kept is gone", path=kept)
            kept = path  # the repair did not come that far
        if not step.in_place and step.path in changed:
            continue  # its hash is that of before these changes: the end of the undo compares it
        if sha256_of(kept) != step.old_sha256:
            raise Unreadable("a file that the session kept is damaged", path=kept)


def _take_back(journal: Journal, step: Step, files: Files) -> None:
    """Undo one step. Any number of times, from any half-way state."""
    path, folder = journal.path_of(step), journal.folder_of(step)
    if step.in_place:
        _write_back(step, path, folder / step.old_name, files)
        return
    if step.kind == "create" and not (folder / step.new_name).exists():
        _rename(path, folder / step.new_name, files)
    moved = folder / step.moved_name
    if moved.exists():
        if path.exists():  # only with force: somebody else made it
            _rename(path, folder / f"{step.moved_name}.later", files)
        _rename(moved, path, files)


def _write_back(step: Step, path: Path, kept: Path, files: Files) -> None:
    with files.open(path) as file:
        file.pwrite_all(pieces(kept), step.offset)
        if step.before is not None and file.size != step.before.size:
            file.truncate(step.before.size)
        file.sync()
    if step.before is not None:
        files.set_times(path, step.before.accessed_ns, step.before.modified_ns)


def _rename(source: Path, target: Path, files: Files) -> None:
    if source.exists():
        files.rename(source, target)
        files.sync_directory(source.parent)
        files.sync_directory(target.parent)


def _prove_restored(journal: Journal) -> None:
    """Every file is what it was: hash, size, time; new ones are gone. Raises Unreadable."""
    first: dict[str, Step] = {}
    for step in journal.steps:
        first.setdefault(step.path, step)
        path = journal.path_of(step)
        if step.in_place:
            size = (journal.folder_of(step) / step.old_name).stat().st_size
            same = sha256_of(path, step.offset, size) == step.old_sha256
        else:
            same = not step.old_sha256 or sha256_of(path) == step.old_sha256
        if not same:
            raise Unreadable("undo did not restore the bytes from before the session", path=path)
    for step in first.values():
        path = journal.path_of(step)
        if path.is_dir():  # its hash was that of before; its times are nobody's
            continue
        status = path.stat() if path.exists() else None
        then, now = step.before, status and (status.st_size, status.st_mtime_ns)
        if now != (then and (then.size, then.modified_ns)):
            raise Unreadable("undo did not restore the size or time from before the session", path=path)


def _further_folders(layout: Layout, journal: Journal) -> set[Path]:
    """Folders on other file systems that say themselves that they belong to the session."""
    parts = (*layout.commit_log_directories, layout.consume_queue, layout.index)
    places = {layout.root, *(part.resolve().parent for part in parts)}
    found = set()
    for place in places:
        folder = place / SESSIONS / journal.session
        marker = find_note(folder / JOURNAL_IS_IN)
        if marker is not None and read_note(marker) == os.fsencode(journal.folder):
            found.add(folder)
    return found


def journal_to_purge(layout: Layout, folder: Path) -> Journal:
    """A session to be removed; of a damaged journal only where it stands is known.

    Nothing of such a session can be taken back, and the rest of the journal is not needed to remove it.
    """
    try:
        return Journal.load(layout.root, folder)
    except Unreadable:
        return Journal(layout.root, folder, "")


def purge(layout: Layout, journal: Journal, files: Files) -> int:
    """Remove what a session kept: it cannot be taken back any more. Returns the bytes freed.

    Raises InvalidInput for a session that was cut off, Unreadable.
    """
    if journal.state.half_way:
        raise InvalidInput(f"session {journal.session} was cut off: its folder is still needed")
    every = folders_of(journal) | _further_folders(layout, journal)
    folders = [folder for folder in every if folder.is_dir()]
    freed = sum(_used_bytes(folder) for folder in folders)
    # without its seal a session counts for nothing, however far the rest comes
    files.unlink(journal.folder / SEALED)
    files.sync_directory(journal.folder)
    for folder in sorted(folders, key=lambda each: each == journal.folder):
        remove_tree(folder, files)
        if folder.parent.name == SESSIONS and not any(folder.parent.iterdir()):
            files.remove_directory(folder.parent)
    return freed
