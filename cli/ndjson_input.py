"""NDJSON that comes in: objects as they arrive, in portions, with their line numbers."""

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
"""What is taken at once, where so much is there; and what a pipe is asked to hold."""
LARGEST_LINE_BYTES = 256 << 20


_WANTED = (
    "expected NDJSON, one object per line (as mqstore dump --format ndjson prints); --from-format names other formats"
)
"""Said of a first line that is none: the file may be of another kind, a JSON array say."""


class Line(NamedTuple):
    """A record that came in, and where: the number of its line or row, from 1 on."""

    number: int
    record: dict[str, Any]


def read_portions(
    source: str, idle_seconds: float | None = None, note: Callable[[int], None] = lambda _: None
) -> Iterator[list[Line]]:
    """Objects of a file, or of stdin for `-`: each time as many as are there.

    A portion is empty only where nothing has come for `idle_seconds`. note: told how many bytes
    were read. A portion that ends before a bad line comes before the error: InvalidInput for what
    is no JSON object, Missing, Unreadable.
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
    """The descriptor of a file, or of stdin for `-`. Raises Missing, Unreadable."""
    if source == "-":
        descriptor = stdin_descriptor()
        # a larger pipe takes in what comes while a group is on its way to the disk; no pipe, or
        # not allowed: then it stays as it is
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
    """Bytes up to a line end, as they come; the last may lack it. None: nothing has come."""
    rest = b""
    while True:
        if idle_seconds is not None and not _comes(descriptor, idle_seconds):
            yield None
            continue
        data = _what_is_there(descriptor, source)
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


def _comes(descriptor: int, seconds: float) -> bool:
    """Wait for something to read, or for the end of the input."""
    return bool(select.select([descriptor], [], [], seconds)[0])


def _what_is_there(descriptor: int, source: str) -> bytes:
    """Wait for input and take what is there, up to a portion; nothing at the end."""
    parts: list[bytes] = []
    room = PORTION_BYTES
    try:
        while room and (not parts or _comes(descriptor, 0)):
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
"""So UTF-8 begins, and no other encoding that is taken."""


def _parsed(line: bytes) -> dict[str, Any] | None:
    """The object of a line, None for an empty one. Raises ValueError."""
    if not line or line.isspace():
        return None
    try:
        record = _decode(line.decode("utf-8", "surrogatepass")) if _SIMPLE(line) else json.loads(line)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - what a parser says
    return record
