"""Files of a store that somebody compressed to archive them: `00000000000000000000.gz`, `.zst`.

They are read like the original files. Random access needs the content, so a file is unpacked into an unnamed
temporary file in the directory for temporary files (`TMPDIR`), which disappears when it is closed, however the process
ends. Nothing is written beside the compressed file, and commands that write refuse a store with compressed files,
since no broker reads them.

Everything that can be unpacked of a gzip or zstd file is unpacked, and the error in the rest is reported. A file may
have several members or frames. Where the data is broken, the piece that does not unpack is fed again byte by byte, so
that everything before the first bad byte comes out.
"""

from __future__ import annotations

import os
import zlib
from collections import OrderedDict
from collections.abc import Callable, Hashable
from errno import EIO
from typing import IO, Any, NamedTuple, TypeAlias, cast

from ..errors import FULL, LimitExceeded, NoSpace, Unreadable, os_errors
from .byte_reader import COMPRESSED, Closing, data_ranges, fill, fill_any, note, open_regular, opened, read, read_at

KEPT_BYTES = 4 << 30
KEPT_FILES = 64
"""Most unpacked bytes and files that are kept; the file used last is always kept."""
_SMALL_BYTES = 1 << 20


class Plain(NamedTuple):
    """The unpacked content of a compressed file: its size, and why it is not complete, "" if it is."""

    size: int
    problem: str


class _Identity(NamedTuple):
    """What distinguishes a file from other files and from its earlier states."""

    device: int
    inode: int
    size: int
    changed_ns: int


class _UnpackedFile(NamedTuple):
    """The descriptor of an unpacked file, and the bytes that it takes on the disk."""

    descriptor: int
    used_bytes: int


_claims: dict[Hashable, tuple[str, int | None]] = {}
_known: dict[Hashable, Plain] = {}
_kept: OrderedDict[Hashable, _UnpackedFile] = OrderedDict()


class OpenFiles(Closing):
    """Descriptors of up to `most` files, by path. A copy for another process has none: their numbers may mean other
    files there.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._opened: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._opened)

    def descriptor(self, path: str, open_file: Callable[[], int]) -> int:
        """The descriptor of a file, which `open_file` opens if it is not open; valid until another one is asked for."""
        descriptor = self._opened.get(path)
        if descriptor is None:
            if len(self._opened) >= self._most:
                os.close(self._opened.popitem(last=False)[1])
            descriptor = self._opened[path] = open_file()
        else:
            self._opened.move_to_end(path)
        return descriptor

    def close(self, path: str | None = None) -> None:
        """Close all files, or the one at `path`."""
        for each in list(self._opened) if path is None else {path} & self._opened.keys():
            os.close(self._opened.pop(each))

    def __reduce__(self) -> tuple[type[OpenFiles], tuple[int]]:
        return OpenFiles, (self._most,)

    def __del__(self) -> None:
        self.close()


class PackedFile:
    """A compressed file on this machine. Subclasses for files elsewhere override all methods."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path

    def identity(self) -> Hashable:
        """A value that distinguishes the file from others and from its earlier states. Raises Missing, Unreadable."""
        return _identity(self.path)

    def head(self, size: int) -> bytes:
        """The first bytes of the file. Raises Missing, Unreadable."""
        return _head(self.path, size)

    def tail(self, size: int) -> bytes:
        """The last bytes of the file. Raises Missing, Unreadable."""
        return read_at(self.path, size, max(0, _identity(self.path).size - size))

    def open(self) -> IO[bytes]:
        """Open the file for reading from its beginning. Raises Missing, Unreadable."""
        return os.fdopen(open_regular(self.path), "rb")


AnyPacked: TypeAlias = str | os.PathLike[str] | PackedFile
"""A compressed file: its path if it is on this machine."""


def _packed(file: AnyPacked) -> PackedFile:
    return file if isinstance(file, PackedFile) else PackedFile(file)


def plain_name(name: str) -> str:
    """The name without the suffix of a compressed file; `name` itself if it has none."""
    stem, dot, suffix = name.rpartition(".")
    return stem if dot and f".{suffix}" in COMPRESSED else name


def is_compressed_name(name: str) -> bool:
    """Whether the name has the suffix of a compressed file."""
    return name.endswith(COMPRESSED)


def is_compressed(path: str | os.PathLike[str]) -> bool:
    """Whether the content of the file is compressed, whatever its name. Raises Missing, Unreadable."""
    from ...formats.compression import MAGIC_BYTES, compression_of

    return bool(compression_of(_head(path, MAGIC_BYTES)))


def _head(path: str | os.PathLike[str], size: int) -> bytes:
    """The first bytes of a file. Unreadable bytes are noted and read as zeros, with which no compressed file begins.

    Raises Missing, Unreadable.
    """
    head = bytearray(size)
    with opened(path) as descriptor:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead for a few bytes
        got, unread = fill_any(descriptor, memoryview(head), 0, os.fspath(path))
    for each in unread:
        note(each)
    return bytes(head[:got])


def plain_of(file: AnyPacked) -> Plain:
    """The unpacked content of a compressed file; the file is unpacked unless the answer is known.

    Raises Missing, Unreadable, NoSpace, and LimitExceeded for more bytes than a file of a store can have.
    """
    packed = _packed(file)
    identity = packed.identity()
    if identity not in _known:
        _unpack(packed, identity)
    return _known[identity]


def open_plain(file: AnyPacked) -> int:
    """A descriptor of the unpacked content of a compressed file, for reading from its beginning. Raises as `plain_of`.

    All descriptors of one file share their position.
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
    """A descriptor of a file, or of its unpacked content if it is compressed. Raises as `plain_of`."""
    return open_plain(path) if is_compressed(path) else open_regular(path)


def read_regular(path: str | os.PathLike[str], limit_bytes: int) -> bytes:
    """The first `limit_bytes` of a file, or of its unpacked content if its name is that of a compressed file.

    Holes of a large sparse file are not read. Raises as `open_regular`, for a compressed file as `plain_of`.
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
            if got < len(part):  # the file was cut short meanwhile
                return bytes(room[: begin + got])
        return bytes(room)
    finally:
        os.close(descriptor)


def whole_size(file: AnyPacked) -> int:
    """Size of a file, or the size that the unpacked content of a compressed file has if the file is not broken.

    gzip stores the size at the end, which a broken file lacks: then the size is that of the content that could be
    unpacked. Raises as `plain_of`.
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
    """The size of the content that a compressed file states, None if it states none.

    It may be the size of a part: of the first of several frames, or of the last member. Raises Missing, Unreadable.
    """
    return _claim(_packed(file))[1]


def _claim(packed: PackedFile) -> tuple[str, int | None]:
    """(compression of a file or "", the size of its content that it states). Answers for compressed files are kept."""
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
    """Unpack a file and keep the content."""
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
        if error.errno == EIO:  # an error of the compressed file itself
            raise Unreadable(why, path=path) from error
        hint = "it needs space in the directory for temporary files; TMPDIR names another one"
        kind = NoSpace if error.errno in FULL else Unreadable
        raise kind(why, path=path, hint=hint) from error
    _known[identity] = Plain(sink.size, problem)
    _kept[identity] = _UnpackedFile(descriptor, used)
    while len(_kept) > KEPT_FILES or (len(_kept) > 1 and _kept_bytes() > KEPT_BYTES):
        os.close(_kept.popitem(last=False)[1].descriptor)


def forget_all() -> None:
    """Close all unpacked content; a later read unpacks a file again."""
    _claims.clear()
    _known.clear()
    while _kept:
        os.close(_kept.popitem()[1].descriptor)


def _kept_bytes() -> int:
    return sum(kept.used_bytes for kept in _kept.values())


LARGEST_BYTES = (1 << 31) - 1
"""A broker keeps the size of a file in a Java int."""
_GZIP_PIECE = 1 << 16
_ZSTD_PIECE = 1 << 10
"""Bytes that are fed at once. For zstd the size of the output is not bounded: four bytes can become 128 KiB."""
_OUTPUT_BYTES = 1 << 20
_BLOCK = 1 << 16
_ZEROS = bytes(_BLOCK)


class UnpackedTooLarge(Exception):
    """The content has more than LARGEST_BYTES."""


class UnpackedSink:
    """A file that takes the unpacked bytes; blocks of zeros become holes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.size = 0

    def write(self, data: bytes) -> None:
        """Append some bytes. Raises UnpackedTooLarge, OSError."""
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
        """Drop everything written so far."""
        self._file.seek(0)
        self._file.truncate()
        self.size = 0

    def finish(self) -> None:
        """Set the size of the file, since zeros at its end were not written, and flush it."""
        self._file.truncate(self.size)
        self._file.flush()


class _Decompressor(NamedTuple):
    """new: make a decoder. feed: pass data to a decoder. error: what bad data raises. piece: bytes to feed at once.
    padding: bytes that may stand between two members and have no meaning.
    """

    new: Callable[[], Any]
    feed: Callable[[Any, bytes, UnpackedSink], None]
    error: type[Exception]
    piece: int
    padding: bytes = b""


def decompress(source: IO[bytes], sink: UnpackedSink) -> str:
    """Unpack `source` into `sink`; return what is wrong with the data, "" if nothing is.

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
    """One pass: (what is wrong, where the piece begins that has to be fed byte by byte, None at the end)."""
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
        lambda: new(_GZIP_WBITS), _feed_gzip, cast("type[Exception]", igzip_lib.IsalError), _GZIP_PIECE, b"\0"
    )


def _careful_gzip() -> _Decompressor:
    """The decoder of the standard library: more precise error texts, and no byte before the bad one is lost."""
    return _Decompressor(lambda: zlib.decompressobj(_GZIP_WBITS), _feed_gzip, zlib.error, _GZIP_PIECE, b"\0")


def _zstd() -> _Decompressor:
    import zstandard

    new = zstandard.ZstdDecompressor().decompressobj
    return _Decompressor(new, _feed_zstd, zstandard.ZstdError, _ZSTD_PIECE)


_GZIP_WBITS = 16 + zlib.MAX_WBITS
"""zlib's number for data with the header and the checksum of gzip."""
