"""Property texts of few shapes: where the items lie is found once for all texts of a shape.

A producer gives all its messages the same names and values of few different lengths. Texts whose
separators stand at the same places and whose names are the same are of one shape. That a text has
no other separators is shown by counting those of all texts: no text is taken apart for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .derive.ragged import Bytes, Ints, Ragged, overlapping
from .message_properties import ITEM_SEPARATOR, NAME_VALUE_SEPARATOR

Flags = npt.NDArray[np.bool_]

_SHAPES_MAX = 12
"""Texts of more shapes are taken apart one by one: it is quicker then."""
_TEXTS_MIN = 256
_LENGTH_MAX = 1 << 15
"""Texts that are fewer or longer are not worth it; a log has none longer."""
_SAMPLE = 128
_STEP_BYTES = 1 << 19
"""Bytes that are looked at together: few enough to stay in a processor's cache."""
_SPECIAL = max(ITEM_SEPARATOR[0], NAME_VALUE_SEPARATOR[0])
"""No byte up to this one is part of a name or of a value: separators and NUL."""
_ITEM = rb"[^\x00-\x02]+\x01[^\x00-\x02]+\x02"
_REGULAR = re.compile(rb"(?:" + _ITEM + rb")+")
_WORD = np.dtype(np.uint64)


@dataclass(frozen=True)
class _Item:
    """One item of a shape. name: with its separator; value, end: bytes of the text."""

    name: bytes
    value: int
    end: int


@dataclass(frozen=True)
class _Shape:
    """What the texts of one shape have in common. fixed: bytes at places, all but the values."""

    length: int
    items: tuple[_Item, ...]
    fixed: tuple[tuple[int, bytes], ...]

    @classmethod
    def of(cls, text: bytes) -> _Shape | None:
        """That of a text; None where an item lacks its name, its value or its separators."""
        if _REGULAR.fullmatch(text) is None:
            return None
        items, fixed, end = [], [], -1
        while (begin := end + 1) < len(text):
            value = text.index(NAME_VALUE_SEPARATOR, begin) + 1
            fixed.append((max(end, 0), text[max(end, 0) : value]))
            end = text.index(ITEM_SEPARATOR, value)
            items.append(_Item(text[begin:value], value, end))
        return cls(len(text), tuple(items), (*fixed, (end, ITEM_SEPARATOR)))

    @property
    def specials(self) -> int:
        """Separators of a text."""
        return 2 * len(self.items)

    def fits(self, texts: _Texts) -> Flags:
        """bool[n]: the text, of this length, has all names and separators."""
        same = np.ones(len(texts), np.bool_)
        for place, part in self.fixed:
            for first in range(0, len(part), _WORD.itemsize):
                wanted, mask = _word(part[first : first + _WORD.itemsize])
                found = texts.words(place + first)
                same &= (found if mask is None else found & mask) == wanted
        return same

    def value(self, head: bytes) -> _Item | None:
        """The last item that begins with `head`."""
        return next((item for item in reversed(self.items) if item.name == head), None)

    def count(self, head: bytes) -> int:
        """How many items begin with `head`."""
        return sum(item.name == head for item in self.items)


def _word(part: bytes) -> tuple[np.uint64, np.uint64 | None]:
    """Up to eight bytes as a word in memory order, and a mask where they are less."""
    size = _WORD.itemsize
    wanted = np.frombuffer(part.ljust(size, b"\0"), _WORD)[0]
    if len(part) == size:
        return wanted, None
    return wanted, np.frombuffer((b"\xff" * len(part)).ljust(size, b"\0"), _WORD)[0]


class _Texts:
    """n texts of one length, back to back from byte `base` of a buffer on. rows: which of all."""

    def __init__(self, blob: Bytes, base: int, length: int, rows: Ints) -> None:
        self.rows = rows
        self.length = length
        self._blob = blob
        self._base = base

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> bytes:
        start = self._base + number * self.length
        return self._blob[start : start + self.length].tobytes()

    @property
    def begin(self) -> Ints:
        """int64[n]: where each begins in the buffer."""
        return self._base + np.arange(len(self)) * self.length

    def words(self, at: int) -> npt.NDArray[np.uint64]:
        """uint64[n], not aligned: the eight bytes from byte `at` of each text on."""
        place, strides = self._base + at, (self.length,)
        return np.ndarray((len(self),), _WORD, self._blob.data, place, strides)

    def copy_from(self, texts: Ragged) -> None:
        """Fill them with the rows of `texts`."""
        void = np.dtype((np.void, self.length))
        source = overlapping(texts.buffer, void)[texts.start[self.rows]]
        self._bytes.view(void)[:] = source

    @property
    def specials(self) -> int:
        """How many separators and NUL they have."""
        return int(np.count_nonzero(self._bytes <= _SPECIAL))

    @property
    def _bytes(self) -> Bytes:
        return self._blob[self._base : self._base + len(self) * self.length]


class Shapes:
    """The shapes of n texts. Answers are those of `property_columns.Items`."""

    def __init__(
        self, blob: Bytes, groups: list[_Texts], number: Ints, shapes: list[_Shape]
    ) -> None:
        self._blob = blob
        self._number = number
        self._shapes = shapes
        self._begin = np.empty(len(number), np.int64)
        for texts in groups:
            self._begin[texts.rows] = texts.begin

    @property
    def texts(self) -> Ragged:
        """The copies of the texts."""
        return Ragged(self._blob, self._begin, self._by_shape([s.length for s in self._shapes]))

    @classmethod
    def of(cls, texts: Ragged) -> Shapes | None:
        """None where the texts have too many shapes, or one is not regular. They are copied.

        texts: lengths are not negative.
        """
        if len(texts) < _TEXTS_MIN or not 0 < int(texts.length.max()) <= _LENGTH_MAX:
            return None
        shapes: list[_Shape] = []
        sample = texts[:: len(texts) // _SAMPLE]
        room = _by_length(sample)
        if room is None or _numbers(sample, room[1], shapes) is None:
            return None
        room = _by_length(texts)
        number = None if room is None else _numbers(texts, room[1], shapes)
        if room is None or number is None:
            return None
        return cls(*room, number, shapes)

    def find(self, name: str) -> Ragged:
        """Value of `name` in each text; length -1 where absent. The last one wins."""
        head = name.encode() + NAME_VALUE_SEPARATOR
        found = [shape.value(head) for shape in self._shapes]
        length = self._by_shape([-1 if item is None else item.end - item.value for item in found])
        start = self._begin + self._by_shape([0 if item is None else item.value for item in found])
        if None in found:
            start[length < 0] = 0
        return Ragged(self._blob, start, length)

    def count(self, name: str) -> Ints:
        """How often each text has the name, int64[n]."""
        head = name.encode() + NAME_VALUE_SEPARATOR
        return self._by_shape([shape.count(head) for shape in self._shapes])

    def has_name(self, name: str) -> bool:
        """Some text has an item of this name."""
        head = name.encode() + NAME_VALUE_SEPARATOR
        return any(shape.count(head) for shape in self._shapes)

    def repeated(self) -> Flags:
        """bool[n]: the text has a name twice."""
        twice = [len({item.name for item in s.items}) < len(s.items) for s in self._shapes]
        flags: Flags = self._by_shape(twice) != 0
        return flags

    def _by_shape(self, values: list[int] | list[bool]) -> Ints:
        """int64[n]: the value of each text's shape."""
        if len(set(values)) == 1:
            return np.full(len(self._begin), values[0], np.int64)
        return np.array(values, np.int64)[self._number]


def _by_length(texts: Ragged) -> tuple[Bytes, list[_Texts]] | None:
    """Room for copies of the texts, those of one length together, and for a word; None: too many."""
    of_length = np.bincount(texts.length)
    lengths = np.flatnonzero(of_length).tolist()
    if len(lengths) > _SHAPES_MAX or not lengths[0]:
        return None
    blob = np.empty(int(texts.length.sum()) + _WORD.itemsize, np.uint8)
    groups, base = [], 0
    for length in lengths:
        rows = np.flatnonzero(texts.length == length)
        step = max(1, _STEP_BYTES // length)
        for first in range(0, len(rows), step):
            groups.append(_Texts(blob, base, length, rows[first : first + step]))
            base += len(groups[-1]) * length
    return blob, groups


def _numbers(all_texts: Ragged, groups: list[_Texts], shapes: list[_Shape]) -> Ints | None:
    """int64[n]: the shape of each text among `shapes`, where new ones are added; None: too many, or
    some text has more separators than its shape. The groups are filled.
    """
    number = np.empty(len(all_texts), np.int64)
    for texts in groups:
        texts.copy_from(all_texts)
        known = iter([n for n, shape in enumerate(shapes) if shape.length == texts.length])
        left, specials = np.ones(len(texts), np.bool_), texts.specials
        while left.any():
            at = next(known, len(shapes))
            if at == len(shapes):
                shape = _Shape.of(texts[int(left.argmax())])
                if shape is None or at == _SHAPES_MAX:
                    return None
                shapes.append(shape)
            fits = shapes[at].fits(texts)
            fits &= left
            number[texts.rows[fits]] = at
            left &= ~fits
            specials -= shapes[at].specials * int(np.count_nonzero(fits))
        if specials:
            return None
    return number
