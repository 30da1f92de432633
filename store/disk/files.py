"""The only code of the project that changes the file system.

Everything that writes does it through one `Files` object. Tests put another in its place that counts the steps, fails
at any of them or stops for good there, so that every crash and every full disk can be tried. `Files` holds nothing but
where it may write (`confine`): one object serves any number of stores and threads.

A store can come from anybody. A link in it that leads elsewhere, or a journal that names another
place, must not turn the repair of a store into a change of something else. The store's own
directories may be links to other disks where the user says so (`follow_links`).

`Edit` is the step of a plan as data: what is changed in which file, and why; `session` carries it out.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

from ..errors import NoSpace, Refused, StoreError, from_os_error, os_errors
from .byte_reader import Closing, check_regular, read, read_at
from .compressed import read_regular
from .file_queue import start_of
from .layout import BATCH_CONSUME_QUEUE, COMMIT_LOG, CONSUME_QUEUE, DLEDGER_PREFIX, JOURNAL, Layout, refuse_compressed

if TYPE_CHECKING:
    from typing_extensions import Buffer


_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_CANNOT = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)
"""What a kernel or a file system says that does not know how: NFS, say."""


def exchange(one: Path, other: Path) -> bool:
    """Let two paths change places; False where the system cannot do that. Raises OSError."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:  # a C library without it
        return False
    if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    error = ctypes.get_errno()
    if error in _CANNOT:
        return False
    raise OSError(error, os.strerror(error), os.fspath(other))


_START_WRITING = 2


@cache
def _sync_file_range() -> Callable[..., int] | None:
    """The call of that name in the C library, for a whole file; None without one."""
    try:
        call = ctypes.CDLL(None).sync_file_range
    except (AttributeError, OSError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return call


FOLLOW_LINKS = "--follow-links"
"""The option that lets directories of a store be links elsewhere."""
_FILE_BITS = 0o666
_MODE_BITS = 0o7777
_MOST_LOOKS = 8


class Files:
    """Creates, writes, flushes, renames and removes files and directories.

    Every method makes one change, names it to `step` first, and raises an error of
    `store.errors` with the path where the system refuses it.
    """

    _roots: tuple[str, ...] = ()

    def confine(self, roots: Iterable[Path]) -> None:
        """From now on change nothing outside these directories, and those named before."""
        self._roots += tuple(os.path.realpath(root) for root in roots)

    def is_inside(self, path: Path) -> bool:
        """Whether `path`, with all links followed, lies where changes are allowed."""
        real = os.path.realpath(path)
        return not self._roots or any(real == root or real.startswith(root.rstrip("/") + "/") for root in self._roots)

    def check_inside(self, path: Path, *, part: bool = False) -> None:
        """Raises Refused for a path that leads elsewhere. A name with NUL leads nowhere. part: one of the directories
        that may be links.
        """
        if "\0" in str(path) or not self.is_inside(path):
            hint = f"{FOLLOW_LINKS} allows links of the store's own directories"
            if not part and "\0" not in str(path) and self.is_inside(path.parent):
                hint = "only directories of a store may be links: replace the link with the file itself"
            raise Refused(f"leads out of the store, to {os.path.realpath(path)}", path=path, hint=hint)

    def step(self, change: str, path: Path, size_bytes: int = 0) -> None:
        """Called before every change. Tests override it: what it raises happens instead.

        change: create open write truncate sync sync_directory rename exchange unlink make_directory
        remove_directory set_times. size_bytes: of a write, or the length that a file gets.
        """

    def write_at(self, descriptor: int, data: memoryview, offset: int) -> int:
        """One write to the system, which may be short. Tests override it to tear a write."""
        return os.pwrite(descriptor, data, offset)

    def open(self, path: Path) -> OpenFile:
        """Open a file that exists for reading and writing. Raises Missing, Unreadable."""
        self.check_inside(path)
        with os_errors(path, "cannot write"):
            check_regular(path.stat(), path)
            self.step("open", path)
            return OpenFile(self, path, os.open(path, os.O_RDWR | os.O_CLOEXEC))

    def create(self, path: Path, *, like: Path | None = None) -> OpenFile:
        """Create an empty file, open for reading and writing; it must not exist.

        It takes mode and owner of `like`, by default of its directory: a store that root repairs
        stays one that its broker can write. Raises NoSpace, Unreadable, Missing.
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
                _give(descriptor, model)
            except BaseException:
                file.close()
                raise
            return file

    def open_or_create(self, path: Path) -> OpenFile:
        """Open a file, create it where it does not exist. Raises as `open` and `create`.

        Another process may create or remove it between the look and the call: it is looked at again.
        """
        for _ in range(_MOST_LOOKS):
            try:
                return self.open(path) if path.exists() else self.create(path)
            except StoreError as error:
                if not isinstance(error.__cause__, FileExistsError | FileNotFoundError):
                    raise
                passed_by = error
        raise passed_by

    def make_directory(self, path: Path) -> None:
        """Create a directory with its parents, each like the one above it, and flush them."""
        for above in self._make_directory(path):
            self.sync_directory(above)

    def make_directories(self, paths: Iterable[Path]) -> None:
        """The same of many, parents before what is in them. They are flushed together, behind the last: each
        flush on its own would take as long as all of them. One that is there may be of somebody who was cut
        off before the flush: what it is in is flushed, too.
        """
        changed = dict[Path, None]()
        for path in paths:
            changed |= dict.fromkeys((*self._make_directory(path), path.parent))
        for above in changed:
            self.sync_directory(above)

    def _make_directory(self, path: Path) -> Iterator[Path]:
        """Create a directory with its parents; each time, the one that has got something."""
        missing = [path, *path.parents]
        missing = missing[: next(i for i, p in enumerate(missing) if p.exists())]
        self.check_inside(path)
        for directory in reversed(missing):
            with os_errors(directory, "cannot create"):
                self.step("make_directory", directory)
                model = directory.parent.stat()
                directory.mkdir(mode=model.st_mode & _MODE_BITS, exist_ok=True)
                _give(directory, model)
            yield directory.parent

    def sync_directory(self, path: Path) -> None:
        """Bring the names in a directory to the disk."""
        with os_errors(path, "cannot flush"):
            self.step("sync_directory", path)
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Rename inside one file system; a file at `target` is replaced."""
        self.check_inside(source.parent)
        self.check_inside(target.parent)
        with os_errors(source, f"cannot rename to {target}"):
            self.step("rename", source)
            source.rename(target)

    def exchange(self, one: Path, other: Path) -> bool:
        """Let two paths of one file system change places at once; False where it cannot do that."""
        self.check_inside(one.parent)
        self.check_inside(other.parent)
        with os_errors(other, f"cannot change places with {one}"):
            self.step("exchange", other)
            return exchange(one, other)

    def unlink(self, path: Path) -> None:
        """Remove a file. Raises Missing where there is none."""
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
        """Set the times of a file or directory, in ns since 1970 (they drive a broker's expiry)."""
        self.check_inside(path)
        with os_errors(path, "cannot set the times"):
            self.step("set_times", path)
            os.utime(path, ns=(accessed_ns, modified_ns))


class OpenFile(Closing):
    """One file open for reading and writing; a context manager that closes it."""

    def __init__(self, files: Files, path: Path, descriptor: int) -> None:
        self.path = path
        self._files = files
        self._descriptor = descriptor

    @property
    def descriptor(self) -> int:
        """The file descriptor; -1 when closed."""
        return self._descriptor

    @property
    def size(self) -> int:
        """Length in bytes."""
        with os_errors(self.path, "cannot read"):
            return os.fstat(self._descriptor).st_size

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes at `offset`; short at the end of the file only."""
        return read(self._descriptor, size, offset, os.fspath(self.path))

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Write all of `data` at `offset`. Raises NoSpace, Unreadable: part may be written."""
        rest = memoryview(data).cast("B")
        with os_errors(self.path, "cannot write", offset):
            self._files.step("write", self.path, len(rest))
            while rest:
                written = self._files.write_at(self._descriptor, rest, offset)
                rest = rest[written:]
                offset += written

    def pwrite_all(self, pieces: Iterable[Buffer], offset: int = 0) -> None:
        """Write them one behind the other, from `offset` on. Raises as `pwrite`."""
        for data in pieces:
            self.pwrite(data, offset)
            offset += memoryview(data).nbytes

    def truncate(self, size: int) -> None:
        """Make the file `size` bytes long; what is added reads as zeros and takes no space."""
        with os_errors(self.path, "cannot resize"):
            self._files.step("truncate", self.path, size)
            os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        """Bring the content to the disk (not the times)."""
        with os_errors(self.path, "cannot flush"):
            self._files.step("sync", self.path)
            os.fdatasync(self._descriptor)

    def start_writing(self) -> None:
        """Let the system begin to bring the content to the disk, where it can: `sync` waits less then."""
        if (call := _sync_file_range()) is not None:
            call(self._descriptor, 0, 0, _START_WRITING)

    def close(self) -> None:
        """Close the file without flushing it; closing twice is fine."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


def _give(target: int | Path, model: os.stat_result) -> None:
    """Give a new file or directory the owner of its model; only root can, and need."""
    if os.geteuid() == 0:
        os.chown(target, model.st_uid, model.st_gid)


def write_new(files: Files, path: Path, data: Buffer, *, like: Path | None = None) -> None:
    """Create `path` with `data` and flush both the file and its name; `like` as for `create`."""
    with files.create(path, like=like) as file:
        if len(memoryview(data)):
            file.pwrite(data, 0)
        file.sync()
    files.sync_directory(path.parent)


_NOTE_BYTES = 4096
_NAME_BYTES = 255
"""Longest name of a file."""
_NOTE_MARK = "="


def write_note(files: Files, path: Path, text: bytes, length: int | None = None) -> None:
    """Create the file at `path` that says `text`, and flush it and its name.

    length: of the file, zeros behind the text; None: no more than the text. Where there is no room,
    its name goes on with the text. Raises NoSpace, Unreadable: then there is no such file.
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
    """The file that `write_note` made for `path`, None where there is none."""
    if path.exists():
        return path
    named = f"{path.name}{_NOTE_MARK}"
    others = path.parent.iterdir() if path.parent.is_dir() else ()
    return next((other for other in others if other.name.startswith(named)), None)


def read_note(path: Path) -> bytes:
    """What a note says, b"" if nothing. path: as `find_note` gives it. Raises Missing, Unreadable."""
    text = read_at(path, _NOTE_BYTES, 0).partition(b"\0")[0]
    return text or unquote_to_bytes(path.name.partition(_NOTE_MARK)[2])


def remove_tree(folder: Path, files: Files, last: str = JOURNAL) -> None:
    """Remove a folder with all that is in it, links as such. Raises Refused where it is one itself."""
    refuse_links([folder])
    empty(folder, files, last)
    files.remove_directory(folder)


def refuse_links(paths: Iterable[Path]) -> None:
    """Raise Refused where a link stands for what mqstore keeps: what is behind it is somebody else's."""
    for path in paths:
        if path.is_symlink():
            hint = "remove the link, or name another directory"
            raise Refused("a link in place of mqstore's own directory", path=path, hint=hint)


def empty(folder: Path, files: Files, last: str = JOURNAL) -> None:
    """Remove what is in a folder. last: the name of what goes last."""
    with os_errors(folder, "cannot remove"):
        inside = sorted(folder.iterdir(), key=lambda path: (path.name == last, path))
    for path in inside:
        if path.is_dir() and not path.is_symlink():
            remove_tree(path, files)
        else:
            files.unlink(path)


def confine(files: Files, layout: Layout, *, follow_links: bool = False) -> None:
    """Let `files` change nothing but this store.

    Beside a log directory on another disk lies a session's folder on that disk. Raises Refused where a part of the
    store lies elsewhere, Unsupported where files of it are compressed: nothing has been written then.
    """
    refuse_compressed(layout)
    other = None if follow_links else layout.log_of_another
    if other is not None:
        hint = f"name its own: --set storePathCommitLog={layout.root / COMMIT_LOG}; {FOLLOW_LINKS} changes that log"
        raise Refused(f"the configuration gives {layout.root} the commit log of another store", path=other, hint=hint)
    files.confine(_roots(layout, follow_links))
    for part in _parts(layout):
        files.check_inside(part, part=True)
    for file in _files(layout):
        files.check_inside(file)


def confined(layout: Layout, *, follow_links: bool = False) -> Files:
    """What changes files of this store alone. Raises as `confine`."""
    files = Files()
    confine(files, layout, follow_links=follow_links)
    return files


SESSION_JOURNAL, UNDONE = "journal.json", "undone"
"""In the folder of a session: its journal, and a file for one that was taken back."""
LARGEST_JOURNAL_BYTES = 1 << 28
_SESSION = re.compile(r"\d{8}T\d{6}\.\d{6}Zx*")


def sessions(journal: Path) -> Iterator[Path]:
    """Session folders of a store, oldest first; what else lies beside them is no session. Raises Unreadable."""
    try:
        names = sorted(os.listdir(journal))  # noqa: PTH208
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise from_os_error(error, journal) from error
    yield from (journal / name for name in names if _SESSION.fullmatch(name) and (journal / name).is_dir())


def is_log_mended(layout: Layout, *others: str) -> bool:
    """A session that was not taken back, or that cannot be read, has changed log or queues, or `others` of the root.

    They may have lost records of which nothing else tells now. What lies outside of the root is log or queues of a
    store that has these elsewhere.
    """
    of_log = (COMMIT_LOG, CONSUME_QUEUE, BATCH_CONSUME_QUEUE, DLEDGER_PREFIX, os.sep)
    try:
        tops = (Path(path).parts[0] for path in _changed(layout))
        return any(top.startswith(of_log) or top in others for top in tops)
    except _UNREADABLE:
        return True


def is_of_session(layout: Layout, name: str) -> bool:
    """A session that was not taken back has written the file of this name below the root."""
    try:
        return any(path == name for path in _changed(layout))
    except _UNREADABLE:
        return False


_UNREADABLE = (OSError, StoreError, ValueError, LookupError, TypeError)


def _changed(layout: Layout) -> Iterator[str]:
    """What sessions have changed that were not taken back, as they name it. Raises `_UNREADABLE`."""
    for one in sessions(layout.journal):
        if not (one / UNDONE).exists():
            steps = json.loads(read_regular(one / SESSION_JOURNAL, LARGEST_JOURNAL_BYTES))["steps"]
            yield from (step["path"] for step in steps)


def is_linked(layout: Layout) -> bool:
    """Whether `confine` takes this store with `follow_links` alone: directories of it are links elsewhere."""
    files = Files()
    files.confine(_roots(layout, follow_links=False))
    return layout.log_of_another is None and not all(map(files.is_inside, _parts(layout)))


def _roots(layout: Layout, follow_links: bool) -> Iterator[Path]:
    """The directories that changes of a store are confined to."""
    root = _plain(layout.root)
    yield root
    parts = _parts(layout) if follow_links else layout.commit_log_directories
    for directory in parts:
        if follow_links or not _plain(directory).is_relative_to(root):
            yield from (directory, directory.resolve().parent / JOURNAL)
    if layout.journal_place is not None:
        yield layout.journal_place


def check_log_end(files: Files, layout: Layout, log_end: int) -> None:
    """The files that are written to next: the last ones of log and index. Raises Refused."""
    with layout.commit_log_files() as log:
        for file in log.files:
            if file.end >= log_end:
                files.check_inside(Path(file.path))
    if layout.index.is_dir():
        names = [path for path in layout.index.iterdir() if start_of(path.name) is not None]
        for path in sorted(names)[-1:]:
            files.check_inside(path)


def _plain(path: Path) -> Path:
    """The path without `..`: a link in it keeps its own name."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def _parts(layout: Layout) -> Iterator[Path]:
    """Directories of a store that may be links."""
    yield from layout.commit_log_directories
    yield layout.consume_queue
    yield layout.batch_consume_queue
    yield layout.consume_queue_ext
    yield layout.index
    yield layout.timer_log
    yield layout.config


def _files(layout: Layout) -> Iterator[Path]:
    from ...formats.topics import FILE  # before a log is read nobody asks

    yield from (layout.abort, layout.lock, layout.checkpoint, layout.timer_wheel, layout.journal)
    for suffix in ("", ".bak", ".tmp"):
        yield layout.config / f"{FILE}{suffix}"


Content = bytes | memoryview
"""Bytes to write; what is taken from another store is mapped, not loaded."""

EditKind = Literal["write", "create", "truncate", "move", "remove", "rebuild"]


class Phase(IntEnum):
    """When an edit is made; those of one phase are made in the order in which they were planned."""

    PAGE = 0
    PARTS = 1
    LOG = 2
    CHECKPOINT = 3
    ABORT = 4


class Edit(NamedTuple):
    """One change of one file.

    kind: `write` (bytes at `offset`; `data` None: zeros), `create` (a file of `length` bytes that holds `pieces`),
    `truncate` (to `length` bytes), `move` (the file goes to the session's folder), `remove` (the same, for a file that
    a broker removes too), `rebuild` (index files are made from the log; `offset`: position that indexing begins at).
    path: absolute. codes: of the catalogue. phase: behind all edits of those before. stands_for: what tells the content
    where no two makings of it are byte for byte the same, as of a RocksDB.
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
    stands_for: bytes = b""

    def to_json(self) -> dict[str, Any]:
        """Fields of the JSON."""
        kind = "create" if self.kind == "rebuild" else self.kind
        return {
            "path": self.path,
            "kind": kind,
            "offset": self.offset,
            "length": self.length,
            "reason": self.reason,
            "codes": list(self.codes),
        }


def digest(edits: Iterable[Edit]) -> str:
    """Fingerprint of a list of edits: two plans with the same one do the same."""
    total = hashlib.sha256()
    for edit in edits:
        length = 0 if edit.stands_for else edit.length
        head = (edit.kind, edit.path, edit.offset, length, edit.data is None)
        total.update(repr(head).encode("utf-8", "surrogateescape"))
        if edit.stands_for:
            total.update(edit.stands_for)
            continue
        total.update(edit.data or b"")
        for offset, data in edit.pieces:
            total.update(b"%d:%d:" % (offset, len(data)))
            total.update(data)
    return total.hexdigest()
