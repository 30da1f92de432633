"""Descriptions of the JSON in configuration files: tables, their keys, the fields of an entry.

A table is a map in one member of the file; its entries are records. Names are those of the file; records have them in
snake_case (`readQueueNums` → `read_queue_nums`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

_DIGITS = 19
"""Most digits of an integer."""
_TYPES: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "string": (str,),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}


@lru_cache(maxsize=1 << 10)
def _in_snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


class JsonField(NamedTuple):
    """A member of an entry, or a key of a table.

    type: as in JSON Schema. called: name in records if it cannot be that of the file. after: for the second of two
    fields in one key, the separator before it. bits: width of an integer in a broker. inner: description of an object,
    or of each item of an array. nullable: as an entry or item, it may be null.
    """

    name: str
    type: str
    doc: str
    called: str = ""
    after: str = "@"
    bits: int = 64
    inner: JsonTable | None = None
    nullable: bool = False

    @property
    def column(self) -> str:
        """Name in records."""
        return self.called or _in_snake_case(self.name)

    @property
    def told(self) -> str:
        """The type in words."""
        return f"integer of {self.bits} bits" if self.type == "integer" else self.type

    def fits(self, value: Any) -> bool:
        """Whether a value has the type."""
        right = isinstance(value, _TYPES[self.type])
        return right and (self.type == "boolean" or not isinstance(value, bool))

    def holds(self, number: int | str) -> bool:
        """Whether a number, or a text, is a whole number in the range of a broker."""
        if isinstance(number, str):
            digits = number.removeprefix("-")
            if not (digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS):
                return False
        return -1 << self.bits - 1 <= int(number) < 1 << self.bits - 1


class Member(NamedTuple):
    """A level between two levels of keys: the member that holds the next map."""

    name: str


class JsonTable(NamedTuple):
    """A table of a file, or of a value inside one.

    member: where the table is in the file. record_type: `type` of its records. levels: the keys, from the outer map to
    the inner one; two fields in a tuple share one key, such as `topic@group`. fields: members of an entry; or value:
    the entry if it is not an object.
    """

    member: str
    record_type: str
    doc: str
    levels: tuple[JsonField | tuple[JsonField, JsonField] | Member, ...] = ()
    fields: tuple[JsonField, ...] = ()
    value: JsonField | None = None

    @property
    def keys(self) -> tuple[JsonField, ...]:
        """The fields that keys give to a record."""
        return tuple(_keys(self.levels))

    @property
    def columns(self) -> tuple[JsonField, ...]:
        """All fields that a record of the table may have."""
        return (*self.keys, *self.fields, *((self.value,) if self.value else ()))


def _keys(levels: tuple[JsonField | tuple[JsonField, JsonField] | Member, ...]) -> Iterator[JsonField]:
    for level in levels:
        if isinstance(level, JsonField):
            yield level
        elif not isinstance(level, Member):
            yield from level


def properties_table(record_type: str, name: str) -> JsonTable:
    """The table of a file of Java properties. name: what their names are."""
    value = JsonField("value", "string", "its value")
    return JsonTable("", record_type, "one entry for each line", (JsonField("name", "string", name),), value=value)


STATE_VERSION, EXPRESSION_TYPE = "stateVersion", "expressionType"
TOPIC = JsonField("topic", "string", "topic")
GROUP = JsonField("group", "string", "consumer group")
QUEUE_ID = JsonField("queueId", "integer", "queue id", bits=32)
CONSUMER_GROUP = JsonField("consumerGroup", "string", "the group again")
TIME_STAMP = JsonField("timeStamp", "integer", "time of the last change in ms")
DATA_VERSION = JsonTable(
    "dataVersion",
    "data_version",
    "how often the table was changed; a slave and a switch to RocksDB compare it",
    fields=(
        JsonField("counter", "integer", "number of changes"),
        JsonField(STATE_VERSION, "integer", "version of the controller's state, 4.9+"),
        JsonField("timestamp", "integer", "time of the last change in ms"),
    ),
)
