"""Old records right behind the last new one: whole, in place, and their queue offsets are taken.

A slave's cut, a restored file or a recycled one leaves them there. A broker takes them for messages at
its next start: it gives them no unit, or one at the end of a queue that another message is to have
(spec 2.2, step 4; 7.12, B14). All three must hold: they are older than the record before them, units
of their queues name other messages at their offsets, and no unit of these queues names one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...formats.message import TRANSACTION_MASK, SysFlag
from ..audit.messages import Auditor, Messages
from ..audit.queues import QueueAudit
from ..audit.verified import SoundRun
from ..broker.dispatch import Dispatched
from ..disk.snapshot import QueueId
from ..log.batch import Batch, Extent
from ..log.commit_log import CommitLog
from ..queues.units import is_valid

Ints = npt.NDArray[np.int64]


@dataclass
class DeadTail(Auditor):
    """Looks at the log for what ends it. audits: of its queues, which have looked at all of it."""

    audits: Mapping[QueueId, QueueAudit]
    #: Position of the last record that is no message whose offset is taken.
    last: int = -1
    _ends: dict[QueueId, int] = field(default_factory=dict)
    _taken: list[Messages] = field(default_factory=list)

    def records(self, batch: Batch, dispatched: Dispatched) -> None:
        """Records without a queue offset of their own prove nothing: no tail begins before them."""
        state = batch.columns.ints("sys_flag") & TRANSACTION_MASK
        silent = np.flatnonzero(np.isin(state, (SysFlag.PREPARED, SysFlag.ROLLBACK)))
        if len(silent):
            self.last = max(self.last, int(batch.position[silent[-1]]))

    def messages(self, messages: Messages) -> None:
        """Those whose offset one before them had."""
        end, offsets = self._ends.get(messages.queue, 0), messages.offset
        reached = np.maximum.accumulate(np.concatenate([np.array([end]), offsets + 1]))
        self._ends[messages.queue] = int(reached[-1])
        taken = offsets < reached[:-1]
        if messages.queue not in self.audits:
            taken[:] = False
        if not taken.all():
            self.last = max(self.last, int(messages.position[~taken][-1]))
        if taken.any():
            self._taken.append(messages.take(taken))

    def takes(self, run: SoundRun) -> bool:
        """Queues name these records."""
        return not run.further_by

    def sound(self, run: SoundRun) -> None:
        """So they are no tail."""
        self.last = max(self.last, run.last)
        for queue, stretch in run.queues.items():
            self._ends[queue] = max(stretch.next, self._ends.get(queue, 0))

    def extent(self, extent: Extent) -> None:
        """What is no record."""

    def stale(self, batch: Batch) -> None:
        """What is known to be dead."""

    def begin(self, log: CommitLog) -> int | None:
        """Where the log is to end, None: it has no such tail. Raises Unreadable."""
        tail = [m.take(m.position > self.last) for m in self._taken]
        tail = [messages for messages in tail if len(messages.position)]
        if not tail or self.last < 0:
            return None
        record = log.records(np.array([self.last], np.int64))
        if not len(record):
            return None
        newest = max(int(messages.store_timestamp.max()) for messages in tail)
        if newest >= int(record.columns.ints("store_timestamp")[0]):
            return None
        end = self.last + int(record.columns.ints("total_size")[0])
        return end if all(self._is_dead(messages, end) for messages in tail) else None

    def _is_dead(self, messages: Messages, end: int) -> bool:
        """Other messages have all these offsets, and nothing names a record behind `end`."""
        audit = self.audits[messages.queue]
        there = audit.lookup(messages.offset)
        if not (is_valid(there) & (there["physical_offset"] < end)).all():
            return False
        return not any(
            (is_valid(units) & (units["physical_offset"] >= end)).any()
            for _, units in audit.on_disk()
        )
