"""The only code of the project that changes the file system.

All writing goes through a `Files` object. Tests replace it with one that counts steps, fails at any step or ends the
process there, so that every crash and every full disk can be tried. The only state of `Files` is where it may write
(`confine`), so one object serves any number of stores and threads.

A store may come from anybody. A link in it that leads elsewhere, or a journal that names another place, must not turn
the repair of a store into a change of something else. Its directories may be links with `follow_links`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

from ...formats.config import BACKUP
from ..errors import NoSpace, Refused, StoreError, broken_link, from_os_error, os_errors
from .byte_reader import Closing, check_regular, read, read_at
from .compressed import read_regular
from .file_queue import LARGEST_FILE_BYTES, links_below
from .layout import BATCH_CONSUME_QUEUE, COMMIT_LOG, CONSUME_QUEUE, DLEDGER_PREFIX, JOURNAL, Layout, refuse_compressed

if TYPE_CHECKING:
    from typing_extensions import Buffer


_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_NOT_SUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)
"""Error numbers of a kernel or file system that does not support the call, such as NFS."""


def exchange(one: Path, other: Path) -> bool:
    """Exchange two paths atomically; False if the system cannot. Raises OSError."""
    import ctypes  # most writes do not need it

    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:  # the C library lacks the function
        return False
    if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    error = ctypes.get_errno()
    if error in _NOT_SUPPORTED:
        return False
    raise OSError(error, os.strerror(error), os.fspath(other))


_START_WRITING = 2


@cache
def _sync_file_range() -> Callable[..., int] | None:
    """sync_file_range(2) of the C library, None if it has none."""
    import ctypes

    try:
        call = ctypes.CDLL(None).sync_file_range
    except (AttributeError, OSError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return call


FOLLOW_LINKS = "--follow-links"
"""The option that allows directories of a store to be links elsewhere."""
_FILE_BITS, _MODE_BITS, _OWNER_BITS, _OPEN_ATTEMPTS = 0o666, 0o7777, 0o700, 8


class Files:
    """Creates, writes, flushes, renames and removes files and directories.

    Every method passes each change to `step` before it makes it, and raises an error with the path if it is refused.
    """

    _roots: tuple[str, ...] = ()
    _links: tuple[tuple[str, str], ...] | None = None

    def confine(self, roots: Iterable[Path], links: Iterable[Path] | None = None) -> None:
        """Allow changes only inside these directories and those of earlier calls. links: directories that are links:
        changes are allowed there, too, but only through the link. None: the user allows no links.
        """
        self._roots += tuple(os.path.realpath(root) for root in roots)
        if links is not None:
            self._links = tuple((f"{_absolute(link)}/", f"{os.path.realpath(link)}/") for link in links)

    def is_inside(self, path: Path) -> bool:
        """Whether `path`, with all links resolved, lies where changes are allowed."""
        real = os.path.realpath(path)
        if not self._roots or any(real == root or real.startswith(root.rstrip("/") + "/") for root in self._roots):
            return True
        named = f"{_absolute(path)}/"
        return any(named.startswith(link) and f"{real}/".startswith(target) for link, target in self._links or ())

    def check_inside(self, path: Path, *, part: bool = False) -> None:
        """Raise Refused for a path elsewhere or with a NUL, Missing for a broken link. part: it may be a link."""
        inside = "\0" not in str(path) and self.is_inside(path)
        if (part or not inside) and (broken := broken_link(path)) is not None:
            raise broken
        if not inside:
            hint = f"{FOLLOW_LINKS} allows links of the store's own directories"
            if not part and "\0" not in str(path) and self.is_inside(path.parent):
                hint = "only directories of a store may be links: replace the link with the file itself"
            elif self._links is not None:
                hint = "replace the link with the directory itself, or mount the directory there (mount --bind)"
            raise Refused(f"leads out of the store, to {os.path.realpath(path)}", path=path, hint=hint)

    def step(self, change: str, path: Path, size_bytes: int = 0) -> None:
        """Called before every change. Tests override it to raise an error in place of the change. change: create open
        write truncate sync sync_directory rename exchange unlink make_directory remove_directory set_times. size_bytes:
        bytes of a write, or the new length of a file.
        """

    def write_at(self, descriptor: int, data: memoryview, offset: int) -> int:
        """One write call, which may write less than all of `data`. Tests override it to tear a write."""
        return os.pwrite(descriptor, data, offset)

    def open(self, path: Path) -> OpenFile:
        """Open an existing file for reading and writing. Raises Missing, Unreadable, Refused."""
        self.check_inside(path)
        with os_errors(path, "cannot write"):
            check_regular(path.stat(), path)
            self.step("open", path)
            return OpenFile(self, path, os.open(path, os.O_RDWR | os.O_CLOEXEC))

    def create(self, path: Path, *, like: Path | None = None) -> OpenFile:
        """Create an empty file, open for reading and writing; it must not exist.

        It gets mode and owner of `like`, by default of its directory, so that the broker can still write to a store
        that root has repaired. Raises NoSpace, Unreadable, Missing, Refused.
        """
        self.check_inside(path.parent)
        with os_errors(path, "cannot create"):
            self.step("create", path)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            model = (like or path.parent).stat()
            descriptor = os.open(path, flags, model.st_mode & _FILE_BITS)
            file = OpenFile(self, path, descriptor)
            try:
                os.fchmod(descriptor, model.st_mode & _FILE_BITS)
                _copy_owner(descriptor, model)
            except BaseException:
                file.close()
                raise
            return file

    def open_or_create(self, path: Path) -> OpenFile:
        """Open a file, or create it if there is none; if another process does meanwhile, try again. Raises as both."""
        for _ in range(_OPEN_ATTEMPTS):
            try:
                return self.open(path) if path.exists() else self.create(path)
            except StoreError as error:
                if not isinstance(error.__cause__, FileExistsError | FileNotFoundError):
                    raise
                last_error = error
        raise last_error

    def make_directory(self, path: Path, *, like: Path | None = None) -> None:
        """Create a directory and missing parents, each with mode and owner of its parent or `like`, and flush them."""
        for above in self._make_directory(path, like):
            self.sync_directory(above)

    def make_directories(self, paths: Iterable[Path]) -> None:
        """Create many directories, as `make_directory`, parents first. All are flushed at the end, which is as fast as
        one flush, and the parents of existing ones, too: whoever made those may have been killed before the flush.
        """
        changed = dict[Path, None]()
        for path in paths:
            changed |= dict.fromkeys((*self._make_directory(path), path.parent))
        for above in changed:
            self.sync_directory(above)

    def _make_directory(self, path: Path, like: Path | None = None) -> Iterator[Path]:
        """Create a directory and its missing parents; yield the parent of each new directory."""
        missing = [path, *path.parents]
        missing = missing[: next(i for i, p in enumerate(missing) if p.exists())]
        self.check_inside(path)
        for directory in reversed(missing):
            with os_errors(directory, "cannot create"):
                self.step("make_directory", directory)
                given = like if directory == path else None
                model = (given or directory.parent).stat()
                directory.mkdir(mode=model.st_mode & _MODE_BITS, exist_ok=True)
                if given is not None:  # whatever the umask is
                    directory.chmod(model.st_mode & _MODE_BITS | _OWNER_BITS)
                _copy_owner(directory, model)
            yield directory.parent

    def sync_directory(self, path: Path) -> None:
        """Flush the names in a directory to the disk."""
        with os_errors(path, "cannot flush"):
            self.step("sync_directory", path)
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Rename within one file system; a file at `target` is replaced."""
        self.check_inside(source.parent)
        self.check_inside(target.parent)
        with os_errors(source, f"cannot rename to {target}"):
            self.step("rename", source)
            source.rename(target)

    def exchange(self, one: Path, other: Path) -> bool:
        """Exchange two paths of one file system atomically; False if the file system cannot."""
        self.check_inside(one.parent)
        self.check_inside(other.parent)
        with os_errors(other, f"cannot change places with {one}"):
            self.step("exchange", other)
            return exchange(one, other)

    def unlink(self, path: Path) -> None:
        """Remove a file. Raises Missing if there is none."""
        self.check_inside(path.parent)
        with os_errors(path, "cannot remove"):
            self.step("unlink", path)
            path.unlink()

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        self.check_inside(path.parent)
        with os_errors(path, "cannot remove"):
            self.step("remove_directory", path)
            path.rmdir()

    def set_times(self, path: Path, accessed_ns: int, modified_ns: int) -> None:
        """Set the times of a file or directory, in ns since 1970 (a broker's expiry goes by them)."""
        self.check_inside(path)
        with os_errors(path, "cannot set the times"):
            self.step("set_times", path)
            os.utime(path, ns=(accessed_ns, modified_ns))


class OpenFile(Closing):
    """One file open for reading and writing; a context manager that closes it. descriptor: -1 if closed."""

    def __init__(self, files: Files, path: Path, descriptor: int) -> None:
        self.path = path
        self._files = files
        self.descriptor = descriptor

    @property
    def size(self) -> int:
        """Length in bytes."""
        with os_errors(self.path, "cannot read"):
            return os.fstat(self.descriptor).st_size

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes at `offset`; fewer only at the end of the file."""
        return read(self.descriptor, size, offset, os.fspath(self.path))

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Write all of `data` at `offset`. Raises NoSpace, Unreadable; part of it may be written then."""
        rest = memoryview(data).cast("B")
        with os_errors(self.path, "cannot write", offset):
            self._files.step("write", self.path, len(rest))
            while rest:
                written = self._files.write_at(self.descriptor, rest, offset)
                rest = rest[written:]
                offset += written

    def pwrite_all(self, pieces: Iterable[Buffer], offset: int = 0) -> None:
        """Write the pieces one after the other from `offset` on. Raises as `pwrite`."""
        for data in pieces:
            self.pwrite(data, offset)
            offset += memoryview(data).nbytes

    def truncate(self, size: int) -> None:
        """Make the file `size` bytes long; added bytes read as zeros and take no space."""
        with os_errors(self.path, "cannot resize"):
            self._files.step("truncate", self.path, size)
            os.ftruncate(self.descriptor, size)

    def sync(self) -> None:
        """Flush the content to the disk (fdatasync: not the times)."""
        with os_errors(self.path, "cannot flush"):
            self._files.step("sync", self.path)
            os.fdatasync(self.descriptor)

    def start_writing(self) -> None:
        """Tell the system to begin flushing the content, if it can, so that `sync` waits less."""
        if (call := _sync_file_range()) is not None:
            call(self.descriptor, 0, 0, _START_WRITING)

    def close(self) -> None:
        """Close the file without flushing it; closing twice is allowed."""
        if self.descriptor >= 0:
            descriptor, self.descriptor = self.descriptor, -1
            os.close(descriptor)


def _copy_owner(target: int | Path, model: os.stat_result) -> None:
    """Give a new file or directory the owner of its model; only root can, and only root has to."""
    if os.geteuid() == 0:
        os.chown(target, model.st_uid, model.st_gid)


def write_new(files: Files, path: Path, data: Buffer, *, like: Path | None = None) -> None:
    """Create `path` with `data`; flush the file and its name. like: as for `create`."""
    with files.create(path, like=like) as file:
        if len(memoryview(data)):
            file.pwrite(data, 0)
        file.sync()
    files.sync_directory(path.parent)


_NOTE_BYTES, _NAME_BYTES = 4096, 255  # the longest name of a file
_NOTE_MARK = "="


def write_note(files: Files, path: Path, text: bytes, length: int | None = None) -> None:
    """Create the file at `path` with the content `text`; flush the file and its name.

    length: of the file, filled with zeros behind the text; None: as long as the text. On a full disk the text becomes a
    suffix of the file's name. Raises NoSpace, Unreadable; then the file does not exist.
    """
    try:
        _create_note(files, path, text, length)
    except NoSpace:
        name = f"{path.name}{_NOTE_MARK}{quote_from_bytes(text, safe='')}"
        if not text or len(name) > _NAME_BYTES:
            raise
        _create_note(files, path.with_name(name), b"", length)


def _create_note(files: Files, path: Path, text: bytes, length: int | None) -> None:
    try:
        with files.create(path) as file:
            if text:
                file.pwrite(text, 0)
            if length is not None:
                file.truncate(length)
            file.sync()
        files.sync_directory(path.parent)
    except BaseException:
        if path.exists():
            files.unlink(path)
            files.sync_directory(path.parent)
        raise


def find_note(path: Path) -> Path | None:
    """The file that `write_note` created for `path`, None if there is none."""
    if path.exists():
        return path
    named = f"{path.name}{_NOTE_MARK}"
    others = path.parent.iterdir() if path.parent.is_dir() else ()
    return next((other for other in others if other.name.startswith(named)), None)


def read_note(path: Path) -> bytes:
    """The text of a note, b"" if it has none. path: from `find_note`. Raises Missing, Unreadable."""
    text = read_at(path, _NOTE_BYTES, 0).partition(b"\0")[0]
    return text or unquote_to_bytes(path.name.partition(_NOTE_MARK)[2])


def remove_tree(folder: Path, files: Files, last: str = JOURNAL) -> None:
    """Remove a folder, its content first, `last` last; links are not followed. Raises Refused if it is a link."""
    refuse_links([folder])
    empty(folder, files, last)
    files.remove_directory(folder)


def refuse_links(paths: Iterable[Path]) -> None:
    """Raise Refused if a link stands in place of mqstore's own folder: its target belongs to somebody else."""
    for path in paths:
        if path.is_symlink():
            hint = "remove the link, or name another directory"
            raise Refused("a link in place of mqstore's own directory", path=path, hint=hint)


def empty(folder: Path, files: Files, last: str = JOURNAL) -> None:
    """Remove the content of a folder. last: name of the entry that is removed last."""
    with os_errors(folder, "cannot remove"):
        inside = sorted(folder.iterdir(), key=lambda path: (path.name == last, path))
    for path in inside:
        if path.is_dir() and not path.is_symlink():
            remove_tree(path, files)
        else:
            files.unlink(path)


def confine(files: Files, layout: Layout, *, follow_links: bool = False) -> None:
    """Let `files` change nothing outside this store.

    For a log directory on another disk, the session folder beside it is allowed, too. Raises Refused if a part of the
    store lies elsewhere, Unsupported if files of the store are compressed; nothing has been written then.
    """
    refuse_compressed(layout)
    other = None if follow_links else layout.log_of_another
    if other is not None:
        hint = f"name its own: --set storePathCommitLog={layout.root / COMMIT_LOG}; {FOLLOW_LINKS} changes that log"
        raise Refused(f"the configuration gives {layout.root} the commit log of another store", path=other, hint=hint)
    links = linked_queues(layout) if follow_links else None
    files.confine(_roots(layout, links), links)
    for part in _parts(layout):
        files.check_inside(part, part=True)
    for file in _files(layout):
        files.check_inside(file)


def confined(layout: Layout, *, follow_links: bool = False) -> Files:
    """A `Files` that changes nothing outside this store. Raises as `confine`."""
    files = Files()
    confine(files, layout, follow_links=follow_links)
    return files


SESSION_JOURNAL, JOURNAL_IS_IN, UNDONE = "journal.json", "journal-is-in", "undone"
"""Names in a session's folder: its journal, a note of the folder that has it instead, the mark of a session undone."""
LARGEST_JOURNAL_BYTES = 1 << 28
_SESSION = re.compile(r"\d{8}T\d{6}\.\d{6}Zx*")
_UNREADABLE = (OSError, StoreError, ValueError, LookupError, TypeError)


def sessions(journal: Path) -> Iterator[Path]:
    """Yield the session folders of a store, oldest first; other names are skipped. Raises Unreadable."""
    try:
        names = sorted(os.listdir(journal))  # noqa: PTH208
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise from_os_error(error, journal) from error
    yield from (journal / name for name in names if _SESSION.fullmatch(name) and (journal / name).is_dir())


def noted_journal(folder: Path) -> Path | None:
    """The folder with the journal, by the note in a further folder of its session. Raises Missing, Unreadable."""
    note = find_note(folder / JOURNAL_IS_IN)
    return Path(os.fsdecode(text)) if note is not None and (text := read_note(note)) else None


def has_log_changed_by_session(layout: Layout, *others: str) -> bool:
    """Whether a session that was not undone, or cannot be read, has changed log, queues (a path outside the root is one
    of theirs) or `others` of the root. These may lack records of which nothing else tells; not where only zeros went.
    """
    of_log = (COMMIT_LOG, CONSUME_QUEUE, BATCH_CONSUME_QUEUE, DLEDGER_PREFIX, os.sep)
    try:
        tops = [(Path(step["path"]).parts[0], step) for step in _changes(layout)]
        taken = (_taken(top, step) for top, step in tops if top.startswith(of_log))
        return any(top in others for top, _ in tops) or not _are_zeros(sorted(taken))
    except _UNREADABLE:
        return True


def _taken(top: str, step: Mapping[str, Any]) -> tuple[int, str]:
    """How many bytes a change took, and their SHA-256; (-1, "") of new records, which may stand for lost ones."""
    if step["before"] is None or (step["kind"] in ("write", "create") and not top.startswith(CONSUME_QUEUE)):
        return -1, ""
    behind: int = step["before"]["size"] - step["offset"]
    return min(step["length"], behind) if step["kind"] == "write" else behind, step["old_sha256"]


def _are_zeros(taken: Iterable[tuple[int, str]]) -> bool:
    """Whether each SHA-256 is that of so many zeros. taken: smallest first; zeros are hashed once for all of them."""
    total, at = hashlib.sha256(), 0
    for size, sha256 in taken:
        for begin in range(at, min(size, LARGEST_FILE_BYTES), 1 << 20):
            total.update(bytes(min(1 << 20, size - begin)))
        if size > LARGEST_FILE_BYTES or total.hexdigest() != sha256:
            return False
        at = size
    return True


def is_of_session(layout: Layout, name: str) -> bool:
    """Whether a session that was not undone has written the file of this name below the root."""
    try:
        return any(step["path"] == name for step in _changes(layout))
    except _UNREADABLE:
        return False


def _changes(layout: Layout) -> Iterator[Mapping[str, Any]]:
    """Yield the steps, as the journals have them, of sessions that were not undone. Raises `_UNREADABLE`."""
    journals = (layout.journal, layout.root / JOURNAL)  # with --journal two, and the store's own has notes
    every = {one: noted_journal(one) or one for journal in journals for one in sessions(journal)}
    for folder in {of for one, of in every.items() if not ((one / UNDONE).exists() or (of / UNDONE).exists())}:
        yield from json.loads(read_regular(folder / SESSION_JOURNAL, LARGEST_JOURNAL_BYTES))["steps"]


def is_linked(layout: Layout) -> bool:
    """Whether `confine` accepts this store only with `follow_links`: directories of it are links elsewhere."""
    files = Files()
    files.confine(_roots(layout, None))
    return layout.log_of_another is None and not all(map(files.is_inside, (*_parts(layout), *linked_queues(layout))))


def reach(layout: Layout) -> Files:
    """A `Files` that can change all that `follow_links` allows; `confined` checks the parts of the store, too."""
    files, links = Files(), linked_queues(layout)
    files.confine(_roots(layout, links), links)
    return files


def linked_queues(layout: Layout) -> list[Path]:
    """The directories of topics and queues that are links."""
    parents = (layout.consume_queue, layout.batch_consume_queue, layout.consume_queue_ext)
    return [link for parent in parents for link in map(Path, links_below(parent)) if link.is_dir()]


def _roots(layout: Layout, links: Sequence[Path] | None) -> Iterator[Path]:
    """Yield the directories that changes of a store are confined to. links: as of `Files.confine`."""
    root = _absolute(layout.root)
    yield root
    parts = layout.commit_log_directories if links is None else _parts(layout)
    for directory in parts:
        if links is not None or not _absolute(directory).is_relative_to(root):
            yield from (directory, directory.resolve().parent / JOURNAL)
    yield from (link.resolve().parent / JOURNAL for link in links or ())
    if layout.journal_place is not None:
        yield layout.journal_place


def _absolute(path: Path) -> Path:
    """The absolute path without `..`; links are not resolved."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def _parts(layout: Layout) -> Iterator[Path]:
    """Yield the directories of a store that may be links."""
    yield from layout.commit_log_directories
    yield from (layout.consume_queue, layout.batch_consume_queue, layout.consume_queue_ext)
    yield from (layout.index, layout.timer_log, layout.config)


def _files(layout: Layout) -> Iterator[Path]:
    from ...formats.topics import FILE  # imported late: many commands never get here

    yield from (layout.abort, layout.lock, layout.checkpoint, layout.timer_wheel, layout.journal)
    yield from (layout.config / f"{FILE}{suffix}" for suffix in ("", BACKUP, ".tmp"))


Content = bytes | memoryview
"""Bytes to write; content taken from another store is mapped, not loaded."""

EditKind = Literal["write", "create", "truncate", "move", "remove", "rebuild"]


class Phase(IntEnum):
    """When an edit is made; edits of one phase keep the order of the plan."""

    PAGE = 0
    PARTS = 1
    LOG = 2
    CHECKPOINT = 3
    ABORT = 4


class Edit(NamedTuple):
    """One change of one file, as a plan has it; `session` carries it out.

    kind: `write` (bytes at `offset`; `data` None: zeros), `create` (a file of `length` bytes that holds `pieces`),
    `truncate` (to `length` bytes), `move` (the file goes to the session's folder), `remove` (the same, for a file that
    a broker removes too), `rebuild` (build index files from the log; `offset`: log position where indexing begins).
    path: absolute. codes: of the catalogue. phase: after all edits of earlier phases. content_id: identifies the
    content if building it twice gives different bytes, as for a RocksDB.
    """

    kind: EditKind
    path: str
    reason: str
    codes: tuple[str, ...] = ()
    offset: int = 0
    length: int = 0
    data: Content | None = None
    pieces: tuple[tuple[int, Content], ...] = ()
    phase: Phase = Phase.PARTS
    content_id: bytes = b""

    @classmethod
    def create(
        cls, path: Path | str, data: Content, reason: str, codes: tuple[str, ...] = (), size: int | None = None
    ) -> Edit:
        """The edit that makes a file of this content. size: bytes of the file, if zeros follow the content."""
        return cls("create", str(path), reason, codes, length=size or len(data), pieces=((0, data),))

    def to_json(self) -> dict[str, Any]:
        kind = "create" if self.kind == "rebuild" else self.kind
        return {
            "path": self.path,
            "kind": kind,
            "offset": self.offset,
            "length": self.length,
            "reason": self.reason,
            "codes": list(self.codes),
        }
