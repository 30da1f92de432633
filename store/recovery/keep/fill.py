"""How a gap is closed: which bytes become a tombstone, a filler, a BLANK."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....formats.blank import BLANK
from ....formats.message import SMALLEST
from ....formats.tombstone import FILLER_BYTES_MAX, FILLER_TOPIC
from ...errors import Refused
from .forms import Forms
from .gaps import Gap
from .lost_units import LostUnits

Ints = npt.NDArray[np.int64]
SMALLEST_FILLER = SMALLEST + len(FILLER_TOPIC)


@dataclass(frozen=True)
class Fill:
    """What closes one gap: all of it.

    lost: the records that get a tombstone. fillers: (position, size) of each. blank: the same, None
    where the file goes on.
    """

    gap: Gap
    lost: LostUnits
    fillers: list[tuple[int, int]]
    blank: tuple[int, int] | None


def fill(gap: Gap, units: LostUnits, forms: Forms) -> Fill:
    """Close a gap in which `units` name lost records.

    A unit that leaves too little room beside it for a record is given up. Raises Refused where the
    gap itself is too small: no broker has left such a one.
    """
    units = units.take(units.size >= _smallest(units, forms))
    while True:
        ends = np.concatenate([np.array([gap.begin], np.int64), units.end])
        begins = np.concatenate([units.position, np.array([gap.end], np.int64)])
        room = begins - ends
        tight = (room > 0) & (room < SMALLEST_FILLER)
        if gap.to_file_end:
            tight[-1] = room[-1] < BLANK.sizeof()
        if not tight.any():
            break
        if not len(units):
            raise Refused(
                f"{gap.end - gap.begin} bytes between two records, too few for one",
                offset=gap.begin,
                hint="recover with --policy broker",
            )
        # behind the last unit: that one; else the unit that follows
        given_up = min(int(np.flatnonzero(tight)[0]), len(units) - 1)
        units = units.take(np.arange(len(units)) != given_up)
    holes = list(zip(ends.tolist(), room.tolist(), strict=True))
    blank = holes.pop() if gap.to_file_end else None
    fillers = [part for begin, size in holes if size for part in _parts(begin, size)]
    return Fill(gap, units, fillers, blank)


def _smallest(units: LostUnits, forms: Forms) -> Ints:
    """Bytes of the smallest tombstone of each unit's topic."""
    lengths = [forms.smallest(queue.topic) for queue in units.queues]
    return np.array(lengths or [0], np.int64)[units.queue]


def _parts(begin: int, size: int) -> Iterator[tuple[int, int]]:
    """A range as fillers of a size that brokers can allocate."""
    while size > FILLER_BYTES_MAX:
        part = min(FILLER_BYTES_MAX, size - SMALLEST_FILLER)
        yield begin, part
        begin, size = begin + part, size - part
    yield begin, size


def fills(gaps: Sequence[Gap], units: LostUnits, forms: Forms) -> list[Fill]:
    """Close all gaps. Raises Refused."""
    found = []
    for gap in gaps:
        first, behind = np.searchsorted(units.position, [gap.begin, gap.end])
        found.append(fill(gap, units.take(slice(int(first), int(behind))), forms))
    return found
