"""Apply a plan: barrier, lock, journal, edits, checkpoint, `abort` last.

The lock keeps out other tools and keeps a broker from serving, but a broker loads the log, and cuts it, before it takes
the lock (spec 4.3). So a start barrier goes first: a file in the log directory with the size of a log file and a name
that is no number. Every broker version refuses to load then, and changes nothing.

Once the journal is sealed the repair is carried through: after an interruption at any point the next run continues with
the same journal and ends the same.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..disk.byte_reader import pieces
from ..disk.files import Edit, Files, find_note, noted_journal, remove_tree, sessions, write_note
from ..disk.layout import BARRIER_PREFIX, Layout
from ..disk.lock import LockState, StoreLock, holder, identity
from ..errors import InUse, Refused
from ..index.read import sizes_of
from .journal import (
    SEALED,
    Fingerprint,
    HalfStore,
    InterruptedChange,
    Journal,
    Listing,
    SessionState,
    Step,
    barrier_alone,
    barriers,
    journal_elsewhere,
    journal_option,
    left_over,
    unfinished,
)
from .stage import HELD_NAMES, stage

if TYPE_CHECKING:
    from ..plan.plan import Plan

_ZEROS = bytes(1 << 20)


class Applied(NamedTuple):
    """A repair that was carried through. resumed: an earlier run had begun it. session: "" if there was nothing to do.
    lost: messages given up, those of an earlier interrupted run included.
    """

    session: str
    resumed: bool
    steps: int
    lost: int = 0


def apply(
    layout: Layout,
    shown: Plan | None,
    replan: Callable[[], Plan],
    files: Files,
    *,
    seen: Fingerprint | None = None,
    wait_seconds: float = 0,
    command: str = "recover",
) -> Applied:
    """Apply a plan, or continue a repair that was interrupted.

    shown: the plan that the user agreed to; `replan` makes it again under the lock, and both must be the same. seen:
    taken before `shown` was made; if it still holds, the plan is not made again. Raises InUse, Refused (the store has
    changed, another file system), NoSpace, Unreadable.
    """
    check_journal_place(layout)
    if holder(layout.lock) is None:  # a change that a process is working on is not interrupted
        _check_barrier(layout, command)
    before = barrier_alone(layout)
    lost = 0 if before is None else before.lost
    with alone(layout, files, wait_seconds) as lock:
        journal = unfinished(layout.root, layout.journal)
        resumed = journal is not None
        if journal is None:
            plan = _agreed(layout, shown, replan, seen, lock.was)
            for folder in filter(is_left_behind, sessions(layout.journal)):
                remove_tree(folder, files)
            if not plan.edits:
                lock.leave = lock.was
                return Applied("", False, 0, lost)
            for edit in plan.edits:
                files.check_inside(Path(edit.path))
            journal = stage(layout, plan, files, new_session(layout), command, lock.was)
        carry_through(journal, files)
        journal.finish(files, listing(layout, journal, files))
    return Applied(journal.session, resumed, len(journal.steps), lost + journal.lost)


def finish_interrupted(layout: Layout, files: Files, *, wait_seconds: float) -> Applied | None:
    """Finish an interrupted change, so that a plan can be made of the result. None without one. Raises as `apply`."""
    from ..plan.plan import Plan

    if left_over(layout) is None:
        return None
    return apply(layout, None, lambda: Plan("", 0, 0, []), files, wait_seconds=wait_seconds)


def _agreed(
    layout: Layout, shown: Plan | None, replan: Callable[[], Plan], seen: Fingerprint | None, lock_was: LockState
) -> Plan:
    """Return the plan that was agreed to, if it is still the plan of this store. Raises Refused."""
    if shown is not None and seen is not None and seen.still_holds(layout, lock_was):
        return shown
    plan = replan()
    if shown is not None and digest(plan.edits) != digest(shown.edits):
        raise Refused(
            "the store has changed since the plan was made", path=layout.root, hint="look at the new plan and try again"
        )
    return plan


def _check_barrier(layout: Layout, command: str) -> None:
    """Check that an interrupted repair still has its barrier and that `command` continues it. Raises Refused."""
    left = left_over(layout)
    if left is None:
        return
    if isinstance(left, HalfStore) or not left.goes_on_with(command):
        raise Refused(str(left), path=layout.root, hint=f"run: {left.command(layout)}")
    if left.session and not barriers(layout):
        raise Refused(
            "a recovery was interrupted and its start barrier is gone: a broker may have run since then",
            path=layout.journal / left.session,
            hint="move this session folder out of the store to start again",
        )


def listing(layout: Layout, journal: Journal, files: Files) -> Listing:
    """List every file of the store, and of log directories elsewhere, except lock, barriers and sessions.

    A link to a directory where `files` may not write is listed as a link: its target is not part of the store.
    """
    found: Listing = {}
    logs = (d for d in layout.commit_log_directories if d.is_dir())  # a start creates the missing ones
    outside = [d for d in logs if not d.is_relative_to(layout.root)]
    waiting, seen = [layout.root, *outside], set[tuple[int, int]]()
    while waiting:
        directory = waiting.pop()
        if (key := identity(directory.stat())) in seen:  # a link to a directory that was listed already
            continue
        seen.add(key)
        for entry in os.scandir(directory):
            path = Path(entry.path)
            if entry.is_dir() and (not entry.is_symlink() or files.is_inside(path)):
                waiting += [path] if entry.name != layout.journal.name else []
            elif path != layout.lock and not entry.name.startswith(BARRIER_PREFIX):
                own = entry.stat(follow_symlinks=False)
                found[journal.relative(path)] = (own.st_size, own.st_mtime_ns)
    return found


def new_session(layout: Layout) -> str:
    """Return a new name for a session: the current time, in a form that sorts."""
    name = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    taken = {folder.name for folder in sessions(layout.journal)}
    while name in taken:
        name += "x"
    return name


def refuse_in_use(layout: Layout) -> None:
    """Raise InUse if a process holds the lock of the store."""
    if (pid := holder(layout.lock)) is not None:
        raise InUse(f"in use by process {pid}", path=layout.root, hint="stop the broker first")


@contextmanager
def alone(layout: Layout, files: Files, wait_seconds: float, *, made: Iterable[Path] = ()) -> Iterator[StoreLock]:
    """Keep everybody else from the store: put the barrier, then take the lock.

    The barriers are removed when the work is done, or if it never began. From the sealing of the journal until the end
    of the work they stay, as a broker must not start on a half-repaired store; an exception gets a note about that. So
    a sealed journal without a barrier is not continued. made: directories that may be removed later; no barrier is put
    there. Raises InUse; another process's barrier is left in place then.
    """
    if not wait_seconds:
        refuse_in_use(layout)
    avoided = frozenset(made)
    own = _put_barrier(layout, files, avoided)
    try:
        lock = StoreLock.take(layout.lock, files, wait_seconds=wait_seconds)
    except BaseException:
        if own is not None:
            _remove_barrier(own, files)
        raise
    with lock:
        try:
            if not barriers(layout):  # the previous holder of the lock removed ours with its own
                _put_barrier(layout, files, avoided)
            yield lock
            remove_barriers(layout, files)
        except BaseException as error:
            journal = unfinished(layout.root, layout.journal)
            if journal is None:
                lock.leave = lock.was
                remove_barriers(layout, files)
            else:
                left = InterruptedChange.of(journal)
                error.add_note(f"{left}, the store is half changed: start no broker; run: {left.command(layout)}")
            raise


def check_journal_place(layout: Layout) -> None:
    """Check that the journal in use is the one that the barriers name. Raises Refused."""
    for path in barriers(layout):
        if elsewhere := journal_elsewhere(layout, path):
            raise Refused(
                "a recovery was interrupted, and its journal is in another directory",
                path=layout.root,
                hint=f"name that directory: --journal {journal_option(elsewhere)}",
            )


def _put_barrier(layout: Layout, files: Files, avoided: frozenset[Path]) -> Path | None:
    """Put a barrier of this process: a process that gives up must not remove another's.

    The barrier names the journal if that lies outside the store.
    """
    there = [d for d in layout.commit_log_directories if d.is_dir() and d not in avoided]
    if not there:
        return None
    place = b"" if layout.journal_place is None else os.fsencode(layout.journal.resolve())
    return put_barrier(there[0], sizes_of(layout).commit_log.value, files, place)


def put_barrier(directory: Path, file_bytes: int, files: Files, place: bytes = b"") -> Path | None:
    """Keep brokers from loading the log in `directory`. file_bytes: size of its files. place: the barrier's content."""
    # process ids repeat, above all in containers
    path = directory / f"{BARRIER_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
    write_note(files, path, place, file_bytes)  # with another length some versions would load
    return find_note(path)


def remove_barriers(layout: Layout, files: Files) -> None:
    for path in barriers(layout):
        _remove_barrier(path, files)


def _remove_barrier(path: Path, files: Files) -> None:
    if path.exists():
        files.unlink(path)
        files.sync_directory(path.parent)


def is_left_behind(folder: Path) -> bool:
    """Whether the folder is what is left of a session that was never sealed, or whose purge was interrupted.

    It holds copies, nothing of the store. A folder that also holds files no session writes is not one.
    """
    if Journal(folder, folder, "").state is not SessionState.UNSEALED:
        return False
    own = noted_journal(folder)  # else it belongs to a sealed session, or to one whose journal cannot be seen now
    needless = own is None or (own.parent.exists() and not (own / SEALED).exists())
    return needless and all(HELD_NAMES.fullmatch(path.name) for path in folder.iterdir())


def carry_through(journal: Journal, files: Files) -> None:
    """Do every step, or do it again: any number of times, from any intermediate state."""
    check_places(journal, files)
    files.make_directories(journal.store / directory for directory in journal.directories)
    for kind, steps in groupby(journal.steps, key=lambda step: step.kind):
        renamed = dict[Path, None]()
        for step in steps:
            if kind == "write":
                _write(journal, step, files)
            elif kind == "truncate":
                _truncate(journal, step, files)
            elif kind == "create":
                renamed |= dict.fromkeys(_create(journal, step, files))
            else:
                target = journal.folder_of(step) / step.name("moved")
                renamed |= dict.fromkeys(_move(journal.path_of(step), target, files))
        for place in renamed:  # once for all files, before steps of another kind
            files.sync_directory(place)


def check_places(journal: Journal, files: Files) -> None:
    """Check that a journal, which anybody may have written, names places inside the store only. Raises Refused."""
    for name in journal.directories:
        files.check_inside(journal.store / name)
    for step in journal.steps:
        path = journal.path_of(step)
        if os.path.isabs(step.path) and not files.is_inside(path):  # noqa: PTH117
            what = f"session {journal.session} changed files in a directory that is no part of this store"
            hint = "name it as the broker does, by --set storePathCommitLog=DIRECTORY or --broker-config"
            hint = hint if path.parent.is_dir() else "it is not there: mount its disk there again"
            raise Refused(what, path=path.parent, hint=hint)
        files.check_inside(path)
        files.check_inside(journal.folder_of(step))


def restore_times(step: Step, path: Path, files: Files) -> None:
    """Give a file that was changed in place its access and modification times of before the session."""
    if step.before is not None:
        files.set_times(path, step.before.accessed_ns, step.before.modified_ns)


def _write(journal: Journal, step: Step, files: Files) -> None:
    path = journal.path_of(step)
    with files.open(path) as file:
        if step.zeros:
            for begin in range(0, step.length, len(_ZEROS)):
                size = min(len(_ZEROS), step.length - begin)
                file.pwrite(memoryview(_ZEROS)[:size], step.offset + begin)
        else:
            file.pwrite_all(pieces(journal.folder_of(step) / step.name("new")), step.offset)
        file.sync()
    restore_times(step, path, files)


def _truncate(journal: Journal, step: Step, files: Files) -> None:
    """Give a file its length; bytes added at the end read as zeros."""
    path = journal.path_of(step)
    with files.open(path) as file:
        file.truncate(step.length)
        file.sync()
    restore_times(step, path, files)


def _create(journal: Journal, step: Step, files: Files) -> tuple[Path, ...]:
    """Put a file in place. Return the directories to flush."""
    path, folder = journal.path_of(step), journal.folder_of(step)
    new = folder / step.name("new")
    if new.exists():
        if step.before is not None:
            for directory in _move(path, folder / step.name("moved"), files):
                files.sync_directory(directory)  # else only the rename may reach the disk, and the old file is lost
        files.rename(new, path)
    return path.parent, folder


def _move(path: Path, target: Path, files: Files) -> tuple[Path, ...]:
    """Move a file into the session's folder unless that is done already. Return the directories to flush."""
    if not target.exists() and path.exists():
        files.rename(path, target)
    return tuple(directory for directory in (path.parent, target.parent) if directory.exists())


def digest(edits: Iterable[Edit]) -> str:
    """Fingerprint of a list of edits: plans with equal fingerprints make the same changes."""
    total = hashlib.sha256()
    for edit in edits:
        length = 0 if edit.content_id else edit.length
        head = (edit.kind, edit.path, edit.offset, length, edit.data is None)
        total.update(repr(head).encode("utf-8", "surrogateescape"))
        if edit.content_id:
            total.update(edit.content_id)
            continue
        total.update(edit.data or b"")
        for offset, data in edit.pieces:
            total.update(b"%d:%d:" % (offset, len(data)))
            total.update(data)
    return total.hexdigest()
