"""The journal of a repair: the state of the store at the plan, the bytes before, the bytes to write.

A plan need not be made again under the lock if no file has changed: names, inodes, lengths and times of all files show
it (`Fingerprint`), unless somebody writes into a mapping. Such a write gets the time of the first write into its page
(mmap(2)), or none on tmpfs. So a store that a process holds has no fingerprint. Whoever takes it later writes the file
`lock` (spec 04, 4.3) and maps again. Nor has a store that was changed a moment ago: the next change may get the same
time.

A session is a folder `.mqstore/SESSION` in the store; a broker does not look there. Every change is a `Step`. For each
step the folder holds what undoes it and what does it again:

| kind | old | new |
|---|---|---|
| write | `N.old`: the bytes before | `N.new`: the bytes; none for zeros |
| truncate | `N.old`: the bytes behind the new end | |
| create | `N.moved`: the file that was in its place, if any | `N.new`: the file, until it is in place |
| move | `N.moved`: the file itself | |

`journal.json` lists the steps with checksums, times, owner and mode of every file touched. The session counts once
`sealed` holds the checksum of `journal.json`: from then on it can be carried through after a crash at any point, any
number of times. `done` ends it. `undoing` begins an undo in the same way, `undone` ends that. Without `sealed` nothing
of the store has been touched, or the session is being purged: the folder has no meaning.

A file that is moved stays on its file system, in a further folder of the session there. The journal itself can lie
elsewhere, for a disk that is full; the start barrier, a note in the store's directory, names the place. If the disk has
no byte free for the content of the barrier, that goes into the file's name, which takes no block.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from ..disk.compressed import read_regular
from ..disk.files import LARGEST_JOURNAL_BYTES, SESSION_JOURNAL, UNDONE, Edit, Files, read_note, sessions, write_new
from ..disk.layout import BARRIER_PREFIX, Layout
from ..disk.layout import JOURNAL as SESSIONS
from ..disk.lock import LockState, creator_of, holder, identity, mark_of
from ..errors import StoreError, Unreadable, os_errors
from ..findings.next_commands import HALF_MADE, by_hand, done_with_half, in_catalogue, pipeline_again, proposed
from ..output.stage import unpublished

if TYPE_CHECKING:
    from ..plan.plan import Plan

_SETTLED_NS = 3 * 10**9
"""Longer than the clock step of any file system."""
_TIME_FIELDS = 2
_PLACE = 3
"""Last parts of a folder in a journal elsewhere: the store's place there, `.mqstore`, the session."""


JOURNAL = SESSION_JOURNAL
SEALED = "sealed"
DONE = "done"
UNDOING = "undoing"
MOVES = {kind: f"repair --queues --as {kind}" for kind in ("rocksdb", "files")}
"""Target of all queues → the command as a journal names it. Only this command continues such a session: no other one
knows how brokers are told to use the target.
"""
RECOVER = "recover"
_FORMAT = 1
_NUMBERS_END = 1 << 63

StepKind = Literal["write", "truncate", "create", "move"]
Listing = dict[str, tuple[int, int]]
"""Files of a store by the name used in the journal: size in bytes, modification time in ns."""


class SessionState(StrEnum):
    """The last stage that a session has reached."""

    UNSEALED = "not begun"
    INTERRUPTED = "cut off"
    APPLIED = "applied"
    UNDO_INTERRUPTED = "undo cut off"
    UNDONE = "undone"
    DAMAGED = "damaged"
    """The journal cannot be read; the stage is unknown."""

    @property
    def half_way(self) -> bool:
        """The store is neither in the state before nor in the state after the change."""
        return self in (SessionState.INTERRUPTED, SessionState.UNDO_INTERRUPTED)


@dataclass(frozen=True)
class FileState:
    """State of a file: mode and owner, times in ns since 1970, length in bytes."""

    mode: int
    owner: int
    group: int
    accessed_ns: int
    modified_ns: int
    size: int

    @classmethod
    def of(cls, path: Path) -> FileState:
        """Return the state of a file. Raises Missing, Unreadable."""
        with os_errors(path):
            s = path.stat()
        return cls(s.st_mode, s.st_uid, s.st_gid, s.st_atime_ns, s.st_mtime_ns, s.st_size)


@dataclass(frozen=True)
class Step:
    """One change. path: relative to the store for a file inside, else absolute.

    folder: the session folder on the file's file system. zeros: a write of zeros. old_sha256: of the bytes overwritten,
    or of the file moved away; new_sha256: of the bytes written; "" for none. before: the file's state before, None if
    there was no file.
    """

    number: int
    kind: StepKind
    path: str
    folder: str
    reason: str
    offset: int = 0
    length: int = 0
    zeros: bool = False
    old_sha256: str = ""
    new_sha256: str = ""
    before: FileState | None = None

    @property
    def in_place(self) -> bool:
        """The file itself is changed, not replaced or moved."""
        return self.kind in ("write", "truncate")

    def name(self, what: Literal["old", "new", "moved"]) -> str:
        """Name, in the session's folder, of the file with the bytes before, with the new ones, or that was moved."""
        return f"{self.number:06d}.{what}"


@dataclass
class Journal:
    """The steps of a session, and its stage. Use `Journal.load` for a journal on disk."""

    store: Path
    folder: Path
    command: str
    steps: list[Step] = field(default_factory=list)
    #: Directories that the repair creates, parents first; relative like `Step.path`.
    directories: list[str] = field(default_factory=list)
    #: The lock file before the session; None in journals of versions that did not record it.
    lock: LockState | None = None
    #: Messages that the plan gave up; 0 in journals of versions that did not record it.
    lost: int = 0
    #: Where a loaded journal says the store was; "" in journals of versions that did not record it.
    made_for: str = ""

    @property
    def session(self) -> str:
        return self.folder.name

    @property
    def state(self) -> SessionState:
        """The stage, by the marker files in the folder. A purge that was interrupted leaves marks without the seal."""
        if not (self.folder / SEALED).exists():
            return SessionState.UNSEALED
        return next((state for name, state in _MARKS if (self.folder / name).exists()), SessionState.INTERRUPTED)

    def path_of(self, step: Step) -> Path:
        return self.store / step.path

    def folder_of(self, step: Step) -> Path:
        """The session's folder on the file system of a step's file. A journal that --journal named has its own folder
        where it was found: its disk may be mounted elsewhere now.
        """
        named, own = Path(step.folder), self.folder
        moved = named.is_absolute() and self.is_at(named) and not own.is_relative_to(self.store)
        return own if moved else self.store / named

    def is_at(self, named: Path) -> bool:
        """Whether a path names the session's folder, as far as its disk may be mounted elsewhere now."""
        return named.parts[-_PLACE:] == self.folder.parts[-_PLACE:]

    def relative(self, path: Path) -> str:
        """Return a path as the journal records it."""
        return os.fspath(path.relative_to(self.store) if path.is_relative_to(self.store) else path)

    def seal(self, files: Files) -> None:
        """Write the journal and make it count. The files that the steps name must be on disk already."""
        lock = None
        if self.lock is not None:
            content = None if self.lock.content is None else self.lock.content.hex()
            lock = {"content": content, "modified_ns": self.lock.modified_ns}
        text = json.dumps(
            {
                "format": _FORMAT,
                "command": self.command,
                "directories": self.directories,
                "steps": [asdict(step) for step in self.steps],
                "lock": lock,
                "lost": self.lost,
                "store": os.fspath(self.store.resolve()),
            },
            indent=1,
        ).encode("utf-8", "surrogateescape")
        write_new(files, self.folder / JOURNAL, text)
        self._publish(files, SEALED, hashlib.sha256(text).hexdigest().encode())

    def finish(self, files: Files, listing: Listing) -> None:
        """Mark the session as done and record the files of the store as they are now: `undo` compares them."""
        self._publish(files, DONE, json.dumps(listing).encode("utf-8", "surrogateescape"))

    def listing(self) -> Listing:
        """Return the listing that `finish` recorded. Raises Unreadable."""
        path = self.folder / DONE
        with _parsing(path, "the originals are not in this file: move it away, then undo with --force"):
            rows = json.loads(_read(path).decode("utf-8", "surrogateescape"))
            return {name: (size, time) for name, (size, time) in rows.items()}

    def begin_undo(self, files: Files, written: Sequence[str] = ()) -> None:
        """Mark that the session can only be undone from now on. written: paths of files that keep their new time."""
        self._publish(files, UNDOING, json.dumps(written).encode("utf-8", "surrogateescape") if written else b"")

    def written(self) -> frozenset[str]:
        """Return the paths that `begin_undo` was given. Raises Unreadable."""
        path = self.folder / UNDOING
        with _parsing(path):
            return frozenset(json.loads(_read(path).decode("utf-8", "surrogateescape") or "[]"))

    def finish_undo(self, files: Files) -> None:
        self._publish(files, UNDONE, b"")

    def _publish(self, files: Files, name: str, data: bytes) -> None:
        """Write a file atomically: it exists whole or not at all."""
        partial = self.folder / f"{name}.new"
        if partial.exists():
            files.unlink(partial)
        write_new(files, partial, data)
        files.rename(partial, self.folder / name)
        files.sync_directory(self.folder)

    @classmethod
    def load(cls, store: Path, folder: Path) -> Journal:
        """Load a sealed journal from disk. Raises Unreadable if it is damaged."""
        text = _read(folder / JOURNAL)
        seal = _read(folder / SEALED).decode("ascii", "replace")
        if hashlib.sha256(text).hexdigest() != seal:
            raise Unreadable(
                "the journal is damaged",
                path=folder / JOURNAL,
                hint="this session cannot be undone: move its folder away to continue",
            )
        with _parsing(folder / JOURNAL):
            fields: dict[str, Any] = json.loads(text.decode("utf-8", "surrogateescape"))
            steps = [_step(row, folder.name) for row in fields["steps"]]
            command, directories = str(fields["command"]), fields["directories"]
            lock, lost = _lock(fields.get("lock")), fields.get("lost", 0)
            made_for = fields.get("store", "")
            paths = (*directories, made_for)
            if not isinstance(lost, int) or not all(isinstance(path, str) and "\0" not in path for path in paths):
                raise ValueError("no number of lost messages, or a directory without a name")
        return cls(store, folder, command, steps, directories, lock, lost, made_for)


@contextmanager
def _parsing(path: Path, hint: str = "") -> Iterator[None]:
    """Turn errors about malformed content into Unreadable: anybody may have written a file with a matching checksum."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Unreadable(f"not a journal ({error!r})", path=path, hint=hint) from error


def _lock(row: dict[str, Any] | None) -> LockState | None:
    """Parse a lock row that `seal` wrote. Raises ValueError, KeyError, TypeError for anything else."""
    if row is None:
        return None
    content, modified_ns = row["content"], row["modified_ns"]
    if not isinstance(modified_ns, int) or abs(modified_ns) >= _NUMBERS_END:
        raise ValueError("the time of the lock file")
    return LockState(None if content is None else bytes.fromhex(content), modified_ns)


def _step(row: dict[str, Any], session: str) -> Step:
    """Parse a step that `seal` wrote. Raises ValueError, KeyError, TypeError for anything else."""
    before = row.pop("before")
    step = Step(**row, before=FileState(**before) if before else None)
    state = asdict(step.before).values() if step.before else ()
    if not all(isinstance(n, int) and abs(n) < _NUMBERS_END for n in state):
        raise ValueError(f"a number of a file of step {step.number}")
    numbers = (step.number, step.offset, step.length)
    if not all(isinstance(n, int) and 0 <= n < _NUMBERS_END for n in numbers):
        raise ValueError(f"a number of step {step.number}")
    texts = (step.path, step.folder, step.reason, step.old_sha256, step.new_sha256)
    if not all(isinstance(text, str) and "\0" not in text for text in texts):
        raise ValueError(f"a text of step {step.number}")
    # `purge` removes that folder: only a session's folder is allowed
    if Path(step.folder).parts[-2:] != (SESSIONS, session) or step.kind not in get_args(StepKind):
        raise ValueError(f"step {step.number}")
    return step


def ended_by(command: str) -> str:
    """Return the command that continues what `command` has begun."""
    return command if command in MOVES.values() else RECOVER


def barriers(layout: Layout) -> list[Path]:
    return [
        path
        for directory in layout.commit_log_directories
        if directory.is_dir()
        for path in sorted(directory.iterdir())
        if path.name.startswith(BARRIER_PREFIX)
    ]


def barriers_left(layout: Layout) -> list[Path]:
    """Return the start barriers but those of the holder of the lock, who removes its own. Raises Unreadable."""
    there = barriers(layout)
    at_work = f"{BARRIER_PREFIX}{holder(layout.lock) if there else None}-"
    return [path for path in there if path.exists() and not path.name.startswith(at_work)]


def unfinished(store: Path, journal: Path) -> Journal | None:
    """Return the session of `apply` or `undo` that was interrupted; None without one. Raises Unreadable."""
    for folder in sessions(journal):
        if Journal(store, folder, "").state.half_way:
            return Journal.load(store, folder)
    return None


def barrier_alone(layout: Layout) -> Journal | None:
    """Return the finished session of which only the start barrier is left; None without one. Raises Unreadable."""
    left, folders = barriers_left(layout), list(sessions(layout.journal))
    if not left or not folders or Journal(layout.root, folders[-1], "").state is not SessionState.APPLIED:
        return None
    made_ns = min(path.stat().st_mtime_ns for path in left)
    is_its_own = made_ns <= (folders[-1] / DONE).stat().st_mtime_ns  # else of a process killed early
    return Journal.load(layout.root, folders[-1]) if is_its_own else None


def carried_out(interrupted: Journal | None, plan: Plan | None = None) -> Sequence[Edit]:
    """Return the changes of the store that come next: of an interrupted session, none to undo it; else of the plan."""
    if interrupted is None:
        return plan.edits if plan is not None else ()
    steps = [] if interrupted.state is SessionState.UNDO_INTERRUPTED else interrupted.steps
    return [Edit(s.kind, str(interrupted.path_of(s)), s.reason, (), s.offset, s.length) for s in steps]


class InterruptedChange(NamedTuple):
    """A change of the store that is not finished. session: "" if only its start barrier is known. undoing: an undo was
    interrupted. journal: the directory to name with --journal, if the session is kept elsewhere than looked for.
    ended_by: the command that continues it.
    """

    session: str
    undoing: bool = False
    journal: Path | None = None
    ended_by: str = RECOVER

    @classmethod
    def of(cls, journal: Journal) -> InterruptedChange:
        return cls(journal.session, journal.state is SessionState.UNDO_INTERRUPTED, ended_by=ended_by(journal.command))

    def __str__(self) -> str:
        if not self.session:
            return "a start barrier is left over: it keeps brokers from starting"
        return f"{'the undo of ' if self.undoing else ''}session {self.session} was interrupted"

    def goes_on_with(self, command: str) -> bool:
        """Whether `command` finishes the change. A start barrier of which nothing else is known blocks no command."""
        anybody = not self.session and self.ended_by == RECOVER
        return not self.undoing and (anybody or self.ended_by == ended_by(command))

    @property
    def _words(self) -> list[str]:
        """Name and options of the command that finishes the change."""
        return ["undo"] if self.undoing else [*self.ended_by.split(), "--apply"]

    @property
    def cure(self) -> str | None:
        """The finishing command in the form of the catalogue; None if it is the catalogue's own one."""
        name, *options = self._words
        if self.journal is not None:
            options += ["--journal", os.fspath(self.journal)]
        is_usual = [name, *options] == [RECOVER, "--apply"]
        return None if is_usual else f"mqstore {name} {{store}} {in_catalogue(options)}".rstrip()

    def command(self, layout: Layout) -> str:
        elsewhere = () if self.journal is None else ("--journal", os.fspath(self.journal))
        return proposed(layout, *self._words, *elsewhere)


class HalfStore(NamedTuple):
    """A store that is incomplete. text: the reason. cure: the remedy, in the form of catalogue commands."""

    text: str
    cure: str

    def __str__(self) -> str:
        return self.text

    def command(self, layout: Layout) -> str:
        return str(by_hand(self.cure, layout.root))


def left_over(layout: Layout) -> InterruptedChange | HalfStore | None:
    """Return what must be finished first; None if there is nothing. Raises Unreadable."""
    if (half := _half_made(layout.root)) is not None:
        return half
    found = unfinished(layout.root, layout.journal)
    if found is not None:
        return InterruptedChange.of(found)
    there = barriers_left(layout)
    for barrier in there:
        with suppress(StoreError):  # the barrier has just been removed
            if elsewhere := journal_elsewhere(layout, barrier):
                return _interrupted_in(elsewhere)
    if not there:
        return None
    over = barrier_alone(layout)
    return InterruptedChange("", ended_by=ended_by(over.command if over is not None else RECOVER))


def _half_made(root: Path) -> HalfStore | None:
    maker = creator_of(root) if os.path.lexists(mark_of(root)) else os.getpid()
    if maker is None:
        return HalfStore(HALF_MADE, done_with_half(root))
    if maker != os.getpid():
        return HalfStore(f"half made: process {maker} is making this store", "mqstore verify {store}")
    if (stage := unpublished(root)) is None:
        return None
    again = ""
    with suppress(StoreError, RecursionError):  # anybody may have written the manifest
        again = pipeline_again(stage.manifest())
    who = " ".join(again.split()[:3]) or "what wrote it"
    rest = stage.folder.relative_to(stage.target)
    text = f"{who} was interrupted while it published this store: the rest is in {rest}"
    return HalfStore(text, again or done_with_half(root))


def journal_elsewhere(layout: Layout, barrier: Path) -> Path | None:
    """Return the journal that a start barrier names, None if it is the layout's own. Raises Missing, Unreadable."""
    named = read_note(barrier)
    if not named or layout.journal.resolve() == Path(os.fsdecode(named)):
        return None
    return Path(os.fsdecode(named))


def journal_option(journal: Path) -> Path:
    """Return the value of --journal for a journal directory (`Layout.keep_journal_in`)."""
    return journal.parent.parent


def _interrupted_in(journal: Path) -> InterruptedChange:
    """Describe the interrupted session in a journal that a barrier names: anybody may have written both."""
    with suppress(StoreError):
        for folder in sessions(journal):
            found = Journal(journal, folder, "")
            undoing = found.state is SessionState.UNDO_INTERRUPTED
            if found.state.half_way:
                with suppress(StoreError):  # what has begun the session says which command continues it
                    found = Journal.load(journal, folder)
                return InterruptedChange(folder.name, undoing, journal_option(journal), ended_by(found.command))
    return InterruptedChange("", journal=journal_option(journal))


_MARKS = ((UNDONE, SessionState.UNDONE), (UNDOING, SessionState.UNDO_INTERRUPTED), (DONE, SessionState.APPLIED))
"""Marker files of a sealed session and stages, the last stage first."""


def _read(path: Path) -> bytes:
    return read_regular(path, LARGEST_JOURNAL_BYTES)


class Fingerprint(NamedTuple):
    """All files of a store, by path: device, inode, length, modification and change time (ns)."""

    files: dict[str, tuple[int, ...]]

    @classmethod
    def of(cls, layout: Layout) -> Fingerprint | None:
        """Take the fingerprint of a store before a plan is made; None if it could not vouch for the plan later."""
        try:
            if holder(layout.lock) is not None:
                return None
            found = cls.now(layout)
        except StoreError:  # making the plan raises the same error and reports it
            return None
        if found is None:
            return None
        newest = max((max(row[-_TIME_FIELDS:]) for row in found.files.values()), default=0)
        return found if newest < time.time_ns() - _SETTLED_NS else None

    @classmethod
    def now(cls, layout: Layout) -> Fingerprint | None:
        """Take the fingerprint of a store even if it was changed a moment ago; None if a file cannot be read."""
        try:
            return cls(dict(_file_rows(layout)))
        except (StoreError, OSError):
            return None

    def still_holds(self, layout: Layout, lock_was: LockState | None = None) -> bool:
        """Whether nothing has changed. lock_was: the lock file before the caller took the lock and could write it."""
        try:
            before, now = dict(self.files), dict(_file_rows(layout))
        except OSError:
            return False
        if lock_was is not None:
            path = os.fspath(layout.lock)
            now.pop(path, None)
            modified_ns = before.pop(path)[-_TIME_FIELDS] if path in before else None
            if modified_ns != (None if lock_was.content is None else lock_was.modified_ns):
                return False
        return before == now


def _file_rows(layout: Layout) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the files below the root and in log directories elsewhere, except barriers and sessions. Raises OSError.

    Links lead to other disks of the store; a link that is no part of the store may lead anywhere and is left out.
    """
    foreign = {identity(Path(one.path).lstat()) for one in layout.foreign}
    parts = (layout.root, *layout.commit_log_directories, layout.config, layout.consume_queue)
    waiting, seen = [str(path) for path in parts if path.is_dir()], set[tuple[int, int]]()
    while waiting:
        directory = waiting.pop()
        key = identity(os.stat(directory))  # noqa: PTH116
        if key in seen:
            continue
        seen.add(key)
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_symlink() and identity(entry.stat(follow_symlinks=False)) in foreign:
                    continue
                if entry.is_dir():
                    waiting += [entry.path] if entry.name != layout.journal.name else []
                elif not entry.name.startswith(BARRIER_PREFIX):
                    link = entry.is_symlink() and not Path(entry.path).exists()
                    own = entry.stat(follow_symlinks=not link)
                    row = (own.st_dev, own.st_ino, own.st_size, own.st_mtime_ns, own.st_ctime_ns)
                    yield entry.path, row
