"""Looking at the log on behalf of a plan: what queues and index have, and what they lack."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..audit.batches import BatchAudits
from ..audit.messages import Auditor, Messages
from ..audit.packed_items import PackedItems
from ..audit.queues import QueueAudit
from ..audit.tally import Tally
from ..audit.verified import SoundRun
from ..broker.dispatch import Dispatched
from ..broker.profiles import Profile
from ..disk.snapshot import QueueId, Snapshot
from ..errors import InvalidInput
from ..index.compare import IndexAudit, IndexFiles, index_files
from ..log.commit_log import Batch, Extent
from ..queues.write import queue_directory
from .groups import GroupLoss
from .log import LogPlan
from .options import Wish
from .unreferenced import Unplaced

Ints = npt.NDArray[np.int64]


def can_have_files(queue: QueueId) -> bool:
    """Whether a topic-queue can be a directory; a damaged record can name any text (B24)."""
    try:
        queue_directory(Path(), queue.topic, queue.queue_id)
    except InvalidInput:
        return False
    return "/" not in queue.topic


class Maker(Auditor):
    """Looks at the log on behalf of the plan."""

    def __init__(
        self,
        snapshot: Snapshot,
        log: LogPlan,
        groups: GroupLoss,
        profile: Profile,
        wish: Wish,
        index: IndexFiles | None = None,
    ) -> None:
        rules, tagged = profile.queues, profile.dispatch.index_tags
        self._index_files = index or index_files(snapshot)
        self.snapshot, self.log, self.retag = snapshot, log, bool(wish.lost_tag)
        self.exact, self.renumber = wish.exact, wish.renumber
        self.index = IndexAudit.of(self._index_files, log.end, tagged=tagged)
        self.queues: dict[QueueId, QueueAudit] = {}
        self.batches = BatchAudits(snapshot, rules, (log.start, log.end))
        #: Positions of records whose topic can be no directory.
        self.nameless: list[Ints] = []
        self.lost = Tally()
        self.groups = groups
        self.last_record, self.last_timestamp = -1, 0
        #: Index items of the records, where there was no index; whether they are those of all.
        self._items: list[PackedItems] = []
        self._knows_items = True
        for name in snapshot.queues:
            self._audit(name)

    def _audit(self, name: QueueId) -> QueueAudit:
        if name not in self.queues:
            files = {int(e.name): e for e in self.snapshot.queues.get(name, ())}
            self.queues[name] = QueueAudit(
                name,
                files,
                self.snapshot.queue_file_bytes,
                self.log.start,
                self.log.end,
                self.retag,
                self.exact,
                name in self.renumber,
            )
        return self.queues[name]

    def records(self, batch: Batch, dispatched: Dispatched) -> None:
        inside = batch.position < self.log.end
        if inside.any():
            self._knows_items = False
            last = int(inside.nonzero()[0][-1])
            self.last_record = int(batch.position[last])
            self.last_timestamp = int(batch.columns.ints("store_timestamp")[last])
        self.index.records(batch)
        self.batches.records(batch, dispatched)

    def takes(self, run: SoundRun) -> bool:
        """All of it stays in the log, as it is, and goes on with the queues; or all of it is gone."""
        if run.begin >= self.log.end:
            return not run.further_by
        exact = bool(run.units) or not self.exact
        if not exact or run.end > self.log.end or not self.index.takes_runs:
            return False
        audits = self.queues
        return all(n not in audits or audits[n].takes(each) for n, each in run.queues.items())

    def sound(self, run: SoundRun) -> None:
        """A run of good records, and their messages."""
        if run.begin >= self.log.end:
            self.groups.add_run(run, run.queues)
            for name, stretch in run.queues.items():
                self.lost.add_stretch(name, "", stretch)
            return
        self.last_record, self.last_timestamp = run.last, run.store_timestamp
        self.index.note_run(run.unindexed)
        for name, stretch in run.queues.items():
            self._audit(name).add_sound(stretch, run.units.get(name))
        self._items += run.items
        self._knows_items = self._knows_items and bool(run.items)

    @property
    def all_items(self) -> list[PackedItems] | None:
        """Those of all records of the log, None: not all are known."""
        return self._items if self._items and self._knows_items else None

    def messages(self, messages: Messages) -> None:
        if not can_have_files(messages.queue):
            self.nameless.append(messages.position)
            return
        inside = messages.position < self.log.end
        gone = messages.take(~inside & messages.good & (not self.log.again))
        self.groups.add(gone)
        self.lost.add(messages.queue, "", gone.size, gone.store_timestamp, gone.offset)
        if not inside.any():
            return
        if not self.batches.has(messages.queue):
            self._audit(messages.queue).add(messages.take(inside))

    def extent(self, extent: Extent) -> None:
        pass

    def stale(self, batch: Batch) -> None:
        pass

    def note_lost(self, marked: Iterable[Messages], unplaced: Sequence[Unplaced]) -> None:
        """Count messages that got a tombstone, and those that got none: nothing is known of these
        but their places in queues.
        """
        for gone in marked:
            self.groups.add(gone)
            self.lost.add(gone.queue, "", gone.size, gone.store_timestamp, gone.offset)
        for place in unplaced:
            time, offset = np.array([[place.store_timestamp], [place.queue_offset]], np.int64)
            self.lost.add(place.queue, "", np.zeros(1, np.int64), time, offset)
