"""What `dump` prints of a file: chunks of records.

A chunk gives its records by the names of the output, or its bytes for the hex view. The field names
are those of the schemas, nothing here knows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from construct import Construct

    from ...formats.derive.ragged import Structs
    from ...store.inspect.recognise import Recognised
    from ..options import Common

Record = Mapping[str, Any]


class RecordPiece(NamedTuple):
    """The bytes of one record and what they are: `data` begins at `position`.

    counts: False for what only leads to the next piece.
    """

    title: str
    position: int
    data: bytes
    schema: Construct[Any, Any] | None
    counts: bool = True


@dataclass(frozen=True)
class RecordArray:
    """Records of one schema in a row.

    number_name: what numbers them (`queue_offset`, `position`, …). numbers, positions: number and
    byte position of each. before, more: fields in front of the schema's, the same for all and one
    for each. marks: says more of a record.
    """

    record_type: str
    schema: Construct[Any, Any]
    array: Structs
    number_name: str
    numbers: list[int]
    positions: Iterable[int]
    before: Record = field(default_factory=dict)
    more: Mapping[str, list[int]] = field(default_factory=dict)
    marks: Callable[[dict[str, Any]], Record] | None = None

    def records(self) -> Iterator[Record]:
        """By the names of the output."""
        names = (self.number_name, *self.more, *(self.array.dtype.names or ()))
        head = {"type": self.record_type, **self.before}
        numbers = zip(self.numbers, *self.more.values(), strict=True)
        for number, values in zip(numbers, self.array.tolist(), strict=True):
            record = {**head, **dict(zip(names, (*number, *values), strict=True))}
            if self.marks is not None:
                record.update(self.marks(record))
            yield record

    def pieces(self) -> Iterator[RecordPiece]:
        """For the hex view."""
        where = " ".join(f"{name} {value}" for name, value in self.before.items())
        title = self.record_type.replace("_", " ")
        for number, position, unit in zip(self.numbers, self.positions, self.array, strict=True):
            name = self.number_name.replace("_", " ")
            text = f"{title} {where} {name} {number}" if where else f"{title} {name} {number}"
            yield RecordPiece(text, position, unit.tobytes(), self.schema)


class NonRecordRange(NamedTuple):
    """Bytes that are no record: `blank`, `damage` or `zeros`. silent: not to be printed."""

    record: Record
    silent: bool = False

    def records(self) -> Iterator[Record]:
        """One; zeros behind the end are nothing."""
        if self.record["type"] != "zeros" and not self.silent:
            yield self.record

    def pieces(self) -> Iterator[RecordPiece]:
        """None: there are no fields."""
        return iter(())


def damage_text(ranges: int, size: int, first: str) -> str:
    """One line on damage that was met: how many ranges, how many bytes, and the first of them."""
    from ...store.counted import counted

    return f"{counted(ranges, 'damaged range')}, {counted(size, 'byte')}, the first at {first}"


class Single(NamedTuple):
    """A file that is one record."""

    record: Record
    data: bytes
    schema: Construct[Any, Any]

    def records(self) -> Iterator[Record]:
        """It."""
        yield self.record

    def pieces(self) -> Iterator[RecordPiece]:
        """Its bytes."""
        yield RecordPiece(str(self.record["type"]), 0, self.data, self.schema)


class Texts(NamedTuple):
    """Records that are not told by a schema alone, and the bytes that they come from."""

    found: Iterable[Record]
    bytes_of: Callable[[], Iterator[RecordPiece]]

    def records(self) -> Iterator[Record]:
        """Them."""
        yield from self.found

    def pieces(self) -> Iterator[RecordPiece]:
        """The bytes."""
        return self.bytes_of()


class Chunk(Protocol):
    """Records of a file in a row; see `RecordArray`, `NonRecordRange`, `Single`."""

    def records(self) -> Iterator[Record]:
        """By the names of the output."""

    def pieces(self) -> Iterator[RecordPiece]:
        """For the hex view."""


def only_record(chunks: Iterable[Chunk]) -> dict[str, Any]:
    """The fields of the one record of a file that is one."""
    (record,) = (record for chunk in chunks for record in chunk.records())
    return {name: value for name, value in record.items() if name != "type"}


class FileKindModule(Protocol):
    """A module of this package, named as its kind with underscores."""

    def chunks(self, what: Recognised, at: int | None, raw: bool, common: Common) -> Iterator[Chunk]:
        """The records of the file or directory; `at`: where to begin, in the kind's own numbers.

        raw: also what was never used, bytes as they are.
        """

    def summary(self, what: Recognised, common: Common) -> dict[str, Any]:
        """What is in it, for `inspect`."""
