"""Unpacking a gzip or zstd file: all of it that can be had, and what is wrong with the rest.

Members and frames may follow each other. Where the data is broken the piece that does not unpack
is given again byte by byte, so that everything in front of the first bad byte comes out.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import IO, Any, NamedTuple, cast

from ...formats.compression import MAGIC_BYTES, compression_of

LARGEST_BYTES = (1 << 31) - 1
"""A broker keeps the size of a file in a Java int."""
_GZIP_PIECE = 1 << 16
_ZSTD_PIECE = 1 << 10
"""Bytes that are given at once. zstd has no bound for what it makes of them: four can be 128 KiB."""
_OUTPUT_BYTES = 1 << 20
_BLOCK = 1 << 16
_ZEROS = bytes(_BLOCK)


class TooLarge(Exception):
    """More than LARGEST_BYTES come out."""


class Sink:
    """A file that takes what comes out; blocks of zeros become holes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.size = 0

    def write(self, data: bytes) -> None:
        """Add some bytes. Raises TooLarge, OSError."""
        if self.size + len(data) > LARGEST_BYTES:
            raise TooLarge
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


class _Library(NamedTuple):
    """Makes a decoder; feeds it; what that raises for bad data; bytes to feed at once; what may
    stand between two members and means nothing.
    """

    new: Callable[[], Any]
    feed: Callable[[Any, bytes, Sink], None]
    error: type[Exception]
    piece: int
    padding: bytes = b""


def decompress(source: IO[bytes], sink: Sink) -> str:
    """Unpack `source` into `sink`; returns what is wrong with it, "" for nothing.

    Raises TooLarge, OSError.
    """
    compression = compression_of(source.read(MAGIC_BYTES))
    if not compression:
        return "it is neither gzip nor zstd data"
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
    source: IO[bytes], sink: Sink, library: _Library, fine_from: int | None
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


def _feed_gzip(decoder: Any, data: bytes, sink: Sink) -> None:
    while True:
        out = decoder.decompress(data, _OUTPUT_BYTES)
        sink.write(out)
        data = decoder.unconsumed_tail
        if decoder.eof or (not data and len(out) < _OUTPUT_BYTES):
            return


def _feed_zstd(decoder: Any, data: bytes, sink: Sink) -> None:
    sink.write(decoder.decompress(data))


def _fast_gzip() -> _Library:
    from isal import igzip_lib, isal_zlib

    new = isal_zlib.decompressobj
    return _Library(
        lambda: new(_GZIP),
        _feed_gzip,
        cast("type[Exception]", igzip_lib.IsalError),
        _GZIP_PIECE,
        b"\0",
    )


def _careful_gzip() -> _Library:
    """The standard library tells more of an error, and fails at no byte too early."""
    return _Library(lambda: zlib.decompressobj(_GZIP), _feed_gzip, zlib.error, _GZIP_PIECE, b"\0")


def _zstd() -> _Library:
    import zstandard

    new = zstandard.ZstdDecompressor().decompressobj
    return _Library(new, _feed_zstd, zstandard.ZstdError, _ZSTD_PIECE)


_GZIP = 16 + zlib.MAX_WBITS
"""zlib's number for data with the header and the checksum of gzip."""
