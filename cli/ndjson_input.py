"""Read NDJSON: objects in portions, as they arrive, with their line numbers."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ..store.errors import InvalidInput, from_os_error
from .options import stdin_descriptor

PORTION_BYTES = 1 << 20
"""Bytes read at a time, at most, and the size that a pipe is set to."""
LARGEST_LINE_BYTES = 256 << 20


_WANTED = (
    "expected NDJSON, one object per line (as mqstore dump --format ndjson prints); --from-format names other formats"
)
"""Hint for a first line that is not an object: the file may have another format, a JSON array say."""


class Line(NamedTuple):
    """A record of the input. number: of its line or row, from 1 on."""

    number: int
    record: dict[str, Any]


def read_portions(
    source: str, idle_seconds: float | None = None, note: Callable[[int], None] = lambda _: None
) -> Iterator[list[Line]]:
    """Yield the objects of a file, or of stdin for `-`: as many at a time as have arrived.

    A portion is empty only if nothing has arrived for `idle_seconds`. note: called with the number of bytes read. Lines
    before a bad one are yielded before the error: InvalidInput for a line that is not a JSON object, Missing,
    Unreadable.
    """
    with opened(source) as descriptor:
        number = 0
        for text in whole_lines(descriptor, source, idle_seconds, note):
            portion: list[Line] = []
            for line in text.split(b"\n") if text is not None else ():
                number += 1
                try:
                    record = _parsed(line)
                except ValueError as error:
                    if portion:
                        yield portion
                    raise InvalidInput(f"line {number}: {error}", hint=_WANTED if number == 1 else "") from None
                if record is not None:
                    portion.append(Line(number, record))
            if portion or text is None:
                yield portion


@contextmanager
def opened(source: str) -> Iterator[int]:
    """Open a file, or stdin for `-`; yield its descriptor. Raises Missing, Unreadable."""
    if source == "-":
        descriptor = stdin_descriptor()
        # a larger pipe takes more input while a group is written to the disk; no change if that is not possible
        with contextlib.suppress(OSError, AttributeError):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PORTION_BYTES)
        yield descriptor
        return
    try:
        descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise from_os_error(error, Path(source)) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def whole_lines(
    descriptor: int, source: str, idle_seconds: float | None, note: Callable[[int], None]
) -> Iterator[bytes | None]:
    """Yield bytes up to a line end, without it, as they arrive; the last line may lack a line end. Yields None if
    nothing has arrived for `idle_seconds`. note: called with the number of bytes read.
    """
    rest = b""
    while True:
        if idle_seconds is not None and not _readable(descriptor, idle_seconds):
            yield None
            continue
        data = _read_available(descriptor, source)
        if not data:
            break
        note(len(data))
        head, end, tail = data.rpartition(b"\n")
        if end:
            yield rest + head
            rest = tail
        else:
            rest += data
        if len(rest) > LARGEST_LINE_BYTES:
            raise InvalidInput(f"a line of more than {LARGEST_LINE_BYTES} bytes")
    if rest:
        yield rest


def _readable(descriptor: int, seconds: float) -> bool:
    """Wait at most `seconds` for input or its end; return whether there is any."""
    return bool(select.select([descriptor], [], [], seconds)[0])


def _read_available(descriptor: int, source: str) -> bytes:
    """Wait for input and return what has arrived, up to a portion; b"" at the end."""
    parts: list[bytes] = []
    room = PORTION_BYTES
    try:
        while room and (not parts or _readable(descriptor, 0)):
            part = os.read(descriptor, room)
            if not part:
                break
            parts.append(part)
            room -= len(part)
    except OSError as error:
        raise from_os_error(error, Path(source)) from error
    return b"".join(parts)


_decode = json.JSONDecoder().decode
_SIMPLE = re.compile(rb'[{]["}]').match
"""Matches only lines in UTF-8; UTF-16 and UTF-32, which json.loads also accepts, have another second byte."""


def _parsed(line: bytes) -> dict[str, Any] | None:
    """The object of a line, or None for an empty line. Raises ValueError."""
    if not line or line.isspace():
        return None
    try:
        record = _decode(line.decode("utf-8", "surrogatepass")) if _SIMPLE(line) else json.loads(line)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - as a parser raises
    return record
