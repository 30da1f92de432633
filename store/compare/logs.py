"""Two logs compared byte by byte, where both have files: a replica has the bytes of its master at the same positions.

Each byte is read once. Nothing is compared behind the end of a log: what a broker cut off there, or allocated in
advance, does not count. Records at the same position are compared field by field.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...formats.derive.ragged import Bytes
from ..counted import counted
from ..disk.file_queue import MappedFileQueue
from ..disk.layout import Layout
from ..log.batch import good_records, messages
from ..log.commit_log import in_step
from ..log.message import Message
from ..search.store import StoreReader

if TYPE_CHECKING:
    from ..recover.predict import SlaveCut

RANGES_MAX = 10_000
"""If more ranges differ, the last one extends to the end of the rest."""
SAMPLES = 256
SAMPLE_BYTES = 64 << 10
_WINDOW_BYTES = 1 << 20
"""Bytes to read and compare at once: both sides fit into the cache."""
_NEAR_BYTES = 4 << 10
"""Differences at most so far apart are one range."""


class PositionRange(NamedTuple):
    """Log positions start ≤ p < stop."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


@dataclass
class LogsCompared:
    """a, b: range of each log, None if a side has none. same: one is a copy of the other, as far as both go; None if
    nothing says so. differing: ranges that both have, in order. expired_a, expired_b: what only one side has in front
    of the start of the other. only_a, only_b: what only one side has behind that. compared: bytes of each. samples:
    number of ranges that were compared, None if all were. apart: outside of these ranges both logs have the same
    records, expired ones aside; None if that is not known.
    """

    a: PositionRange | None
    b: PositionRange | None
    same: bool | None = None
    differing: list[PositionRange] = field(default_factory=list)
    expired_a: list[PositionRange] = field(default_factory=list)
    expired_b: list[PositionRange] = field(default_factory=list)
    only_a: list[PositionRange] = field(default_factory=list)
    only_b: list[PositionRange] = field(default_factory=list)
    compared: int = 0
    samples: int | None = None
    apart: list[PositionRange] | None = None

    @property
    def first(self) -> int | None:
        """Log position of the first byte that differs, or that only one side has; None without any."""
        found = [each.start for each in (*self.differing, *self.only_a, *self.only_b)]
        return min(found, default=None)

    @property
    def common(self) -> PositionRange | None:
        """What both have of one log, from the later start to the earlier end; None if the logs are not the same."""
        if self.a is None or self.b is None or not self.same:
            return None
        return PositionRange(max(self.a.start, self.b.start), min(self.a.stop, self.b.stop))


Note = Callable[[int], None]


def compare_logs(
    a: StoreReader, b: StoreReader, *, quick: bool = False, heads: bool = False, note: Note
) -> LogsCompared:
    """Compare two logs. note: called with the number of bytes of both that were read. quick: only the ends of what both
    have, the starts of files, and `SAMPLES` samples. heads: only whether they are one log. Raise Unreadable.
    """
    one, two = _extent_of(a), _extent_of(b)
    found = LogsCompared(one, two)
    if one is None or two is None:
        return found
    start, stop = max(one.start, two.start), min(one.stop, two.stop)
    has_a, has_b = _ranges_in_files(a, one), _ranges_in_files(b, two)
    both = [each for each in _common(has_a, has_b) if each.start < stop]
    logs = a.log_files, b.log_files
    found.same = _is_same(logs, both[0].start) if both else None
    if not found.same:
        return found
    found.expired_a, found.only_a = _alone(has_a, has_b, start)
    found.expired_b, found.only_b = _alone(has_b, has_a, start)
    pieces = [] if heads else list(_samples(a, both)) if quick else both
    found.samples = len(pieces) if quick or heads else None
    found.differing = _joined(_differing(*logs, pieces, note), RANGES_MAX)
    found.compared = sum(each.size for each in pieces)
    if found.samples is None:
        found.apart = _widened(a, b, start, [*found.differing, *found.only_a, *found.only_b])
    return found


def with_logs_compared(cut: SlaveCut, master: Layout, note: Note) -> SlaveCut:
    """Compare what the slave keeps with its master's log, as no broker does. note: as of `compare_logs`. Raises
    Unreadable.
    """
    with StoreReader(cut.layout) as slave, StoreReader(master) as its:
        logs = compare_logs(slave, its, note=note)
    if logs.a is None or logs.b is None or logs.same is None:
        return cut
    differing = logs.differing if logs.same else [PositionRange(max(logs.a.start, logs.b.start), logs.a.stop)]
    end = min(cut.position, cut.log_end)
    kept = [each.start for each in differing if each.start < end]
    if not kept and end > logs.b.stop:  # the master's log may be an older copy
        return cut
    return replace(cut, compared=True, differs_at=min(kept, default=None))


def _widened(a: StoreReader, b: StoreReader, start: int, ranges: list[PositionRange]) -> list[PositionRange]:
    """Widen ranges so that each record with a byte in a range lies in it whole. start: of what both have."""
    begins = (min(in_step(side.log, each.start) for side in (a, b)) for each in ranges)
    wide = [PositionRange(max(start, begin), each.stop) for begin, each in zip(begins, ranges, strict=True)]
    return _joined(sorted(wide))


def _alone(
    mine: list[PositionRange], other: list[PositionRange], start: int
) -> tuple[list[PositionRange], list[PositionRange]]:
    """Return what only `mine` has before the log position `start`, and from there on."""
    alone = _without(mine, other)
    before = [PositionRange(each.start, min(each.stop, start)) for each in alone if each.start < start]
    behind = [PositionRange(max(each.start, start), each.stop) for each in alone if each.stop > start]
    return before, behind


def _extent_of(store: StoreReader) -> PositionRange | None:
    files = store.log_files
    if not files.files:
        return None
    return PositionRange(files.start, max(files.start, store.log_end.position))


def _ranges_in_files(store: StoreReader, extent: PositionRange | None) -> list[PositionRange]:
    """Return the ranges of a log that its files have."""
    end = extent.stop if extent else 0
    found = (PositionRange(f.start, min(f.start + f.size, f.end, end)) for f in store.log_files.files)
    return _joined([each for each in found if each.size > 0], near=0)


def _is_same(logs: tuple[MappedFileQueue, MappedFileQueue], start: int) -> bool:
    """Return whether both logs have the same bytes of a record's head, with time and origin. Damage aside, one of the
    first few places is enough.
    """
    places = [start + number * _WINDOW_BYTES for number in range(_PLACES)]
    pairs = [[_read(log, place, _HEAD_BYTES) for log in logs] for place in places]
    return any(a == b and any(a) for a, b in pairs if a and b)


_PLACES = 4
_HEAD_BYTES = 64


def _read(files: MappedFileQueue, position: int, size: int) -> bytes:
    file = files.file_at(position)
    return b"" if file is None else files.readable(file, position - file.start, size, 1)


def _differing(
    a: MappedFileQueue, b: MappedFileQueue, pieces: Iterable[PositionRange], note: Note
) -> Iterator[PositionRange]:
    """Yield ranges with bytes that differ, or that a disk does not return."""
    rooms = bytearray(_WINDOW_BYTES), bytearray(_WINDOW_BYTES)
    for piece in pieces:
        at = piece.start
        while at < piece.stop:
            size = min(_WINDOW_BYTES, piece.stop - at)
            (data_a, bad_a), (data_b, bad_b) = (
                _window(log, at, size, room) for log, room in zip((a, b), rooms, strict=True)
            )
            size = min(len(data_a), len(data_b)) or size
            if not _are_equal(data_a, data_b):
                yield from _ranges(data_a, data_b, at)
            yield from sorted([*bad_a, *bad_b])
            note(2 * size)
            at += size


def _window(files: MappedFileQueue, position: int, size: int, room: bytearray) -> tuple[Bytes, list[PositionRange]]:
    """Return bytes of one file from a log position on, in `room`, and ranges of it that cannot be read."""
    file = files.file_at(position)
    if file is None:
        return np.zeros(0, np.uint8), []
    size = min(size, file.start + file.size - position)
    got, unread = files.read_around(file, position - file.start, memoryview(room)[:size])
    bad = [PositionRange(file.start + each.offset, file.start + each.end) for each in unread]
    return np.frombuffer(room, np.uint8, got), bad


def _are_equal(a: Bytes, b: Bytes) -> bool:
    """Compare word by word, which is fast."""
    words = len(a) // 8 * 8
    return len(a) == len(b) and bool(
        (a[:words].view(np.uint64) == b[:words].view(np.uint64)).all() and (a[words:] == b[words:]).all()
    )


def _ranges(a: Bytes, b: Bytes, position: int) -> Iterator[PositionRange]:
    size = min(len(a), len(b))
    at = np.flatnonzero(a[:size] != b[:size])
    if not len(at):
        return
    cuts = np.flatnonzero(np.diff(at) > _NEAR_BYTES)
    starts, stops = np.append(at[:1], at[cuts + 1]), np.append(at[cuts], at[-1:]) + 1
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        yield PositionRange(position + start, position + stop)


def _joined(ranges: Iterable[PositionRange], most: int | None = None, near: int = _NEAR_BYTES) -> list[PositionRange]:
    """Return ranges in order, joined if near each other. most: number of ranges; the last one gets the rest."""
    found: list[PositionRange] = []
    for each in ranges:
        last = found[-1] if found else None
        full = most is not None and len(found) >= most
        if last is not None and (each.start - last.stop <= near or full):
            found[-1] = PositionRange(last.start, max(last.stop, each.stop))
        else:
            found.append(each)
    return found


def _common(a: list[PositionRange], b: list[PositionRange]) -> list[PositionRange]:
    """Return what is in both; both are in order."""
    found = []
    for mine in a:
        for other in b[max(0, bisect_right(b, mine) - 1) :]:
            if other.start >= mine.stop:
                break
            each = PositionRange(max(mine.start, other.start), min(mine.stop, other.stop))
            if each.size > 0:
                found.append(each)
    return found


def _without(mine: list[PositionRange], other: list[PositionRange]) -> list[PositionRange]:
    """Return what of the first is not in the second."""
    found = []
    for each in mine:
        at = each.start
        for common in _common([each], other):
            if common.start > at:
                found.append(PositionRange(at, common.start))
            at = common.stop
        if at < each.stop:
            found.append(PositionRange(at, each.stop))
    return found


def _samples(store: StoreReader, both: list[PositionRange]) -> Iterator[PositionRange]:
    """Yield both ends of each range, the starts of files, and pieces at equal distances."""
    total = sum(each.size for each in both)
    step = max(SAMPLE_BYTES, total // SAMPLES)
    wanted = list[PositionRange]()
    files = [file.start for file in store.log_files.files]
    files = files[:: max(1, len(files) // SAMPLES)]
    for each in both:
        starts = {*range(each.start, each.stop, step), each.stop - SAMPLE_BYTES, *files}
        wanted += [PositionRange(max(each.start, s), min(each.stop, s + SAMPLE_BYTES)) for s in starts]
    yield from _joined(sorted(each for each in wanted if each.size > 0), near=0)


RANGES_LOOKED_AT = 20
RECORDS_MAX = 100
_RANGE_BYTES = 1 << 20
"""Bytes at the start of a range in which records are compared."""
_LEFT_OUT = frozenset({"type", "properties", "body", "body_base64", "body_truncated", "raw"})
_AROUND = 40
"""Characters of a long text to show on each side of the first difference."""


class FieldDiffers(NamedTuple):
    """A field that differs in the record at a log position. name: `body`, `properties.KEYS`, …; "" for all of it.

    a, b: its value on each side, None without any.
    """

    position: int
    name: str
    a: Any
    b: Any


def differing_fields(a: StoreReader, b: StoreReader, ranges: Sequence[PositionRange]) -> Iterator[FieldDiffers]:
    """Yield fields that differ in records with bytes in the first of these ranges. Raise Unreadable."""
    room, seen = RECORDS_MAX, set[int]()
    for each in ranges[:RANGES_LOOKED_AT]:
        within = PositionRange(each.start, min(each.stop, each.start + _RANGE_BYTES))
        one, other = _records(a, within), _records(b, within)
        for position in sorted(one.keys() | other.keys()):
            if position in seen:
                continue
            seen.add(position)
            found = list(_fields(position, one.get(position), other.get(position)))
            if found and not room:
                return
            room -= bool(found)
            yield from found


def _records(store: StoreReader, within: PositionRange) -> dict[int, Message]:
    """Return the records with some byte in a range, by position."""
    found = dict[int, Message]()
    for batch in good_records(store.log.scan(in_step(store.log, within.start), within.stop, crc=True, reuse=True)):
        ends = batch.position + batch.columns.ints("total_size")
        for message in messages(batch.take(ends > within.start)):
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
    fields = message.to_json(max_body=0)
    found = {name: value for name, value in fields.items() if name not in _LEFT_OUT}
    properties = fields.get("properties")
    if isinstance(properties, dict):
        found |= {f"properties.{name}": value for name, value in properties.items()}
    found["body"] = message.stored_body.decode("utf-8", "backslashreplace")
    return found


def _short(value: Any, other: Any) -> Any:
    """Return a long text shortened to what is around the first difference from the other; other values as they are."""
    if not isinstance(value, str) or len(value) <= 4 * _AROUND:
        return value
    pairs = enumerate(zip(value, other if isinstance(other, str) else "", strict=False))
    same = next((number for number, (x, y) in pairs if x != y), 0)
    begin, end = max(0, same - _AROUND), min(len(value), same + _AROUND)
    before, behind = "…" if begin else "", "…" if end < len(value) else ""
    return f"{before}{value[begin:end]}{behind} ({counted(len(value), 'character', form=',')})"
