"""Units of consumequeue_ext whose sizes contradict each other, made to follow one another again.

A queue names where its units begin, and the record which tags code and time each has. What is left is
the length: it leads to the next unit, as it did before. Spec 02, 2.6; I-079.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from ...formats.consume_queue_ext import END_MARK, HEAD, UNIT, UNIT_BYTES_MAX, UNIT_BYTES_MIN
from ..consume_queue_ext import ExtRange, ext_units
from ..mapped_file_queue import MappedFile, MappedFileQueue
from ..recovery.edits import Edit

_CODES = ("I-079",)


@dataclass(frozen=True)
class Wanted:
    """What the record of a unit says is in consumequeue_ext."""

    tags_code: int
    store_timestamp: int


def damaged_ranges(files: MappedFileQueue) -> list[ExtRange]:
    """What is no unit, and neither the end of a file nor unused. Raises Unreadable."""
    parts = (part for part in ext_units(files) if isinstance(part, ExtRange))
    return [part for part in parts if part.kind == "damage"]


def mend_range(files: MappedFileQueue, part: ExtRange, named: Mapping[int, Wanted]) -> list[Edit]:
    """The edits of one range. named: by place in the stream, the units that begin there.

    Raises Unreadable.
    """
    file = files.file_at(part.position)
    if file is None:
        return []
    begin = part.position - file.start
    data = files.read_file(file, begin, part.size)
    starts = sorted(place - part.position for place in named)
    if not starts:
        # nothing is named here: new units begin in the newest file, no other has any
        newest = file is files.files[-1]
        new = b"" if newest else END_MARK
        reason = "no unit that a queue names"
        length = len(data.rstrip(b"\0")) if newest else len(new)
        return [Edit("write", file.path, reason, _CODES, begin, length, new or None)]
    if starts[0] >= UNIT_BYTES_MIN:
        starts.insert(0, 0)  # a unit that no queue names any more
    edits: list[Edit] = []
    for start, end in pairwise([*starts, len(data)]):
        size = _size(data, start, end, last=end == len(data))
        edits += _unit(file, begin, data, start, size, named.get(part.position + start))
    return edits


def _size(data: bytes, start: int, end: int, *, last: bool) -> int:
    """Length of the unit at `start`, before the next one at `end`."""
    head = data[start : start + UNIT_BYTES_MIN]
    if len(head) < UNIT_BYTES_MIN:
        return UNIT_BYTES_MIN
    fields = HEAD.parse(head)
    for size in (UNIT_BYTES_MIN + fields.bit_map_size, fields.size):
        rest = data[start + size : end] if UNIT_BYTES_MIN <= size <= end - start else None
        if rest is not None and (
            not rest or (last and (rest.startswith(END_MARK) or not any(rest)))
        ):
            return int(size)
    return end - start if UNIT_BYTES_MIN <= end - start <= UNIT_BYTES_MAX else UNIT_BYTES_MIN


def _unit(
    file: MappedFile, begin: int, data: bytes, start: int, size: int, wanted: Wanted | None
) -> Iterator[Edit]:
    """The head of a unit where it is not as it has to be."""
    head = data[start : start + UNIT_BYTES_MIN]
    if begin + start + size > file.size:
        return
    fields = HEAD.parse(head.ljust(UNIT_BYTES_MIN, b"\0"))
    fields |= {"bit_map": bytes(size - UNIT_BYTES_MIN)}  # from which follow both sizes
    if wanted is not None:
        fields |= {"tags_code": wanted.tags_code, "msg_store_time": wanted.store_timestamp}
    new: bytes = UNIT.build(fields)[:UNIT_BYTES_MIN]
    if new != head:
        reason = "a unit that leads to the next one"
        yield Edit("write", file.path, reason, _CODES, begin + start, len(new), new)
