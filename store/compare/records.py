"""Records of two logs at the same place, field by field."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ..counted import counted
from ..log.commit_log import LOOK_BACK_BYTES, Batch, Split, scan_split
from ..log.message import Mark, Message, messages
from ..search.store import Store
from .log_bytes import Range

RANGES_LOOKED_AT = 20
RECORDS_MAX = 100
_RANGE_BYTES = 1 << 20
"""So much of a range that differs is looked at."""
_LEFT_OUT = frozenset({"type", "properties", "body", "body_base64", "body_truncated", "raw"})
_AROUND = 40
"""So much of a long text is shown around the first character that differs."""


class FieldDiffers(NamedTuple):
    """A field of the record at a log position. name: `body`, `properties.KEYS`, …; "" for the whole record.

    a, b: its value on each side, None where there is none.
    """

    position: int
    name: str
    a: Any
    b: Any


def differing_fields(a: Store, b: Store, ranges: Sequence[Range]) -> Iterator[FieldDiffers]:
    """What of the records differs whose bytes are in the first of these ranges. Raises Unreadable."""
    left, seen = RECORDS_MAX, set[int]()
    for each in ranges[:RANGES_LOOKED_AT]:
        within = Range(each.start, min(each.stop, each.start + _RANGE_BYTES))
        one, other = _records(a, within), _records(b, within)
        for position in sorted(one.keys() | other.keys()):
            if position in seen:
                continue
            seen.add(position)
            found = list(_fields(position, one.get(position), other.get(position)))
            if found and not left:
                return
            left -= bool(found)
            yield from found


def _records(store: Store, within: Range) -> dict[int, Message]:
    """The records with some byte in a range, by their place."""
    found = dict[int, Message]()
    split = Split(max(store.log_files.start, within.start - LOOK_BACK_BYTES), within.stop)
    for item in scan_split(store.log, split, crc=True):
        if not isinstance(item, Batch) or item.mark > Mark.AFTER_DAMAGE:
            continue
        ends = item.position + item.columns.ints("total_size")
        for message in messages(item.take(ends > within.start)):
            found[message.position] = message
            if len(found) > RECORDS_MAX:
                return found
    return found


def _fields(position: int, a: Message | None, b: Message | None) -> Iterator[FieldDiffers]:
    if a is None or b is None:
        yield FieldDiffers(position, "", _name(a), _name(b))
        return
    one, other = (_values(message) for message in (a, b))
    for name in dict.fromkeys([*one, *other]):
        if one.get(name) != other.get(name):
            x, y = one.get(name), other.get(name)
            yield FieldDiffers(position, name, _short(x, y), _short(y, x))


def _name(message: Message | None) -> str | None:
    if message is None:
        return None
    return f"{message.topic}/{message.queue_id} at {message.queue_offset}"


def _values(message: Message) -> dict[str, Any]:
    told = message.to_json(max_body=0)
    found = {name: value for name, value in told.items() if name not in _LEFT_OUT}
    properties = told.get("properties")
    if isinstance(properties, dict):
        found |= {f"properties.{name}": value for name, value in properties.items()}
    found["body"] = message.stored_body.decode("utf-8", "backslashreplace")
    return found


def _short(value: Any, other: Any) -> Any:
    """A value without what makes it long: a text around the first character that is not that of the other one."""
    if not isinstance(value, str) or len(value) <= 4 * _AROUND:
        return value
    pairs = enumerate(zip(value, other if isinstance(other, str) else "", strict=False))
    same = next((number for number, (x, y) in pairs if x != y), 0)
    begin, end = max(0, same - _AROUND), min(len(value), same + _AROUND)
    before, behind = "…" if begin else "", "…" if end < len(value) else ""
    return f"{before}{value[begin:end]}{behind} ({counted(len(value), 'character', form=',')})"
