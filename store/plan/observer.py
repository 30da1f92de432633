"""Looking at the log on behalf of a plan: what queues and index have, and what they lack.

What a recovery is asked for.

Which queues count: the messages of a topic that was deleted do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
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
from ..broker.snapshot import QueueId, Snapshot
from ..errors import InvalidInput
from ..index.compare import IndexAudit, IndexFiles
from ..log.commit_log import Batch, Extent
from ..queues.units import FileUnits
from ..queues.write import queue_directory
from ..start.config_load import load_config
from ..start.config_rules import TOPICS, ConfigRules
from .gaps import Forms
from .groups import GroupLoss
from .log import LogPlan
from .unreferenced import Unplaced

_TAG_BYTES_MAX = 30
"""A tag that fits into any record whose producer gave it a unique key."""


class Policy(StrEnum):
    """What a plan keeps. `keep`: every good record. `broker`: what a broker's start would keep."""

    KEEP = "keep"
    BROKER = "broker"


@dataclass(frozen=True)
class Wish:
    """What a plan is asked for. The same wish gives the same plan for the same store.

    made_ms: when it was asked. generations: of brokers that may start on the store. lost_tag: tag
    for tombstones of ordinary topics. exact: a unit with another tags code than its message's is
    written anew, too. replica: a copy of the log that damaged parts are taken from.
    renumber: queues whose units get the numbers of their records, also where an earlier broker had
    shifted them and consumers know its numbers. parts: of the store, as a repair names them, that are
    put right where no start looks at them, too.
    """

    policy: Policy = Policy.BROKER
    made_ms: int = 0
    generations: tuple[str, ...] = ()
    lost_tag: str = ""
    exact: bool = False
    renumber: frozenset[tuple[str, int]] = frozenset()
    force_empty_log: bool = False
    replica: str = ""
    parts: tuple[str, ...] = ()

    @property
    def forms(self) -> Forms:
        """How tombstones look."""
        return Forms(self.made_ms, self.generations, self.lost_tag)


def check_lost_tag(tag: str) -> None:
    """Raises InvalidInput for what consumers could not subscribe to as one tag."""
    if not tag:
        return
    if not tag.isprintable() or any(c in "| *" for c in tag):
        raise InvalidInput("--lost-tag is no single tag", hint="take letters and digits")
    if len(tag.encode()) > _TAG_BYTES_MAX:
        raise InvalidInput(f"--lost-tag has more than {_TAG_BYTES_MAX} bytes")


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
        self._index_files = index or IndexFiles.of(snapshot)
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
            entries = self.snapshot.queues.get(name, ())
            self.queues[name] = QueueAudit(
                name,
                FileUnits.of(entries, self.snapshot.queue_file_bytes),
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


def expected_queues(snapshot: Snapshot, rules: ConfigRules) -> Callable[[QueueId], bool]:
    """Whether a queue's messages count.

    A deleted topic has no queue directory and no entry in topics.json any more. Nor do those count of
    a topic that cannot be a directory. Where no table can be read every topic may be one that is there.
    """
    taken = load_config(snapshot.layout.config, TOPICS, rules).taken
    table = taken.value.get("topicConfigTable") if taken is not None else None
    if not isinstance(table, dict) or not table:
        return can_have_files
    names = {str(name) for name in table}

    def expected(queue: QueueId) -> bool:
        return can_have_files(queue) and (queue in snapshot.queues or queue.topic in names)

    return expected
