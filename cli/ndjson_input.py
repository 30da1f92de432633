"""NDJSON that comes in: objects as they arrive, in portions, with their line numbers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from ..store.errors import InvalidInput, from_os_error

_PORTION_BYTES = 1 << 20
LARGEST_LINE_BYTES = 256 << 20


class Line(NamedTuple):
    """A parsed line."""

    number: int
    record: dict[str, Any]


def read_portions(source: str) -> Iterator[list[Line]]:
    """Objects of a file, or of stdin for `-`: each time as many as are there, at least one.

    A portion that ends before a bad line comes before the error: InvalidInput for what is no JSON
    object, Missing, Unreadable.
    """
    with _opened(source) as stream:
        number = 0
        for text in _whole_lines(stream):
            portion: list[Line] = []
            for line in text.split(b"\n"):
                number += 1
                try:
                    record = _parsed(line)
                except ValueError as error:
                    if portion:
                        yield portion
                    raise InvalidInput(f"line {number}: {error}") from None
                if record is not None:
                    portion.append(Line(number, record))
            if portion:
                yield portion


def _opened(source: str) -> IO[bytes]:
    if source == "-":
        return open(sys.stdin.fileno(), "rb", closefd=False)
    try:
        return Path(source).open("rb")
    except OSError as error:
        raise from_os_error(error, source) from error


def _whole_lines(stream: Any) -> Iterator[bytes]:
    """Bytes up to a line end, as they come; the last may lack it."""
    rest = b""
    while data := stream.read1(_PORTION_BYTES):
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


def _parsed(line: bytes) -> dict[str, Any] | None:
    """The object of a line, None for an empty one. Raises ValueError."""
    if not line.strip():
        return None
    try:
        record = json.loads(line)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - what a parser says
    return record
