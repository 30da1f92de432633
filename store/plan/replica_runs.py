"""Stretches of a replica's log that can stand in another: whole records, one behind the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..broker.dispatch import LMQ_PREFIX
from ..log.batch import Batch, Extent, ExtentKind
from ..log.commit_log import CommitLog
from ..log.record_status import Mark
from .fill_records import Piece
from .lost_units import LostUnits
from .replica import Replica
from .replica_holes import is_original

Ints = npt.NDArray[np.int64]
_WINDOW_BYTES = 1 << 20


class Run(NamedTuple):
    """Records, or a BLANK, without a gap between: [begin, end)."""

    begin: int
    end: int
    records: int
    blank: bool = False


def find_runs(
    replica: Replica, begin: int, end: int, units: LostUnits, *, chained: bool = False
) -> Iterator[Run]:
    """What the replica has in [begin, end). chained: only what follows on `begin` without a gap.

    A chained run ends where a queue unit names another record.
    """
    run = Run(begin, begin, 0)
    for item in replica.log.scan(begin, end, reuse=True):
        if isinstance(item, Extent):
            rows = [(item.position, item.end, 0)] if _closes(item, replica) else []
        else:
            rows = list(_stretches(item, min(end, replica.end), units if chained else None))
        for first, behind, count in rows:
            if first != run.end:
                if run.end > run.begin:
                    yield run
                if chained:
                    return
                run = Run(first, first, 0)
            run = Run(run.begin, behind, run.records + count, blank=not count)
        if chained and not rows:
            break
    if run.end > run.begin:
        yield run


def _closes(extent: Extent, replica: Replica) -> bool:
    """A BLANK as a broker writes it, to the end of its file."""
    whole = extent.end % replica.log.queue.file_size == 0
    return extent.kind is ExtentKind.BLANK and not extent.reason and whole


def _stretches(batch: Batch, end: int, units: LostUnits | None) -> Iterator[tuple[int, int, int]]:
    """(begin, end, records) of what follows one another in a batch and is good."""
    if batch.mark > Mark.AFTER_DAMAGE:
        return
    columns = batch.columns
    behind = batch.position + columns.ints("total_size")
    good = is_original(batch) & (columns.ints("physical_offset") == batch.position)
    good &= behind <= end
    if batch.body_crc_ok is not None:
        good &= batch.body_crc_ok
    if units is not None:
        good &= ~_denied(batch, behind, units)
    rows = np.flatnonzero(good)
    for part in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1):
        if len(part):
            yield int(batch.position[part[0]]), int(behind[part[-1]]), len(part)


def _denied(batch: Batch, behind: Ints, units: LostUnits) -> npt.NDArray[np.bool_]:
    """bool[n]: a queue unit names a record that begins inside this one, or another in its place."""
    denied = np.zeros(len(batch), np.bool_)
    first, last = np.searchsorted(units.position, [int(batch.position[0]), int(behind[-1])])
    mine = units.take(slice(int(first), int(last)))
    if not len(mine):
        return denied
    row = np.searchsorted(batch.position, mine.position, side="right") - 1
    offset = batch.columns.ints("queue_offset").astype(np.int64)[row]
    size = batch.columns.ints("total_size").astype(np.int64)[row]
    light = np.array([queue.topic.startswith(LMQ_PREFIX) for queue in mine.queues])[mine.queue]
    wrong = (batch.position[row] != mine.position) | (size != mine.size)
    wrong |= ~light & (offset != mine.queue_offset)
    denied[row[wrong]] = True
    return denied


def pieces_of(log: CommitLog, replica: Replica, run: Run) -> Iterator[Piece]:
    """The bytes of a run that this log has not, in stretches of some windows of one file."""
    begin = -1
    for at, end in _windows(run, replica.log.queue.file_size):
        own = log.read(at, end - at).ljust(end - at, b"\0")
        if begin >= 0 and (
            own == replica.bytes_at(at, end) or at % replica.log.queue.file_size == 0
        ):
            yield begin, replica.kept(begin, at)
            begin = -1
        if begin < 0 and own != replica.bytes_at(at, end):
            begin = at
    if begin >= 0:
        yield begin, replica.kept(begin, run.end)


def _windows(run: Run, file_bytes: int) -> Iterator[tuple[int, int]]:
    """A run in parts that no file border cuts."""
    at = run.begin
    while at < run.end:
        end = min(run.end, at + _WINDOW_BYTES, (at // file_bytes + 1) * file_bytes)
        yield at, end
        at = end
