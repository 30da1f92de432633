"""The chain of records inside one window of the commit log. Pure: bytes in, arrays out.

Each record begins where the one before it ends, so a chain is followed record by record: by the native kernel as long
as records are plain, else in Python. Records that are not plain are judged here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...formats import kernel
from ...formats.commit_log import IN_ENTRY, IN_FRAME, ITEM, PLAIN, POSITION_BYTES, SIZE_DTYPE, Frame
from ...formats.derive import Columns, decode
from ...formats.derive.program import Noting, Program, program_of
from ...formats.derive.ragged import Bytes, Flags, Ints, Ragged, overlapping
from ...formats.hashing_columns import WORD_FACTOR, WORDS, crc31_column
from ...formats.message import MAGIC_V1, MAGIC_V2, MESSAGE
from ...formats.message_properties import KEY_SEPARATOR
from ...formats.property_columns import NAMES, VALUES
from ..columns import Rows

#: Items that one call of the kernel walks over.
_ROWS_AT_ONCE = 1 << 16
#: The largest log position that fits into a record.
_POSITION_MAX = np.iinfo(np.int64).max
#: Notes on topics and properties, for checks of the log, and for finding what records add to queues and index.
NOTING = Noting("topic", "properties", NAMES, VALUES, WORDS, WORD_FACTOR - (1 << 64))
NOTING_HASHES = NOTING._replace(apart=ord(KEY_SEPARATOR))
#: Notes for counting records by topic, without the fields that are not counted.
_NOT_COUNTED = {"queue_offset", "prepared_transaction_offset", "born_timestamp", "born_host.port", "store_host.port"}
NOTING_TOPICS = Noting("topic", later=frozenset(_NOT_COUNTED))
#: The bytes that all magic codes of records begin with, so that one search finds them all.
_MAGIC_PREFIX = MAGIC_V1.to_bytes(4, "big")[:3]
assert all(magic.to_bytes(4, "big").startswith(_MAGIC_PREFIX) for magic in PLAIN.magics)
#: Room for so many rows more than a window is expected to have.
_SPARE_ROWS = 1024


class Window(NamedTuple):
    """Bytes of the log: the first `size` bytes of `data`, from log position `position` on.

    unread: ranges [begin, end) of these bytes that the disk does not give, zeros in `data`.
    """

    data: bytearray
    size: int
    position: int
    unread: tuple[tuple[int, int], ...] = ()

    @property
    def array(self) -> Bytes:
        """The bytes as uint8[size], without a copy."""
        return np.frombuffer(self.data, np.uint8, self.size)

    @property
    def end(self) -> int:
        """Log position behind the last byte."""
        return self.position + self.size


def number_at(window: Window, at: int, size: int = 4) -> int:
    """The unsigned big-endian number in `size` bytes at byte `at` of the window."""
    return int.from_bytes(window.data[at : at + size], "big")


def walk(window: Window, frame: Frame, at: int = 0) -> tuple[Ints, int]:
    """Follow the chain from byte `at`; find the items that lie wholly inside the window.

    Returns (starts int64[n], end): where the items begin, and where the chain ends or leaves the window. Only sizes and
    magic codes are looked at: `check` finds the first start that is no item, from which the rest follow.
    """
    if kernel.is_wanted(window.size // frame.smallest):
        return _walk_natively(window, frame, at)
    starts: list[int] = []
    data, end, smallest = window.data, window.size, frame.smallest
    magics = {magic.to_bytes(4, "big") for magic in frame.magics}
    size_at, magic_at = frame.size_offset, frame.magic_offset
    while at + smallest <= end:
        if bytes(data[at + magic_at : at + magic_at + 4]) not in magics:
            break
        size = int.from_bytes(data[at + size_at : at + size_at + 4], "big")
        if size < smallest or at + size > end:
            break
        starts.append(at)
        at += size
    return np.array(starts, np.int64), at


def _walk_natively(window: Window, frame: Frame, at: int) -> tuple[Ints, int]:
    program, parts = program_of(ITEM), list[Ints]()
    assert program is not None
    while True:
        items, _, at = program.follow(frame.sizes, window.array, 0, at, crc=False, room=_ROWS_AT_ONCE)
        parts.append(items.starts - frame.payload)
        if len(items) < _ROWS_AT_ONCE:
            return np.concatenate(parts), at


def find_item(window: Window, frame: Frame, at: int, end: int) -> int | None:
    """First byte in [at, end) where an item names its own position; None if there is none.

    Compares magic code and position, 12 bytes, and nothing else. The entry around a record is found by the record,
    whose magic code is rarer; then the entry is compared, too.
    """
    while True:
        found = _find_plain_record(window, at + frame.payload, end + frame.payload)
        if found is None:
            return None
        if not frame.payload or _in_place(window, frame, found - frame.payload):
            return found - frame.payload
        at = found - frame.payload + 1


def _find_plain_record(window: Window, at: int, end: int) -> int | None:
    """`find_item` for records without an entry around them."""
    find = window.data.find
    to_position = PLAIN.position_offset - PLAIN.magic_offset
    limit = min(end + PLAIN.magic_offset, window.size - to_position - POSITION_BYTES + 1)
    found = find(_MAGIC_PREFIX, at + PLAIN.magic_offset, limit + len(_MAGIC_PREFIX) - 1)
    while found >= 0:
        if _in_place(window, PLAIN, found - PLAIN.magic_offset):
            return found - PLAIN.magic_offset
        found = find(_MAGIC_PREFIX, found + 1, limit + len(_MAGIC_PREFIX) - 1)
    return None


def _in_place(window: Window, frame: Frame, at: int) -> bool:
    """Whether byte `at` has the magic code of an item that names its own position."""
    own = number_at(window, at + frame.position_offset, POSITION_BYTES)
    return own == window.position + at and number_at(window, at + frame.magic_offset) in frame.magics


class CheckedRecords(Rows):
    """Records of a window: `columns` of MESSAGE, and checks of each (bool[n]).

    `whole`: magic code and size are possible, all lengths fit and add up to total_size; true for all but perhaps the
    last record. `in_place`: the record names its own position. `body_crc_ok`: None if the CRC was not computed.
    """

    columns: Columns
    position: Ints
    whole: Flags
    in_place: Flags
    body_crc_ok: Flags | None


def check(window: Window, frame: Frame, starts: Ints, *, crc: bool = True) -> CheckedRecords:
    """Decode and check the items at `starts` (int64[n], from `walk`). Spec 1.14.

    The result ends with the first item that is not whole: behind it the chain means nothing.
    """
    array = window.array
    begin, ends = starts, None
    if frame.payload:
        begin = starts + frame.payload
        ends = starts + overlapping(array, SIZE_DTYPE)[starts + frame.size_offset]
    columns = decode(MESSAGE, array, begin)
    whole = _whole(columns, ends)
    for first, behind in window.unread:
        whole &= (columns.ends <= first) | (starts >= behind)
    if not whole.all():
        kept = slice(0, int(np.argmin(whole)) + 1)
        columns, whole, begin = columns.take(kept), whole[kept], begin[kept]
    return _verdict(columns, begin + window.position, whole, crc)


def verdict(columns: Columns, position: Ints) -> CheckedRecords:
    """Check decoded records at any positions, each on its own."""
    return _verdict(columns, position, _whole(columns, None), crc=True)


@dataclass
class PlainChain:
    """Follows a chain in the native kernel as long as each record is plain.

    record_bytes: about the size of a record, learned from earlier windows. noting: what the kernel notes of strings on
    the way.
    """

    record_bytes: int = 512
    noting: Noting | None = None

    def narrowed(self, window: Window, size: int) -> Window:
        """The first `size` bytes of a window, to be judged before the kernel continues; all of it without a kernel."""
        return window._replace(size=min(window.size, size)) if kernel.is_wanted() else window

    def checked(
        self, window: Window, frame: Frame, at: int = 0, *, crc: bool, in_place: bool = True
    ) -> CheckedRecords | None:
        """The plain records from byte `at` of a window on; None if the first one is odd, or there is no kernel. Who
        calls judges what ends the chain. in_place: records have to name their own position.
        """
        if not kernel.is_wanted() or window.end > _POSITION_MAX:  # a file can be named by any number
            return None
        rules = IN_ENTRY if frame.payload else IN_FRAME
        if self.noting is not None:
            rules = rules._replace(later=rules.later | self.noting.later)
        program = program_of(MESSAGE, rules)
        return program and self._follow(program, window, frame, at, crc=crc, in_place=in_place)

    def _follow(
        self, program: Program, window: Window, frame: Frame, at: int, *, crc: bool, in_place: bool
    ) -> CheckedRecords | None:
        size = min([first for first, _ in window.unread], default=window.size)
        rows_max = size // frame.smallest + 1
        room = min(rows_max, size // self.record_bytes + _SPARE_ROWS)
        while True:
            columns, fits, end = program.follow(
                frame.numbers if in_place else frame.sizes,
                *(window.array[:size], window.position, at),
                crc=crc,
                room=room,
                noting=self.noting,
            )
            count = len(columns)
            if count < room or room == rows_max:
                break
            room = min(rows_max, 4 * room)
        if not count:
            return None
        self.record_bytes = max(frame.smallest, (end - at) * 3 // (4 * count))
        position, all_true = columns.starts + window.position, np.ones(count, np.bool_)
        in_place_rows = all_true if in_place else columns.ints("physical_offset") == position
        return CheckedRecords(columns, position, all_true, in_place_rows, fits)


def _verdict(columns: Columns, position: Ints, whole: Flags, crc: bool) -> CheckedRecords:
    in_place: Flags = columns.ints("physical_offset") == position
    crc_ok = body_crc_ok(columns, whole) if crc else None
    return CheckedRecords(columns, position, whole, in_place, crc_ok)


def _whole(columns: Columns, ends: Ints | None) -> Flags:
    """bool[n]: magic code known, fields add up to total_size (and end where the entry around them ends)."""
    whole: Flags = columns.ends - columns.starts == columns.ints("total_size")
    whole &= columns.ok
    magic = columns.ints("magic_code")
    known = magic == MAGIC_V1
    whole &= known if known.all() else known | (magic == MAGIC_V2)
    if ends is not None:
        whole &= columns.ends == ends
    return whole


def body_crc_ok(columns: Columns, whole: Flags) -> Flags:
    """bool[n]: the CRC of the stored body fits; true for an empty body, which has none (spec 7.2)."""
    body = columns.ragged("body")
    if not whole.all():
        body = Ragged(body.buffer, body.start, np.where(whole, body.length, 0))
    result: Flags = crc31_column(body) == columns.ints("body_crc")
    if not result.all():
        result |= body.length == 0
        result &= whole
    return result
