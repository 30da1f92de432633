"""Edits of single fields of a store's files, by the names of the schemas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from construct import Construct

from mqstore.formats.blank import BLANK
from mqstore.formats.derive import spans
from mqstore.formats.message import MESSAGE
from mqstore.store.log.commit_log import Batch
from mqstore.store.search.store import StoreReader

_LARGEST_BYTES = 1 << 20


def overwrite(path: Path, offset: int, data: bytes) -> None:
    """These bytes at this place."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def read(path: Path, offset: int, size: int) -> bytes:
    """Bytes of a file."""
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size)


def set_field(path: Path, offset: int, schema: Construct[Any, Any], name: str, value: int) -> str:
    """Write a number of a unit or record that begins at `offset`; what was done."""
    rest = read(path, offset, _LARGEST_BYTES)
    span = next(s for s in spans(schema, rest) if s.path == name)
    if isinstance(span.value, bytes):
        data = value.to_bytes(span.length, "big", signed=value < 0)
    else:
        data = (value % (1 << 8 * span.length)).to_bytes(span.length, "big")
    overwrite(path, offset + span.offset, data)
    return f"{path.name} @{offset}: {name} {span.value!r} -> {value}"


@dataclass(frozen=True)
class Place:
    """One record of the log: where it lies, and what stands in it."""

    path: Path
    offset: int
    position: int
    size: int
    #: Field by name as in MESSAGE.
    values: dict[str, Any]
    topic: str

    def set(self, name: str, value: int) -> str:
        """Write one of its numbers; nothing else is made to fit."""
        return set_field(self.path, self.offset, MESSAGE, name, value)

    def span(self, name: str) -> tuple[int, int]:
        """(offset in the file, length) of a field."""
        span = next(s for s in spans(MESSAGE, self.bytes()) if s.path == name)
        return self.offset + span.offset, span.length

    def bytes(self) -> bytes:
        """The record."""
        return read(self.path, self.offset, self.size)


def records(store: Path) -> list[Place]:
    """The good records of the log, in order."""
    found: list[Place] = []
    with StoreReader(store) as opened:
        files = opened.log_files
        for item in opened.log.scan(crc=False):
            if not isinstance(item, Batch):
                continue
            for position in item.position.tolist():
                file = files.file_at(position)
                assert file is not None
                found.append(_place(Path(file.path), position - file.start, position))
    return found


def _place(path: Path, offset: int, position: int) -> Place:
    size = int.from_bytes(read(path, offset, BLANK.total_size.sizeof()), "big")
    values = {s.path: s.value for s in spans(MESSAGE, read(path, offset, size))}
    topic = values["topic"].decode("utf-8", "replace")
    return Place(path, offset, position, size, values, topic)


def a_record(store: Path, random: Random, wanted: Callable[[Place], bool] = lambda place: True) -> Place:
    """Any record of the log that is wanted. Raises LookupError where there is none."""
    fitting = [place for place in records(store) if wanted(place)]
    if not fitting:
        raise LookupError("no record fits")
    return random.choice(fitting)
