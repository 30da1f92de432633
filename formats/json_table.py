"""How the JSON of a configuration file is told: its tables, their keys, the fields of an entry.

A table is a map below one member of the file; its entries are records. Names are those of the file;
a record has them in snake_case (`readQueueNums` → `read_queue_nums`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

_DIGITS = 19
"""Of an integer at most."""
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
    """One member of an entry, or what a key of a table is.

    type: as in JSON Schema. called: its name in records, where it cannot be that of the file. after:
    of the second of two fields in one key, what stands before it. bits: of an integer, as a broker holds it.
    inner: what an object has, or each item of an array. nullable: as an entry, or an item, it may be none.
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
        """Its name in records."""
        return self.called or _in_snake_case(self.name)

    @property
    def told(self) -> str:
        """Its type in words."""
        return f"integer of {self.bits} bits" if self.type == "integer" else self.type

    def fits(self, value: Any) -> bool:
        """Whether a value is of the type."""
        right = isinstance(value, _TYPES[self.type])
        return right and (self.type == "boolean" or not isinstance(value, bool))

    def holds(self, number: int | str) -> bool:
        """Whether a number, or a text of one, is a whole one and not beyond what a broker holds."""
        if isinstance(number, str):
            digits = number.removeprefix("-")
            if not (digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS):
                return False
        return -1 << self.bits - 1 <= int(number) < 1 << self.bits - 1


class Member(NamedTuple):
    """A step down between two levels of keys: the member that holds the next map."""

    name: str


class JsonTable(NamedTuple):
    """One table of a file, or what one of its values has inside.

    member: where it stands in the file. record_type: `type` of its records. levels: what the keys
    are, from the outer map in; two fields in a tuple stand in one key, such as `topic@group`. fields:
    members of an entry; or value: what an entry is where it is no object.
    """

    member: str
    record_type: str
    doc: str
    levels: tuple[JsonField | tuple[JsonField, JsonField] | Member, ...] = ()
    fields: tuple[JsonField, ...] = ()
    value: JsonField | None = None

    @property
    def keys(self) -> tuple[JsonField, ...]:
        """What the keys give to a record."""
        return tuple(_keys(self.levels))

    @property
    def columns(self) -> tuple[JsonField, ...]:
        """Everything that a record of the table may have of the file."""
        return (*self.keys, *self.fields, *((self.value,) if self.value else ()))


def _keys(levels: tuple[JsonField | tuple[JsonField, JsonField] | Member, ...]) -> Iterator[JsonField]:
    for level in levels:
        if isinstance(level, JsonField):
            yield level
        elif not isinstance(level, Member):
            yield from level


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
