"""Where a broker has its consume queues, in files, a RocksDB, or both (spec 2.10, 7.14); how a start fills them.

Of queues in a RocksDB: what they demand of the file where a recovery begins, what is dispatched to them, and how they
are compared with queues in files.

Units that a start makes of records are collected before queues get them: of many queues, a batch has few units each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...formats.derive import Columns
from ...formats.derive.ragged import Flags, Ints
from ...formats.hashing import java_integer, java_string
from ...formats.message import SysFlag
from ...formats.topics import READ_QUEUE_NUMS, TOPIC_CONFIG_TABLE, WRITE_QUEUE_NUMS
from ..audit.verified import VerifiedRun
from ..broker.dispatch import Dispatched, dispatch_columns
from ..broker.dispatch_record import Dispatching
from ..broker.load_rules import Refusal
from ..broker.profiles import DatabaseRules, Profile, profile_of
from ..broker.snapshot import QueueId, Snapshot
from ..broker.system_topics import LITE_PREFIX, LMQ_PREFIX
from ..broker.topics import (
    BATCH_QUEUES,
    CLEANUP_POLICY,
    COMPACTED,
    LITE,
    LITE_EXPIRATION,
    MESSAGE_TYPE,
    QUEUE_TYPE,
    Topics,
)
from ..columns import dictionary, kept, order_of_pairs
from ..disk.broker_conf import ROCKSDB_STORE_TYPE
from ..disk.layout import ROCKSDB_CONSUME_QUEUE, ROCKSDB_CURRENT, Layout, queue_directories, was_rocksdb
from ..errors import StoreError, Unreadable, Unsupported
from ..queues.hybrid import all_queues, parents_of_lite, selective_double_write
from ..queues.references import QueueBegins
from ..queues.rocksdb import RocksDb, is_rocksdb
from ..queues.start import QueueState
from ..queues.start_rocksdb import Commit, DatabaseState, Queued, RowDamage
from ..queues.units import LARGEST_OFFSET, UNIT_DTYPE, Units, joined
from .config_load import TOPICS, ConfigRules, config_rules, load_table

_FILES = "default"
_EXTRA_FILES = 3
"""Log files that a hybrid broker tries in vain for its second queues (combineCQMaxExtraSearchCommitLogFiles)."""
_HANDED_OUT_AT = 1 << 18
_COMPACTS_SINCE = "5.1"
_KNOWS_LITE = "5.5.1"
DIFFERS = "queue-database-differs"
"""The case of a start whose queues in files and in the RocksDB differ."""


def no_topic(_topic: str) -> bool:
    return False


class QueueStores(NamedTuple):
    """Where a broker has queues. files: in files. database: directory of its RocksDB of queues, None without one.

    other: must have no RocksDB. reads_database: consumers read the queues in the database; lmq_in_database: they read
    LMQs there. selected: the LITE topics, if the database has only their queues; None: it has all. extra_files: log
    files that are tried for the database alone. accelerated: a recovery begins at the dispatched position, at least
    after a crash. wrong: exception for wrong options, or "". batches: as of `batches_in_database`. deleted: whether a
    topic's queues are gone for good.
    """

    files: bool = True
    database: Path | None = None
    other: Path | None = None
    reads_database: bool = False
    lmq_in_database: bool = False
    selected: frozenset[str] | None = None
    extra_files: int = _EXTRA_FILES
    accelerated: bool = False
    wrong: str = ""
    batches: frozenset[str] = frozenset()
    deleted: Callable[[str], bool] = no_topic

    def in_database(self, topic: str) -> bool:
        """Whether the database has the queues of a topic; LMQs of LITE topics are known by their names."""
        selected = self.selected is None or topic in self.selected or topic.startswith(LITE_PREFIX)
        return self.database is not None and selected

    def in_files(self, topic: str) -> bool:
        if self.database is not None and "/" in topic:
            return False
        return self.files and not (self.lmq_in_database and topic.startswith(LMQ_PREFIX))

    @property
    def throws_at_lmq(self) -> bool:
        """Whether the dispatch of a message to an LMQ throws (5.4, B44)."""
        return self.files and self.reads_database and not self.lmq_in_database

    def making(self, how: Dispatching) -> Dispatching:
        """`how`, changed for the units that count: an LMQ that is read from the database may have a `/` in its name."""
        read = self.lmq_in_database or self.reads_database
        return how._replace(slash_names=True) if read else how

    def reads(self, queue: QueueId) -> bool:
        """Whether consumers read this queue from the database."""
        if self.database is None:
            return False
        lmq = self.lmq_in_database and queue.topic.startswith(LMQ_PREFIX)
        return lmq or self.reads_database


def queue_stores(layout: Layout, profile: Profile) -> QueueStores:
    """Where a broker has queues, by its options, or else by what is there. Raises InvalidInput."""
    rules, config = profile.database, layout.broker_config
    if rules is None:
        return QueueStores()
    quick = config.get_bool("enableAcceleratedRecovery")
    by_options = "storeType" in config
    if layout.queues_for_rocksdb:
        place, other = _database_places(layout, rules)
        batches, quick = batches_in_database(layout, profile), quick and rules.hybrid
        return QueueStores(False, place, other, True, True, accelerated=quick, batches=batches)
    accelerated = quick and rules.lmq  # 5.4 does it with queues in a RocksDB alone
    asked = config.get_bool("rocksdbCQDoubleWriteEnable")
    shown = layout.queue_database is not None and not by_options
    if not rules.hybrid or not (asked or shown):
        return QueueStores(accelerated=accelerated)
    place, other = _database_places(layout, rules)
    assigns = config.get("combineAssignOffsetCQType") or _FILES
    lmq = rules.lmq and config.get_bool("combineCQUseRocksdbForLmq", not asked)
    reads = (config.get("combineCQPreferCQType") or _FILES) == ROCKSDB_STORE_TYPE
    selective = selective_double_write(layout)
    extra = config.get_int("combineCQMaxExtraSearchCommitLogFiles")
    wrong = ""
    if rules.lmq and asked and not lmq:
        wrong = "IllegalStateException: unexpected, rocksdbCQ is not ready for LMQ"
    elif (lmq or selective) and assigns != _FILES:
        wrong = "IllegalArgumentException: CombineConsumeQueueStore maybe incorrect config"
    selected = None
    if selective:
        with suppress(StoreError):  # a broker goes on without topics
            selected = lite_topics(layout)
        selected = selected or frozenset()
    extra = _EXTRA_FILES if extra is None else extra
    return QueueStores(True, place, other, reads, lmq, selected, extra, accelerated=accelerated, wrong=wrong)


def _database_places(layout: Layout, rules: DatabaseRules) -> tuple[Path, Path | None]:
    """The directory of the database, and the directory that may have none."""
    beside, separate = layout.consume_queue, layout.root / ROCKSDB_CONSUME_QUEUE
    if not rules.lmq:
        return beside, None
    config = layout.broker_config
    usual = layout.queue_database == separate
    if config.get_bool("useSeparateStorePathForRocksdbCQ", usual):
        return separate, beside
    return beside, separate


def topics_taken(layout: Layout, rules: ConfigRules) -> dict[str, Any]:
    """The topics that a start knows, with their entries; empty if no table can be read."""

    def find(layout: Layout) -> dict[str, Any]:
        taken = load_table(layout, TOPICS, rules).taken
        table = taken.value.get(TOPIC_CONFIG_TABLE) if taken is not None else None
        return {str(name): entry for name, entry in table.items()} if isinstance(table, dict) else {}

    return layout.once(find, (topics_taken, rules))


def batches_in_database(layout: Layout, profile: Profile) -> frozenset[str]:
    """Batch topics with queues in a RocksDB: a record has one unit, and pulls at offsets between throw (spec 2.10)."""
    return _topics_with(layout, profile, QUEUE_TYPE, BATCH_QUEUES) if layout.queues_for_rocksdb else frozenset()


def _topics_with(layout: Layout, profile: Profile, attribute: str, value: str) -> frozenset[str]:
    """The topics that have this value of an attribute, as a start knows them."""

    def find(layout: Layout) -> frozenset[str]:
        topics = topics_taken(layout, config_rules(profile)).items()
        return frozenset(topic for topic, entry in topics if _attributes(entry).get(attribute) == value)

    return layout.once(find, (_topics_with, profile.version, attribute))


def lite_topics(layout: Layout) -> frozenset[str]:
    """The topics whose messages are LITE, by their attributes or by their LMQs in the database.

    Raises StoreError if the configuration cannot be read.
    """
    topics = Topics.read(layout.config)
    known = topics.known or ()
    by_attribute = (t for t in known if topics.attribute(t, MESSAGE_TYPE) == LITE)
    return frozenset(by_attribute) | parents_of_lite(layout)


def queue_begins(layout: Layout) -> QueueBegins:
    """The `QueueBegins` of a store, one for all callers: it remembers what it has read of the log."""
    return layout.once(_queue_begins)


def _queue_begins(layout: Layout) -> QueueBegins:
    """Make it. If all queues are gone, nothing shows that a broker has deleted some: then TTLs do not count."""
    topics, has_queues = topics_taken(layout, config_rules(profile_of(_KNOWS_LITE))), False
    if ttl_ms := {topic: ttl for topic, entry in topics.items() if (ttl := _ttl_ms(entry))}:
        with suppress(Unreadable, Unsupported), closing(all_queues(layout)) as queues:
            has_queues = next(iter(queues), None) is not None
    in_use = {topic: _queues_in_use(entry) for topic, entry in topics.items()}
    return QueueBegins(layout, ttl_ms if has_queues else {}, in_use)


def _queues_in_use(entry: Any) -> int:
    """How many queues of a topic get messages or are read; no limit if its entry does not tell."""
    counts = map(entry.get, (READ_QUEUE_NUMS, WRITE_QUEUE_NUMS)) if isinstance(entry, dict) else ()
    return max((count for count in counts if isinstance(count, int) and count > 0), default=LARGEST_OFFSET)


def _attributes(entry: Any) -> dict[Any, Any]:
    found = entry.get("attributes") if isinstance(entry, dict) else None
    return found if isinstance(found, dict) else {}


def _ttl_ms(entry: Any) -> int:
    """How long (ms) until a broker deletes an idle LMQ of a topic; 0: never."""
    attributes = _attributes(entry)
    if attributes.get(MESSAGE_TYPE) != LITE:
        return 0
    minutes = java_integer(str(attributes.get(LITE_EXPIRATION, "")), 32)
    return max(minutes or 0, 0) * 60_000


def _compacts(layout: Layout, profile: Profile) -> bool:
    return profile.version >= _COMPACTS_SINCE and layout.broker_config.get_bool("enableCompaction", default=True)


def compaction_topics(layout: Layout, profile: Profile) -> frozenset[str]:
    """Topics that a broker serves only from a compaction log (spec 06, 6.1)."""
    return _topics_with(layout, profile, CLEANUP_POLICY, COMPACTED) if _compacts(layout, profile) else frozenset()


def _fails_at_compaction(layout: Layout, profile: Profile) -> bool:
    """Whether the broker, with queues in a RocksDB, fails at each queue of a compaction topic (spec 02, 2.10)."""
    rules = profile.database
    return rules is not None and rules.hybrid and _compacts(layout, profile)


def unserved_topics(layout: Layout, profile: Profile) -> frozenset[str]:
    """Topics of which consumers get nothing if queues are in a RocksDB, since a pull asks for a compaction log."""
    return compaction_topics(layout, profile) if _fails_at_compaction(layout, profile) else frozenset()


class CastFails(Exception):
    """Batch queues and compaction logs of 5.4 and later only work with queues in files alone (spec 02, 2.10)."""

    def __init__(self, stores: QueueStores) -> None:
        name = "CombineConsumeQueueStore" if stores.files else "RocksDBConsumeQueueStore"
        super().__init__(f"ClassCastException: {name} cannot be cast to ConsumeQueueStore")


def files_alone_needed(stores: QueueStores, layout: Layout, profile: Profile) -> Refusal | None:
    """The refusal of a load that needs queues in files, and no RocksDB beside them; None if there is none."""
    if stores.database is None:
        return None
    reason = str(CastFails(stores))
    for batches in queue_directories(layout.batch_consume_queue) if stores.files else ():
        return Refusal("queue-database-topics", reason, batches.path)
    for log in queue_directories(layout.compaction_log) if _fails_at_compaction(layout, profile) else ():
        if (layout.compaction_queues / log.topic / str(log.queue_id)).is_dir():
            reason += "; with enableCompaction=false it loads no compaction log"
            return Refusal("queue-database-topics", reason, log.path)
    return None


def load_database(stores: QueueStores, snapshot: Snapshot) -> DatabaseState | Refusal | None:
    """What a broker has in memory after opening its RocksDB of queues; a Refusal if that fails; None if it has none.

    Raises Unsupported if the library that reads a RocksDB is not installed.
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
        reason = "the RocksDB of queues has lost its file CURRENT and cannot be opened"
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


class DispatchedUnits:
    """Collects the units of all queues, in log order."""

    def __init__(self) -> None:
        self._topics: dict[str, int] = {}
        self._parts: list[tuple[Ints, Ints, Units]] = []
        self._count = 0

    def add(self, dispatched: Dispatched) -> None:
        made = dispatched.units
        units = np.zeros(len(made), UNIT_DTYPE)
        for name in UNIT_DTYPE.names or ():
            units[name] = getattr(made, name)
        numbers = [self._topics.setdefault(topic, len(self._topics)) for topic in dispatched.topics]
        keys = np.array(numbers, np.int64)[made.topic_id] << 32 | (made.queue_id & 0xFFFFFFFF)
        self._parts.append((keys, kept(made.queue_offset), units))
        self._count += len(units)

    @property
    def enough(self) -> bool:
        """Whether so many units are collected that they should be handed out."""
        return self._count >= _HANDED_OUT_AT

    def hand_out(self) -> Iterator[tuple[Queued, Ints]]:
        """Yield all units, queue by queue, with their indexes in all that are handed out together; and forget them."""
        parts, topics = self._parts, list(self._topics)
        self._topics, self._parts, self._count = {}, [], 0
        if not parts:
            return
        keys, offsets = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        if not len(keys):
            return
        units = joined([part[2] for part in parts])
        order = order_of_pairs(keys >> 32, keys & 0xFFFFFFFF)
        cuts = np.flatnonzero(np.diff(keys[order])) + 1
        for rows in np.split(order, cuts):
            key = int(keys[rows[0]])
            queue_id = (key & 0xFFFFFFFF ^ 1 << 31) - (1 << 31)
            yield Queued(QueueId(topics[key >> 32], queue_id), offsets[rows], units[rows]), rows


class LmqThrows(Exception):
    """5.4 looks for the file of an LMQ in the store of queues that consumers read (B44)."""

    def __init__(self) -> None:
        super().__init__("ClassCastException: RocksDBConsumeQueue cannot be cast to ConsumeQueue")


class NotReadable(Exception):
    """The exception of a broker that would have to go back too far for the queues that it reads."""


@dataclass
class DatabaseSearch:
    """What queues in a RocksDB demand of the file where a recovery begins (spec 7.14).

    row: log position up to which they were dispatched. extra_files: so many log files more are tried in vain.
    """

    row: int
    stores: QueueStores
    rules: DatabaseRules
    extra_files: int

    @property
    def alone(self) -> bool:
        """Whether there are no other queues; otherwise those in files decide first."""
        return not self.stores.files

    def agrees(self, position: int) -> bool:
        """Whether the database accepts a file with its first record at `position`. Raises NotReadable."""
        if (self.rules.skips_new and self.row <= 0) or position <= self.row:
            return True
        if self.stores.lmq_in_database:
            return False
        self.extra_files -= 1
        if self.extra_files >= 0:
            return False
        if self.stores.reads_database:
            raise NotReadable("IllegalArgumentException: RocksDBConsumeQueueStore not satisfied readable conditions")
        return True


def compare_with_files(
    stores: QueueStores, database: DatabaseState, queues: Mapping[QueueId, QueueState], commit: Commit
) -> Refusal | None:
    """Compare the queues in files and in the database, then write all units. Returns a Refusal if a broker refuses."""
    same = True
    if commit is Commit.BEFORE_START:
        database.commit()
    try:
        if stores.files:
            lmq, topics = stores.lmq_in_database, stores.in_database
            same = database.compare(queues, lmq=lmq, topics=topics)
        database.commit()
    except RowDamage as damage:
        return Refusal("queue-database-row", damage.reason, str(stores.database))
    if same or not stores.reads_database:
        return None
    reason = "RuntimeException: currentReadStore not satisfied readable conditions"
    return Refusal(DIFFERS, reason, str(stores.database))


class DatabaseDispatch:
    """Units on their way to a database, a batch of records at a time. A key can hold any topic name."""

    def __init__(
        self, stores: QueueStores, database: DatabaseState, how: Dispatching, version: str, *, tells: bool
    ) -> None:
        """how: the broker's, for queues in files. tells: messages are announced to LMQs (enableMultiDispatch), even if
        these get no units.
        """
        self._database, self._stores = database, stores
        # the database selects by topic, not by name of the LMQ
        self._how = how._replace(slash_names=True, lite_only=False)
        #: Log position of a record that the thread tries to put forever (B11); nothing behind it is put.
        self.undispatchable: int | None = None
        self._version = version
        self._tells = tells and not how.multi_dispatch
        self._units, self._end, self._last = DispatchedUnits(), 0, 0

    def add(self, columns: Columns, behind: int | None) -> None:
        """Add what is dispatched for records. behind: only for records at a greater position."""
        wanted = columns.ints("sys_flag") & SysFlag.PREPARED == 0  # also leaves out rolled back ones
        if behind is not None:
            wanted &= columns.ints("physical_offset") > behind
        if self._stores.selected is not None:
            wanted &= self._selected(columns)
        columns = columns.take(wanted)
        if not len(columns) or self.undispatchable is not None:
            return
        self._database.note(columns.ints("physical_offset"))
        dispatched = dispatch_columns(columns, self._how)
        if len(dispatched.undispatchable):
            self.undispatchable = int(columns.ints("physical_offset")[dispatched.undispatchable[0]])
            return
        if self._tells:  # the units are put, again and again
            announced = dispatch_columns(columns, self._how._replace(multi_dispatch=True))
            for row in announced.undispatchable[:1]:
                self.undispatchable = int(columns.ints("physical_offset")[row])
        self._units.add(dispatched)
        ends = columns.ints("physical_offset") + columns.ints("total_size")
        self._end, self._last = max(self._end, int(ends.max())), int(ends[-1])
        if self._units.enough:
            self.hand_out()

    def hand_out(self) -> None:
        if not self._end:
            return
        self._database.dispatch([queued for queued, _ in self._units.hand_out()], self._end, self._last)
        self._end = 0

    def _selected(self, columns: Columns) -> Flags:
        """bool[n]: records of LITE topics. They count with all queues that they name."""
        found, selected = dictionary(columns.ragged("topic")), self._stores.selected or frozenset()
        wanted = np.array([java_string(value) in selected for value in found.values], np.bool_)
        return wanted[found.ids]

    def takes(self, run: VerifiedRun, behind: int | None, made_by: Dispatching | None) -> bool:
        """Whether the records of a run can be skipped: the database has their units and would put nothing else; or
        their units were made as the database gets them, and are put here.

        behind: as for `add`. made_by: the rules by which units of runs were made.
        """
        database = self._database
        if self._stores.files or run.further_by not in ("", self._version):
            return False
        if run.units and (self._tells or not self._how.same_units(made_by)):
            return False
        if not run.units and database.source is None:
            return False
        if self.undispatchable is not None or (behind is not None and run.last <= behind):
            return True
        if run.units:
            self._put_units_of_run(run, -1 if behind is None else behind)
            return True
        if behind is not None and run.begin <= behind:
            return False
        self.hand_out()
        if any(database.has_passed(queue, queue_range.first) for queue, queue_range in run.queues.items()):
            return False
        database.note(np.append(run.begin, run.recent))
        queued = []
        for queue, queue_range in run.queues.items():
            last = queue_range.next - 1
            queued.append(Queued(queue, np.array([last], np.int64), database.on_disk(queue, last, 1)))
        if queued:  # records without units at the end of a run are not dispatched
            end = max(queue_range.reach(True) for queue_range in run.queues.values())
            database.dispatch(queued, end, end)
        return True

    def _put_units_of_run(self, run: VerifiedRun, behind: int) -> None:
        """Give the units of a run to the database, without those of records at or before `behind`."""
        self.hand_out()
        self._database.note(np.append(run.begin, run.recent))
        last = (parts[-1][-1] for parts in run.units.values())
        ends = [int(unit["physical_offset"]) + int(unit["size"]) for unit in last]
        self._database.dispatch(_queued_from(run, behind), max(ends), max(ends))


def _queued_from(run: VerifiedRun, behind: int) -> Iterator[Queued]:
    for queue, parts in run.units.items():
        each, units = run.queues[queue], joined(parts)
        offsets = np.arange(each.first, each.next, dtype=np.int64)
        wanted = units["physical_offset"] > behind
        if not wanted.all():
            offsets, units = offsets[wanted], units[wanted]
        if len(units):
            yield Queued(queue, offsets, units)
