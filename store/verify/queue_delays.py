"""Waiting messages of a broker with delay levels of its own (spec 01, 1.11).

The tags code of a unit in the queue of a delay level is the time at which the message is due. The
store does not tell the levels: where several messages of a queue wait equally long, whole seconds,
that is what the broker's level is, though it is none of the usual ones. One message alone proves
nothing; whether it has company is known when the log has been read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..audit.messages import Messages

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_SECOND_MS = 1000
_SINGLE_MAX = 64
"""Messages of a queue that are kept in mind: with more, all waiting differently, no level is at work."""


@dataclass
class Alone:
    """A message that waits as long as no other one: its queue offset, the tags code of its unit,
    where its record begins, and the code that this asks for.
    """

    offset: int
    code: int
    position: int
    asked: int


@dataclass
class Waits:
    """Of one queue. own_ms: what several messages wait. alone: the only message, by what it waits."""

    own_ms: set[int] = field(default_factory=set)
    alone: dict[int, Alone] = field(default_factory=dict)

    def wrong(self, messages: Messages, codes: Ints, rows: Ints) -> Ints:
        """Of `rows`, whose codes are none that the usual levels give, those that nothing explains."""
        wait = codes[rows] - messages.store_timestamp[rows]
        some = np.flatnonzero((wait > 0) & (wait % _SECOND_MS == 0))
        explained = np.zeros(len(rows), np.bool_)
        times, first, count = np.unique(wait[some], return_index=True, return_counts=True)
        for wait_ms, at, of_it in zip(times.tolist(), some[first], count.tolist(), strict=True):
            row = rows[at]
            message = Alone(
                int(messages.offset[row]),
                int(codes[row]),
                int(messages.position[row]),
                int(messages.tags_code[row]),
            )
            if self._is_level(wait_ms, message, of_it):
                explained |= wait == wait_ms
        return rows[~explained]

    def _is_level(self, wait_ms: int, message: Alone, count: int) -> bool:
        """So many messages wait so long: a level, or one to keep in mind."""
        if count > 1 or wait_ms in self.own_ms or wait_ms in self.alone:
            self.own_ms.add(wait_ms)
            self.alone.pop(wait_ms, None)
            return True
        if len(self.alone) >= _SINGLE_MAX:
            return False
        self.alone[wait_ms] = message
        return True

    def take_on(self, other: Waits) -> None:
        """Those of the part of the log right behind."""
        both = self.alone.keys() & other.alone.keys()
        self.own_ms |= other.own_ms | both
        self.alone = {
            wait_ms: message
            for wait_ms, message in (other.alone | self.alone).items()
            if wait_ms not in self.own_ms
        }
