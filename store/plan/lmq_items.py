"""Records that name light queues without a number for each of them (spec 2.9; 7.12, B11).

The dispatch of a broker throws at one, for ever, or gives it no unit at all. The numbers that light
queues prove are put back; names that no number is known of, to which no broker could dispatch, are
taken out. Separators take the place of what is gone: the record keeps its size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from ...formats.message import MESSAGE
from ...formats.message_properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    ITEM_SEPARATOR,
    NAME_VALUE_SEPARATOR,
)
from ..audit.queues import QueueAudit
from ..disk.file_queue import MappedFileQueue
from ..disk.snapshot import QueueId
from .cut_properties import with_text, without_crc
from .fill_records import Piece
from .gaps import TornRecord

NumberOf = Callable[[bytes], int | None]
"""The queue offset of a record in a light queue, None: not known."""
_NUMBER = re.compile(rb"\+?[0-9]{1,18}")
_COMMA = b","
_NAMES, _OFFSETS = INNER_MULTI_DISPATCH.encode(), INNER_MULTI_QUEUE_OFFSET.encode()


def light_items(
    queue: MappedFileQueue, records: Sequence[TornRecord], audits: Mapping[QueueId, QueueAudit]
) -> Iterator[Piece]:
    """The records as they will be. audits: of the queues, which have seen the log. Raises Unreadable."""
    given = set[tuple[bytes, int]]()
    for record in records:

        def number(name: bytes, position: int = record.position) -> int | None:
            topic = name.decode("utf-8", "surrogateescape")
            audit = audits.get(QueueId(topic, 0))
            found = _number_in(audit, position) if audit is not None else None
            if found is None or (name, found) in given:
                return None
            given.add((name, found))
            return found

        data = queue.read(record.position, record.size)
        made = mended(data, number)
        if made is not None:
            yield record.position, made


def _number_in(audit: QueueAudit, position: int) -> int | None:
    """By the unit that names the record, or by the place that its neighbours in the queue leave."""
    for first, units in audit.on_disk():
        rows = (units["physical_offset"] == position).nonzero()[0]
        if len(rows):
            return first + int(rows[0])
    if audit.first < 0:
        return None
    for hole in audit.missing():
        if hole.end - hole.begin == 1 and hole.low <= position < hole.high:
            return hole.begin
    return audit.next if position > audit.last_position else None


def mended(record: bytes, number: NumberOf) -> bytes | None:
    """The record with as many numbers as names, None: nobody knows what it said."""
    values = MESSAGE.parse(record)
    text, with_crc = without_crc(values.properties)
    items = text.split(ITEM_SEPARATOR)
    named = {part: _of(items, part) for part in (_NAMES, _OFFSETS)}
    if len(named[_NAMES]) != 1 or len(named[_OFFSETS]) > 1:
        return None
    names = _value(items, named[_NAMES]).split(_COMMA)
    offsets = _value(items, named[_OFFSETS]).split(_COMMA)
    if len(offsets) > len(names):
        offsets = []  # which of them is whose nobody knows
    offsets += [b""] * (len(names) - len(offsets))
    pairs = [
        (name, _right(name, offset, number)) for name, offset in zip(names, offsets, strict=True)
    ]
    kept = [(name, offset) for name, offset in pairs if name and offset]
    for part, row in ((_NAMES, 0), (_OFFSETS, 1)):
        value = _COMMA.join(pair[row] for pair in kept)
        for at in named[part]:
            items[at] = part + NAME_VALUE_SEPARATOR + value if kept else b""
    made = ITEM_SEPARATOR.join(item for item in items if item) + ITEM_SEPARATOR
    if len(made) > len(text):
        made = made.removesuffix(ITEM_SEPARATOR)
    return with_text(values, made, with_crc=with_crc) if len(made) <= len(text) else None


def _right(name: bytes, offset: bytes, number: NumberOf) -> bytes:
    """A number as it stands there, or as a light queue has it; none where nobody knows it."""
    if _NUMBER.fullmatch(offset):
        return offset
    found = number(name) if name else None
    return b"" if found is None else b"%d" % found


def _of(items: Sequence[bytes], name: bytes) -> list[int]:
    return [at for at, item in enumerate(items) if item.partition(NAME_VALUE_SEPARATOR)[0] == name]


def _value(items: Sequence[bytes], at: Sequence[int]) -> bytes:
    return items[at[0]].partition(NAME_VALUE_SEPARATOR)[2] if at else b""
