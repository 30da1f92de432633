"""A RocksDB of a broker: consume queues, rocksdbstore/, topics, groups, offsets, 5.2+ (spec 02, 05).

With storeType=defaultRocksDB. `dump` shows the entries of all column families: known ones with their
fields, others as the bytes of key and value.

Its files: tables; write-ahead logs of entries that are in no table yet; a MANIFEST, which names the tables
and the first log whose entries count; CURRENT, which names the valid MANIFEST. MANIFEST and logs are
sequences of records in the same form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import construct as c
from construct import Struct, VarInt, this

from .fixed import numbers_of

LOG_BLOCK_BYTES = 1 << 15
"""A log consists of blocks; the rest of a block that has no room for the head of a part is padding."""
LOG_PART = Struct(
    "crc" / c.Int32ul * "masked CRC-32C of type and data",
    "length" / c.Int16ul * "bytes of data that follow",
    "type" / c.Int8ul * "1: a whole record; 2, 3, 4: its first, an inner, its last part; 0: padding",
)
"""The head of a part of a record."""
_WHOLE, _FIRST, _LAST = 1, 2, 4
_TYPES = range(1, 5)
RECYCLED_TYPES = frozenset({5, 6, 7, 8, 11})
"""Types of parts in reused log files. A MANIFEST is never one."""
_TYPE_BYTES = c.Int8ul.sizeof()

_BYTES = c.Prefixed(VarInt, c.GreedyBytes)
_IGNORABLE = 1 << 13
"""Readers skip an unknown field if its tag has this bit."""
_END = 1
_NEW_FILE = Struct(
    "level" / VarInt,
    "number" / VarInt * "of the table's name",
    "size" / VarInt * "bytes of the table",
    "smallest_key" / _BYTES,
    "largest_key" / _BYTES,
    "smallest_sequence" / VarInt,
    "largest_sequence" / VarInt,
    "more"
    / c.RepeatUntil(
        lambda item, _items, _context: item.tag == _END,
        Struct("tag" / VarInt, "value" / c.Switch(this.tag, {_END: c.Pass}, _BYTES)),
    ),
)
_LOG, _NEXT, _GONE, _MIN_LOG, _NEW, _FAMILY, _DROPPED = 2, 3, 6, 10, 103, 200, 202
EDIT = Struct(
    "fields"
    / c.GreedyRange(
        Struct(
            "tag" / VarInt,
            "value"
            / c.Switch(
                this.tag,
                {
                    1: _BYTES * "name of the comparator",
                    _LOG: VarInt * "number of the first log with entries of the family",
                    _NEXT: VarInt * "greater than the number of each file so far",
                    4: VarInt * "last sequence number",
                    5: Struct("level" / VarInt, "key" / _BYTES) * "where the next compaction begins",
                    _GONE: Struct("level" / VarInt, "number" / VarInt) * "a table that goes",
                    9: VarInt * "number of a log of long ago",
                    _MIN_LOG: VarInt * "number of the first log with entries that are in no table",
                    _NEW: _NEW_FILE * "a table that comes",
                    _FAMILY: VarInt * "number of the column family that the edit is about",
                    201: _BYTES * "name of a new column family",
                    _DROPPED: c.Pass * "the family goes",
                    203: VarInt * "greatest number of a family",
                    300: VarInt * "edits of this group that follow",
                },
                c.IfThenElse(this.tag & _IGNORABLE, _BYTES, c.Error),
            ),
        )
    ),
    c.Terminated,
)
"""A record of a MANIFEST."""


class LogRecords(NamedTuple):
    """The records of a log. records: the complete ones; empty if they were not kept.

    damaged: where a part begins that does not match its checksum, at which readers end. torn: where the last record
    begins if it was not completely written. None: there is no such place.
    """

    records: list[bytes]
    damaged: int | None = None
    torn: int | None = None


def read_log(windows: Iterable[bytes], *, keep: bool) -> LogRecords:
    """Read the records of a log. windows: its bytes, all but the last window whole blocks. keep: return the records."""
    records, begun, parts, at = list[bytes](), -1, list[bytes](), 0
    rest = iter(windows)
    for window in rest:
        places, stop, cut = _parts_of(window)
        for begin, length, kind in places:
            if kind in (_WHOLE, _FIRST):
                begun, parts = at + begin, []
            if keep:
                parts.append(window[begin + LOG_PART.sizeof() : begin + LOG_PART.sizeof() + length])
            if kind in (_WHOLE, _LAST):
                begun = -1
                records.extend([b"".join(parts)] if keep else [])
        if stop is not None:
            if not cut or any(behind.strip(b"\0") for behind in rest):
                return LogRecords(records, at + stop)
            return LogRecords(records, None, begun if begun >= 0 else at + stop)
        at += len(window)
    return LogRecords(records, None, begun if begun >= 0 else None)


_PART = numbers_of(LOG_PART)


def _parts_of(window: bytes) -> tuple[list[tuple[int, int, int]], int | None, bool]:
    """((begin, length of the data, type) of the good parts; where they end early or None; whether a write that was cut
    short ended them).
    """
    places, sums, at, torn = list[tuple[int, int, int]](), list[int](), 0, False
    stop: int | None = None
    while at < len(window) and stop is None:
        block_rest = LOG_BLOCK_BYTES - at % LOG_BLOCK_BYTES
        if block_rest < _PART.size:
            at += block_rest
        elif at + _PART.size > len(window):
            stop, torn = at, True
        else:
            crc, length, kind = _PART.unpack_from(window, at)
            end = at + _PART.size + length
            if kind not in _TYPES or length > block_rest - _PART.size or end > len(window):
                stop, torn = at, _is_cut(window, at, kind in _TYPES and length <= block_rest - _PART.size)
            else:
                places.append((at, length, kind))
                sums.append(crc)
                at = end
    wrong = next((i for i, (own, crc) in enumerate(zip(sums, _crcs(window, places), strict=True)) if own != crc), None)
    return (places, stop, torn) if wrong is None else (places[:wrong], places[wrong][0], False)


def _is_cut(window: bytes, at: int, is_part: bool) -> bool:
    """Whether a write was cut short at a place: only zeros follow, or a part with no good part behind it."""
    if not is_part:
        return not window[at:].strip(b"\0")
    behind = list[tuple[int, int, int]]()
    sums = list[int]()
    for begin in range(at + 1, len(window) - _PART.size):
        crc, length, kind = _PART.unpack_from(window, begin)
        if kind in _TYPES and begin + _PART.size + length <= len(window):
            behind.append((begin, length, kind))
            sums.append(crc)
    return not any(own == crc for own, crc in zip(sums, _crcs(window, behind), strict=True))


def _crcs(window: bytes, places: list[tuple[int, int, int]]) -> list[int]:
    import numpy as np

    from .derive.ragged import Ragged
    from .hashing_columns import crc32c_column

    rows = np.array(places, np.int64).reshape(-1, 3)
    strings = Ragged(np.frombuffer(window, np.uint8), rows[:, 0] + (_PART.size - _TYPE_BYTES), rows[:, 1] + _TYPE_BYTES)
    crc = crc32c_column(strings)
    return [int(one) for one in (crc >> 15 | crc << 17) + np.uint32(_MASK)]


_MASK = 0xA282EAD8


class ManifestContent(NamedTuple):
    """The content of a MANIFEST. tables: number of each table → its bytes.

    first_log: all entries in earlier logs are in tables, too. open_log: at the last edit, entries went to the log with
    this number, or with a greater one below next_file. torn: the last edit was not completely written.
    """

    tables: Mapping[int, int]
    first_log: int
    open_log: int
    next_file: int
    torn: bool


def manifest_of(windows: Iterable[bytes]) -> ManifestContent | None:
    """Parse a MANIFEST; None if it is damaged or has unknown fields. windows: as for `read_log`."""
    found = read_log(windows, keep=True)
    if found.damaged is not None:
        return None
    tables, logs = dict[int, dict[int, int]](), dict[int, int]()
    min_log, next_file = 0, 0
    try:
        for record in found.records:
            fields = [(int(one.tag), one.value) for one in EDIT.parse(record).fields]
            family = next((value for tag, value in fields if tag == _FAMILY), 0)
            for tag, value in fields:
                if tag == _NEW:
                    tables.setdefault(family, {})[value.number] = value.size
                elif tag == _GONE:
                    tables.get(family, {}).pop(value.number, None)
                elif tag == _DROPPED:
                    tables.pop(family, None)
                    logs.pop(family, None)
                elif tag == _LOG:
                    logs[family] = value
            known = dict(fields)
            min_log, next_file = max(min_log, known.get(_MIN_LOG, 0)), known.get(_NEXT, next_file)
    except c.ConstructError:
        return None
    if not next_file:
        return None
    there = {number: size for family in tables.values() for number, size in family.items()}
    first = max(min_log, min(logs.values(), default=0))
    return ManifestContent(there, first, max([min_log, *logs.values()]), next_file, found.torn is not None)
