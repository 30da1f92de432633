"""Whether the batch queues on disk are those of the log: a plan leaves them alone, or is refused."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import Refused
from .batch_queue_state import BATCH_UNIT_DTYPE, BatchQueueState
from .loading import LoadedFile
from .profiles import QueueRules
from .queue_edits import is_whole_file, last_byte
from .queue_units import UNITS_AT_ONCE, Units
from .snapshot import Entry, QueueId, Snapshot
from .survey import Messages

_UNIT_BYTES = BATCH_UNIT_DTYPE.itemsize


@dataclass
class BatchAudit:
    """One queue while the log is read: each message has its unit, in order, and there are no others.

    next: number of the unit that the next message must have; units of records before the log are
    passed over.
    """

    queue: QueueId
    state: BatchQueueState
    log_start: int
    same: bool
    next: int = 0

    @classmethod
    def of(
        cls,
        queue: QueueId,
        entries: tuple[Entry, ...],
        file_bytes: int,
        rules: QueueRules,
        start: int,
    ) -> BatchAudit:
        """The audit of a queue with these files, of a log that begins at `start`."""
        whole = [entry for entry in entries if is_whole_file(entry, file_bytes)]
        state = BatchQueueState(rules, file_bytes)
        state.load([LoadedFile(int(entry.name), file_bytes, entry) for entry in whole])
        state.recover()
        audit = cls(queue, state, start, same=len(whole) == len(entries) and not state.removed)
        if whole:
            audit.next = state.files[0].start // _UNIT_BYTES
            audit._pass_expired()
        return audit

    def _pass_expired(self) -> None:
        """Go on to the first unit of a record that is in the log."""
        while self.next * _UNIT_BYTES < self.state.end:
            units = self._read(UNITS_AT_ONCE)
            inside = units["physical_offset"] >= self.log_start
            self.next += int(inside.argmax()) if inside.any() else len(units)
            if inside.any():
                return

    def _read(self, count: int) -> Units:
        """Up to `count` units from the next one on, as far as the queue goes."""
        count = min(count, self.state.end // _UNIT_BYTES - self.next)
        return self.state.units_at(np.arange(self.next, self.next + count, dtype=np.int64))

    def add(self, messages: Messages) -> None:
        """Messages of this queue, in log order, that stay in the log."""
        units = self._read(len(messages.offset))
        self.next += len(units)
        names = {
            "physical_offset": messages.position,
            "size": messages.size,
            "tags_code": messages.tags_code,
            "msg_base_offset": messages.offset,
        }
        self.same &= len(units) == len(messages.offset) and all(
            np.array_equal(units[name], wanted) for name, wanted in names.items()
        )

    def check(self, snapshot: Snapshot) -> None:
        """Find the min offset. Raises Refused where something is missing, or too much."""
        self.state.correct_min_offset(self.log_start)
        end = self.state.end
        last = self.state.files[-1] if self.state.files else None
        if last is not None and last.entry is not None:
            self.same &= last_byte(last.entry, last.wrote) == last.wrote
        if not self.same or self.next * _UNIT_BYTES != end:
            raise Refused(
                f"the batch queue {self.queue} is not that of the log",
                path=snapshot.layout.batch_consume_queue,
                hint="batch queues are not mended yet; a broker completes them after a crash",
            )
