"""What the proof finds, put together: facts of windows to runs, runs and BLANKs to pieces; see `verified`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from ...formats.message import MAGIC_V1, SysFlag
from ...formats.message_properties import ends_with_crc
from ..broker.snapshot import QueueId
from ..log.batch import Batch, Extent, ExtentKind
from ..log.commit_log import CommitLog
from ..log.tail_history import LOOK_BACK
from .verified import SoundRun, Stretch

Ints = npt.NDArray[np.int64]
_LONG_HOSTS = int(SysFlag.BORN_V6 | SysFlag.STORE_V6)


@dataclass(frozen=True)
class Facts:
    """What is known of the records of a window, or of several, one behind the other."""

    begin: int
    end: int
    recent: Ints
    store_timestamp: int
    with_crc: bool
    plain: bool
    unindexed: int | None
    named: bool
    first_timestamp: int

    @classmethod
    def of(cls, batch: Batch, unindexed: int | None, *, named: bool) -> Facts:
        """Those of one window."""
        columns = batch.columns
        plain = bool((columns.ints("magic_code") == MAGIC_V1).all())
        return cls(
            int(batch.position[0]),
            batch.end,
            batch.position[-LOOK_BACK:].copy(),
            int(columns.ints("store_timestamp")[-1]),
            ends_with_crc(columns.ragged("properties")[len(batch) - 1]),
            plain and not (columns.ints("sys_flag") & _LONG_HOSTS).any(),
            unindexed,
            named,
            int(columns.ints("store_timestamp")[0]),
        )

    def and_then(self, later: Facts) -> Facts:
        """Both together."""
        return replace(
            later,
            begin=self.begin,
            first_timestamp=self.first_timestamp,
            with_crc=self.with_crc or later.with_crc,
            plain=self.plain and later.plain,
            named=self.named or later.named,
        )


class Found:
    """Runs and BLANKs of one part of a log, in pieces without a hole.

    end: where the last piece ends, -1: it is complete. version: the generation whose rules tell
    which further queues a message goes to.
    """

    def __init__(self, log: CommitLog, start: int, version: str) -> None:
        self._log, self._start, self._version = log, start, version
        self._pieces: list[list[SoundRun | Extent]] = [[]]
        self.end = start
        self._facts: Facts | None = None
        self._queues: dict[QueueId, Stretch] = {}

    def take(self, facts: Facts, stretches: Iterable[tuple[QueueId, Stretch]]) -> None:
        """Records that are in order, behind all before."""
        if self.end != facts.begin or self._is_elsewhere(facts.begin):
            self._break()
        for queue, stretch in stretches:
            self._queues[queue] = stretch.after(self._queues.get(queue))
        self._facts = facts if self._facts is None else self._facts.and_then(facts)
        self.end = facts.end

    def passes(self, extent: Extent) -> bool:
        """It is the BLANK of a file whose last record is in order; else a piece ends here."""
        if not goes_on(self._log, extent, self.end):
            self._break()
            return False
        self._close()
        self._pieces[-1].append(extent)
        self.end = extent.end
        return True

    def done(self) -> tuple[list[SoundRun | Extent], int]:
        """Everything, and how far it goes from the start on without a hole."""
        self._break()
        for piece in self._pieces:
            drop_full_end(self._log, piece)
        first = self._pieces[0]
        return list(chain(*self._pieces)), first[-1].end if first else self._start

    def _is_elsewhere(self, position: int) -> bool:
        """It lies in another file than the run that grows."""
        at = self._log.queue.file_at
        return self._facts is not None and at(self._facts.begin) != at(position)

    def _break(self) -> None:
        self._close()
        self._pieces.append([])
        self.end = -1

    def _close(self) -> None:
        """The run is complete."""
        facts, queues, self._facts, self._queues = self._facts, self._queues, None, {}
        file = self._log.queue.file_at(facts.begin) if facts else None
        if facts is None or file is None:
            return
        self._pieces[-1].append(
            SoundRun(
                file.path,
                facts.begin,
                facts.end,
                int(facts.recent[-1]),
                facts.store_timestamp,
                facts.with_crc,
                facts.plain,
                facts.unindexed,
                facts.recent,
                queues,
                further_by=self._version if facts.named else "",
                first_timestamp=facts.first_timestamp,
            )
        )


def drop_full_end(log: CommitLog, items: list[SoundRun | Extent]) -> None:
    """Leave the last run to others where it fills its file: they have to see how that ends."""
    while items and (isinstance(items[-1], Extent) or _fills_its_file(log, items[-1])):
        items.pop()


def _fills_its_file(log: CommitLog, run: SoundRun) -> bool:
    file = log.queue.file_at(run.begin)
    return file is None or file.end == run.end


def goes_on(log: CommitLog, extent: Extent, end: int) -> bool:
    """It is the BLANK that closes a file, and there is a next one."""
    closes = extent.kind is ExtentKind.BLANK and not extent.reason and extent.position == end
    return closes and any(file.start == extent.end for file in log.files)
