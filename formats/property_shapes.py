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

    def fits(self, blob: Bytes, at: Ints) -> Flags:
        """bool[n]: the text of this length that begins at byte `at` has all names and separators."""
        words, same = overlapping(blob, _WORD), np.ones(len(at), np.bool_)
        for place, part in self.fixed:
            for first in range(0, len(part), _WORD.itemsize):
                wanted, mask = _word(part[first : first + _WORD.itemsize])
                found = words[at + (place + first)]
                if mask is not None:
                    found &= mask
                same &= found == wanted
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


class Shapes:
    """The shapes of n texts in one buffer. Answers are those of `property_columns.Items`."""

    def __init__(self, blob: Bytes, begin: Ints, number: Ints, shapes: list[_Shape]) -> None:
        self._blob = blob
        self._begin = begin
        self._number = number
        self._shapes = shapes

    @classmethod
    def of(cls, blob: Bytes, size: int, begin: Ints, length: Ints) -> Shapes | None:
        """None where the texts have too many shapes, or one is not regular.

        blob: a separator, then `size` - 1 bytes: all texts, back to back, then room for a word.
        """
        if len(begin) < _TEXTS_MIN or int(length.max()) > _LENGTH_MAX:
            return None
        some = slice(None, None, len(begin) // _SAMPLE)
        shapes: list[_Shape] = []
        if _numbers(blob, begin[some], length[some], shapes) is None:
            return None
        number = _numbers(blob, begin, length, shapes)
        if number is None:
            return None
        texts = np.bincount(number, minlength=len(shapes)).tolist()
        expected = sum(n * s.specials for n, s in zip(texts, shapes, strict=True))
        if np.count_nonzero(blob[1:size] <= _SPECIAL) != expected:
            return None
        return cls(blob, begin, number, shapes)

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


def _numbers(blob: Bytes, begin: Ints, length: Ints, shapes: list[_Shape]) -> Ints | None:
    """int64[n]: the shape of each text among `shapes`, where new ones are added; None: too many."""
    number = np.full(len(begin), -1, np.int64)
    for size in np.flatnonzero(np.bincount(length)).tolist():
        rows = np.flatnonzero(length == size)
        known = iter([n for n, shape in enumerate(shapes) if shape.length == size])
        while len(rows):
            at = next(known, len(shapes))
            if at == len(shapes):
                start = int(begin[rows[0]])
                shape = _Shape.of(blob[start : start + size].tobytes())
                if shape is None or at == _SHAPES_MAX:
                    return None
                shapes.append(shape)
            fits = shapes[at].fits(blob, begin[rows])
            number[rows[fits]] = at
            rows = rows[~fits]
    return number
