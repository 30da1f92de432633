"""Runs: records that follow one another both in a source and in the log.

Where a record may begin (the magic codes in a window), how much of it is proven (structure, body, all of
it), which ones make a run, and the records of a run once more, window by window.

Which runs make up the log (`arranged`): the log is a layer, runs that do not overlap. A run whose bytes
the layer has at the same positions is a duplicate. Records that claim a place where others lie go to
the next layer, and nothing is thrown away. Damaged and odd runs begin in the layer behind the log.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...formats.commit_log import HEAD, PLAIN
from ...formats.derive import Columns, Ragged
from ...formats.derive.ragged import Flags, Ints, overlapping
from ...formats.message import SMALLEST
from ...formats.message_properties import CRC32, CRC_ITEM_BYTES, crc_ok
from ..log.scan import WINDOW_BYTES
from ..log.window import Window, body_crc_ok, walk
from ..put.message_columns import rows_with_crc
from .source import Sources

LARGEST_RECORD = 64 << 20
"""A broker's limit is 4 MiB by default; what says to be larger than this is no record."""
_LATEST_MS = 1 << 43
_LARGEST_POSITION = 1 << 62
_BLOCK_BYTES = 512
_WORD = np.dtype(np.uint64)
_CRC_WORD = np.frombuffer(CRC32.encode(), _WORD, 1)[0]
_ONES, _TOPS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_SPACE = 0x20


class Grade(IntEnum):
    """What is proven of a record, the best first."""

    WHOLE = 0
    """Lengths, body CRC, and the CRC of the whole record where it has one."""
    BODY = 1
    """The body has its CRC, the properties are torn or contradict theirs."""
    STRUCTURE = 2
    """All lengths fit, the body has not its CRC."""

    @property
    def label(self) -> str:
        """The name in JSON."""
        return self.name.lower()


def plausible(columns: Columns) -> Flags:
    """bool[n]: the fields before the body are such as a broker writes."""
    size, body = columns.ints("total_size"), columns.ints("body_length")
    found: Flags = (size >= SMALLEST) & (size <= LARGEST_RECORD)
    found &= (body >= 0) & (body <= size - SMALLEST)
    found &= (columns.ints("queue_id") >= 0) & (columns.ints("queue_offset") >= 0)
    time = columns.ints("store_timestamp")
    found &= (time >= 0) & (time < _LATEST_MS)
    position = columns.ints("physical_offset")
    found &= (position >= 0) & (position < _LARGEST_POSITION)
    return found


def structural(columns: Columns) -> Flags:
    """bool[n]: plausible, and all lengths fit and add up to the size that the record says."""
    found = plausible(columns) & columns.ok
    found &= columns.ends - columns.starts == columns.ints("total_size")
    topic = columns.ragged("topic")
    found &= topic.length > 0
    found &= topic.buffer[np.where(found, topic.start, 0)] > _SPACE
    return found


def grades(columns: Columns) -> Ints:
    """`Grade` of each of the records, which are structural, int64[n]."""
    count = len(columns)
    body = body_crc_ok(columns, np.ones(count, np.bool_))
    # an empty body has no CRC, and a broker writes 0
    body &= (columns.ints("body_length") > 0) | (columns.ints("body_crc") == 0)
    torn = _torn(columns.ragged("properties"))
    for row in _with_crc(columns.ragged("properties")).tolist():
        torn[row] |= crc_ok(_bytes_of(columns, row)) is False
    found = np.where(torn, Grade.BODY, Grade.WHOLE)
    return np.where(body, found, Grade.STRUCTURE).astype(np.int64)


def _with_crc(properties: Ragged) -> Ints:
    """Rows whose properties end with a CRC of the record: most stores have none at all."""
    words = overlapping(properties.buffer, _WORD)
    at = properties.start + properties.length - CRC_ITEM_BYTES
    inside = (properties.length >= CRC_ITEM_BYTES) & (at < len(words))
    if inside.all():
        likely = np.flatnonzero(words[at] == _CRC_WORD)
    else:
        likely = np.flatnonzero(inside)
        likely = likely[words[at[likely]] == _CRC_WORD]
    found: Ints = likely[rows_with_crc(properties[likely])]
    return found


def _bytes_of(columns: Columns, row: int) -> bytes:
    data = columns.ragged("body").buffer
    return data[int(columns.starts[row]) : int(columns.ends[row])].tobytes()


def _torn(properties: Ragged) -> Flags:
    """bool[n]: no text of a broker: zeros where a block was not written, or what is no UTF-8.

    A disk loses whole blocks: what is shorter has lost its end, if anything but its length.
    """
    words = overlapping(properties.buffer, _WORD)
    length = properties.length
    if not len(words):
        odd = length > 0
    else:
        last = properties.start + (length - _WORD.itemsize)
        if int(last.min(initial=0)) < 0 or int(last.max(initial=0)) >= len(words):
            last = np.clip(last, 0, len(words) - 1)
        odd = _not_plain(words[last])
        odd |= length > _BLOCK_BYTES
        odd &= length > 0
    found = np.zeros(len(properties), np.bool_)
    for row in np.flatnonzero(odd).tolist():
        found[row] = not _is_text(properties[row])
    return found


def _not_plain(words: npt.NDArray[np.uint64]) -> Flags:
    """bool[n]: one of the eight bytes is 0 or no ASCII."""
    tops = words - _ONES
    tops |= words
    tops &= _TOPS
    found: Flags = tops != 0
    return found


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


class Run(NamedTuple):
    """`records` records in `length` bytes: from byte `at` of a source, from log position `position` on.

    source: its number. A run has one grade. odd: it contradicts what lies around it.
    """

    source: int
    at: int
    position: int
    length: int
    records: int
    grade: Grade
    odd: bool = False

    @property
    def end(self) -> int:
        """Log position behind the last byte."""
        return self.position + self.length

    @property
    def at_end(self) -> int:
        """Byte of the source behind the last one."""
        return self.at + self.length

    @property
    def shift(self) -> int:
        """What a byte of the source has to be moved by to its place in the log."""
        return self.position - self.at

    def part(self, position: int, end: int, records: int) -> Run:
        """Some of the records: those of log positions [position, end)."""
        at = self.at + position - self.position
        return self._replace(at=at, position=position, length=end - position, records=records)

    def followed_by(self, other: Run) -> bool:
        """The other run goes on where this one ends."""
        here = (self.source, self.at_end, self.end, self.grade)
        return here == (other.source, other.at, other.position, other.grade)


def runs_of(source: int, at: Ints, position: Ints, size: Ints, grade: Ints) -> list[Run]:
    """The runs of n records, given in the order of the source: int64[n] each."""
    if not len(at):
        return []
    breaks = (at[1:] != at[:-1] + size[:-1]) | (position[1:] != position[:-1] + size[:-1])
    breaks |= grade[1:] != grade[:-1]
    first = np.flatnonzero(np.append(True, breaks))
    last = np.append(first[1:], len(at)) - 1
    length = at[last] + size[last] - at[first]
    rows = zip(
        at[first].tolist(),
        position[first].tolist(),
        length.tolist(),
        (last - first + 1).tolist(),
        grade[first].tolist(),
        strict=True,
    )
    return [Run(source, a, p, n, records, Grade(g)) for a, p, n, records, g in rows]


def append(runs: list[Run], more: list[Run]) -> None:
    """Add runs, the first of them to the last one there where it goes on."""
    if runs and more and runs[-1].followed_by(more[0]):
        last = runs[-1]
        runs[-1] = last._replace(
            length=last.length + more[0].length, records=last.records + more[0].records
        )
        more = more[1:]
    runs += more


def mark_odd(runs: list[Run]) -> None:
    """Mark runs inside a hole of another one, in the order of a source, in place.

    What lies before and behind it in the source belongs together, and it belongs elsewhere: it may be
    what somebody sent in the body of a message whose head is damaged.
    """
    for i in range(1, len(runs) - 1):
        before, run, after = runs[i - 1], runs[i], runs[i + 1]
        together = before.source == run.source == after.source and before.shift == after.shift
        if together and run.shift != before.shift:
            runs[i] = run._replace(odd=True)


def _pattern() -> re.Pattern[bytes]:
    """All magic codes of records: what they share, then the rest as a class of bytes."""
    codes = [HEAD.magic_code.build(magic) for magic in PLAIN.magics]
    shared, last = codes[0][:-1], b"".join(re.escape(code[-1:]) for code in codes)
    assert all(code.startswith(shared) for code in codes)
    return re.compile(re.escape(shared) + b"[" + last + b"]", re.DOTALL)


_MAGIC = _pattern()
OVERLAP_BYTES = HEAD.sizeof() - 1
"""So many bytes at the end of a window may be the front of a head."""


def first(data: bytearray, begin: int, end: int) -> int | None:
    """The first byte from `begin` on where a record may begin."""
    found = _MAGIC.search(data, begin + PLAIN.magic_offset, end)
    return None if found is None else found.start() - PLAIN.magic_offset


def every(data: bytearray, begin: int, end: int) -> Ints:
    """All such bytes, int64[n]."""
    found = _MAGIC.finditer(data, begin + PLAIN.magic_offset, end)
    return np.fromiter((hit.start() for hit in found), np.int64) - PLAIN.magic_offset


def windows_of(run: Run, sources: Sources) -> Iterator[tuple[Window, Ints, int]]:
    """Windows in a buffer that is used again, the bytes where whole records begin, and where they end.

    Ends early where the source is not any more what it was. Raises Unreadable.
    """
    at, buffer, need = run.at, bytearray(0), WINDOW_BYTES
    while at < run.at_end:
        size = min(need, run.at_end - at)
        if len(buffer) < size:
            buffer = bytearray(size)
        got = sources[run.source].read(memoryview(buffer)[:size], at)
        window = Window(buffer, got, at + run.shift)
        starts, stop = walk(window, PLAIN)
        if len(starts):
            yield window, starts, stop
            at, need = at + stop, WINDOW_BYTES
        elif got < run.at_end - at and need < LARGEST_RECORD:
            need = LARGEST_RECORD
        else:
            return


_FEW = 16
LARGEST_GAP_FILES = 1000
"""Files of the log that may be missing in a row; what lies farther away is another log."""


class Layer:
    """Runs that do not overlap, by log position."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self._starts: list[int] = []

    def overlapping(self, position: int, end: int) -> list[Run]:
        """The runs that share a byte with [position, end)."""
        first = bisect_left(self._starts, position)
        if first and self.runs[first - 1].end > position:
            first -= 1
        return self.runs[first : bisect_left(self._starts, end)]

    def add(self, run: Run) -> None:
        """Add a run that overlaps none."""
        at = bisect_left(self._starts, run.position)
        self._starts.insert(at, run.position)
        self.runs.insert(at, run)

    @property
    def records(self) -> int:
        """Number of records in it."""
        return sum(run.records for run in self.runs)


@dataclass
class Arranged:
    """layers: the log, then what lies beside it. duplicates: runs that another one has already."""

    layers: list[Layer] = field(default_factory=lambda: [Layer()])
    duplicates: list[Run] = field(default_factory=list)


def arrange(runs: list[Run], sources: Sources, accepted: Grade) -> Arranged:
    """Sort runs into layers. accepted: the worst grade that the log takes.

    The best and longest come first: of two records that claim a place the one with more around it
    is likelier to belong there. Raises Unreadable.
    """
    found = Arranged()
    for run in sorted(runs, key=_rank):
        aside = run.odd or run.grade > accepted
        _place(run, 1 if aside else 0, found, sources)
    for layer in found.layers:
        layer.runs[:] = list(_joined(layer.runs))
    return found


def _rank(run: Run) -> tuple[int, ...]:
    """The best first, then the longest, roughly: few records are as good as one."""
    few = run.records < _FEW
    return run.grade, run.odd, 0 if few else -run.length.bit_length(), run.source, run.at


def _place(run: Run, number: int, found: Arranged, sources: Sources) -> None:
    """Put a run into a layer, and those records for which there is no room into later ones."""
    pending = [(number, run)]
    while pending:
        number, run = pending.pop()
        while len(found.layers) <= number:
            found.layers.append(Layer())
        layer = found.layers[number]
        above = found.layers[0] if number else layer
        if not layer.overlapping(run.position, run.end) and not (
            number and above.overlapping(run.position, run.end)
        ):
            layer.add(run)
            continue
        for verdict, part in _parts(run, layer, above, sources):
            if verdict == _FREE:
                layer.add(part)
            elif verdict == _SAME:
                found.duplicates.append(part)
            else:
                pending.append((number + 1, part))


_FREE, _SAME, _OTHER = 0, 1, 2


def _parts(run: Run, layer: Layer, above: Layer, sources: Sources) -> Iterator[tuple[int, Run]]:
    """The records of a run by what its layer, or the log, has in their place, as runs."""
    for positions, ends in record_places(run, sources):
        begin, behind = int(positions[0]), int(ends[-1])
        together = _verdict(run, begin, behind, layer, above, sources)
        alone = together == _FREE and not above.overlapping(begin, behind)
        if alone or together == _SAME:
            yield together, run.part(begin, behind, len(positions))
            continue
        verdicts = [
            _verdict(run, position, end, layer, above, sources)
            for position, end in zip(positions.tolist(), ends.tolist(), strict=True)
        ]
        row = 0
        for verdict, same in groupby(verdicts):
            count = len(list(same))
            begin, behind = int(positions[row]), int(ends[row + count - 1])
            yield verdict, run.part(begin, behind, count)
            row += count


def _verdict(
    run: Run, position: int, end: int, layer: Layer, above: Layer, sources: Sources
) -> int:
    there = layer.overlapping(position, end)
    others = above.overlapping(position, end) if above is not layer else []
    if not there and not others:
        return _FREE
    for other in (*others, *there):
        if other.position <= position and end <= other.end:
            own = sources[run.source].bytes_at(position - run.shift, end - position)
            if own == sources[other.source].bytes_at(position - other.shift, end - position):
                return _SAME
    return _OTHER if there else _FREE


def record_places(run: Run, sources: Sources) -> Iterator[tuple[Ints, Ints]]:
    """Where the records of a run begin and end in the log, int64[n] each, window by window."""
    for window, starts, stop in windows_of(run, sources):
        positions = starts + window.position
        yield positions, np.append(positions[1:], stop + window.position)


def _joined(runs: list[Run]) -> Iterator[Run]:
    """Neighbours that were one run before they were cut."""
    last: Run | None = None
    for run in runs:
        if last is not None and last.followed_by(run) and last.odd == run.odd:
            last = last._replace(
                length=last.length + run.length, records=last.records + run.records
            )
            continue
        if last is not None:
            yield last
        last = run
    if last is not None:
        yield last


def split_far(layer: Layer, file_bytes: int) -> tuple[Layer, list[Layer]]:
    """A layer whose runs are far apart, as several: the one with most records, and the others."""
    groups: list[list[Run]] = []
    reach = None
    for run in layer.runs:
        if reach is None or run.position - reach > LARGEST_GAP_FILES * file_bytes:
            groups.append([])
        groups[-1].append(run)
        reach = run.end
    layers = []
    for group in groups:
        made = Layer()
        for run in group:
            made.add(run)
        layers.append(made)
    layers.sort(key=lambda each: -each.records)
    return (layers[0] if layers else layer), layers[1:]
