"""Chunks of records, which `dump` prints.

A chunk gives its records by the field names of the output, or their bytes for the hex view. All field names come from
the schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from ...store.counted import counted

if TYPE_CHECKING:
    from construct import Construct

    from ...formats.derive.ragged import Structs
    from ...store.inspect.recognise import Recognised
    from ..options import Common

Record = Mapping[str, Any]


class RecordPiece(NamedTuple):
    """Bytes for the hex view, from `position` on.

    counts: False for a part that leads to the next piece of the same record.
    """

    title: str
    position: int
    data: bytes
    schema: Construct[Any, Any] | None
    counts: bool = True


@dataclass(frozen=True)
class RecordArray:
    """Consecutive records of one schema.

    number_name: field that numbers the records (`queue_offset`, `position`, …). numbers: of each record. before: fields
    in front, the same for all records. more: further fields in front, a value per record. marks: returns more fields
    for a record. begin: byte position of record number 0, unless the numbers are positions.
    """

    record_type: str
    schema: Construct[Any, Any]
    array: Structs
    number_name: str
    numbers: Sequence[int]
    before: Record = field(default_factory=dict)
    more: Mapping[str, list[int]] = field(default_factory=dict)
    marks: Callable[[dict[str, Any]], Record] | None = None
    begin: int = 0

    def records(self) -> Iterator[Record]:
        names = (self.number_name, *self.more, *(self.array.dtype.names or ()))
        head = {"type": self.record_type, **self.before}
        numbers = zip(self.numbers, *self.more.values(), strict=True)
        for number, values in zip(numbers, self.array.tolist(), strict=True):
            record = {**head, **dict(zip(names, (*number, *values), strict=True))}
            if self.marks is not None:
                record.update(self.marks(record))
            yield record

    def pieces(self) -> Iterator[RecordPiece]:
        where = " ".join(f"{name} {value}" for name, value in self.before.items())
        title = self.record_type.replace("_", " ")
        step = 1 if self.number_name == "position" else self.schema.sizeof()
        for number, unit in zip(self.numbers, self.array, strict=True):
            name = self.number_name.replace("_", " ")
            text = f"{title} {where} {name} {number}" if where else f"{title} {name} {number}"
            yield RecordPiece(text, self.begin + number * step, unit.tobytes(), self.schema)


def state_of_numbers(state: str, numbers: Container[int], record: Record) -> Record:
    """Mark records by their field `number`."""
    return {"state": state} if record["number"] in numbers else {}


class NonRecordRange(NamedTuple):
    """Bytes that are not a record: `blank`, `damage` or `zeros`. silent: do not print it, only count it."""

    record: Record
    silent: bool = False

    @classmethod
    def damage(cls, position: int, size: int, reason: str, *, silent: bool = False) -> Self:
        return cls({"type": "damage", "position": position, "size": size, "reason": reason}, silent)

    def records(self) -> Iterator[Record]:
        """The range as a record, unless it is silent or zeros behind the end."""
        if self.record["type"] != "zeros" and not self.silent:
            yield self.record

    def pieces(self) -> Iterator[RecordPiece]:
        return iter(())


def damage_text(ranges: int, size: int, first: str) -> str:
    """One line on damage: the number of ranges, of bytes, and the first range."""
    return f"{counted(ranges, 'damaged range')}, {counted(size, 'byte')}, the first at {first}"


class SingleRecords(NamedTuple):
    """Records that are no array, and the bytes that they come from."""

    found: Iterable[Record]
    bytes_of: Callable[[], Iterator[RecordPiece]]

    def records(self) -> Iterator[Record]:
        yield from self.found

    def pieces(self) -> Iterator[RecordPiece]:
        return self.bytes_of()


def single(record: Record, data: bytes, schema: Construct[Any, Any]) -> SingleRecords:
    """A file, or the beginning of a file, that is one record."""
    return SingleRecords([record], lambda: iter([RecordPiece(str(record["type"]), 0, data, schema)]))


class Chunk(Protocol):
    """Consecutive records of a file; see `RecordArray`, `NonRecordRange`, `SingleRecords`."""

    def records(self) -> Iterator[Record]:
        """The records, by the field names of the output."""

    def pieces(self) -> Iterator[RecordPiece]:
        """The bytes of each record, for the hex view."""


def only_record(chunks: Iterable[Chunk]) -> dict[str, Any]:
    """The fields of the only record of a file, without `type`."""
    (record,) = (record for chunk in chunks for record in chunk.records())
    return {name: value for name, value in record.items() if name != "type"}


class FileKindModule(Protocol):
    """The interface of a module of this package."""

    def chunks(self, what: Recognised, at: int | None, raw: bool, common: Common) -> Iterator[Chunk]:
        """The records of a file or directory. at: where to begin, in the kind's own numbers.

        raw: also parts that were never used; bytes as they are.
        """

    def summary(self, what: Recognised, common: Common) -> dict[str, Any]:
        """The fields that `inspect` prints."""
