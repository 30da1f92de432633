"""The options of a recovery, and the observer that collects what a plan needs from a pass over the log.

Also: the losses of consumer groups (`GroupLoss`), and which topics and queues count (`deleted_topics`,
`expected_queues`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ...formats.derive.ragged import Ints
from ...formats.topics import TOPIC_CONFIG_TABLE
from ..audit.batches import BatchAudits
from ..audit.messages import UNUSABLE, LogObserver, Messages, Tally
from ..audit.queues import QueueAudit
from ..audit.verified import PackedItems, QueueRange, VerifiedLog, VerifiedRun
from ..broker.dispatch import Dispatched
from ..broker.profiles import Profile
from ..broker.snapshot import QueueId, Snapshot, can_have_files
from ..broker.system_topics import LMQ_PREFIX, group_of_topic, is_system_topic
from ..columns import Ranges
from ..disk.layout import Layout
from ..disk.temporary import Spill
from ..errors import InvalidInput, StoreError
from ..index.compare import IndexAudit, IndexFiles
from ..log.commit_log import Batch
from ..queues.hybrid import open_queues
from ..queues.units import FileUnits
from ..search.log_search import ends_of_queues
from ..search.store import StoreReader
from ..settings.read import Progress
from ..settings.rocksdb import ConfigForm, in_force
from ..start.config_load import TOPICS, ConfigRules, LoadAction, config_rules, load_table
from ..start.dledger import committed_end
from ..start.queue_stores import no_topic
from .gaps import Forms, TornRecord
from .log import LogPlan
from .lost_messages import LostMessages
from .unreferenced import Unplaced


@dataclass
class GroupLoss:
    """Counts, per group and topic, lost messages that the group had not consumed. lost: the messages themselves."""

    progress: Progress
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    lost: LostMessages = field(default_factory=LostMessages)

    def add(self, messages: Messages) -> None:
        self.lost.add(messages)
        for group, offset in self.progress.get(messages.queue, {}).items():
            if count := int(np.clip(messages.offset + messages.number - offset, 0, messages.number).sum()):
                self.counts[group, messages.queue.topic] += count

    def add_unplaced(self, place: Unplaced) -> None:
        """Count messages of which nothing but the number in their queue is known."""
        for group, offset in self.progress.get(place.queue, {}).items():
            if place.queue_offset >= offset:
                self.counts[group, place.queue.topic] += place.messages

    def add_run(self, run: VerifiedRun, queues: Mapping[QueueId, QueueRange]) -> None:
        """Count the messages of a run, all of them lost. queues: the queues that count."""
        self.lost.add_run(run, queues)
        for queue, queue_range in queues.items():
            for group, offset in self.progress.get(queue, {}).items():
                count = queue_range.next - max(queue_range.first, offset)
                if count > 0:
                    self.counts[group, queue.topic] += count

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {"group": group, "topic": topic, "unconsumed_lost": count}
            for (group, topic), count in sorted(self.counts.items())
        ]


_TAG_BYTES_MAX = 30
"""Longest tag that fits into every record whose producer gave it a unique key."""


class Policy(StrEnum):
    """What a plan keeps. `keep`: every good record. `broker`: what a broker's start would keep."""

    KEEP = "keep"
    BROKER = "broker"


class RecoveryOptions(NamedTuple):
    """What a plan is asked for. The same options give the same plan for the same store.

    made_ms: time of the request. generations: of brokers that may start on the store. lost_tag: tag for tombstones of
    ordinary topics. exact: also rewrite units whose tags code differs from their message's. queues_in_database: also
    correct queues in a RocksDB. replica: a copy of the log to take damaged parts from; under `broker` the log of the
    master that the broker has to follow. renumber: queues whose units get the offsets of their records, even if an
    earlier broker had shifted them and consumers know the shifted ones. named: deleted topics whose queues are
    completed anyway. parts: of the store, as a repair names them, that are corrected even where no start looks at them.
    applicable: False if nobody applies the plan: then an edit says only that a RocksDB changes, not how.
    """

    policy: Policy = Policy.BROKER
    made_ms: int = 0
    generations: tuple[str, ...] = ()
    lost_tag: str = ""
    exact: bool = False
    renumber: frozenset[tuple[str, int]] = frozenset()
    named: frozenset[str] = frozenset()
    force_empty_log: bool = False
    replica: str = ""
    queues_in_database: bool = True
    parts: tuple[str, ...] = ()
    applicable: bool = True

    @property
    def forms(self) -> Forms:
        return Forms(self.made_ms, self.generations, self.lost_tag)

    def check(self, layout: Layout) -> None:
        """Raise InvalidInput for options without effect on this store, and a lost_tag that is no single tag."""
        if self.replica and self.policy is not Policy.KEEP and not never_cuts(layout):
            no_slave = layout.dledger is not None or layout.broker_config.has_controller(layout.root)
            hint = "" if no_slave else "say that it is one: --set brokerRole=SLAVE"
            raise InvalidInput("--replica works with --policy broker only for a slave without a controller", hint=hint)
        if self.lost_tag and self.policy is not Policy.KEEP:
            raise InvalidInput("--lost-tag works only with --policy keep")
        tag = self.lost_tag
        if not tag.isprintable() or any(c in "| *" for c in tag):
            raise InvalidInput("--lost-tag is not a single tag", hint="use letters and digits")
        if len(tag.encode()) > _TAG_BYTES_MAX:
            raise InvalidInput(f"--lost-tag has more than {_TAG_BYTES_MAX} bytes")


def never_cuts(layout: Layout) -> bool:
    """Whether the broker is a slave that cuts nothing off to follow its master: whatever its log has, it asks for what
    comes behind. With a controller a slave compares epochs, and cuts its log.
    """
    config = layout.broker_config
    return config.is_slave and layout.dledger is None and not config.has_controller(layout.root)


def uncommitted_from(store: StoreReader) -> int | None:
    """Log position from which on a DLedger group has committed no record, by checkpoint, queues and index: a broker
    dispatches none of them yet, and the group may still replace them. None if all count (`committed_end`).
    """
    ends, committed = list[int](), committed_end(Snapshot.listed(store.layout))
    if committed is None:
        return None
    with suppress(StoreError):  # what cannot be read is told elsewhere
        ends.append(ends_of_queues(store))
        ends += [file.header.end_physical_offset + 1 for file in store.index.files if file.last and file.consistent]
    return max([committed, *ends])


class PlanBuilder(LogObserver):
    """Collects what a plan needs from the log: the state of queues and index, and lost messages."""

    def __init__(
        self,
        snapshot: Snapshot,
        log: LogPlan,
        groups: GroupLoss,
        profile: Profile,
        options: RecoveryOptions,
        verified: VerifiedLog | None = None,
    ) -> None:
        rules, tagged = profile.queues, profile.dispatch.index_tags
        self._index_files = verified.index if verified else IndexFiles.of(snapshot)
        self._verified = verified
        self.snapshot, self.log, self.retag = snapshot, log, bool(options.lost_tag)
        self.exact, self.renumber = options.exact, options.renumber
        self.queues: dict[QueueId, QueueAudit] = {}
        self._spill = Spill()
        self._places = Ranges()
        #: Positions of records whose topic cannot be a directory name.
        self.nameless: list[Ints] = []
        self.lost = Tally()
        self.groups = groups
        self.last_record, self.last_timestamp = -1, 0
        #: Index items of the records, if there was no index; whether they are complete.
        self._items: list[PackedItems] = []
        self._knows_items = True
        for name in snapshot.queues:
            self._audit(name)
        #: Log position before which records get units and index items, and whether there are any behind it.
        self.dispatched, self.waits = self._dispatched_end(), False
        self.index = IndexAudit.of(self._index_files, self.dispatched, tagged=tagged)
        self.batches = BatchAudits(snapshot, rules, (log.start, self.dispatched))

    def _dispatched_end(self) -> int:
        """Where the log ends, or before that what `uncommitted_from` says, by positions of records: `records` finds the
        end of the last one.
        """
        layout, end = self.snapshot.layout, self.log.end
        if not layout.has_peers:
            return end
        with StoreReader(layout) as store:
            committed = uncommitted_from(store)
        return end if committed is None else min(end, committed)

    def _audit(self, name: QueueId) -> QueueAudit:
        if name not in self.queues:
            entries = self.snapshot.queues.get(name, ())
            known = self._verified.queue_of(name, entries) if self._verified else None
            self.queues[name] = QueueAudit(
                name,
                FileUnits.of(entries, self.snapshot.queue_file_bytes),
                self.log.start,
                self.log.end,
                self.retag,
                self.exact,
                name in self.renumber,
                self._spill,
                known,
                self._places,
            )
        return self.queues[name]

    def records(self, batch: Batch, dispatched: Dispatched) -> None:
        for begin, end in batch.taken:
            self._places.add_range(begin, end)
        inside = batch.position < self.dispatched
        self.waits |= bool((~inside & (batch.position < self.log.end)).any())
        if inside.any():
            self._knows_items = False
            last = int(inside.nonzero()[0][-1])
            self.last_record = int(batch.position[last])
            self.dispatched = max(self.dispatched, self.last_record + int(batch.columns.ints("total_size")[last]))
            self.last_timestamp = int(batch.columns.ints("store_timestamp")[last])
        self.index.records(batch)
        self.batches.records(batch, dispatched)

    def can_skip(self, run: VerifiedRun) -> bool:
        """Whether a whole run stays in the log unchanged and continues its queues, or is gone as a whole."""
        if run.begin >= self.log.end:
            return not run.further_by
        exact = self._verified.is_exact(run) if self._verified else bool(run.units)
        if (self.exact and not exact) or run.end > self.log.end or not self.index.can_take_runs:
            return False
        audits = self.queues
        return all(n not in audits or audits[n].can_skip(each) for n, each in run.queues.items())

    def skip(self, run: VerifiedRun) -> None:
        if run.begin >= self.log.end:
            self.groups.add_run(run, run.queues)
            for name, queue_range in run.queues.items():
                self.lost.add_stretch(name, queue_range)
            return
        self._places.add_range(run.begin, run.end)
        self.last_record, self.last_timestamp = run.last, run.store_timestamp
        self.index.note_run(run.unindexed)
        for name, queue_range in run.queues.items():
            self._audit(name).add_verified(queue_range, run.units.get(name, ()))
        self._items += run.items
        self._knows_items = self._knows_items and bool(run.items)

    @property
    def exact_alone(self) -> bool:
        """Some queue needs changes only because of `RecoveryOptions.exact`."""
        return any(audit.exact_alone for audit in self.queues.values())

    @property
    def all_items(self) -> list[PackedItems] | None:
        """The index items of all records of the log, None if some are unknown."""
        return self._items if self._items and self._knows_items else None

    def messages(self, messages: Messages) -> None:
        if not can_have_files(messages.queue):
            self.nameless.append(messages.position)
            return
        count = int(np.searchsorted(messages.position, self.log.end))
        if count < len(messages):
            behind, messages = messages.take(slice(count, None)), messages.take(slice(count))
            gone = behind.take(behind.good & (not self.log.again))
            self.groups.add(gone)
            self.lost.add(gone)
        count = int(np.searchsorted(messages.position, self.dispatched))
        messages = messages.take(slice(count))
        if count and not self.batches.has(messages.queue):
            self._audit(messages.queue).add(messages)

    def note_lost(self, marked: Iterable[Messages], unplaced: Sequence[Unplaced], torn: Sequence[TornRecord]) -> None:
        """Count lost messages with places in the log (marked), and those with a place in a queue or a number only.
        torn: records of the log that are not good; a tombstone among them is no further loss.
        """
        unusable = [record.position for record in torn if record.unusable]
        earlier = [record.position for record in torn if record.tombstone]
        for messages in marked:
            gone = messages.take(~np.isin(messages.position, earlier))
            self.groups.add(gone)
            there = np.isin(gone.position, unusable)
            self.lost.add(gone.take(~there))
            self.lost.add(gone.take(there), UNUSABLE)
        for place in unplaced:
            self.groups.add_unplaced(place)
            self.lost.add_without_record(place.queue, place.messages, place.store_timestamp, place.queue_offset)


def topics_with_queues(snapshot: Snapshot) -> set[str]:
    """Return the topics with queues in files or in a readable RocksDB."""
    found = {queue.topic for queue in (*snapshot.queues, *snapshot.batch_queues)}
    if snapshot.layout.queue_database is not None:
        with closing(open_queues(snapshot.layout)[0]) as queues:
            found |= {queue.topic for queue in queues}
    return found


def deleted_topics(layout: Layout, rules: ConfigRules, there: Collection[str]) -> Callable[[str], bool]:
    """Return a test whether a topic was deleted: its records are in the log, and it has neither an entry nor a queue.

    there: topics that have queues. A lost topic looks the same, so no topic counts as deleted if there are no queues at
    all, or if the table of topics is not whole or not the main file: a .bak can be older than the topic. A broker's own
    topics need no entry, nor do LMQs; config/rdb of v2 has only topics of users.
    """

    @cache
    def named() -> set[str]:  # takes a second for a large cluster, and is rarely needed
        loaded = load_table(layout, TOPICS, rules)
        whole = loaded.start is LoadAction.LOADS and not (loaded.main.late or loaded.main.odd)
        table = loaded.main.value.get(TOPIC_CONFIG_TABLE) if whole else None
        return {str(name) for name in table} if isinstance(table, dict) else set()

    def deleted(topic: str) -> bool:
        if not there or topic in there or is_system_topic(topic) or topic.startswith(LMQ_PREFIX):
            return False
        of_users = in_force(layout.config, layout.broker_config).form is ConfigForm.SECOND
        return bool(named()) and topic not in named() and not (of_users and group_of_topic(topic))

    return deleted


def left_away(
    snapshot: Snapshot, profile: Profile, named: Collection[str], deleted: Callable[[str], bool] | None = None
) -> Callable[[str], bool]:
    """Return a test whether a plan makes no queues of a topic, as it was deleted. A start after a crash makes the
    queues again, so a plan does, too. named: as in `RecoveryOptions`. deleted: of `deleted_topics`, if known.
    """
    if snapshot.abort:
        return no_topic
    gone = deleted or deleted_topics(snapshot.layout, config_rules(profile), topics_with_queues(snapshot))
    return lambda topic: topic not in named and gone(topic)


def expected_queues(snapshot: Snapshot, deleted: Callable[[str], bool], *, lmq: bool) -> Callable[[QueueId], bool]:
    """Return a test whether a queue's messages count: not those of a topic that was `deleted` or cannot be a directory
    name, nor of an LMQ that has no queue, unless all queues are gone. lmq: LMQs have their queues in a RocksDB.
    """

    def expected(queue: QueueId) -> bool:
        if queue.topic.startswith(LMQ_PREFIX):
            return lmq or (can_have_files(queue) and (queue in snapshot.queues or not snapshot.queues))
        return not deleted(queue.topic) and can_have_files(queue)

    return expected
