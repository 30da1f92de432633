"""A store as one object, for reading: its log, queues, index, checkpoint and configuration; and what a search looked
at.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from ...formats.config import BACKUP
from ...formats.hashing import utf8
from ..disk.broker_conf import BrokerConfig
from ..disk.byte_reader import Closing, reading_rate
from ..disk.file_queue import MappedFileQueue
from ..disk.layout import Layout, QueueDirectory, has_queues_of, queue_directories
from ..disk.lock import expiring
from ..errors import InvalidInput, Missing, NotAStore, NotFound, StoreError, Unreadable
from ..log.message import Mark, Message, is_batch_record, read_message
from ..queues.read import ConsumeQueue, ConsumeQueues, QueueSummary

if TYPE_CHECKING:
    from ..disk.checkpoint import Checkpoint
    from ..index.read import Index, Sizes
    from ..log.batch import Batch
    from ..log.commit_log import CommitLog, LogEnd
    from ..queues.batches import BatchConsumeQueue
    from ..settings.generation import Generation


Note = Callable[[str], None]
"""Called with one line worth knowing about an answer: damage, a fallback taken."""


def silent(_: str) -> None:
    """Ignore a note."""


class Via(StrEnum):
    """How a message was found."""

    ADDRESS = "address"
    QUEUE = "queue"
    INDEX = "index"
    SCAN = "scan"


class Searched:
    """What a search looked at, to be told if it found nothing.

    records: how many, by how they were reached. first_ms, last_ms: the range of their store times. units: queue units,
    which give the time and tag of records that were not read. index_files, index_items: asked for a key.
    """

    def __init__(self) -> None:
        self.records: dict[Via, int] = {}
        self.units = self.index_files = self.index_items = 0
        self.first_ms: int | None = None
        self.last_ms: int | None = None

    def add(self, via: Via, count: int, first_ms: int, last_ms: int) -> None:
        """Add records stored between these times."""
        self.records[via] = self.records.get(via, 0) + count
        self.first_ms = first_ms if self.first_ms is None else min(self.first_ms, first_ms)
        self.last_ms = last_ms if self.last_ms is None else max(self.last_ms, last_ms)

    def add_batch(self, via: Via, batch: Batch) -> None:
        if len(batch):
            stored = batch.columns.ints("store_timestamp")
            self.add(via, len(batch), int(stored.min()), int(stored.max()))


class FoundMessage(NamedTuple):
    """A message, and how it was found. log: the log that holds its position, None for the commit log."""

    message: Message
    via: Via
    log: MappedFileQueue | None = None

    @property
    def place(self) -> tuple[int, int]:
        """Position in the log, and the number inside a batch record, -1 for a message that is a record."""
        inner = self.message.inner
        return self.message.position, -1 if inner is None else inner.number


_CANDIDATES = 256
"""Queues whose last record is read to find the end of the log."""
_QUEUES_ASKED = 32
"""Queues whose last record is compared with a record that may be dead."""
_FIRST_5 = "5"


def clock_ms() -> int:
    """The time for which a store is examined if the caller gives none; what a start does to timers depends on it."""
    return time.time_ns() // 1_000_000


def _nothing(_: int) -> None:
    """The default for `scanned`."""


class StoreReader(Closing):
    """The message store in a directory. It is only read, never written; a broker may be running on it.

    Parts are opened when they are first needed. Results are kept, the end of the log too: a store that grows is seen up
    to that end until it is closed. Use it as a context manager, or call `close`.

    path: the root directory, or its layout. config: the broker's configuration, or its options by name; overrides what
    the files say. rate_bytes: the most bytes per second that scans of the log read, None for the rate of a surrounding
    `at_rate` block. Raises Missing, NotAStore, Unreadable, InvalidInput.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Layout,
        config: Mapping[str, object] | None = None,
        *,
        rate_bytes: int | None = None,
    ) -> None:
        self.layout = path if isinstance(path, Layout) else Layout.open(path, BrokerConfig.of(config))
        self.rate_bytes = reading_rate() if rate_bytes is None else rate_bytes
        self.scanned: Callable[[int], None] = _nothing
        """Called with the number of bytes read whenever a search scans the log."""
        self._with_units: set[str] = set()
        self.searched = Searched()
        """What searches looked at."""

    @property
    def config(self) -> BrokerConfig:
        """The configuration given; empty if none was."""
        return self.layout.broker_config

    @property
    def sizes(self) -> Sizes:
        """The file sizes, each with its source."""
        from ..index.read import sizes_of

        return sizes_of(self.layout)

    @cached_property
    def log(self) -> CommitLog:
        """The commit log, as columns."""
        from ..queues.references import commit_log_of

        return commit_log_of(self.layout, self.log_files, rate_bytes=self.rate_bytes)

    def good_records(self, behind: int | None = None, stop: int | None = None) -> Iterator[Batch]:
        """Scan the log for records, without stale ones. behind: the position to start at. stop: where to end.

        A batch is valid until the next one is taken. Raises Unreadable.
        """
        from ..log.batch import Extent

        for item in self.log.scan(behind, stop, crc=False, reuse=True):
            self.scanned(item.size if isinstance(item, Extent) else item.end - int(item.position[0]))
            if not isinstance(item, Extent) and item.mark <= Mark.AFTER_DAMAGE:
                yield item

    @property
    def has_log(self) -> bool:
        """Whether there are log files: a partial copy may have only queues."""
        try:
            return bool(self.log_files.files)
        except (Missing, NotAStore):
            return False

    @cached_property
    def log_files(self) -> MappedFileQueue:
        """The files of the commit log; those that a running broker deletes meanwhile hold nothing."""
        return expiring(self.layout.commit_log_files(), self.layout.lock, told=True)

    @cached_property
    def queues(self) -> ConsumeQueues:
        """The consume queues, in files or in RocksDB; none if RocksDB cannot be read."""
        return self._queues_and_problem[0]

    @cached_property
    def _queues_and_problem(self) -> tuple[ConsumeQueues, str]:
        """The consume queues, and why they cannot be read."""
        if self.layout.queue_database is None:
            return ConsumeQueues(self.layout), ""
        from ..queues.hybrid import open_queues  # few stores have a RocksDB

        return open_queues(self.layout)

    @property
    def queues_problem(self) -> str:
        """Why existing consume queues cannot be read, "" if they can or there are none."""
        return self._queues_and_problem[1]

    @cached_property
    def index(self) -> Index:
        from ..index.read import Index

        return Index.open(self.layout.index, self.config)

    @cached_property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint, None if there is none."""
        from ..disk.checkpoint import seen_checkpoint

        return seen_checkpoint(self.layout.checkpoint)

    @cached_property
    def generation(self) -> Generation:
        """A guess which brokers wrote the store."""
        from ..settings.generation import generation_of

        return generation_of(self.layout)

    @property
    def version(self) -> str:
        """The version of the broker: the one that was named, or the guess."""
        return self.layout.version_named or self.generation.version

    @property
    def broker_4(self) -> bool:
        """Whether a 4.x broker probably wrote the store."""
        return self.generation.version < _FIRST_5

    @cached_property
    def log_end(self) -> LogEnd:
        """The end of the last record of the log.

        The log is walked from the newest record that a queue points at, or without queues that can be read from the
        last file that begins with a record.
        """
        try:
            queues = self._all_units
        except Unreadable:
            queues = []
        return self.log.end(self.near_the_end(queues)[0])

    def near_the_end(self, queues: Iterable[QueueSummary]) -> tuple[int | None, QueueSummary | None]:
        """A record (or DLedger entry) near the end of the log, and the queue that points at it.

        queues: also with units past the end of the log. Of their last records the one stored last counts: a unit left
        over from a truncation may point farther, but at an older record (spec 2.5).
        """
        ends = {s.last_position: s for s in queues if s.last_position is not None}
        found = [m for m in self.messages_at(sorted(ends)[-_CANDIDATES:]) if m.body_crc_ok]
        if found:
            newest = max(found, key=lambda m: (m.store_timestamp, m.position))
            return newest.position - self.payload_at(newest.position), ends[newest.position]
        for file in reversed(self.log_files.files):
            if any(self.messages_at([file.start + self.payload_at(file.start)])):
                return file.start, None
        return None, None

    def may_be_dead(self, message: Message) -> bool:
        """Whether a newer record precedes this one: a broker may have cut it off, or its clock went back.

        `log_end` knows for certain, but takes longer. Looks at some queues, and only for a record in the last two
        files: a broker deletes files after a truncation point.
        """
        files = self.log_files.files
        if message.position < files[max(len(files) - 2, 0)].start:
            return False
        for directory in islice(self.queues, _QUEUES_ASKED):
            with self.queues.open(directory.topic, directory.queue_id) as queue:
                last = queue.summary().last_position
            if last is not None and last < message.position:
                for other in self.messages_at([last]):
                    if other.store_timestamp > message.store_timestamp:
                        return True
        return False

    def marked(self, message: Message) -> Message:
        """Add to a message read by its position the mark that a scan would give it.

        A recycled file holds records of other positions; a truncated log holds dead ones.
        """
        mark = Mark.NONE
        if message.physical_offset != message.position:
            following = message.position + message.total_size + self.payload_at(message.position)
            mark = Mark.NONE if any(self.messages_at([following])) else Mark.EARLIER_LIFE
        elif "log_end" in self.__dict__ or self.may_be_dead(message):
            mark = Mark.DEAD_TAIL if message.position >= self.log_end.position else Mark.NONE
        return message._replace(mark=mark)

    def payload_at(self, position: int) -> int:
        """Bytes of a DLedger entry before its record; 0 in a plain log."""
        file = self.log_files.file_at(position)
        return self.log.frame_of(file).payload if file else 0

    def messages_at(self, positions: Iterable[int]) -> Iterator[Message]:
        """The messages whose records begin at the positions and name their own position."""
        for position in positions:
            try:
                message = self.message_at(position)
            except NotFound:
                continue
            if message.physical_offset == position:
                yield message

    @cached_property
    def _all_units(self) -> list[QueueSummary]:
        """The summaries of all queues, including units past the end of the log."""
        return self.queues.summaries(self.log_files.start)

    @cached_property
    def queue_summaries(self) -> list[QueueSummary]:
        """Every queue with its offsets as a broker would report them, sorted by topic and queue id."""
        end = self.log_end.position
        return [
            self._summary(s.topic, s.queue_id) if s.min_offset == s.max_offset or (s.end_position or 0) > end else s
            for s in self._all_units
        ]

    def _summary(self, topic: str, queue_id: int) -> QueueSummary:
        with self.queues.open(topic, queue_id) as queue:
            return self.queue_summary(queue)

    @cached_property
    def batch_summaries(self) -> list[QueueSummary]:
        """Every batch queue with its offsets; without a log, as its files have them."""
        if next(queue_directories(self.layout.batch_consume_queue), None) is None:
            return []
        from ..queues.batches import batch_summaries  # imports numpy

        return batch_summaries(self.layout, *((self.log_files.start, self.log_end.position) if self.has_log else ()))

    def queue_summary(self, queue: ConsumeQueue | BatchConsumeQueue) -> QueueSummary:
        """The offsets of one queue as a broker would report them."""
        summary = queue.summary(self.log_files.start, self.log_end.position)
        if summary.min_offset == summary.max_offset > 0 and self.broker_4:
            return summary._replace(min_offset=0)
        return summary

    @cached_property
    def end_is_lost(self) -> bool:
        """Whether queues point at a record right after the end of the log, which is lost. Raises Unreadable."""
        end = self.log_end.position
        lost = self.queues.lost_at_end(self._all_units, self.log_files, end, self.payload_at(end - 1))
        if lost is None:
            return False
        with StoreReader(self.layout) as now:  # a broker may have created a file after the log was listed
            return not any(now.messages_at(lost[:1]))

    @cached_property
    def topics(self) -> list[str]:
        """The topics with queues on disk, sorted."""
        layout = self.layout
        found = {queue.topic for queue in self.queues}
        found |= {queue.topic for queue in queue_directories(layout.batch_consume_queue)}
        return sorted(found)

    @cached_property
    def named_topics(self) -> list[str]:
        """The topics that may have messages: with queues on disk, in the configuration, in the offsets of groups, and a
        broker's own; sorted. Raises Unreadable.
        """
        from ..broker.system_topics import OWN_TOPICS

        return sorted({*self.topics, *OWN_TOPICS, *self.configured, *self.consumed})

    @cached_property
    def queues_unread(self) -> str:
        """Why there is no readable consume queue, "" if there is one."""
        if problem := self.queues_problem:
            return problem
        if next(iter(self.queues), None) is None:
            if self.layout.rocksdb_queues:
                return self.units_in_memory or "the RocksDB of queues is empty"
            return "there are no consume queues"
        return ""

    @cached_property
    def units_in_memory(self) -> str:
        """Why consumers get messages that no unit on disk points at, "" if that is not known.

        A broker writes units to its RocksDB without a write-ahead log: the newest reach the disk only with a flush
        (spec 2.10).
        """
        if not self.layout.rocksdb_queues or self.queues_problem or not self.in_use:
            return ""
        from ..queues.rocksdb import RocksdbConsumeQueues

        queues = self.queues
        if isinstance(queues, RocksdbConsumeQueues) and queues.dispatched < self.log_end.position:
            return "the running broker has the newest units of its RocksDB in memory"
        return ""

    @property
    def in_use(self) -> bool:
        """Whether a process holds the store's lock: a broker, or a tool that changes the store."""
        from ..disk.lock import holder

        return holder(self.layout.lock) is not None

    def topic_unread(self, topic: str) -> str:
        """Why the queues of a topic cannot be read although it may have messages, "" if they can."""
        if self.queues_unread:
            return self.queues_unread
        if self.has_batch_queues(topic):
            return f"{topic} has batch consume queues"
        if topic in self._with_units or self._has_units(topic):
            return ""
        if self.queues.of_topic(topic):
            return f"no consume queue of {topic} has a unit"
        if topic in self.configured:
            return f"{topic} is in topics.json, but has no consume queues"
        if self.queues.has_topic(topic):
            return f"{topic} has a directory, but no consume queues in it"
        from ..broker.system_topics import LMQ_PREFIX

        # LMQs are not in topics.json; messages of other topics name them
        return f"there is no LMQ {topic}" if topic.startswith(LMQ_PREFIX) else ""

    def _has_units(self, topic: str) -> bool:
        """Whether a queue of the topic has a unit. A positive answer is remembered, as units do not go away."""
        found = any(not self._is_empty(queue) for queue in self.queues.of_topic(topic))
        if found:
            self._with_units.add(topic)
        return found

    def _is_empty(self, directory: QueueDirectory) -> bool:
        """Whether no unit points at a record. Queue files continue after expired units; RocksDB keeps their number."""
        with self.queues.open(directory.topic, directory.queue_id) as queue:
            ends = queue.summary()
            return ends.end_position is None and (bool(queue.files.files) or not ends.max_offset)

    def empty_queues(self, topic: str, queue_id: int | None = None) -> list[int]:
        """The ids of the topic's queues that exist without a unit: it was lost, or the log lost its record. queue_id:
        check only this one. Raises Unreadable.
        """
        queues = (queue for queue in self.queues.of_topic(topic) if queue_id in (None, queue.queue_id))
        found = [queue.queue_id for queue in queues if self._is_empty(queue)]
        batches = (ends for ends in self.batch_summaries if ends.topic == topic and queue_id in (None, ends.queue_id))
        return found + [ends.queue_id for ends in batches if ends.end_position is None]

    def lost_queues(self, topic: str) -> list[int]:
        """The ids of queues that do not exist although groups consumed from them. Raises Unreadable.

        When told to, a broker deletes queues whose messages have all expired; so something is certainly missing only if
        the log is complete.
        """
        existing = {one.queue_id for one in (*self.queues, *self.batch_summaries) if one.topic == topic}
        return sorted(
            number for number, offset in self.consumed.get(topic, {}).items() if offset and number not in existing
        )

    @cached_property
    def consumed(self) -> dict[str, dict[int, int]]:
        """By topic and queue id, the highest offset a group has reached, from the offsets in the configuration."""
        from ..settings.read import read_progress

        found: dict[str, dict[int, int]] = {}
        for queue, offsets in read_progress(self.layout.config, self.config).items():
            if queue.queue_id >= 0:
                found.setdefault(queue.topic, {})[queue.queue_id] = max(offsets.values(), default=0)
        return found

    @cached_property
    def configured(self) -> set[str]:
        """The topics in topics.json or its .bak, and in a RocksDB that replaces it, as far as they can be read."""
        from ...formats.topics import FILE as TOPICS
        from ..settings.read import read_config_file
        from ..settings.rocksdb import rows_of, stand_ins

        rows: list[dict[str, Any]] = []
        for path in (self.layout.config / TOPICS, self.layout.config / f"{TOPICS}{BACKUP}"):
            with suppress(StoreError):
                file = read_config_file(path, "topics")
                if file.problem is None:
                    rows += file.records()
                    break
        database = stand_ins(self.layout.config, self.config).get(TOPICS)
        if database is not None:
            with suppress(StoreError):
                rows += rows_of(database, TOPICS)
        return {str(row["topic"]) for row in rows if row["type"] == "topic_config" and row.get("topic")}

    def has_batch_queues(self, topic: str) -> bool:
        """Whether the topic's queues are batch queues (spec 2.7)."""
        return has_queues_of(self.layout.batch_consume_queue, topic)

    def has_compaction_queues(self, topic: str) -> bool:
        """Whether the topic has compaction queues (spec 06, 6.1)."""
        return has_queues_of(self.layout.compaction_queues, topic)

    def message_at(self, position: int) -> Message:
        """The message whose record begins at a position of the log. Raises NotFound."""
        return read_message(self.log_files, position)

    def message_by_id(self, message_id: str) -> Message:
        """The message with an offset message id (hex). Raises InvalidInput, NotFound."""
        from ...formats.quick import parse_message_id

        try:
            ip, port, position = parse_message_id(message_id.strip())
        except ValueError as error:
            hint = "such an id has 32 or 56 hex digits; for an id of a client use --unique-key"
            raise InvalidInput(f"not an offset message id: {message_id!r}", hint=hint) from error
        message = self.message_at(position)
        if message.store_host != (ip, port) or message.physical_offset != position:
            hint = f"the record at {position} has the id {message.message_id}"
            raise NotFound(f"no message with the id {message_id}", hint=hint)
        return message

    def message_of_unit(self, queue: ConsumeQueue, queue_offset: int) -> Message:
        """The message that a unit of a queue points at.

        Raises NotFound, also if the unit points at another message or past the end of the log.
        """
        none = f"{queue.topic}/{queue.queue_id} has no message {queue_offset}"
        unit = queue.unit(queue_offset)
        if unit is None or not unit.valid or unit.pre_fill:
            raise NotFound(none)
        if unit.physical_offset >= (end := self.log_end.position):
            raise NotFound(f"{none}: its unit points behind the end of the log, {end}")
        message = self.message_at(unit.physical_offset)
        if other_place(message, queue, queue_offset):
            raise NotFound(f"{none}: its unit points elsewhere")
        return message

    def store_time(self, position: int) -> int | None:
        """The store timestamp of the record at a position, None if no record begins there."""
        try:
            return self.message_at(position).store_timestamp
        except NotFound:
            return None

    def __repr__(self) -> str:
        return f"Store({self.layout.root!s})"

    def close(self) -> None:
        """Close all files and forget what was read from them; a later read opens them again."""
        if "log_files" in self.__dict__:
            self.log_files.close()
        if "queues" in self.__dict__:
            self.queues.close()
        if "index" in self.__dict__:
            self.index.close()
        self.__dict__ = {**self.__getstate__(), "searched": self.searched}

    def __getstate__(self) -> dict[str, Any]:
        """State without what was read from files: a copy reads it again, as this object does after `close`."""
        kind = type(self)
        found = (name for name in self.__dict__ if isinstance(getattr(kind, name, None), cached_property))
        kept = {name: self.__dict__[name] for name in self.__dict__.keys() - found}
        return {**kept, "_with_units": set(), "searched": Searched()}


def other_place(message: Message, queue: ConsumeQueue, number: int) -> str:
    """The message that a unit points at, "" if it is the one it should point at. number: the unit's queue offset.

    In an LMQ messages have other queue offsets than in their own queue, and a batch record has several.
    """
    name = f"{message.topic}/{message.queue_id}"
    if not message.is_of(queue.topic):
        return f"a message of {name}"
    own = message.raw_topic == utf8(queue.topic)
    here = (message.queue_id, message.queue_offset) == (queue.queue_id, number)
    return "" if here or not own or is_batch_record(message.sys_flag) else f"message {message.queue_offset} of {name}"


def no_message(store: StoreReader, queue: ConsumeQueue | BatchConsumeQueue, offset: int) -> NotFound:
    """The error for a missing offset, with those that exist."""
    summary = store.queue_summary(queue)
    existing = f"it has {summary.min_offset} to {summary.max_offset - 1}"
    return NotFound(
        f"{queue.topic}/{queue.queue_id} has no message {offset}",
        hint=existing if summary.max_offset > summary.min_offset else "it is empty",
    )


def hold_still(layout: Layout) -> None:
    """Fix the ends of log and queues in this layout to the current ones, if the store is in use. Raises Unreadable.

    A record that is being written fails its checks, and records after it may be complete a moment later: what is read
    more than once would be reported as damaged.
    """
    with StoreReader(layout) as store:
        if layout.log_stop is not None or not store.in_use or not store.has_log:
            return
        from ...formats.consume_queue import UNIT_BYTES  # construct, which few searches need

        end = store.log_end.position
        ends = {(q.topic, q.queue_id): q.max_offset * UNIT_BYTES for q in store.queue_summaries}
        layout.log_stop, layout.queue_stops = end, ends
