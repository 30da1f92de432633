"""Properties of whole columns of messages, by the rules of `message_properties`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from . import kernel
from . import message_properties as names
from .derive.program import Noting
from .derive.ragged import Bytes, Flags, Ints, Ragged, StringNotes, overlapping, ragged_copy
from .message_properties import CRC_DIGITS, CRC_ITEM_BYTES, CRC_ITEM_HEAD, ITEM_SEPARATOR, NAME_VALUE_SEPARATOR

_SEPARATOR = ITEM_SEPARATOR[0]
_NAME_VALUE = NAME_VALUE_SEPARATOR[0]


_SLACK_BYTES = 8
"""Bytes behind the texts, so that a whole word can be read at each of their bytes."""


def _separated(texts: Ragged) -> tuple[Bytes, Ints, bool]:
    """(buffer with a separator before each text and behind the last, where each text begins, whether all texts end with
    a separator).

    If they do, as most writers make them, they are copied as they are, and in one piece if they are back to back. Other
    texts get a separator behind each.
    """
    start, length = texts.start, texts.length
    ends = start + length
    if not len(start) or not length.all() or (texts.buffer[ends - 1] != _SEPARATOR).any():
        begin = np.cumsum(length + 1) - length
        blob = np.full(int((length + 1).sum()) + 1 + _SLACK_BYTES, _SEPARATOR, np.uint8)
        ragged_copy(blob, begin, texts)
        return blob, begin, False
    if (start[1:] == ends[:-1]).all():
        first, last = int(start[0]), int(ends[-1])
        edge = np.full(1, _SEPARATOR, np.uint8)
        slack = np.full(_SLACK_BYTES, _SEPARATOR, np.uint8)
        return np.concatenate([edge, texts.buffer[first:last], slack]), start - first + 1, True
    behind = np.cumsum(length) + 1
    blob = np.empty(int(behind[-1]) + _SLACK_BYTES, np.uint8)
    blob[0], blob[-_SLACK_BYTES:] = _SEPARATOR, _SEPARATOR
    begin = behind - length
    ragged_copy(blob, begin, texts)
    return blob, begin, True


NAMES = tuple(
    name.encode()
    for name in (
        *(names.UNIQ_KEY, names.KEYS, names.TAGS),
        *(names.WAIT, names.DELAY, names.REAL_TOPIC, names.REAL_QID, names.TRAN_MSG, names.PGROUP),
        *(names.INNER_NUM, names.INNER_BASE, names.INNER_MULTI_DISPATCH, names.DUP_INFO),
        *(names.TIMER_DELIVER_MS, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_OUT_MS),
        *(names.TIMER_DEL_UNIQKEY, names.TIMER_ROLL_TIMES, names.CRC32),
    )
)
"""Names that the native kernel finds in one pass."""
NAMES_MAX = 64
"""Most names of one pass."""
VALUES = 3
"""The first so many names, whose values are found in that pass, too."""


_NUL, _MALFORMED, _RUN_TOGETHER, _REPEATED, _OPEN = (1 << bit for bit in range(5))
"""What the native kernel notes of each text, as bits."""


class _NativeItems:
    """`PropertyItems` by the native kernel: one pass over the texts, which are not copied."""

    def __init__(self, texts: Ragged, wanted: Sequence[bytes]) -> None:
        self._texts = texts
        if texts.noted.items is None:
            names, values = (tuple(wanted), len(wanted)) if wanted else (NAMES, VALUES)
            found, self._odd, self._names = self._scan(names, values)
        else:
            found, self._odd, self._names, names = texts.noted.items
        self._known = names
        self._found = dict(zip(names, found, strict=False))
        self._all_odd = int(np.bitwise_or.reduce(self._odd)) if len(texts) else 0

    def _scan(self, names: Sequence[bytes], values: int) -> tuple[Ints, Bytes, int]:
        """(values of the first names, int64[values, 3, n]; oddities of each text as bits; names present as bits)."""
        count = len(self._texts)
        found, odd = np.empty((values, 3, count), np.int64), np.empty(count, np.uint8)
        lengths, known = np.array([len(name) for name in names], np.int64), np.zeros(1, np.int64)
        blob = np.frombuffer(b"".join(names), np.uint8)
        arrays = (blob, lengths, *self._texts.arrays, found, odd, known)
        kernel.run(kernel.Operation.ITEMS, arrays, (values,))
        return found, odd, int(known[0])

    def _values(self, name: str) -> Ints | None:
        """Start, length and count of the values of a name, int64[3, n]; None: no text has the name."""
        wanted = name.encode()
        found: Ints | None = self._found.get(wanted)
        known = self._known
        if found is None and (wanted not in known or self._names >> known.index(wanted) & 1):
            found = self._found[wanted] = self._scan([wanted], 1)[0][0]
        return found

    def find(self, name: str) -> Ragged:
        found = self._values(name)
        if found is None:
            count = len(self._texts)
            return Ragged(self._texts.buffer, np.zeros(count, np.int64), np.full(count, -1, np.int64))
        return Ragged(self._texts.buffer, found[0], found[1], self._noted(name.encode()))

    def _noted(self, name: bytes) -> StringNotes:
        """The notes on the values of a name: word sums for the first name, hashes for some."""
        noted = self._texts.noted
        if noted.items is None or name not in self._known[: len(noted.items[0])]:
            return StringNotes()
        number = self._known.index(name)
        hashes = None if noted.hashes is None else noted.hashes[number]
        return StringNotes(sums=None if number else noted.sums, hashes=hashes)

    def count(self, name: str) -> Ints:
        found = self._values(name)
        return np.zeros(len(self._texts), np.int64) if found is None else found[2]

    def has_name(self, name: str) -> bool:
        found = self._values(name)
        return found is not None and bool(found[2].any())

    def flag(self, bit: int) -> Flags:
        if not self._all_odd & bit:
            return np.zeros(len(self._texts), np.bool_)
        found: Flags = self._odd & bit != 0
        return found

    @property
    def ended(self) -> bool:
        return not self._all_odd & _OPEN and bool((self._texts.length > 0).all())


class PropertyItems:
    """All items of n property texts, found in one pass; look-ups of names are then cheap.

    Names are compared as bytes. Memory: a copy of the texts and 8 bytes per item, with the native kernel 80 bytes per
    text and no copy. wanted: the names that will be looked up, if known, so that one pass finds them all.
    """

    def __init__(self, properties: Ragged, wanted: Iterable[str] = ()) -> None:
        length = np.maximum(properties.length, 0)
        self._texts = Ragged(properties.buffer, properties.start, length, properties.noted)
        self._count = len(self._texts)
        self._found: dict[str, Ragged] = {}
        native = kernel.is_wanted(self._count)
        names = [name.encode() for name in wanted][:NAMES_MAX]
        self._native = _NativeItems(self._texts, names) if native else None

    @cached_property
    def _copy(self) -> tuple[Bytes, Ints, bool]:
        return _separated(self._texts)

    @property
    def ended(self) -> bool:
        return self._native.ended if self._native is not None else self._copy[2]

    @property
    def _blob(self) -> Bytes:
        return self._copy[0]

    @property
    def _begin(self) -> Ints:
        return self._copy[1]

    @property
    def _end(self) -> int:
        return len(self._blob) - _SLACK_BYTES

    @cached_property
    def _cuts(self) -> Ints:
        """Positions of separators; an item lies between two of them."""
        return np.flatnonzero(self._blob[: self._end] == _SEPARATOR)

    @cached_property
    def _heads(self) -> npt.NDArray[np.uint64]:
        """The first eight bytes of each item."""
        words = overlapping(self._blob, np.dtype(">u8"))
        return words[self._cuts[:-1] + 1].astype(np.uint64)

    @cached_property
    def _record(self) -> Ints:
        """The number of the text that contains each item."""
        is_begin = np.zeros(self._end, np.bool_)
        is_begin[self._begin - 1] = True
        first = np.flatnonzero(is_begin[self._cuts])
        items = np.diff(first, append=len(self._cuts) - 1)
        return np.repeat(np.arange(self._count), items)

    def find(self, name: str) -> Ragged:
        """Value of `name` in each text; length -1 if missing or empty. The last one of a text counts."""
        if name not in self._found:
            of = self._find if self._native is None else self._native.find
            self._found[name] = of(name)
        return self._found[name]

    def has_name(self, name: str) -> bool:
        """Whether some text has an item of this name."""
        if self._native is not None:
            return self._native.has_name(name)
        return bool(len(self._items_named(name)[0]))

    def _find(self, name: str) -> Ragged:
        out = Ragged(self._blob, np.zeros(self._count, np.int64), np.full(self._count, -1, np.int64))
        item, record = self._items_named(name)
        skip = len(name.encode()) + 2
        begin = self._cuts[item] + skip
        length = self._cuts[item + 1] - begin
        kept = length > 0
        # numpy assigns in order, so the last item of a record stays
        out.start[record[kept]] = begin[kept]
        out.length[record[kept]] = length[kept]
        return out

    def count(self, name: str) -> Ints:
        """How often each text has the name, int64[n]."""
        if self._native is not None:
            return self._native.count(name)
        _, record = self._items_named(name)
        return np.bincount(record, minlength=self._count).astype(np.int64)

    def repeated_values(self, name: str, wanted: bytes | None = None) -> list[tuple[int, bytes]]:
        """(number of the text; value) of all items of a name in texts that have it more than once, in order.

        wanted: only those with this value. `find` has those of other texts.
        """
        several = np.flatnonzero(self.count(name) > 1)
        if not len(several) or wanted == b"":
            return []
        blob, begin, _ = _separated(self._texts[several])
        head, value = re.escape(ITEM_SEPARATOR + name.encode() + NAME_VALUE_SEPARATOR), wanted and re.escape(wanted)
        # the separator behind an item is also that in front of the next one
        item = re.compile(head + b"(" + (value or b"[^" + ITEM_SEPARATOR + b"]+") + b")(?=" + ITEM_SEPARATOR + b")")
        found = [(one.start() + 1, one[1]) for one in item.finditer(blob.data)]
        rows = np.searchsorted(begin, [at for at, _ in found], "right") - 1
        return [(row, text) for row, (_, text) in zip(several[rows].tolist(), found, strict=True)]

    def _items_named(self, name: str) -> tuple[Ints, Ints]:
        """(items that begin with `name 01`, the text that contains each)."""
        head = name.encode() + NAME_VALUE_SEPARATOR
        wanted = head[:8]
        mask = ((1 << (8 * len(wanted))) - 1) << (8 * (8 - len(wanted)))
        value = int.from_bytes(wanted.ljust(8, b"\0"), "big")
        item = np.flatnonzero((self._heads & np.uint64(mask)) == np.uint64(value))
        if len(head) > len(wanted) and len(item):
            item = item[self._tail_matches(item, head)]
        return item, self._record[item]

    def _tail_matches(self, item: Ints, head: bytes) -> Flags:
        at = self._cuts[item] + 1
        fits = at + len(head) <= self._cuts[item + 1]
        rows = np.flatnonzero(fits)
        for k in range(8, len(head)):
            rows = rows[self._blob[at[rows] + k] == head[k]]
        matches = np.zeros(len(item), np.bool_)
        matches[rows] = True
        return matches

    def has_nul(self) -> Flags:
        """bool[n]: the text has a NUL byte."""
        if self._native is not None:
            return self._native.flag(_NUL)
        found = np.zeros(self._count, np.bool_)
        text = self._blob[: self._end]
        if not text.min(initial=_SEPARATOR):
            at = np.flatnonzero(text == 0)
            found[self._record[np.searchsorted(self._cuts, at) - 1]] = True
        return found

    def torn(self) -> Flags:
        """bool[n]: see `message_properties.is_torn`."""
        return self._of_nul(names.is_torn)

    def has_lost_items(self) -> Flags:
        """bool[n]: see `message_properties.has_lost_items`."""
        return self._of_nul(names.has_lost_items)

    def _of_nul(self, asked: Callable[[bytes], bool]) -> Flags:
        found = self.has_nul()
        for row in np.flatnonzero(found).tolist():
            found[row] = asked(self._texts[row])
        return found

    @cached_property
    def _full(self) -> Ints | slice:
        full = self._cuts[1:] > self._cuts[:-1] + 1
        return slice(None) if full.all() else np.flatnonzero(full)

    @cached_property
    def _bounds(self) -> tuple[Ints, Ints]:
        """Begin and end of each item that is not empty."""
        return self._cuts[:-1][self._full] + 1, self._cuts[1:][self._full]

    @cached_property
    def _name_ends(self) -> Ints:
        """Positions of separators between names and values."""
        return np.flatnonzero(self._blob == _NAME_VALUE)

    @cached_property
    def _one_each(self) -> bool:
        """Whether each item that is not empty has exactly one separator between name and value."""
        begin, end = self._bounds
        ones = self._name_ends
        return len(ones) == len(begin) and bool(((ones >= begin) & (ones < end)).all())

    @cached_property
    def _name_lengths(self) -> Ints:
        """Bytes of the name of each item that is not empty: 0 without a name, -1 without a value or a separator."""
        begin, end = self._bounds
        ones = self._name_ends
        if not self._one_each:
            ones = np.append(ones, len(self._blob))
            ones = ones[np.searchsorted(ones, begin)]
        length = ones - begin
        length[ones >= end - 1] = -1
        return length

    def run_together(self) -> Flags:
        """bool[n]: the text has an item with more than one separator between name and value."""
        if self._native is not None:
            return self._native.flag(_RUN_TOGETHER)
        found = np.zeros(self._count, np.bool_)
        if not self._one_each:
            first, behind = (np.searchsorted(self._name_ends, bound) for bound in self._bounds)
            found[self._record[self._full][behind - first > 1]] = True
        return found

    def malformed(self) -> Flags:
        """bool[n]: the text has an item without a name or without a value, which readers drop."""
        if self._native is not None:
            return self._native.flag(_MALFORMED)
        found = np.zeros(self._count, np.bool_)
        length = self._name_lengths
        if len(length) and length.min() <= 0:
            found[self._record[self._full][length <= 0]] = True
        return found

    def pairs(self) -> tuple[Ints, Ragged, Ragged]:
        """(text that contains the item, int64[m]; its name; its value) of all items in order.

        Items that readers drop are left out; duplicates stay, see `repeated`.
        """
        length = self._name_lengths
        kept = np.flatnonzero(length > 0)
        begin, end = self._bounds
        begin, length, end = begin[kept], length[kept], end[kept]
        value = begin + length + 1
        return (
            self._record[self._full][kept],
            Ragged(self._blob, begin, length),
            Ragged(self._blob, value, end - value),
        )

    def repeated(self) -> Flags:
        """bool[n]: the text may have a name twice, with a value or without. Not all of many names are compared, nor the
        ends of long names: the caller has to check.

        Consecutive texts mostly have the same names, which are then compared once.
        """
        if self._native is not None:
            return self._native.flag(_REPEATED)
        return self._may_repeat() | self.malformed()

    def _may_repeat(self) -> Flags:
        length, record = self._name_lengths, self._record[self._full]
        key = self._heads[self._full] & _FIRST_BYTES[np.clip(length, 0, _SLACK_BYTES)]
        key ^= length.astype(np.uint64)
        count = np.bincount(record, minlength=self._count)
        if len(count) and count.min() == count.max() > 0:
            return _has_twice(key.reshape(self._count, -1))
        first = np.cumsum(count) - count
        found = np.zeros(self._count, np.bool_)
        for items in np.flatnonzero(np.bincount(count)).tolist():
            if items > 1:
                rows = np.flatnonzero(count == items)
                found[rows] = _has_twice(key[first[rows][:, None] + np.arange(items)])
        return found


def _has_twice(keys: npt.NDArray[np.uint64]) -> Flags:
    """bool[n]: the row (of uint64[n, k]) contains a number twice. Rows equal to the one before are cheap."""
    new = np.ones(len(keys), np.bool_)
    new[1:] = False
    for column in keys.T:
        new[1:] |= column[1:] != column[:-1]
    ordered = np.sort(keys[new], axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    found: Flags = twice[np.cumsum(new) - 1]
    return found


_FIRST_BYTES = np.array([((1 << 8 * n) - 1) << 8 * (8 - n) for n in range(9)], np.uint64)
"""Masks of the first n bytes of a word."""


def ends_with_crc_item(texts: Ragged) -> Flags:
    """bool[n]: see `message_properties.ends_with_crc`."""
    item = texts.start + texts.length - CRC_ITEM_BYTES
    has = np.zeros(len(texts), np.bool_)
    rows = np.flatnonzero(texts.length >= CRC_ITEM_BYTES)
    # a word is compared quickly, and most stores have none
    words = overlapping(texts.buffer, np.dtype(np.uint64))
    rows = rows[words[item[rows]] == np.frombuffer(CRC_ITEM_HEAD, words.dtype, 1)]
    has[rows] = overlapping(texts.buffer, np.dtype((np.void, len(CRC_ITEM_HEAD))))[item[rows]] == np.void(CRC_ITEM_HEAD)
    return has


def ends_with_misnamed_crc_item(texts: Ragged) -> Flags:
    """bool[n]: the text ends like a `__CRC32#` item, but with another name (spec 1.7)."""
    rows = np.flatnonzero((texts.length >= CRC_ITEM_BYTES) & ~ends_with_crc_item(texts))
    found = np.zeros(len(texts), np.bool_)
    found[rows] = crc_values(texts[rows]) >= 0
    return found


def crc_values(texts: Ragged) -> Ints:
    """The value of the `__CRC32#` items that the texts end with, int64[n]; -1 if malformed."""
    end = texts.start + texts.length - 1
    value = np.zeros(len(texts), np.int64)
    good = texts.buffer[end] == _SEPARATOR
    for place in range(CRC_DIGITS):  # the least significant digit comes first
        digit = texts.buffer[end - CRC_DIGITS + place].astype(np.int64) - ord("0")
        good &= (digit >= 0) & (digit <= 9)
        value += digit * 10**place
    value[~good] = -1
    return value


def find(properties: Ragged, name: str) -> Ragged:
    """Value of one name in each property text, see `PropertyItems.find`."""
    return PropertyItems(properties, [name]).find(name)


def noting_values(field: str, wanted: Iterable[str]) -> Noting | None:
    """How to note only the values of these names in the texts of a field; None for no names or too many."""
    names = tuple(name.encode() for name in sorted(set(wanted)))
    return Noting(itemized=field, names=names, values=len(names)) if 0 < len(names) <= NAMES_MAX else None


def joined(parts: Sequence[Ragged]) -> Ragged:
    """Row by row, the strings of all parts joined; a missing string counts as empty."""
    lengths = [np.maximum(part.length, 0) for part in parts]
    total: Ints = np.zeros(len(lengths[0]), np.int64)
    for length in lengths:
        total += length
    start = np.cumsum(total) - total
    out = np.empty(int(total.sum()), np.uint8)
    at = start.copy()
    for part, length in zip(parts, lengths, strict=True):
        ragged_copy(out, at, Ragged(part.buffer, part.start, length))
        at += length
    return Ragged(out, start, total)


def with_items(texts: Ragged, items: Mapping[str, Ragged]) -> Ragged:
    """Property texts that end with a separator, with further items appended in order.

    items: name → a value for each text. A text stays as it is if it has the name already, or if the value is missing or
    empty.
    """
    have = PropertyItems(texts)
    parts = [texts]
    for name, values in items.items():
        wanted = (values.length > 0) & (have.find(name).length < 0)
        for fixed in (name.encode() + NAME_VALUE_SEPARATOR, None, ITEM_SEPARATOR):
            part = values if fixed is None else Ragged.repeat(fixed, len(texts))
            parts.append(Ragged(part.buffer, part.start, np.where(wanted, part.length, 0)))
    return joined(parts)


def item_texts(names: Ragged, values: Ragged) -> Ragged:
    """One item for each name and value, back to back in one buffer."""
    separators = (NAME_VALUE_SEPARATOR, ITEM_SEPARATOR)
    middle, end = (Ragged.repeat(separator, len(names)) for separator in separators)
    return joined([names, middle, values, end])
