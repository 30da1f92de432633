"""Where a broker keeps its consume queues: in files, in a RocksDB, or in both (spec 2.10, 7.14)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..broker.dispatch_record import Dispatching
from ..broker.load_rules import Refusal
from ..broker.profiles import DatabaseRules, Profile
from ..broker.snapshot import QueueId, Snapshot
from ..broker.system_topics import LITE_PREFIX, LMQ_PREFIX
from ..broker.topics import Topics
from ..disk.layout import (
    ROCKSDB_CONSUME_QUEUE,
    ROCKSDB_CURRENT,
    ROCKSDB_STORE_TYPE,
    Layout,
    was_rocksdb,
)
from ..errors import StoreError, Unreadable
from ..queues.hybrid import parents_of_lite, selective_double_write
from ..queues.rocksdb import RocksDb, is_rocksdb
from ..queues.start_rocksdb import DatabaseState, RowDamage

_FILES = "default"
_EXTRA_FILES = 3
"""Log files a hybrid broker looks at in vain for its other queues (combineCQMaxExtraSearchCommitLogFiles)."""
_MESSAGE_TYPE, _LITE = "message.type", "LITE"


class QueueStores(NamedTuple):
    """files: it has queues in files. database: directory of those in a RocksDB, None without.

    other: where no RocksDB may lie then. reads_database: consumers get what that has; light_in_database:
    of light queues. selected: LITE topics where it has their queues alone, None: all. extra_files: log files that
    are looked at for the database alone. accelerated: a recovery begins at the position
    dispatched, after a crash at least. wrong: what the broker says of its options, "" if it takes them.
    """

    files: bool = True
    database: Path | None = None
    other: Path | None = None
    reads_database: bool = False
    light_in_database: bool = False
    selected: frozenset[str] | None = None
    extra_files: int = _EXTRA_FILES
    accelerated: bool = False
    wrong: str = ""

    def in_database(self, topic: str) -> bool:
        """The database has the queues of a topic; light queues of LITE topics are known by their names."""
        selected = self.selected is None or topic in self.selected or topic.startswith(LITE_PREFIX)
        return self.database is not None and selected

    def in_files(self, topic: str) -> bool:
        """The topic has queues in files."""
        if self.database is not None and "/" in topic:
            return False
        return self.files and not (self.light_in_database and topic.startswith(LMQ_PREFIX))

    @property
    def throws_at_light(self) -> bool:
        """A message of a light queue cannot be dispatched (5.4, B44)."""
        return self.files and self.reads_database and not self.light_in_database

    def making(self, how: Dispatching) -> Dispatching:
        """The units that count: a light queue that is read from the database may have a `/` in its name."""
        read = self.light_in_database or self.reads_database
        return how._replace(slash_names=True) if read else how

    def reads(self, queue: QueueId) -> bool:
        """Consumers get this queue from the database."""
        if self.database is None:
            return False
        light = self.light_in_database and queue.topic.startswith(LMQ_PREFIX)
        return light or self.reads_database


def queue_stores(layout: Layout, profile: Profile) -> QueueStores:
    """Those of a broker by its options; where these do not tell, by what is there. Raises InvalidInput."""
    rules, config = profile.database, layout.broker_config
    if rules is None:
        return QueueStores()
    quick = config.get_bool("enableAcceleratedRecovery")
    told = "storeType" in config
    if layout.queues_for_rocksdb:
        place, other = _places(layout, rules)
        return QueueStores(False, place, other, True, True, accelerated=quick and rules.hybrid)
    accelerated = quick and rules.light  # 5.4 does it with queues in a RocksDB alone
    asked = config.get_bool("rocksdbCQDoubleWriteEnable")
    shown = layout.queue_database is not None and not told
    if not rules.hybrid or not (asked or shown):
        return QueueStores(accelerated=accelerated)
    place, other = _places(layout, rules)
    assigns = config.get("combineAssignOffsetCQType") or _FILES
    light = rules.light and config.get_bool("combineCQUseRocksdbForLmq", not asked)
    reads = (config.get("combineCQPreferCQType") or _FILES) == ROCKSDB_STORE_TYPE
    selective = selective_double_write(layout)
    extra = config.get_int("combineCQMaxExtraSearchCommitLogFiles")
    wrong = ""
    if rules.light and asked and not light:
        wrong = "IllegalStateException: unexpected, rocksdbCQ is not ready for LMQ"
    elif (light or selective) and assigns != _FILES:
        wrong = "IllegalArgumentException: CombineConsumeQueueStore maybe incorrect config"
    selected = None
    if selective:
        with suppress(StoreError):  # a broker goes on without topics
            selected = lite_topics(layout)
        selected = selected or frozenset()
    extra = _EXTRA_FILES if extra is None else extra
    return QueueStores(
        True, place, other, reads, light, selected, extra, accelerated=accelerated, wrong=wrong
    )


def _places(layout: Layout, rules: DatabaseRules) -> tuple[Path, Path | None]:
    """The directory of the database, and the one where none may be."""
    beside, separate = layout.consume_queue, layout.root / ROCKSDB_CONSUME_QUEUE
    if not rules.light:
        return beside, None
    config = layout.broker_config
    usual = layout.queue_database == separate
    if config.get_bool("useSeparateStorePathForRocksdbCQ", usual):
        return separate, beside
    return beside, separate


def lite_topics(layout: Layout) -> frozenset[str]:
    """The topics whose messages are LITE, by their attributes or by their light queues in the database.

    Raises StoreError where the configuration cannot be read.
    """
    topics = Topics.read(layout.config)
    known = topics.known or ()
    told = (t for t in known if topics.attribute(t, _MESSAGE_TYPE) == _LITE)
    return frozenset(told) | parents_of_lite(layout)


def load_database(stores: QueueStores, snapshot: Snapshot) -> DatabaseState | Refusal | None:
    """What a broker has in memory once it has opened its RocksDB of queues; None: it has none.

    Raises Unsupported where the library that reads one is not installed.
    """
    if stores.wrong:
        return Refusal("queue-options", stores.wrong, str(snapshot.layout.root))
    if stores.database is None:
        return None
    place = str(stores.database)
    if stores.other is not None and (stores.other / ROCKSDB_CURRENT).is_file():
        reason = "find RocksDBConsumeQueue in original/separate path, maybe incompatible config"
        return Refusal("queue-database-path", f"IllegalStateException: {reason}", str(stores.other))
    if was_rocksdb(stores.database):
        reason = "the RocksDB of queues has lost its file CURRENT, and cannot be opened"
        return Refusal("queue-database", reason, place)
    source = None
    if is_rocksdb(stores.database):
        try:
            source = RocksDb.open(stores.database, every_file=True)
        except Unreadable as error:
            reason = f"the RocksDB of queues cannot be opened ({error.message})"
            return Refusal("queue-database", reason, place)
    try:
        return DatabaseState.load(source)
    except RowDamage as damage:
        return Refusal("queue-database-row", damage.reason, place)
