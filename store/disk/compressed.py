"""Files of a store that somebody compressed to put them aside: `00000000000000000000.gz`, `.zst`.

They are read as the files that they were. Random access needs the content: it is unpacked into a
temporary file without a name, in the directory for such files (`TMPDIR`), which is gone when it is
closed, however the process ends. Nothing is ever written beside the compressed file, and commands
that write refuse a store with such files: no broker reads them.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ..errors import FULL, LimitExceeded, NoSpace, Unreadable, Unsupported, from_os_error
from .byte_reader import fill_any, note, opened, read_at
from .regular_file import COMPRESSED, open_regular

if TYPE_CHECKING:
    from .layout import Layout

KEPT_BYTES = 4 << 30
KEPT_FILES = 64
"""What is unpacked and kept at most; the file used last is kept in any case."""


class Plain(NamedTuple):
    """What a compressed file unpacks to: bytes there are, and why there are no more of them, "" for
    all.
    """

    size: int
    problem: str


class _Identity(NamedTuple):
    """A file as it is now."""

    device: int
    inode: int
    size: int
    changed_ns: int


class _Kept(NamedTuple):
    """An unpacked file: its descriptor and what it takes on the disk."""

    descriptor: int
    used_bytes: int


_known: dict[_Identity, Plain] = {}
_kept: OrderedDict[_Identity, _Kept] = OrderedDict()


def plain_name(name: str) -> str:
    """The name that a file had before it was compressed; `name` itself for another one."""
    stem, dot, suffix = name.rpartition(".")
    return stem if dot and f".{suffix}" in COMPRESSED else name


def is_compressed_name(name: str) -> bool:
    """The name ends as that of a compressed file."""
    return name.endswith(COMPRESSED)


def is_compressed(path: str | os.PathLike[str]) -> bool:
    """The content of the file is compressed, whatever its name is. Raises Missing, Unreadable."""
    from ...formats.compression import MAGIC_BYTES, compression_of

    return bool(compression_of(_head(path, MAGIC_BYTES)))


def _head(path: str | os.PathLike[str], size: int) -> bytes:
    """The first bytes of a file; zeros, which no compressed file begins with, for what cannot be
    read, which is noted. Raises Missing, Unreadable.
    """
    head = bytearray(size)
    with opened(path) as descriptor:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # a few bytes, nothing behind them
        got, unread = fill_any(descriptor, memoryview(head), 0, os.fspath(path))
    for each in unread:
        note(each)
    return bytes(head[:got])


def plain_of(path: str | os.PathLike[str]) -> Plain:
    """What a compressed file unpacks to; it is unpacked unless that is known already.

    Raises Missing, Unreadable, NoSpace, LimitExceeded for more than a file of a store can hold.
    """
    identity = _identity(path)
    if identity not in _known:
        _unpack(path, identity)
    return _known[identity]


def open_plain(path: str | os.PathLike[str]) -> int:
    """A descriptor of what a compressed file unpacks to, for reading. Raises as `plain_of`.

    It stands at the beginning; others of the same file share where it stands.
    """
    identity = _identity(path)
    if identity not in _kept:
        _unpack(path, identity)
    _kept.move_to_end(identity)
    descriptor = os.dup(_kept[identity].descriptor)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def open_any(path: str | os.PathLike[str]) -> int:
    """A descriptor of a file, or of what it unpacks to. Raises as `plain_of`."""
    return open_plain(path) if is_compressed(path) else open_regular(path)


def whole_size(path: str | os.PathLike[str]) -> int:
    """Bytes of a file, or of what a compressed one unpacks to, would have if it were not broken.

    A gzip file tells its size at its end, which is what a broken one lacks: then it is what comes
    out. Raises as `plain_of`.
    """
    from .decompress import LARGEST_BYTES

    compression, claimed = _claim(path)
    if not compression and not is_compressed_name(os.fspath(path)):
        return _identity(path).size
    found = plain_of(path)
    if found.problem and compression == "zstd" and claimed:
        return max(found.size, min(claimed, LARGEST_BYTES))
    return found.size


def claimed_size(path: str | os.PathLike[str]) -> int | None:
    """The size of the content as the file tells it, None where it does not.

    It may be that of a part: of the first frame of several, or of the last member. Raises Missing,
    Unreadable.
    """
    return _claim(path)[1]


def _claim(path: str | os.PathLike[str]) -> tuple[str, int | None]:
    """How a file is compressed, "" if not, and what it tells of its size."""
    from ...formats.compression import (
        GZIP_SIZE,
        GZIP_SIZE_BYTES,
        ZSTD_HEADER_BYTES_MAX,
        compression_of,
    )

    head = _head(path, ZSTD_HEADER_BYTES_MAX)
    compression = compression_of(head)
    if compression == "gzip":
        end = _identity(path).size
        tail = read_at(path, GZIP_SIZE_BYTES, max(0, end - GZIP_SIZE_BYTES))
        return compression, int(GZIP_SIZE.parse(tail))
    return compression, _frame_size(head) if compression else None


def _frame_size(head: bytes) -> int | None:
    import zstandard

    try:
        size = zstandard.frame_content_size(head)
    except zstandard.ZstdError:
        return None
    return size if size >= 0 else None


def _identity(path: str | os.PathLike[str]) -> _Identity:
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError as error:
        raise from_os_error(error, path) from error
    return _Identity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _unpack(path: str | os.PathLike[str], identity: _Identity) -> None:
    """Unpack a file and keep what came out."""
    from tempfile import TemporaryFile

    from .decompress import LARGEST_BYTES, Sink, TooLarge, decompress

    source = os.fdopen(open_regular(path), "rb")
    try:
        with source, TemporaryFile(prefix="mqstore-") as target:
            sink = Sink(target)
            problem = decompress(source, sink)
            used = os.fstat(target.fileno()).st_blocks * 512
            descriptor = os.dup(target.fileno())
    except TooLarge:
        raise LimitExceeded(
            f"decompresses to more than {LARGEST_BYTES} bytes, which no file of a store has",
            path=path,
        ) from None
    except OSError as error:
        hint = "it takes room in the directory for temporary files; TMPDIR names another one"
        kind = NoSpace if error.errno in FULL else Unreadable
        raise kind(
            f"cannot decompress ({error.strerror or error})", path=path, hint=hint
        ) from error
    _known[identity] = Plain(sink.size, problem)
    _kept[identity] = _Kept(descriptor, used)
    while len(_kept) > KEPT_FILES or (len(_kept) > 1 and _used() > KEPT_BYTES):
        os.close(_kept.popitem(last=False)[1].descriptor)


def forget_all() -> None:
    """Close what is unpacked; a later read unpacks it again."""
    _known.clear()
    while _kept:
        os.close(_kept.popitem()[1].descriptor)


def _used() -> int:
    return sum(kept.used_bytes for kept in _kept.values())


# -- commands that write ----------------------------------------------------------------------------


def refuse_compressed(layout: Layout) -> None:
    """Raises Unsupported for a store that has compressed files where a broker has its own."""
    for directory in _directories(layout):
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if is_compressed_name(entry.name) and plain_name(entry.name).isdecimal():
                        raise Unsupported(
                            "cannot change a store with a compressed file, which no broker reads",
                            path=entry.path,
                            hint="decompress it where it is",
                        )
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise from_os_error(error, directory) from error


def _directories(layout: Layout) -> Iterator[str]:
    """The directories of a store whose files have numbers for names."""
    from ..queues.read import queue_directories

    yield from map(os.fspath, layout.commit_log_directories)
    yield from map(os.fspath, (layout.index, layout.timer_log))
    for parent in (layout.consume_queue, layout.batch_consume_queue, layout.consume_queue_ext):
        yield from (queue.path for queue in queue_directories(parent))
