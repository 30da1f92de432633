"""How a gap is closed: which bytes become a tombstone, a filler, a BLANK."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ...formats.blank import BLANK
from ...formats.message import SMALLEST
from ...formats.tombstone import FILLER_BYTES_MAX, FILLER_TOPIC
from ..counted import counted
from ..errors import Refused
from .gaps import Gap
from .lost_units import LostUnits
from .tombstones import Forms, batch_text

Ints = npt.NDArray[np.int64]
SMALLEST_FILLER = SMALLEST + len(FILLER_TOPIC)


@dataclass(frozen=True)
class Fill:
    """What closes one gap: all of it.

    lost: the records that get a tombstone, as large as that is. fillers: (position, size) of each.
    blank: the same, None where the file goes on. padding: bytes that the record before takes.
    """

    gap: Gap
    lost: LostUnits
    fillers: list[tuple[int, int]]
    blank: tuple[int, int] | None
    padding: int = 0


def fill(gap: Gap, units: LostUnits, forms: Forms) -> Fill:
    """Close a gap in which `units` name lost records.

    What is too small for a record goes to a tombstone beside it, and without one into the properties
    of the record before. Raises Refused where there is none: no broker has left such a gap.
    """
    units = units.take(units.size >= _smallest(units, forms))
    if gap.to_file_end:  # what comes to the end of the file leaves no room for the BLANK
        units = units.take(units.end <= gap.end - BLANK.sizeof())
    begins = np.append(units.position, gap.end)
    ends = np.append(gap.begin, units.end)
    room = begins - ends
    tight = (room > 0) & (room < SMALLEST_FILLER)
    if gap.to_file_end:
        tight[-1] = False
        if room[-1] < BLANK.sizeof():
            raise _too_small(gap)
    if tight.any() and not len(units):
        if gap.previous < 0:
            raise _too_small(gap)
        return Fill(gap, units, [], None, int(room[0]))
    if tight.any():
        units = _grown(units, np.where(tight, room, 0))
        room = np.where(tight, 0, room)
    holes = list(zip(ends.tolist(), room.tolist(), strict=True))
    blank = holes.pop() if gap.to_file_end else None
    fillers = [part for begin, size in holes if size for part in _parts(begin, size)]
    return Fill(gap, units, fillers, blank)


def _grown(units: LostUnits, more: Ints) -> LostUnits:
    """Each takes the bytes behind it, the first one those before it, too: int64[n + 1]."""
    position, size = units.position.copy(), units.size + more[1:]
    position[0] -= more[0]
    size[0] += more[0]
    return replace(units, position=position, size=size)


def _too_small(gap: Gap) -> Refused:
    return Refused(
        f"{counted(gap.end - gap.begin, 'byte')} that no record owns, too few for one",
        offset=gap.begin,
        hint="recover with --policy broker",
    )


def _smallest(units: LostUnits, forms: Forms) -> Ints:
    """Bytes of the smallest tombstone of each unit's topic."""
    lengths = [forms.smallest(queue.topic) for queue in units.queues]
    smallest = np.array(lengths or [0], np.int64)[units.queue]
    for row in np.flatnonzero(units.batch_sizes > 1).tolist():
        offset, messages = int(units.queue_offset[row]), int(units.batch_sizes[row])
        smallest[row] += len(batch_text(offset, messages))
    return smallest


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
