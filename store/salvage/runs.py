"""Runs: records that follow one another both in a source and in the log. Pure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...formats.derive.ragged import Ints
from .grade import Grade


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
