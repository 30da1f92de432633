"""Files of a store that somebody compressed to put them aside: `00000000000000000000.gz`, `.zst`.

They are read as the files that they were. Random access needs the content: it is unpacked into a
temporary file without a name, in the directory for such files (`TMPDIR`), which is gone when it is
closed, however the process ends. Nothing is ever written beside the compressed file, and commands
that write refuse a store with such files: no broker reads them.

All of a gzip or zstd file that can be had is unpacked, and it is told what is wrong with the rest.
Members and frames may follow each other. Where the data is broken the piece that does not unpack
is given again byte by byte, so that everything in front of the first bad byte comes out.
"""

from __future__ import annotations

import os
import zlib
from collections import OrderedDict
from collections.abc import Callable, Hashable
from errno import EIO
from typing import IO, Any, NamedTuple, TypeAlias, cast

from ..errors import FULL, LimitExceeded, NoSpace, Unreadable, os_errors
from .byte_reader import COMPRESSED, data_ranges, fill, fill_any, note, open_regular, opened, read, read_at

KEPT_BYTES = 4 << 30
KEPT_FILES = 64
"""What is unpacked and kept at most; the file used last is kept in any case."""
_SMALL_BYTES = 1 << 20


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


class _UnpackedFile(NamedTuple):
    """An unpacked file: its descriptor and what it takes on the disk."""

    descriptor: int
    used_bytes: int


_claims: dict[Hashable, tuple[str, int | None]] = {}
_known: dict[Hashable, Plain] = {}
_kept: OrderedDict[Hashable, _UnpackedFile] = OrderedDict()


class PackedFile:
    """A compressed file of this machine; of one elsewhere all that is read comes from what overrides these."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path

    def identity(self) -> Hashable:
        """What tells it from all others, and from what it was. Raises Missing, Unreadable."""
        return _identity(self.path)

    def head(self, size: int) -> bytes:
        """Its first bytes. Raises Missing, Unreadable."""
        return _head(self.path, size)

    def tail(self, size: int) -> bytes:
        """Its last bytes. Raises Missing, Unreadable."""
        return read_at(self.path, size, max(0, _identity(self.path).size - size))

    def open(self) -> IO[bytes]:
        """All of it, from its beginning on. Raises Missing, Unreadable."""
        return os.fdopen(open_regular(self.path), "rb")


AnyPacked: TypeAlias = str | os.PathLike[str] | PackedFile
"""Where a compressed file lies: of this machine its path."""


def _packed(file: AnyPacked) -> PackedFile:
    return file if isinstance(file, PackedFile) else PackedFile(file)


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


def plain_of(file: AnyPacked) -> Plain:
    """What a compressed file unpacks to; it is unpacked unless that is known already.

    Raises Missing, Unreadable, NoSpace, LimitExceeded for more than a file of a store can hold.
    """
    packed = _packed(file)
    identity = packed.identity()
    if identity not in _known:
        _unpack(packed, identity)
    return _known[identity]


def open_plain(file: AnyPacked) -> int:
    """A descriptor of what a compressed file unpacks to, for reading. Raises as `plain_of`.

    It stands at the beginning; others of the same file share where it stands.
    """
    packed = _packed(file)
    identity = packed.identity()
    if identity not in _kept:
        _unpack(packed, identity)
    _kept.move_to_end(identity)
    descriptor = os.dup(_kept[identity].descriptor)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def open_any(path: str | os.PathLike[str]) -> int:
    """A descriptor of a file, or of what it unpacks to. Raises as `plain_of`."""
    return open_plain(path) if is_compressed(path) else open_regular(path)


def read_regular(path: str | os.PathLike[str], limit_bytes: int) -> bytes:
    """The first `limit_bytes` of a file, or of what it unpacks to. Raises as `open_regular`.

    Holes of a large sparse file are not read.
    """
    packed = is_compressed_name(os.fspath(path))
    descriptor = open_any(path) if packed else open_regular(path)
    try:
        size = min(limit_bytes, os.fstat(descriptor).st_size)
        if size <= _SMALL_BYTES:
            return read(descriptor, size, 0, os.fspath(path))
        room = bytearray(size)
        for begin, end in data_ranges(descriptor, 0, size):
            part = memoryview(room)[begin:end]
            got = fill(descriptor, part, begin, os.fspath(path))
            if got < len(part):  # somebody has cut it
                return bytes(room[: begin + got])
        return bytes(room)
    finally:
        os.close(descriptor)


def whole_size(file: AnyPacked) -> int:
    """Bytes of a file, or of what a compressed one unpacks to, would have if it were not broken.

    A gzip file tells its size at its end, which is what a broken one lacks: then it is what comes
    out. Raises as `plain_of`.
    """
    packed = _packed(file)
    compression, claimed = _claim(packed)
    if not compression and not is_compressed_name(os.fspath(packed.path)):
        return _identity(packed.path).size
    found = plain_of(packed)
    if found.problem and compression == "zstd" and claimed:
        return max(found.size, min(claimed, LARGEST_BYTES))
    return found.size


def claimed_size(file: AnyPacked) -> int | None:
    """The size of the content as the file tells it, None where it does not.

    It may be that of a part: of the first frame of several, or of the last member. Raises Missing,
    Unreadable.
    """
    return _claim(_packed(file))[1]


def _claim(packed: PackedFile) -> tuple[str, int | None]:
    """How a file is compressed, "" if not, and what it tells of its size; one that is compressed is asked once."""
    identity = packed.identity()
    claim = _claims.get(identity) or _read_claim(packed)
    if claim[0]:
        _claims[identity] = claim
    return claim


def _read_claim(packed: PackedFile) -> tuple[str, int | None]:
    from ...formats.compression import GZIP_SIZE, GZIP_SIZE_BYTES, ZSTD_HEADER_BYTES_MAX, compression_of

    head = packed.head(ZSTD_HEADER_BYTES_MAX)
    compression = compression_of(head)
    if compression == "gzip":
        tail = packed.tail(GZIP_SIZE_BYTES)
        return compression, int(GZIP_SIZE.parse(tail)) if len(tail) == GZIP_SIZE_BYTES else None
    return compression, _frame_size(head) if compression else None


def _frame_size(head: bytes) -> int | None:
    import zstandard

    try:
        size = zstandard.frame_content_size(head)
    except zstandard.ZstdError:
        return None
    return size if size >= 0 else None


def _identity(path: str | os.PathLike[str]) -> _Identity:
    with os_errors(path):
        status = os.stat(path)  # noqa: PTH116
    return _Identity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _unpack(packed: PackedFile, identity: Hashable) -> None:
    """Unpack a file and keep what came out."""
    from tempfile import TemporaryFile

    source, path = packed.open(), packed.path
    try:
        with source, TemporaryFile(prefix="mqstore-") as target:
            sink = UnpackedSink(target)
            problem = decompress(source, sink)
            used = os.fstat(target.fileno()).st_blocks * 512
            descriptor = os.dup(target.fileno())
    except UnpackedTooLarge:
        raise LimitExceeded(
            f"decompresses to more than {LARGEST_BYTES} bytes, which no file of a store has", path=path
        ) from None
    except OSError as error:
        why = f"cannot decompress ({error.strerror or error})"
        if error.errno == EIO:  # of the file itself
            raise Unreadable(why, path=path) from error
        hint = "it needs space in the directory for temporary files; TMPDIR names another one"
        kind = NoSpace if error.errno in FULL else Unreadable
        raise kind(why, path=path, hint=hint) from error
    _known[identity] = Plain(sink.size, problem)
    _kept[identity] = _UnpackedFile(descriptor, used)
    while len(_kept) > KEPT_FILES or (len(_kept) > 1 and _used() > KEPT_BYTES):
        os.close(_kept.popitem(last=False)[1].descriptor)


def forget_all() -> None:
    """Close what is unpacked; a later read unpacks it again."""
    _claims.clear()
    _known.clear()
    while _kept:
        os.close(_kept.popitem()[1].descriptor)


def _used() -> int:
    return sum(kept.used_bytes for kept in _kept.values())


LARGEST_BYTES = (1 << 31) - 1
"""A broker keeps the size of a file in a Java int."""
_GZIP_PIECE = 1 << 16
_ZSTD_PIECE = 1 << 10
"""Bytes that are given at once. zstd has no bound for what it makes of them: four can be 128 KiB."""
_OUTPUT_BYTES = 1 << 20
_BLOCK = 1 << 16
_ZEROS = bytes(_BLOCK)


class UnpackedTooLarge(Exception):
    """More than LARGEST_BYTES come out."""


class UnpackedSink:
    """A file that takes what comes out; blocks of zeros become holes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.size = 0

    def write(self, data: bytes) -> None:
        """Add some bytes. Raises UnpackedTooLarge, OSError."""
        if self.size + len(data) > LARGEST_BYTES:
            raise UnpackedTooLarge
        for at in range(0, len(data), _BLOCK):
            block = data[at : at + _BLOCK]
            if block == _ZEROS:
                self._file.seek(_BLOCK, 1)
            else:
                self._file.write(block)
        self.size += len(data)

    def begin_again(self) -> None:
        """Forget everything."""
        self._file.seek(0)
        self._file.truncate()
        self.size = 0

    def finish(self) -> None:
        """Give the file its size: zeros at its end have not been written."""
        self._file.truncate(self.size)
        self._file.flush()


class _Decompressor(NamedTuple):
    """Makes a decoder; feeds it; what that raises for bad data; bytes to feed at once; what may
    stand between two members and means nothing.
    """

    new: Callable[[], Any]
    feed: Callable[[Any, bytes, UnpackedSink], None]
    error: type[Exception]
    piece: int
    padding: bytes = b""


def decompress(source: IO[bytes], sink: UnpackedSink) -> str:
    """Unpack `source` into `sink`; returns what is wrong with it, "" for nothing.

    Raises UnpackedTooLarge, OSError.
    """
    from ...formats.compression import MAGIC_BYTES, compression_of

    compression = compression_of(source.read(MAGIC_BYTES))
    if not compression:
        return "it is not gzip or zstd data"
    library = _fast_gzip() if compression == "gzip" else _zstd()
    careful = _careful_gzip() if compression == "gzip" else library
    fine_from: int | None = None
    while True:
        source.seek(0)
        sink.begin_again()
        problem, failed_at = _run(source, sink, library, fine_from)
        if failed_at is None:
            sink.finish()
            return problem
        library, fine_from = careful, failed_at


def _run(
    source: IO[bytes], sink: UnpackedSink, library: _Decompressor, fine_from: int | None
) -> tuple[str, int | None]:
    """One pass: what is wrong, and where the piece begins that has to be given byte by byte."""
    decoder, members, inside = library.new(), 0, False
    at = 0
    while True:
        fine = fine_from is not None and at >= fine_from
        data = source.read(1 if fine else library.piece)
        if not data:
            return ("it is cut off" if inside else ""), None
        size = len(data)
        if members and not inside:
            data = data.lstrip(library.padding)
        while data:
            try:
                library.feed(decoder, data, sink)
            except library.error as error:
                return str(error), None if fine else at
            inside, data = not decoder.eof, b""
            if not inside:
                data = decoder.unused_data.lstrip(library.padding)
                decoder, members = library.new(), members + 1
        at += size


def _feed_gzip(decoder: Any, data: bytes, sink: UnpackedSink) -> None:
    while True:
        out = decoder.decompress(data, _OUTPUT_BYTES)
        sink.write(out)
        data = decoder.unconsumed_tail
        if decoder.eof or (not data and len(out) < _OUTPUT_BYTES):
            return


def _feed_zstd(decoder: Any, data: bytes, sink: UnpackedSink) -> None:
    sink.write(decoder.decompress(data))


def _fast_gzip() -> _Decompressor:
    from isal import igzip_lib, isal_zlib

    new = isal_zlib.decompressobj
    return _Decompressor(
        lambda: new(_GZIP), _feed_gzip, cast("type[Exception]", igzip_lib.IsalError), _GZIP_PIECE, b"\0"
    )


def _careful_gzip() -> _Decompressor:
    """The standard library tells more of an error, and fails at no byte too early."""
    return _Decompressor(lambda: zlib.decompressobj(_GZIP), _feed_gzip, zlib.error, _GZIP_PIECE, b"\0")


def _zstd() -> _Decompressor:
    import zstandard

    new = zstandard.ZstdDecompressor().decompressobj
    return _Decompressor(new, _feed_zstd, zstandard.ZstdError, _ZSTD_PIECE)


_GZIP = 16 + zlib.MAX_WBITS
"""zlib's number for data with the header and the checksum of gzip."""
