"""consumequeue_ext: what does not fit into the units of a queue, read and appended (spec 02, 2.6).

Units of different lengths follow one another from the start of each file; a file without room for the next unit ends
with -1. A queue names a unit by its position in the stream. Reading trusts no length: a size that contradicts the
unit's bit map is damage, and reading continues at the next chain of units.

Brokers append only with enableConsumeQueueExt: tags code, time and bit map of each unit of a queue. With
enableCalcFilterBitMap, a bit map says which of the SQL filters of config/consumerFilter.json the message passes. Units
of the queue then name these units.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...formats.consume_queue import EXT_ADDRESS_MAX
from ...formats.consume_queue_ext import (
    ADDRESS_BASE,
    END,
    END_MARK,
    HEAD,
    SPARE_BYTES,
    UNIT,
    UNIT_BYTES_MAX,
    UNIT_BYTES_MIN,
)
from ...formats.derive import Columns, decode, dtype_of
from ...formats.derive.ragged import Bytes, Flags, Ints, overlapping
from ...formats.fixed import numbers_of
from ...formats.message import LATEST_MS
from ..disk.byte_reader import Unread, note
from ..disk.file_queue import MappedFile, MappedFileQueue, is_zero
from ..disk.files import Files
from ..disk.layout import Layout, queue_directory
from ..disk.lock import stream_of
from ..errors import Refused
from ..log.write import Pieces, StreamFiles

if TYPE_CHECKING:
    from ..broker.dispatch import Units
    from ..columns import Dictionary
    from .filter_bits import BloomFilter, ConsumerFilter
    from .read import ConsumeQueue


WINDOW_BYTES = 1 << 18
_CHAIN_UNITS = 3
"""Behind damage, so many units in a row count as units again."""


class ExtUnits(NamedTuple):
    """Consecutive units: stream positions int64[n] and columns of `consume_queue_ext.UNIT`."""

    position: Ints
    columns: Columns


class ExtRange(NamedTuple):
    """Bytes that are no unit. kind: `end` (of the units of a file), `zeros` (never written), `damage`, `unread` (what
    the disk does not give, with the units that reach into it).
    """

    kind: str
    position: int
    size: int


class ExtUnit(NamedTuple):
    """One unit; times in ms since 1970."""

    tags_code: int
    msg_store_time: int
    bit_map: bytes


def ext_units(files: MappedFileQueue, start: int | None = None) -> Iterator[ExtUnits | ExtRange]:
    """Yield all units in order, from the unit at stream position `start` on, and ranges without units.

    Notes what cannot be read. Raises Unreadable; UnreadableRange if nobody takes the notes.
    """
    for file in files.files:
        if start is None or start < file.end:
            yield from _ext_units_of(files, file, max(0, (start or 0) - file.start))


def ext_unit(files: MappedFileQueue, position: int) -> ExtUnit | None:
    """The unit at a stream position, None if there is none. Raises Unreadable."""
    file = files.file_at(position)
    if file is None:
        return None
    at = position - file.start
    head = files.readable(file, at, UNIT_BYTES_MAX, UNIT_BYTES_MIN)
    starts, _ = _walk(np.frombuffer(head, np.uint8), most=1)
    if not len(starts):
        if len(head) < min(UNIT_BYTES_MAX, file.size - at):  # the unit may reach into what is unreadable
            files.readable(file, at, UNIT_BYTES_MAX, UNIT_BYTES_MAX)
        return None
    unit = UNIT.parse(head)
    return ExtUnit(unit.tags_code, unit.msg_store_time, unit.bit_map)


def ext_units_at(files: MappedFileQueue, positions: Ints) -> dict[int, ExtUnit]:
    """The units at stream positions (int64[n], any order), by position; positions without a unit are left out.

    Neighbours are read together. All units are in memory: ask for a bounded number. Raises Unreadable.
    """
    wanted = np.unique(positions[(positions >= files.start) & (positions < files.end)])
    found: dict[int, ExtUnit] = {}
    breaks = np.flatnonzero(np.diff(wanted) > WINDOW_BYTES) + 1
    for group in np.split(wanted, breaks) if len(wanted) else ():
        for part in ext_units(files, int(group[0])):
            if isinstance(part, ExtUnits):
                found |= _wanted_units(part, group)
                last = int(part.position[-1])
            else:
                last = part.position
            if last >= group[-1]:
                break
    for position in wanted.tolist():  # a unit right behind damage may have been skipped
        if position not in found and (one := ext_unit(files, position)) is not None:
            found[position] = one
    return found


def tags_codes(codes: Ints, layout: Layout, queue: ConsumeQueue) -> tuple[Ints, Flags]:
    """The tags codes of units of a queue, int64[n]: those in consumequeue_ext instead of their addresses. bool[n]:
    which are known. Raises Unreadable.
    """
    codes, known = codes.copy(), np.ones(len(codes), np.bool_)
    beside = np.flatnonzero(codes <= EXT_ADDRESS_MAX)
    if len(beside):
        with stream_of(layout, layout.consume_queue_ext / queue.topic / str(queue.queue_id)) as files:
            found = ext_units_at(files, codes[beside] - ADDRESS_BASE)
        units = [found.get(position) for position in (codes[beside] - ADDRESS_BASE).tolist()]
        known[beside] = [unit is not None for unit in units]
        codes[beside] = [0 if unit is None else unit.tags_code for unit in units]
    return codes, known


def _wanted_units(part: ExtUnits, wanted: Ints) -> dict[int, ExtUnit]:
    """Those of consecutive units that are wanted, by position."""
    rows = np.flatnonzero(np.isin(part.position, wanted))
    some = part.columns.take(rows)
    fields = zip(
        part.position[rows].tolist(),
        some.ints("tags_code").tolist(),
        some.ints("msg_store_time").tolist(),
        some.ragged("bit_map").tolist(),
        strict=True,
    )
    return {position: ExtUnit(*values) for position, *values in fields}


def _ext_units_of(files: MappedFileQueue, file: MappedFile, at: int) -> Iterator[ExtUnits | ExtRange]:
    while at < file.size:
        room = bytearray(min(WINDOW_BYTES, file.size - at))
        got, unread = files.fill(file, at, memoryview(room))
        if not got:
            return
        known = unread[0].offset - at if unread else got
        data = np.frombuffer(room, np.uint8, known)
        starts, stop = _walk(data)
        if len(starts):
            yield ExtUnits(file.start + at + starts, decode(UNIT, data, starts))
            at += stop
        elif unread and known < UNIT_BYTES_MAX and data[: len(END_MARK)].tobytes() != END_MARK:
            note(unread[0])
            end = _next_chain(files, file, unread[0].end)
            yield ExtRange("unread", file.start + at, end - at)
            at = end
        else:
            at = yield from _gap(files, file, at, data)


def _gap(files: MappedFileQueue, file: MappedFile, at: int, data: Bytes) -> Generator[ExtRange, None, int]:
    """No unit begins at byte `at`: yield why, and return where the next one may begin."""
    rest = file.size - at
    if data[: END.sizeof()].tobytes() == END_MARK:
        yield ExtRange("end", file.start + at, rest)
        return file.size
    if not data.any() and not _has_data(files, file, at + len(data)):
        yield ExtRange("zeros", file.start + at, rest)
        return file.size
    end = _next_chain(files, file, at + 1)
    yield ExtRange("damage", file.start + at, end - at)
    return end


def _has_data(files: MappedFileQueue, file: MappedFile, at: int) -> bool:
    """Whether some byte from `at` on is not zero or cannot be read."""
    for begin in range(at, file.size, WINDOW_BYTES):
        data, unread = _read_around(files, file, begin, WINDOW_BYTES)
        if unread or not is_zero(data):
            return True
    return False


def _read_around(files: MappedFileQueue, file: MappedFile, at: int, size: int) -> tuple[bytearray, list[Unread]]:
    """Up to `size` bytes from byte `at` on, with zeros for what cannot be read, and the unreadable ranges."""
    room = bytearray(max(0, min(size, file.size - at)))
    got, unread = files.read_around(file, at, memoryview(room))
    return room[:got], unread


def _next_chain(files: MappedFileQueue, file: MappedFile, at: int) -> int:
    """First byte from `at` on where _CHAIN_UNITS units follow one another, else the end of the file."""
    while at < file.size:
        data = np.frombuffer(_read_around(files, file, at, WINDOW_BYTES + UNIT_BYTES_MAX)[0], np.uint8)
        for start in _candidates(data[: WINDOW_BYTES + UNIT_BYTES_MIN]).tolist():
            found, _ = _walk(data[start : start + _CHAIN_UNITS * UNIT_BYTES_MAX], most=_CHAIN_UNITS)
            if len(found) == _CHAIN_UNITS:
                return int(at + start)
        at += WINDOW_BYTES
    return file.size


def _candidates(data: Bytes) -> Ints:
    """Bytes where the size of a unit agrees with the size of its bit map, and a plausible time stands between them."""
    heads = overlapping(data, _HEAD)
    bit_maps = heads["bit_map_size"].astype(np.int64)
    alike = np.flatnonzero((bit_maps >= 0) & (heads["size"] == UNIT_BYTES_MIN + bit_maps))
    times = heads["msg_store_time"][alike]
    return alike[(times > 0) & (times < LATEST_MS)]


def _walk(data: Bytes, most: int | None = None) -> tuple[Ints, int]:
    """Starts of the whole units that follow one another at the front of `data`, and where these end.

    most: find no more than so many. Runs of equal size are found at once: most units are alike.
    """
    heads = overlapping(data, _HEAD)
    bit_maps = heads["bit_map_size"].astype(np.int64)
    size = heads["size"].astype(np.int64)
    whole = (bit_maps >= 0) & (size == UNIT_BYTES_MIN + bit_maps)
    whole &= np.arange(len(heads)) + size <= len(data)
    step = np.where(whole, size, 0)
    if not len(step) or not step[0]:
        return np.zeros(0, np.int64), 0
    same = step[:: step[0]] == step[0]
    alike = len(same) if same.all() else int(np.argmin(same))
    starts = (step[0] * np.arange(alike, dtype=np.int64)).tolist()
    at = int(step[0]) * alike
    steps = step.tolist() if at < len(step) and step[at] else []
    while at < len(steps) and steps[at] and (most is None or len(starts) < most):
        starts.append(at)
        at += steps[at]
    return np.array(starts[:most], np.int64), at


_HEAD = dtype_of(HEAD)


_WRITTEN_HEAD = numbers_of(HEAD)


class BitMaps:
    """Finds which SQL filters messages pass; without enableCalcFilterBitMap all bit maps are empty."""

    def __init__(self, layout: Layout) -> None:
        config = layout.broker_config
        self._filters: dict[str, list[ConsumerFilter]] = {}
        self._bloom: BloomFilter | None = None
        if config.get_bool("enableCalcFilterBitMap"):
            from .filter_bits import BloomFilter, consumer_filters, read_filters

            self._bloom = BloomFilter.from_config(config)
            self._filters = consumer_filters(read_filters(layout), self._bloom)

    def of(self, records: Columns, topics: Dictionary) -> list[bytes]:
        from ..log.batch import Batch
        from ..log.message import Mark
        from .filter_bits import bit_maps

        maps = [b""] * len(topics.ids)
        for number, topic in enumerate(topics.values):
            filters = self._filters.get(topic.decode("utf-8", "replace"))
            if not filters or self._bloom is None:
                continue
            rows = np.flatnonzero(topics.ids == number)
            batch = Batch(records.take(rows), np.zeros(len(rows), np.int64), Mark.NONE, None)
            for row, bits in zip(rows.tolist(), bit_maps(filters, self._bloom, batch), strict=True):
                maps[row] = bits.tobytes()
        return maps


class ExtWriter:
    """Appends units for all queues of a store. Bytes are in the files at once, and on disk after `sync`."""

    def __init__(self, files: Files, layout: Layout) -> None:
        config = layout.broker_config
        self._files = files
        self._root = layout.consume_queue_ext
        self._stream = StreamFiles(files, config.size("mappedFileSizeConsumeQueueExt")[0])
        self._ends: dict[Path, int] = {}
        self._maps: list[bytes] = []
        self._bit_maps = BitMaps(layout)

    def look_at(self, records: Columns, topics: Dictionary) -> None:
        """Compute the bit maps of n records, for the units that `add` gets next."""
        self._maps = self._bit_maps.of(records, topics)

    def take_maps(self, maps: list[bytes]) -> None:
        """Use bit maps of n records that were computed elsewhere."""
        self._maps = maps

    def add(self, topic: str, queue_id: int, units: Units) -> list[int]:
        """Append a unit for each of these units of one queue; return the tags codes of the queue's units.

        As in a broker, a unit that would be too long is left out, and the queue's unit keeps its own code.
        """
        directory = self.check(topic, queue_id)
        end = self._ends[directory]
        codes, pieces, file_size = [], Pieces(), self._stream.file_size
        columns = (units.tags_code.tolist(), units.store_timestamp.tolist(), units.record.tolist())
        for code, time, record in zip(*columns, strict=True):
            bits = self._maps[record]
            size = UNIT_BYTES_MIN + len(bits)
            if size > UNIT_BYTES_MAX:
                codes.append(code)
                continue
            room = file_size - end % file_size
            if size > room - SPARE_BYTES:
                self._stream.piece(pieces, end).extend(END_MARK)
                end += room
            self._stream.piece(pieces, end).extend(_WRITTEN_HEAD.pack(size, code, time, len(bits)) + bits)
            codes.append(end + ADDRESS_BASE)
            end += size
        for start, (offset, data) in pieces.items():
            self._stream.write(directory, start, offset, data)
        self._ends[directory] = end
        return codes

    def check(self, topic: str, queue_id: int) -> Path:
        """The directory of a queue's units. Raises Refused if nothing can be appended to them."""
        directory = queue_directory(self._root, topic, queue_id)
        if directory not in self._ends:
            self._files.check_inside(directory)
            self._ends[directory] = self._end(directory)
        return directory

    def _end(self, directory: Path) -> int:
        """Where the next unit goes. Raises Refused if the last file is damaged."""
        with MappedFileQueue.open(directory, self._stream.file_size) as files:
            if not files.files:
                return 0
            last = files.files[-1]
            end = last.start
            for part in ext_units(files, end):
                if isinstance(part, ExtUnits):
                    end = int(part.position[-1]) + int(part.columns.ints("size")[-1])
                elif part.kind == "end":
                    end = last.start + self._stream.file_size
                elif part.kind == "damage":
                    raise Refused("damaged", path=last.path, offset=part.position - last.start)
            return end

    def sync(self) -> None:
        """Flush what was written to the disk, names of new files included."""
        self._stream.sync()
