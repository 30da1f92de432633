"""Where a log has no good record and a replica may help: holes, with what stands on either side.

More counts as damage here than for a plan: tombstones and fillers of an earlier recovery, and
records that were torn inside their properties. A replica may have what was there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...formats.tombstone import FILLER_TOPIC, is_filler
from ..broker.dispatch import Dispatched
from ..log.batch import Batch
from ..log.commit_log import CommitLog
from ..log.lost import tombstones
from ..log.torn_properties import torn_properties
from .gaps import Gap, GapFinder
from .replica import Replica

_SAMPLES = 64


@dataclass(frozen=True)
class Hole:
    """Positions [begin, end) of the log. before: begin and end of the good record in front of it,
    None without one. last: the log ends here, as far as the store knows.
    """

    begin: int
    end: int
    before: tuple[int, int] | None
    last: bool = False


@dataclass
class DamageFinder(GapFinder):
    """Finds what a replica may have. samples: positions of some good records."""

    samples: list[int] = field(default_factory=list)

    def good(self, batch: Batch) -> npt.NDArray[np.bool_]:
        """bool[n]: whole, and what the producer sent."""
        return super().good(batch) & is_original(batch)

    def records(self, batch: Batch, dispatched: Dispatched) -> None:
        """Note a record of each batch, fewer of a large log."""
        super().records(batch, dispatched)
        good = np.flatnonzero(self.good(batch))
        if len(good):
            self.samples.append(int(batch.position[good[0]]))
        if len(self.samples) > _SAMPLES:
            del self.samples[1::2]


def is_original(batch: Batch) -> npt.NDArray[np.bool_]:
    """bool[n]: no tombstone, no filler, and not torn inside its properties."""
    columns = batch.columns
    topic, flags = columns.ragged("topic"), columns.ints("sys_flag")
    filler = np.zeros(len(batch), np.bool_)
    for row in np.flatnonzero(topic.length == len(FILLER_TOPIC)).tolist():
        filler[row] = is_filler(topic[row], int(flags[row]))
    original: npt.NDArray[np.bool_] = ~(tombstones(columns) | filler | torn_properties(columns))
    return original


def holes(finder: GapFinder, log: CommitLog, replica: Replica) -> list[Hole]:
    """The holes that `finder` has seen, by position; the last one is the log's end.

    A BLANK belongs to the hole beside it, and is one where the replica has a record there.
    """
    found: list[Hole] = []
    blanks = {blank.begin for blank in finder.blanks}
    spans = sorted([*finder.gaps, *finder.blanks], key=_begin)
    end = max(finder.end, log.min_offset)
    last = finder.last if finder.last[0] >= 0 else None
    tail = Hole(end, replica.end, last, last=True)
    while spans:
        group = [spans.pop(0)]
        while spans and spans[0].begin == group[-1].end:
            group.append(spans.pop(0))
        if not any(g.begin not in blanks or record_at(replica.log, g.begin) for g in group):
            continue
        begin, previous = group[0].begin, group[0].previous
        hole = Hole(begin, group[-1].end, None if previous < 0 else (previous, begin))
        if hole.end < end:
            found.append(hole)
        elif hole.begin <= end:
            tail = Hole(hole.begin, replica.end, last, last=True)
    return [*found, tail]


def _begin(gap: Gap) -> int:
    return gap.begin


def record_at(log: CommitLog, position: int) -> bytes:
    """The bytes of the whole record at a position, none where there is none."""
    found = log.records(np.array([position], np.int64))
    return log.read(position, int(found.columns.ints("total_size")[0])) if len(found) else b""
