"""What `dump` prints of the files of fixed-size records: queues, index, checkpoint, timer files.

Each function yields chunks; a chunk gives its records as the contract names them, or its bytes for
the hex view. The field names are those of the schemas, nothing here knows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from construct import Construct

    from ..store.config import BrokerConfig
    from ..store.index_file import IndexFile
    from ..store.mapped_file_queue import MappedFileQueue
    from ..store.recognise import Recognised

Record = Mapping[str, Any]


class Piece(NamedTuple):
    """The bytes of one record and what they are: `data` begins at `position`.

    counts: False for what only leads to the next piece.
    """

    title: str
    position: int
    data: bytes
    schema: Construct[Any, Any] | None
    counts: bool = True


@dataclass(frozen=True)
class Units:
    """Records of one schema in a row.

    number_name: what numbers them (`queue_offset`, `position`, …). numbers, positions: number and
    byte position of each. before, more: fields in front of the schema's, the same for all and one
    for each. marks: says more of a record.
    """

    record_type: str
    schema: Construct[Any, Any]
    array: npt.NDArray[np.void]
    number_name: str
    numbers: list[int]
    positions: Iterable[int]
    before: Record = field(default_factory=dict)
    more: Mapping[str, list[int]] = field(default_factory=dict)
    marks: Callable[[dict[str, Any]], Record] | None = None

    def records(self) -> Iterator[Record]:
        """As the contract names them."""
        names = (self.number_name, *self.more, *(self.array.dtype.names or ()))
        head = {"type": self.record_type, **self.before}
        numbers = zip(self.numbers, *self.more.values(), strict=True)
        for number, values in zip(numbers, self.array.tolist(), strict=True):
            record = {**head, **dict(zip(names, (*number, *values), strict=True))}
            if self.marks is not None:
                record.update(self.marks(record))
            yield record

    def pieces(self) -> Iterator[Piece]:
        """For the hex view."""
        where = " ".join(f"{name} {value}" for name, value in self.before.items())
        title = self.record_type.replace("_", " ")
        for number, position, unit in zip(self.numbers, self.positions, self.array, strict=True):
            name = self.number_name.replace("_", " ")
            text = f"{title} {where} {name} {number}" if where else f"{title} {name} {number}"
            yield Piece(text, position, unit.tobytes(), self.schema)


@dataclass(frozen=True)
class Range:
    """Bytes that are no record: `blank`, `damage` or `zeros`. silent: not to be printed."""

    record: Record
    silent: bool = False

    def records(self) -> Iterator[Record]:
        """One; zeros behind the end are nothing."""
        if self.record["type"] != "zeros" and not self.silent:
            yield self.record

    def pieces(self) -> Iterator[Piece]:
        """None: there are no fields."""
        return iter(())


@dataclass(frozen=True)
class Single:
    """A file that is one record."""

    record: Record
    data: bytes
    schema: Construct[Any, Any]

    def records(self) -> Iterator[Record]:
        """It."""
        yield self.record

    def pieces(self) -> Iterator[Piece]:
        """Its bytes."""
        yield Piece(str(self.record["type"]), 0, self.data, self.schema)


Chunk = Units | Range | Single


def consume_queue(what: Recognised, at: int | None) -> Iterator[Chunk]:
    """All units up to the last one that was written, queue by queue; `at`: queue offset."""
    from ..formats.consume_queue import UNIT, UNIT_BYTES
    from ..store.consume_queue import ConsumeQueue

    for topic, queue_id, files in queue_files(what):
        with ConsumeQueue(topic or "", queue_id or 0, files) as queue:
            stop = queue.summary().max_offset
            for first, units in queue.units(at or 0, stop):
                numbers = list(range(first, first + len(units)))
                yield Units(
                    "consume_queue_unit",
                    UNIT,
                    units,
                    "queue_offset",
                    numbers,
                    range(first * UNIT_BYTES, (first + len(units)) * UNIT_BYTES, UNIT_BYTES),
                    {"topic": topic, "queue_id": queue_id},
                    marks=_unit_state,
                )


def _unit_state(record: dict[str, Any]) -> Record:
    """What a unit is that points at no message."""
    from ..formats.consume_queue import PRE_FILL

    if record["size"] <= 0 or record["physical_offset"] < 0:
        return {"state": "invalid"}
    if all(record[name] == value for name, value in PRE_FILL.items()):
        return {"state": "pre_fill"}
    return {}


def queue_files(what: Recognised) -> Iterator[tuple[str | None, int | None, MappedFileQueue]]:
    """The queues at or below a path; topic and queue id are None where no place names them."""
    from ..store.mapped_file_queue import MappedFileQueue

    for topic, queue_id, path in _queues(what):
        yield topic, queue_id, _single_file(path) if path.is_file() else MappedFileQueue.open(path)


def _queues(what: Recognised) -> Iterator[tuple[str | None, int | None, Path]]:
    """The queues at or below a path, with their directories, or the one of a single file."""
    from ..store.consume_queue import queue_directories
    from ..store.layout import CONSUME_QUEUE
    from ..store.recognise import Recognised

    if what.queue is not None or what.path.is_file():
        topic, queue_id = what.queue or (None, None)
        yield topic, queue_id, what.path
        return
    if what.path.absolute().name == CONSUME_QUEUE:
        for found in queue_directories(what.path):
            yield found.topic, found.queue_id, Path(found.path)
        return
    numbers = [child for child in what.path.iterdir() if child.is_dir() and child.name.isdecimal()]
    for path in sorted(numbers, key=lambda child: int(child.name)):
        topic, queue_id = Recognised(path, what.kind, "").queue or (what.path.name, int(path.name))
        yield topic, queue_id, path
    if not numbers:
        yield None, None, what.path


def _single_file(path: Path) -> MappedFileQueue:
    """One file as a stream of its own: its name tells where it begins, if it is a number."""
    from ..store.mapped_file_queue import MappedFile, MappedFileQueue, start_of

    size = path.stat().st_size
    file = MappedFile(str(path), start_of(path.name) or 0, size)
    return MappedFileQueue((str(path.parent),), [file], size, [])


def timer_log(what: Recognised, at: int | None) -> Iterator[Chunk]:
    """Units, BLANKs and damage; `at`: position in the timer log."""
    from ..formats.timer_log import UNIT
    from ..store.mapped_file_queue import MappedFileQueue
    from ..store.timer import TimerUnits
    from ..store.timer import timer_log as scan

    path = what.path
    with _single_file(path) if path.is_file() else MappedFileQueue.open(path) as files:
        for part in scan(files, at):
            if isinstance(part, TimerUnits):
                numbers = part.position.tolist()
                yield Units("timer_log_unit", UNIT, part.units, "position", numbers, numbers)
            else:
                reason = {"reason": "not a unit"} if part.kind == "damage" else {}
                place = {"type": part.kind, "position": part.position, "size": part.size}
                yield Range(place | reason)


def timer_wheel(what: Recognised, at: int | None, raw: bool) -> Iterator[Chunk]:
    """Slots that were ever used, with `raw` all; `at`: number of a slot."""
    from ..formats.timer_wheel import SLOT, SLOT_BYTES
    from ..store.timer import timer_wheel as scan

    for part in scan(what.path, at or 0, unused=raw):
        numbers = part.number.tolist()
        positions = (part.number * SLOT_BYTES).tolist()
        yield Units("timer_wheel_slot", SLOT, part.slots, "slot", numbers, positions)


def checkpoint(what: Recognised) -> Iterator[Chunk]:
    """The fields; what a short file lacks is zero, as for a broker."""
    from ..formats.checkpoint import FIELDS, PAGE_BYTES
    from ..formats.derive import columns_of

    data = _read(what.path, PAGE_BYTES)
    fields = FIELDS.parse(data[: FIELDS.sizeof()].ljust(FIELDS.sizeof(), b"\0"))
    record = {"type": "checkpoint", **{c.name: fields[c.name] for c in columns_of(FIELDS)}}
    yield Single(record, data[: FIELDS.sizeof()], FIELDS)


def text_file(what: Recognised) -> Iterator[Chunk]:
    """`abort` and `lock`: their content as text."""
    from ..formats.derive import columns_of
    from ..formats.kinds import KINDS

    kind = KINDS[what.kind]
    data = _read(what.path, _TEXT_BYTES)
    (_, schema), *_ = kind.layouts
    name = columns_of(schema)[0].name
    yield Single({"type": kind.record_type, name: data.decode("utf-8", "replace")}, data, schema)


_TEXT_BYTES = 4096


def _read(path: Path, limit: int) -> bytes:
    from ..store.regular_file import read_regular

    return read_regular(path, limit)


def index(what: Recognised, at: int | None, config: BrokerConfig) -> Iterator[Chunk]:
    """Header and items of index files, oldest first; `at`: number of the first item."""
    from ..formats.index_file import HEADER, ITEM, ITEM_BYTES, items_offset

    for file in index_files(what.path, config):
        name = Path(file.path).name
        with file:
            header = {"type": "index_header", "file": name, **file.header._asdict()}
            yield Single(header, HEADER.build(file.header._asdict()), HEADER)
            for first, items in file.columns():
                begin = max(0, (at or 0) - first)
                items, first = items[begin:], first + begin
                start = items_offset(file.slots) + first * ITEM_BYTES
                hashes = items["key_hash"].tolist()
                yield Units(
                    "index_item",
                    ITEM,
                    items,
                    "number",
                    list(range(first, first + len(items))),
                    range(start, start + len(items) * ITEM_BYTES, ITEM_BYTES),
                    {"file": name},
                    {
                        "slot": [
                            key_hash % file.slots if file.slots > 0 else 0 for key_hash in hashes
                        ]
                    },
                )


def index_files(path: Path, config: BrokerConfig) -> list[IndexFile]:
    """The index files at a path, oldest first."""
    from ..store.index import Index, open_index_file

    return [open_index_file(path, config)] if path.is_file() else Index.open(path, config).files
