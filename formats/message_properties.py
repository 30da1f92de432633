"""The property text of a message: `name 01 value 02`, repeated (spec/01-commitlog.md, 1.6, 1.7).

No escaping: neither byte can be in a name or a value. Writers of 4.9.1 … 5.1.x leave out the last
02. Readers since 4.9.1 drop an item without a name or a value and take the last of duplicates.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from .derive.ragged import Bytes, Ints, Ragged, overlapping, ragged_copy
from .hashing import CRC_MASK, crc31

NAME_VALUE_SEPARATOR: Final = b"\x01"
ITEM_SEPARATOR: Final = b"\x02"

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
UNIQ_KEY: Final = "UNIQ_KEY"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"
TRAN_MSG: Final = "TRAN_MSG"
PGROUP: Final = "PGROUP"
INNER_NUM: Final = "INNER_NUM"
INNER_BASE: Final = "INNER_BASE"
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
CRC32: Final = "__CRC32#"

#: Between the keys of KEYS.
KEY_SEPARATOR: Final = " "
#: Bytes of the whole-record CRC item: name, 01, ten digits, 02 (spec 1.7).
_CRC_DIGITS: Final = 10
CRC_ITEM_BYTES: Final = len(CRC32) + 1 + _CRC_DIGITS + 1

_SEPARATOR = ITEM_SEPARATOR[0]


def parse(text: bytes) -> dict[str, str]:
    """Properties as Java reads them since 4.9.1; invalid UTF-8 becomes U+FFFD."""
    items = text.decode("utf-8", "replace").split(ITEM_SEPARATOR.decode())
    found: dict[str, str] = {}
    for item in items:
        name, separator, value = item.partition(NAME_VALUE_SEPARATOR.decode())
        if separator and name and value:
            found[name] = value
    return found


def format_properties(properties: dict[str, str], *, final_separator: bool = True) -> bytes:
    """Property text in the order of the dict.

    Raises ValueError for a name or value that holds a separator or is empty.
    """
    items = []
    for name, value in properties.items():
        for text, what in ((name, "name"), (value, "value")):
            if not text:
                raise ValueError(f"property {name!r}: empty {what}")
            if "\x01" in text or "\x02" in text:
                raise ValueError(f"property {name!r}: {what} holds a separator (01 or 02)")
        items.append(name.encode() + NAME_VALUE_SEPARATOR + value.encode())
    joined = ITEM_SEPARATOR.join(items)
    return joined + ITEM_SEPARATOR if final_separator and items else joined


def crc_item(record_before: bytes) -> bytes:
    """The `__CRC32#` item for a record, given all its bytes before the item (spec 1.7)."""
    digits = f"{crc31(record_before):0{_CRC_DIGITS}d}"[::-1]
    return CRC32.encode() + NAME_VALUE_SEPARATOR + digits.encode() + ITEM_SEPARATOR


def crc_ok(record: bytes) -> bool | None:
    """The whole-record CRC fits; None where the record has none."""
    item = record[-CRC_ITEM_BYTES:]
    if not item.startswith(CRC32.encode() + NAME_VALUE_SEPARATOR):
        return None
    return item == crc_item(record[:-CRC_ITEM_BYTES])


class Items:
    """All items of n property texts, found in one pass; look-ups of names are then cheap.

    Names are compared as bytes. Memory: one copy of the texts and 8 bytes an item.
    """

    def __init__(self, properties: Ragged) -> None:
        length = np.maximum(properties.length, 0)
        # one separator before each text and behind the last: an item lies between two of them
        self._count = len(length)
        begin = np.cumsum(length + 1) - length
        blob = np.full(int((length + 1).sum()) + 1 + 8, _SEPARATOR, np.uint8)
        ragged_copy(blob, begin, Ragged(properties.buffer, properties.start, length))
        self._blob: Bytes = blob
        self._begin: Ints = begin
        end = len(blob) - 8
        self._cuts: Ints = np.flatnonzero(blob[:end] == _SEPARATOR)
        words = overlapping(blob, np.dtype(">u8"))
        self._heads = words[self._cuts[:-1] + 1].astype(np.uint64)

    def find(self, name: str) -> Ragged:
        """Value of `name` in each text; length -1 where absent or empty. The last one wins."""
        out = Ragged(
            self._blob, np.zeros(self._count, np.int64), np.full(self._count, -1, np.int64)
        )
        item, record = self._items_named(name)
        skip = len(name.encode()) + 2
        begin = self._cuts[item] + skip
        length = self._cuts[item + 1] - begin
        kept = length > 0
        # numpy assigns in order: of several items of a record the last one stays
        out.start[record[kept]] = begin[kept]
        out.length[record[kept]] = length[kept]
        return out

    def count(self, name: str) -> Ints:
        """How often each text has the name, int64[n]."""
        _, record = self._items_named(name)
        return np.bincount(record, minlength=self._count).astype(np.int64)

    def _items_named(self, name: str) -> tuple[Ints, Ints]:
        """Items that begin with `name 01`: item numbers, and the text each is in."""
        head = name.encode() + NAME_VALUE_SEPARATOR
        wanted = head[:8]
        mask = ((1 << (8 * len(wanted))) - 1) << (8 * (8 - len(wanted)))
        value = int.from_bytes(wanted.ljust(8, b"\0"), "big")
        item = np.flatnonzero((self._heads & np.uint64(mask)) == np.uint64(value))
        if len(head) > len(wanted) and len(item):
            item = item[self._tail_matches(item, head)]
        record = np.searchsorted(self._begin, self._cuts[item] + 1, side="right") - 1
        return item, record

    def _tail_matches(self, item: Ints, head: bytes) -> npt.NDArray[np.bool_]:
        at = self._cuts[item] + 1
        fits = at + len(head) <= self._cuts[item + 1]
        matches = fits.copy()
        cells = np.flatnonzero(fits)
        for k in range(8, len(head)):
            cells = cells[self._blob[at[cells] + k] == head[k]]
        matches[:] = False
        matches[cells] = True
        return matches


def find(properties: Ragged, name: str) -> Ragged:
    """Value of one name in each property text, see `Items.find`."""
    return Items(properties).find(name)


def crc_digits_value(digits: bytes) -> int:
    """Value of the digits of a `__CRC32#` item (least significant first); -1 if malformed."""
    if len(digits) != _CRC_DIGITS or not digits.isdigit():
        return -1
    value = int(digits[::-1])
    return value if value <= CRC_MASK else -1
