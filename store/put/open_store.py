"""A store open for writing: its parts, and the order in which they change (spec 01, 1.15; 07, 7.6).

Order of effects: lock, `abort`, log, topics, queues, RocksDB of queues, index, checkpoint, `abort` removed. A message
is acknowledged when `sync` returns: log and topics are on disk. A crash before `close` removes `abort` leaves a store
that `recover` restores with every acknowledged message. If no message is acknowledged, an error leaves the store as it
was, as far as that is certain; but an entry of a topic, which brokers make without messages, too, may stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ...formats.config import BACKUP
from ...formats.consumer_offset import OFFSET_TABLE
from ...formats.delay_offset import FILE as DELAY_OFFSETS
from ...formats.hashing import java_string
from ...formats.message_properties import INNER_MULTI_DISPATCH, parse
from ...formats.topics import FILE as TOPICS
from ..broker.profiles import WriterProfile, writer_profile
from ..broker.system_topics import LMQ_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from ..broker.topics import CLEANUP_POLICY, COMPACTED, Topics, dumps, now_ms, replace_file
from ..disk.broker_conf import BrokerConfig
from ..disk.byte_reader import Closing
from ..disk.checkpoint import Checkpoint, at_last_record, create_abort, read_checkpoint, remove_abort, write_checkpoint
from ..disk.files import Files, confine
from ..disk.layout import Layout
from ..disk.lock import StoreLock
from ..errors import Refused, StoreError, Unsupported
from ..index.read import sizes_of
from ..index.write import IndexWriter
from ..log.write import LogWriter
from ..queues.write import BatchQueuesWriter, QueuesWriter
from ..settings.options import options_of
from .new_message import DEFAULT_HOST, NewMessage, WriterOptions, WriterRules
from .queue_kinds import QueueKinds
from .tail import Tail, check_clean, check_layout, check_log_end, find_layout, find_tail, generation, unclean

if TYPE_CHECKING:
    from .database import DatabaseWriter, TopicsInDatabase
    from .message_columns import CopiedNumbers, RecordWriter


class OpenStore(Closing):
    """A locked store that can be written part by part; a context manager."""

    def __init__(
        self,
        layout: Layout,
        lock: StoreLock,
        tail: Tail,
        profile: WriterProfile,
        options: WriterOptions,
        files: Files,
        clock: Callable[[], int],
        database: DatabaseWriter | None = None,
    ) -> None:
        config, sizes = layout.broker_config, sizes_of(layout)
        self.layout = layout
        self.profile = profile
        last = tail.last.store_host if tail.last and not tail.last.stand_in else DEFAULT_HOST
        host = options.store_host or last
        self.rules = WriterRules.of(profile, host, config)
        self.delay_levels = options_of(layout).delay_levels.value
        self.clock = clock
        self.log = LogWriter(
            files,
            layout.commit_log_directories,
            sizes.commit_log.value,
            tail.log_end,
            read_only=[Path(p) for p in config.get_paths("readOnlyCommitLogStorePaths")],
            stale_blank=profile.stale_blank,
        )
        self.queues = QueuesWriter.of(files, layout, tail.next_offsets)
        self.index: IndexWriter | None = None
        if config.get_bool("messageIndexEnable", True):
            self.index = IndexWriter.of(files, layout, count_every_put=profile.count_every_put)
        #: the RocksDB of queues, None if there is none
        self.database = database
        self._topics_in_database: TopicsInDatabase | None = None
        if database is not None and options.topic_config:
            from .database import TopicsInDatabase

            self._topics_in_database = TopicsInDatabase.of(layout)
        in_file = options.topic_config and self._topics_in_database is None
        self.topics = Topics.read(layout.config) if in_file else None
        self.kinds = QueueKinds(layout, self.topics, profile)
        self.batch_queues = BatchQueuesWriter(files, layout, tail.next_offsets)
        lmq = profile.lmq_queues
        #: the broker names LMQ offsets in messages; a broker that does may write no units for LMQs
        self.names_lmq_queues = lmq is not None and all(map(config.get_bool, lmq.options))
        self.lmq_units = config.get_bool("enableMultiDispatch", not self.names_lmq_queues)
        self.lmq_units |= database is not None
        #: options that keep messages of producers out of the LMQs that they name
        self.lmq_switched_off: tuple[str, ...] = ()
        self.numbers_anew = options.numbers_anew and self.lmq_units and not self.names_lmq_queues
        #: next offsets of LMQs that differ from those of their units
        self.lmq_offsets: dict[tuple[str, int], int] = {}
        self._records: RecordWriter | None = None
        self._unindexed: list[tuple[list[int], dict[str, Any]]] = []
        self._highest_queue: dict[str, int] = {}
        self._last: tuple[int, int] | None = None
        self._files = files
        self._lock = lock
        self._checkpoint_before = read_checkpoint(layout.checkpoint)
        self._checkpoint = self._checkpoint_before or Checkpoint()
        self._new = tail.last is None and not layout.checkpoint.exists()
        # the queue of a topic without an entry is not lost: the topic was deleted, and begins anew
        self._lost_queues = {q for q in tail.lost_queues if self.topics is None or q[0] in self.topics}
        self._was_delayed = any(end for (topic, _), end in tail.next_offsets.items() if topic == SCHEDULE_TOPIC)
        self._begun = False
        self._broken = False
        self._closed = False
        #: messages are acknowledged, or something besides the log has changed for them
        self._changed_for_good = False
        #: messages whose store time was before 1970, and became the current time
        self.times_replaced = 0
        #: was closed, and needs `recover`
        self.left_unclean = False
        #: was closed, and has timed messages but no wheel: the first that was read has long been due
        self.lacks_wheel = False

    @classmethod
    def open(
        cls,
        root: str | PathLike[str],
        config: Mapping[str, object] | None = None,
        options: WriterOptions | None = None,
        *,
        files: Files | None = None,
        clock: Callable[[], int] = now_ms,
    ) -> Self:
        """Lock a store, or begin one in a directory that is empty or does not exist.

        Before the first message, only the lock file is created. Raises InUse, Unclean, Refused, Unsupported, NotAStore,
        InvalidInput, Unreadable, NoSpace.
        """
        files, options = files or Files(), options or WriterOptions()
        if options.as_broker is not None:
            writer_profile(options.as_broker)
        layout = find_layout(root, BrokerConfig.of(config), options.as_broker)
        confine(files, layout, follow_links=options.follow_links)
        if not layout.lock.exists():
            check_clean(layout)
            check_layout(layout)
            files.make_directory(layout.root)
        lock = StoreLock.take(layout.lock, files, wait_seconds=options.wait_seconds)
        try:
            # another process may have changed the store before the lock was taken
            layout = find_layout(root, layout.broker_config, options.as_broker)
            check_clean(layout)
            check_layout(layout)
            tail = find_tail(layout)
            check_log_end(files, layout, tail.log_end)
            profile = generation(layout, tail, options.as_broker)
            database = None
            if layout.queue_database is not None:
                from .database import DatabaseWriter

                database = DatabaseWriter.of(files, layout, profile, tail)
            return cls(layout, lock, tail, profile, options, files, clock, database)
        except BaseException:
            lock.release()
            raise

    def settle(self) -> None:
        """Complete what a writer has begun but not yet written to queues and index."""

    def records(self) -> RecordWriter:
        """The writer of record columns to the log."""
        from .message_columns import RecordWriter

        if self._records is None:
            self._records = RecordWriter(self.log)
        return self._records

    @cached_property
    def copies(self) -> CopiedNumbers:
        """The numbers that copies from other stores get here."""
        from .message_columns import CopiedNumbers

        return CopiedNumbers()

    def is_batch_topic(self, topic: bytes) -> bool:
        """Whether a topic has batch queues (queue.type=BatchCQ, 5.x)."""
        return self.kinds.is_batch(java_string(topic))

    def check_queue(self, queue: tuple[str, int]) -> None:
        """Raise InvalidInput for a queue that cannot have a directory, Refused for a directory elsewhere, Unclean for a
        queue that does not exist although the log has its messages, Unsupported for a compaction topic.
        """
        if queue in self._lost_queues:
            raise unclean(self.layout, f"the log has messages of {queue[0]}/{queue[1]}, but the queue is missing", None)
        if self._is_compacted(queue[0]):
            raise Unsupported(
                f"{queue[0]} is a compaction topic: brokers serve it from a compaction log, which put does not write",
                path=self.layout.compaction_log,
                hint="start the broker and send the message with a producer",
            )
        self.check_topic(queue[0])
        (self.batch_queues if self.kinds.is_batch(queue[0]) else self.queues).check(queue)

    def take_light_queues(self, message: NewMessage) -> None:
        """Put a message into the LMQs that it names as the broker does: by its options, else if the store has LMQs.

        Not for copies, which bring what another broker did.
        """
        rules, config = self.profile.lmq_queues, self.layout.broker_config
        if rules is None or not parse(message.properties).get(INNER_MULTI_DISPATCH):
            return
        shown = any(topic.startswith(LMQ_PREFIX) for topic, _ in self.queues.next_offsets)
        self.names_lmq_queues = all(config.get_bool(option, shown) for option in rules.options)
        self.lmq_units = config.get_bool("enableMultiDispatch", shown) or self.database is not None
        needed = {*rules.options, *(() if self.lmq_units else ("enableMultiDispatch",))}
        off = () if java_string(message.topic).startswith(rules.closed_topics) else sorted(needed)
        self.lmq_switched_off = tuple(option for option in off if not config.get_bool(option, shown))

    def check_topic(self, topic: str) -> None:
        """Raise InvalidInput for a topic missing in the RocksDB of topics, where put adds none."""
        if self._topics_in_database is not None:
            self._topics_in_database.check(topic)

    def _is_compacted(self, topic: str) -> bool:
        if self.topics is None or not self.layout.broker_config.get_bool("enableCompaction", default=True):
            return False
        return self.topics.attribute(topic, CLEANUP_POLICY) == COMPACTED

    def index_records(self) -> None:
        """Index the records that `append` has written; `append` does not wait for this."""
        for key_hashes, fields in self._unindexed:
            position, time = fields["physical_offset"], fields["store_timestamp"]
            if self.index is not None:
                self.index.append_record([(key, position, time) for key in key_hashes])
        self._unindexed.clear()

    @contextmanager
    def writing(self, earliest: int | None = None) -> Iterator[None]:
        """Wrap every change of log, queues or index: after an error the store is marked as broken.

        earliest: the lowest store time of the records to write. Raises Refused after `close`: the lock is released, and
        others may have written.
        """
        if self._closed:
            raise Refused("the writer is closed", path=self.layout.root, hint="open another one with StoreWriter.open")
        if not self._begun:
            self._begin()
        try:
            if earliest is not None:
                self._hold_back_checkpoint(earliest)
            yield
        except BaseException:
            self._broken = True
            raise

    def relieve_database(self) -> None:
        """Write collected units to the RocksDB of queues if there are many."""
        if self.database is not None and self.database.full:
            self._changed_for_good = True
            self.log.sync()
            self.database.write()

    def _begin(self) -> None:
        """Create `abort`, on disk before the first change.

        The first file of a new log is created before: a store with `abort` and no log could be an unused one or one
        whose disk is missing.
        """
        self.log.prepare()
        try:
            create_abort(self._files, self.layout.abort, pid=self.profile.pid_in_abort)
        except StoreError:
            if self.layout.abort.exists():
                self._files.unlink(self.layout.abort)
            raise
        self._begun = True
        if self._new and self.profile.rocksdb_store:
            # a broker fills it at its next start; until then it shows the generation
            self._files.make_directory(self.layout.rocksdb_store)

    def abandon(self) -> None:
        """Write no more: `close` undoes everything if nothing is acknowledged, or leaves the store to `recover`."""
        self._broken |= self._begun

    def _hold_back_checkpoint(self, earliest: int) -> None:
        """Lower the checkpoint's times before older records are written.

        After a crash a broker begins its recovery at a file older than these times (spec 7.3).
        """
        times = min(self._checkpoint.physic_msg_timestamp, self._checkpoint.logics_msg_timestamp)
        if earliest <= times:
            self._checkpoint = self._checkpoint._replace(
                physic_msg_timestamp=max(0, earliest - 1), logics_msg_timestamp=max(0, earliest - 1)
            )
            write_checkpoint(self._files, self.layout.checkpoint, self._checkpoint)

    def note(self, position: int, timestamp: int, highest_queue: Mapping[str, int]) -> None:
        """Remember the last record, and which queues the topics need."""
        self._last = position, timestamp
        for topic, queue_id in highest_queue.items():
            self.expect(topic, queue_id)

    def expect(self, topic: str, queue_id: int) -> None:
        """Messages will be delivered to this queue, so its topic must be configured too."""
        self._highest_queue[topic] = max(queue_id, self._highest_queue.get(topic, 0))

    @property
    def unserved(self) -> list[tuple[str, int, int]]:
        """Topics with messages in queues that their configuration does not have.

        (topic, highest queue id, number of queues): a broker does not deliver those messages.
        """
        return self.topics.unserved(self._highest_queue) if self.topics else []

    @property
    def lacks_topics(self) -> bool:
        """Whether topics of messages have no entry yet; `sync` adds them."""
        return self.topics is not None and bool(self.topics.missing(self._highest_queue))

    def sync(self) -> None:
        """Flush the log to disk, and add missing topics: every message appended so far is acknowledged."""
        self.settle()
        with self.writing():
            self._sync_log()
        self._changed_for_good = True

    def _sync_log(self) -> None:
        """Add the topics before anything is acknowledged: a recovery makes queues of the log, but no topics."""
        self.log.sync()
        if self.topics is not None:
            self.topics.add(self._highest_queue, self.profile, self.kinds.batch_topics)
            self.topics.write(self._files, self.profile, self.clock)

    def close(self) -> None:
        """Complete queues and index, flush everything to disk, remove `abort`, unlock.

        After an error the store is restored to what it was, if no message is acknowledged and only the log has changed;
        otherwise it stays as it is, with `abort`, for `recover`. A second call does nothing.
        """
        if self._closed:
            return
        try:
            if self._begun and not self._broken:
                self.settle()
                self._finish()
        finally:
            try:
                self.left_unclean = self._begun and self._broken and not self._restore()
            finally:
                self._release()

    def _restore(self) -> bool:
        """Restore the store to what it was; return False if that is not certain, or fails."""
        changed = self.queues.changed or self.batch_queues.changed or (self.index is not None and self.index.changed)
        if self._changed_for_good or changed or (self.queues.ext is not None and self._last is not None):
            return False
        try:
            if self._records is not None:
                self._records.close()  # pending writes to the log finish first
            if not self.log.take_back():
                return False
            if self._checkpoint_before is None and self.layout.checkpoint.exists():
                self._files.unlink(self.layout.checkpoint)
            elif self._checkpoint_before not in (None, self._checkpoint):
                write_checkpoint(self._files, self.layout.checkpoint, self._checkpoint_before)
            remove_abort(self._files, self.layout.abort)
        except StoreError:
            return False
        return True

    def _finish(self) -> None:
        with self.writing():
            self.log.clear_head()
            self._sync_log()
            self._changed_for_good = True
            self.queues.sync()
            self.batch_queues.sync()
            if self.database is not None and self._last is not None:
                self.database.write(self.log.position)
            in_files = self.database is None or self.database.in_files(TIMER_TOPIC)
            if in_files and self.profile.timer and TIMER_TOPIC in self._highest_queue:
                from ..timer.wheel import TimerWriter, uses_wheel

                if uses_wheel(self.layout.broker_config):
                    end = self.queues.next_offsets.get((TIMER_TOPIC, 0), 0)
                    TimerWriter(self._files, self.layout, end, self.clock).enqueue()
                    self.lacks_wheel = not self.layout.timer_wheel.exists()
            if not self._was_delayed:
                self._note_delay_levels()
            self.index_records()
            if self.index is not None:
                self.index.sync()
            self._write_checkpoint()
            remove_abort(self._files, self.layout.abort)

    def _note_delay_levels(self) -> None:
        """Note offset 0 for new delay levels in a config/ with broker files, lest delayOffset.json seems lost."""
        levels = sorted(queue_id + 1 for topic, queue_id in self.queues.next_offsets if topic == SCHEDULE_TOPIC)
        config = self.layout.config
        names = {path.name.removesuffix(BACKUP) for path in config.iterdir()} if levels and config.is_dir() else set()
        if names - {TOPICS} and DELAY_OFFSETS not in names:
            data = dumps({OFFSET_TABLE: dict.fromkeys(levels, 0)}).encode()
            replace_file(self._files, config / DELAY_OFFSETS, data)

    def _write_checkpoint(self) -> None:
        if self._last is None:
            return
        position, timestamp = self._last
        checkpoint = at_last_record(
            self._checkpoint,
            store_timestamp=timestamp,
            physical_offset=position,
            index_timestamp=self.index.full_end_timestamp if self.index else None,
            fields=self.profile.checkpoint_fields,
        )
        write_checkpoint(self._files, self.layout.checkpoint, checkpoint)

    def _release(self) -> None:
        if self._records is not None:
            self._records.close()
        self.log.close()
        if self.index is not None:
            self.index.close()
        self._closed = True
        self._lock.release()
