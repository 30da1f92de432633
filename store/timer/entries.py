"""Entries of the timer log as columns, which of them are valid, and the chains they make (spec 4.6)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from ...formats.timer_log import MAGIC_DELETE, MAGIC_MAX, MAGIC_ROLL, UNIT_BYTES
from ...formats.timer_wheel import SLOTS
from ..columns.ordered import begins, rows_of
from ..columns.rows import Rows

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Array = npt.NDArray[np.void]
NOWHERE = -1
"""Where the link of an entry without one before it leads to."""
CUT = -2
"""Where a link leads to that names a place at which no entry begins."""


def is_entry(units: Array) -> Flags:
    """bool[n]: a broker takes the unit for an entry."""
    found: Flags = (units["size"] == UNIT_BYTES) & (units["magic"] >= 0)
    found &= units["magic"] <= MAGIC_MAX
    return found


def due_ms(units: Array) -> Ints:
    """int64[n]: when the tick of each entry is due."""
    found: Ints = units["curr_write_time"].astype(np.int64) + units["delayed_time"]
    return found


def is_in_place(numbers: Ints, time: Ints) -> Flags:
    """bool[n]: slots of the wheel that lie where their tick belongs."""
    found: Flags = time % SLOTS == numbers
    return found


@dataclass(frozen=True)
class TimerEntries(Rows):
    """n entries in log order, as the schema has them. tick_ms: when each is due."""

    position: Ints
    previous: Ints
    tick_ms: Ints
    offset_py: Ints
    size_py: Ints
    magic: Ints
    topic_hash: Ints
    reserved: Ints

    @classmethod
    def of(cls, position: Ints, units: Array) -> Self:
        """Of units at their stream positions."""
        rest = ("offset_py", "size_py", "magic", "hash_code_of_real_topic", "reserved")
        columns = (units["prev_pos"], due_ms(units), *(units[name] for name in rest))
        return cls(position, *(column.astype(np.int64) for column in columns))

    @property
    def rolled(self) -> Flags:
        """To be taken round once more."""
        found: Flags = (self.magic & MAGIC_ROLL) != 0
        return found

    @property
    def deletes(self) -> Flags:
        """Made by a cancel message."""
        found: Flags = (self.magic & MAGIC_DELETE) != 0
        return found

    @property
    def end(self) -> int:
        """Behind the last entry, 0 without any."""
        return int(self.position[-1]) + UNIT_BYTES if len(self) else 0

    def at(self, positions: Ints) -> tuple[Ints, Flags]:
        """(row, known) of the entry that begins at each position."""
        return rows_of(self.position, positions)

    def rows(self, positions: Ints) -> Ints:
        """Row of the entry that begins at each position, CUT where none does."""
        row, known = self.at(positions)
        return np.where(known, row, CUT)

    @cached_property
    def before(self) -> Ints:
        """Row of the entry that each names as the one before it, NOWHERE or CUT."""
        return np.where(self.previous == NOWHERE, NOWHERE, self.rows(self.previous))


def follow(before: Ints, heads: Ints) -> tuple[Ints, Ints]:
    """Walk chains back from their newest entries: (by entry a head that leads to it or NOWHERE, by
    head where its chain ends: NOWHERE, CUT, or a row if it goes round).

    before: as of `TimerEntries`. heads: rows. All chains are followed at once, in steps of one, two,
    four … entries: long chains cost little, and loops end.
    """
    owner = np.full(len(before), NOWHERE, np.int64)
    owner[heads] = np.arange(len(heads))
    end, jump = heads, before
    for _ in range(max(len(before), 1).bit_length()):
        source = np.flatnonzero((owner != NOWHERE) & (jump >= 0))
        target = jump[source]
        new = owner[target] == NOWHERE
        owner[target[new]] = owner[source[new]]
        end, jump = _jumped(end, jump), _jumped(jump, jump)
    return owner, end


def _jumped(at: Ints, jump: Ints) -> Ints:
    """Where the jumps lead; what is no entry stays where it is."""
    return np.where(at >= 0, jump[np.maximum(at, 0)], at) if len(jump) else at


class ByTick(NamedTuple):
    """Entries by tick, and in one as they lie. rows: of the entries. first: bool[n], it is the first
    of its tick. before: int64[n], position of the one before it in the tick, NOWHERE without one.
    """

    rows: Ints
    first: Flags
    before: Ints

    @classmethod
    def of(cls, tick: Ints, position: Ints) -> Self:
        """The order of entries of these ticks at these positions."""
        rows = np.lexsort((position, tick))
        first = begins(tick[rows])
        before = np.append(NOWHERE, position[rows][:-1])[: len(rows)]
        return cls(rows, first, np.where(first, NOWHERE, before))
