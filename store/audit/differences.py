"""What a queue has where a message's unit belongs: the one comparison of log and queue.

Each asks it and maps the kinds as its policy wants (spec 2.11): `verify` to codes, a plan to edits, a
proof to what it leaves to others, the count of a prediction to who can be read.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ...formats.consume_queue import EXT_ADDRESS_MAX
from ...formats.derive.ragged import Flags, Ints
from ..queues.units import Units, is_pre_fill, is_valid


class Kind(IntEnum):
    """Kinds of difference. Up to ADDRESS the unit names the message's record; before PRE_FILL a record."""

    NONE = 0
    #: Another tags code.
    TAGS = 1
    #: A place in consumequeue_ext instead of the tags code.
    ADDRESS = 2
    #: The place of the record, and another size.
    SIZE = 3
    #: Another record.
    OTHER = 4
    PRE_FILL = 5
    INVALID = 6
    #: Zeros.
    NOTHING = 7


class Placed(Protocol):
    """Messages: where their records begin in the log, and bytes of each, int64[n]."""

    @property
    def position(self) -> Ints: ...
    @property
    def size(self) -> Ints: ...


class Tagged(Placed, Protocol):
    """The same with the tags codes that their records ask for, int64[n]."""

    @property
    def tags_code(self) -> Ints: ...


def points_at(units: Units, messages: Placed) -> Flags:
    """bool[n]: unit i names message i's record."""
    same: Flags = (units["physical_offset"] == messages.position) & (units["size"] == messages.size)
    return same


def compare(units: Units, messages: Tagged) -> npt.NDArray[np.int8]:
    """int8[n]: how unit i, at message i's queue offset, differs from that of the message (`Kind`)."""
    same, codes = points_at(units, messages), units["tags_code"]
    kinds = np.zeros(len(units), np.int8)
    other = codes != messages.tags_code
    if same.all() and not other.any():  # as nearly always
        return kinds
    tags = np.flatnonzero(same & other)
    kinds[tags] = np.where(codes[tags] <= EXT_ADDRESS_MAX, Kind.ADDRESS, Kind.TAGS)
    rows = np.flatnonzero(~same)
    if len(rows):
        wrong = units[rows]
        there = wrong["physical_offset"] == messages.position[rows]
        cases = (wrong["size"] == 0, ~is_valid(wrong), is_pre_fill(wrong), there)
        found = (Kind.NOTHING, Kind.INVALID, Kind.PRE_FILL, Kind.SIZE)
        kinds[rows] = np.select(cases, found, Kind.OTHER)
    return kinds
