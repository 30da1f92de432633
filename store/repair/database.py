"""Build the RocksDB of queues from the log, and move queues from files to a RocksDB or back (spec 2.10).

The log is read once, and its units are compared with the database: if a unit or a row is missing or differs, or the
database does not open, a new database replaces it. Brokers do not compare these with the log, and a hole stays for ever
(B40). Units of expired records are dropped, as brokers do; of a queue without a record the end stays, so that its next
message gets the right offset.

Topics, groups and offsets of groups move from RocksDBs of `config/` into its JSON files (spec 05, 5.4): a broker with
storeType=default does not read these databases, and starts empty without the files. Conversely a broker with
storeType=defaultRocksDB imports files that were written more often than its databases, offsets only from
consumerOffset.json: the files are written so that it does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...formats import rocksdb_consume_queue as formats
from ...formats.consume_queue import UNIT_BYTES
from ...formats.consumer_offset import GROUP_TOPIC_MAP, OFFSET_TABLE
from ...formats.derive.ragged import Ints
from ...formats.hashing import utf8
from ...formats.json_table import DATA_VERSION, STATE_VERSION
from ...formats.kinds import KINDS
from ...formats.lmq_consumer_offset import LMQ_OFFSET_TABLE
from ...formats.message import SMALLEST
from ...formats.rocksdb_consume_queue import BOUNDS, MAX, MIN
from ..audit.messages import LogObserver, Messages, scan_messages
from ..broker.dispatch import Dispatched
from ..broker.profiles import Profile
from ..broker.snapshot import QueueId, Snapshot, unmendable
from ..broker.system_topics import LITE_PREFIX, LMQ_PREFIX
from ..broker.topics import json_bytes
from ..counted import counted
from ..disk.file_queue import file_name
from ..disk.files import Edit, is_of_session
from ..disk.layout import ROCKSDB_CONSUME_QUEUE, Layout, queue_directories, queue_directory
from ..errors import InvalidInput, Missing, Refused, Unreadable, Unsupported
from ..findings.next_commands import proposed
from ..log.batch import Batch, Extent, ExtentKind
from ..plan.observer import left_away
from ..plan.plan import Plan, QueueEnds
from ..queues.edits import QueueFix, queue_edits
from ..queues.hybrid import selective_double_write
from ..queues.read import ConsumeQueues
from ..queues.references import commit_log_of
from ..queues.rocksdb import (
    HINT,
    QueueBound,
    RocksDb,
    RocksdbConsumeQueue,
    RocksdbConsumeQueues,
    bound_in,
    is_rocksdb,
    odd_rows,
    readable,
)
from ..queues.rocksdb_write import (
    UNIT,
    DatabaseFix,
    Holes,
    UnitSpool,
    database_files,
    expired_ends,
    last_units,
    values_of,
)
from ..queues.units import LARGEST_OFFSET, pre_fill
from ..settings.options import options_of
from ..settings.parse import with_numbers
from ..settings.read import FILES
from ..settings.rocksdb import SEPARATE, ConfigForm, InForce, counter_of, in_force, in_one_table, table_of
from ..start.config import files_in_use
from ..start.config_load import LMQ_OFFSETS, OFFSETS, TOPICS, LoadAction, config_rules, load_config
from ..start.queue_stores import files_alone_needed, lite_topics, queue_begins, queue_stores, unserved_topics
from .parts import QueueStoreKind, without_kind_options

_IN_ORDER = (ExtentKind.BLANK, ExtentKind.ZEROS)
_ONE_PLACE = frozenset({"5.3", "5.4"})
"""Generations whose database is always in `consumequeue`: they have no useSeparateStorePathForRocksdbCQ."""


class Wrong(NamedTuple):
    """What is wrong with a database: numbers of wrong units and rows, a wrong progress row, or a reading error."""

    units: int = 0
    rows: int = 0
    behind: bool = False
    unreadable: str = ""

    def __bool__(self) -> bool:
        return bool(self.units or self.rows or self.behind or self.unreadable)

    @property
    def reason(self) -> str:
        if self.unreadable:
            return f"rebuilt from the log: {self.unreadable}"
        parts = []
        if self.units:
            parts.append(f"{counted(self.units, 'unit')} missing or not as in the log")
        if self.rows:
            parts.append(f"{counted(self.rows, 'row')} of ends")
        if self.behind:
            parts.append("the row of the dispatch progress")
        return f"rebuilt from the log: {', '.join(parts)}"


class UnitsOfLog(LogObserver):
    """Puts the units of all messages of a log into a spool. Raises Refused if the log is not in order.

    end: behind the last record. behind: the first thing out of order there, which does not belong to the log unless
    units name records in it; None: nothing. torn: the first record with torn properties, which a recovery changes;
    None: there is none. batches: as of `QueueStores`.
    """

    def __init__(self, layout: Layout, wanted: Callable[[str], bool], batches: Collection[str] = ()) -> None:
        self.spool, self.end = UnitSpool(), 0
        self.behind: Refused | None = None
        self.torn: Refused | None = None
        self.holes = Holes()
        self._layout, self._wanted, self._batches = layout, wanted, batches

    def records(self, batch: Batch, dispatched: Dispatched) -> None:
        if self.behind is not None:
            raise self.behind
        torn = np.flatnonzero(dispatched.properties.torn())
        if len(torn) and self.torn is None:
            self.torn = self._refused("properties that a torn write destroyed", int(batch.position[torn[0]]))
        self.end = batch.end

    def messages(self, messages: Messages) -> None:
        damaged = np.flatnonzero(~(messages.good | messages.lost))
        if len(damaged):
            raise self._refused("a record with a damaged body", int(messages.position[damaged[0]]))
        if not self._wanted(messages.queue.topic):
            return
        place = (messages.offset, messages.position, messages.size)
        columns = (*place, messages.tags_code, messages.store_timestamp)
        self.spool.add(messages.queue, *columns)
        if messages.queue.topic not in self._batches:
            self.holes.note(messages.queue, columns, messages.lost)

    def extent(self, extent: Extent) -> None:
        if extent.kind not in _IN_ORDER:
            self.behind = self.behind or self._refused(extent.reason or extent.kind.value, extent.position)

    def stale(self, batch: Batch) -> None:
        self.behind = self.behind or self._refused("records of an earlier life", int(batch.position[0]))

    def check_behind(self, last: Iterable[tuple[QueueId, QueueBound]]) -> None:
        """Check that no unit names a record behind the last good one. last: last units of queues. Raises Refused."""
        if self.behind is not None and any(bound.physical_offset >= self.end for _, bound in last):
            raise self.behind

    def _refused(self, what: str, position: int) -> Refused:
        return Refused(
            f"the log must be recovered first: {what}",
            path=self._layout.root,
            offset=position,
            hint=f"run first: {proposed(self._layout, 'recover', '--apply')}",
        )


_Tell = Callable[[int], None] | None


def units_of_log(layout: Layout, profile: Profile, tell: _Tell = None, *, named: Collection[str] = ()) -> UnitsOfLog:
    """Return the units for a database, the position behind the last record, and the tombstones. named: as in
    `RecoveryOptions`. Raises Refused if the log is not in order, Unreadable.
    """
    wanted = _selected(layout) if selective_double_write(layout) else lambda _: True
    deleted = left_away(Snapshot.of(layout), profile, named)
    batches = queue_stores(layout, profile).batches
    found = UnitsOfLog(layout, lambda topic: wanted(topic) and not deleted(topic), batches)
    options = options_of(layout)
    how = profile.dispatch.how(  # LMQs included if messages name them
        items=False,
        multi_dispatch=options.multi_dispatch.value or layout.queue_database is not None,
        delay_levels=options.delay_waits(),
        lite_only=selective_double_write(layout),
        begins=queue_begins(layout),
    )
    scan_messages(commit_log_of(layout), [found], how._replace(slash_names=True), progress=tell)
    return found


def _selected(layout: Layout) -> Callable[[str], bool]:
    """Return a test whether selective double write keeps a topic in the database: LITE topics and their LMQs."""
    lite = lite_topics(layout)
    return lambda topic: topic in lite or topic.startswith(LITE_PREFIX)


def database_fix(
    layout: Layout, profile: Profile, tell: _Tell, *, named: Collection[str] = (), moves: bool = False
) -> tuple[DatabaseFix, Wrong]:
    """Return the database by the log, and what is wrong with the existing one. named: as in `RecoveryOptions`. moves:
    the queues are in files now. Raises Refused, Unreadable, Unsupported.
    """
    path = database_place(layout, profile)
    found = units_of_log(layout, profile, tell, named=named)
    if moves and (first := found.behind or found.torn) is not None:
        raise first  # a start with a RocksDB takes it in another way than one with files, or a recovery changes it
    spool, end = found.spool, found.end
    log_start = commit_log_of(layout).min_offset
    wrong, kept = Wrong(unreadable=f"{path.name} has no RocksDB"), dict[QueueId, QueueBound]()
    if layout.queue_database is not None:
        try:
            with RocksDb.open(layout.queue_database) as database:
                found.check_behind(last_units(database))
                _complete_units(found, database)
                kept = expired_ends(last_units(database), spool, log_start)
                if layout.queue_database == path:
                    wrong = _what_is_wrong(layout, database, spool, log_start, end)
        except Unreadable as error:
            wrong = Wrong(unreadable=f"the RocksDB cannot be read ({error.message})")
    _complete_units(found, None)
    in_files = list(_file_ends(layout))
    found.check_behind(in_files)
    for queue, bound in expired_ends(in_files, spool, log_start).items():
        kept.setdefault(queue, bound)
    return DatabaseFix(path, spool, end, kept), wrong


def is_built(layout: Layout, fix: DatabaseFix) -> bool:
    """Whether a database holds what it was built from. Raises OSError."""
    log_start = commit_log_of(layout).min_offset
    try:
        with RocksDb.open(fix.path) as database:
            return not _what_is_wrong(layout, database, fix.spool, log_start, fix.dispatched)
    except Unreadable:
        return False


def _what_is_wrong(layout: Layout, database: RocksDb, spool: UnitSpool, log_start: int, end: int) -> Wrong:
    wrong = compare(database, spool, log_start, end)
    if selective_double_write(layout):  # its row has the position of the last message that the database has
        wrong = wrong._replace(behind=False)
    return wrong


def _complete_units(found: UnitsOfLog, database: RocksDb | None) -> None:
    """Add what the log does not show: a tombstone does not name its LMQs, so the database's units of LMQs that name a
    tombstone are kept. Then close the remaining holes.
    """
    lost = found.holes.tombstones[:, 1]
    if database is not None and len(lost):
        for topic, queue_id, _ in RocksdbConsumeQueues.of(database):
            if topic.startswith(LMQ_PREFIX):
                _keep_tombstones(database, found.spool, QueueId(topic, queue_id), lost)
    found.holes.fill(found.spool, database, lambda position: np.isin(position, lost))


def _keep_tombstones(database: RocksDb, spool: UnitSpool, queue: QueueId, lost: Ints) -> None:
    """Add the database's own units that name tombstones. lost: positions of the tombstones."""
    opened = RocksdbConsumeQueue(database, *queue)
    summary = opened.summary()
    for first, data in opened.rows(summary.min_offset, summary.max_offset):
        units = np.frombuffer(data, UNIT)
        at = np.flatnonzero(np.isin(units["physical_offset"].astype(np.int64), lost))
        if len(at):
            spool.add(queue, first + at, *(units[name][at] for name in UNIT.names or ()))


def database_place(layout: Layout, profile: Profile) -> Path:
    """Return where a broker of this configuration looks for its database."""
    if profile.version in _ONE_PLACE:
        return layout.consume_queue
    if layout.queue_database is not None:
        return layout.queue_database
    if layout.broker_config.get_bool("useSeparateStorePathForRocksdbCQ"):
        return layout.root / ROCKSDB_CONSUME_QUEUE
    return layout.consume_queue


def compare(database: RocksDb, spool: UnitSpool, log_start: int, end: int) -> Wrong:
    """Compare a database with the units of the log [log_start, end). Raises Unreadable."""
    units = sum(_units_wrong(database, spool, queue) for queue in spool.queues)
    rows = 0
    for queue, bound in spool.ends.items():
        high, low = (bound_in(database, utf8(queue.topic), queue.queue_id, which) for which in (MAX, MIN))
        rows += (high != bound) + (low is not None and low.hides(spool.first(queue)))
    for queue, bound in last_units(database):
        rows += queue not in spool.ends and bound.physical_offset >= end
    rows += sum(1 for _ in odd_rows(database))
    units += _units_beyond(database, spool, log_start)
    value = database.get(BOUNDS, formats.CHECKPOINT_KEY)
    row = -1
    if value is not None and len(value) == formats.CHECKPOINT.sizeof():
        row = formats.CHECKPOINT.parse(value).physical_offset
    behind = not spool.dispatched <= row <= end
    return Wrong(units, rows, behind and bool(spool.ends))


def _units_beyond(database: RocksDb, spool: UnitSpool, log_start: int) -> int:
    """Count queues with units behind those of the log; without units in the log, those that name places in it."""
    beyond = 0
    for topic, queue_id, _ in RocksdbConsumeQueues.of(database):
        last = next(RocksdbConsumeQueue(database, topic, queue_id).newest_first(), None)
        if last is not None:
            end = spool.ends.get(QueueId(topic, queue_id))
            beyond += last.queue_offset > end.queue_offset if end else last.physical_offset >= log_start
    return beyond


def _units_wrong(database: RocksDb, spool: UnitSpool, queue: QueueId) -> int:
    there = RocksdbConsumeQueue(database, queue.topic, queue.queue_id)
    wrong = 0
    for rows in spool.rows(queue):
        offsets = rows["queue_offset"].astype(np.int64)
        first, stop = int(offsets[0]), int(offsets[-1]) + 1
        if stop - first > len(rows):  # some offsets have no message
            topic = utf8(queue.topic)
            wrong += sum(
                database.get(formats.UNITS, formats.unit_key(topic, queue.queue_id, offset)) != unit.tobytes()
                for offset, unit in zip(offsets.tolist(), values_of(rows), strict=True)
            )
            continue
        right, values = np.zeros(len(rows), np.bool_), values_of(rows)
        for begin, data in there.rows(first, stop):
            found = np.frombuffer(data, UNIT)
            at = slice(begin - first, begin - first + len(found))
            right[at] = values[at] == found
        wrong += int((~right).sum())
    return wrong


def _file_ends(layout: Layout) -> Iterator[tuple[QueueId, QueueBound]]:
    """Yield the last unit of each queue in files."""
    for topic, queue_id, _ in queue_directories(layout.consume_queue):
        with ConsumeQueues(layout).open(topic, queue_id) as queue:
            unit = next(queue.newest(), None)
            if unit is not None:
                yield QueueId(topic, queue_id), QueueBound(unit.physical_offset, unit.queue_offset)


def queues_in_database(layout: Layout, kind: QueueStoreKind | None) -> bool:
    """Whether brokers are to read queues from a RocksDB alone."""
    return kind is QueueStoreKind.ROCKSDB or (kind is None and layout.queues_for_rocksdb)


def queues_of(layout: Layout) -> set[QueueId]:
    """Return the queues of the database; none if it cannot be read: then the log shows them."""
    if layout.queue_database is None:
        return set()
    with suppress(Unreadable), closing(RocksdbConsumeQueues.at(layout.queue_database)) as queues:
        return {QueueId(queue.topic, queue.queue_id) for queue in queues}
    return set()


def database_plan(
    layout: Layout, profile: Profile, tell: _Tell, kind: QueueStoreKind | None, named: Collection[str]
) -> Plan:
    """Plan a store whose queues are, or will be, in a RocksDB alone. Raises as `database_fix`."""
    if error := unmendable(layout):
        raise error
    if not readable():
        raise Unsupported("cannot make a RocksDB without the extra rocksdb", path=layout.root, hint=HINT)
    if kind is not None:
        _refuse_topics(layout, profile)
    log, moves = commit_log_of(layout), list(_moves_of_files(layout)) if kind else []
    fix, wrong = database_fix(layout, profile, tell, named=named, moves=kind is not None)
    plan = Plan("keep", log.min_offset, fix.dispatched, moves)
    return _with_fix(plan, fix, wrong)


def _refuse_topics(layout: Layout, profile: Profile) -> None:
    """Refuse topics that a RocksDB cannot serve. A unit of a RocksDB stands for one message: between the units of
    batches every pull throws. Pulls from a compaction topic give nothing, and its log keeps brokers from starting.
    Raises Refused.
    """
    batches = next(queue_directories(layout.batch_consume_queue), None)
    if batches is not None:
        raise Refused(
            "batch queues cannot go into a RocksDB: brokers do not serve them from there",
            path=batches.path,
            hint="topics whose queue.type is BatchCQ need queues in files",
        )
    fails = files_alone_needed(queue_stores(layout, profile), layout, profile)
    if fails is not None or unserved_topics(layout, profile):
        raise Refused(
            "compaction topics cannot go into a RocksDB: brokers since 5.4 do not serve them from there",
            path=layout.config / TOPICS if fails is None else fails.path,
            hint="topics whose cleanup.policy is COMPACTION need queues in files; or set enableCompaction=false,"
            " here with --set and in broker.conf, to serve them like other topics",
        )


def with_database(layout: Layout, profile: Profile, plan: Plan, tell: _Tell, named: Collection[str]) -> Plan:
    """Return a plan for queues in files, with the repair of the database beside them."""
    return _with_fix(plan, *database_fix(layout, profile, tell, named=named))


def _with_fix(plan: Plan, fix: DatabaseFix, wrong: Wrong) -> Plan:
    if not wrong:
        return plan
    rows = [QueueEnds(*queue, 0, bound.queue_offset + 1) for queue, bound in fix.spool.ends.items()]
    return replace(
        plan,
        edits=[*plan.edits, *fix.edits(wrong.reason)],
        queues=plan.queues or rows,
        completed=plan.completed + wrong.units,
        database=fix,
    )


def database_gone(layout: Layout) -> Iterator[Edit]:
    reason = "the old queues in a RocksDB: they are in files now"
    for path in (layout.consume_queue, layout.root / ROCKSDB_CONSUME_QUEUE):
        for file in database_files(path):
            yield Edit("move", str(file), reason, ("I-070",))


def with_expired(snapshot: Snapshot, plan: Plan) -> Plan:
    """Return a plan for queues in files with the queues that have no message left: their next messages get the same
    offsets as in the RocksDB. Their last unit names the expired record, whose size is unknown.
    """
    rows, edits, ends = {row.queue: row for row in plan.queues}, list(plan.edits), dict[QueueId, QueueBound]()
    place = without_kind_options(snapshot.layout).queue_database
    if plan.without_log or place is None:
        return plan
    with suppress(Unreadable), RocksDb.open(place) as database:
        ends.update(last_units(database))
    for queue, bound in sorted(ends.items()):
        row, end = rows.get(queue, QueueEnds(*queue, 0, 0)), bound.queue_offset + 1
        expired = row.min_offset == row.max_offset < end and 0 <= bound.physical_offset < plan.log_start
        if not expired or end > LARGEST_OFFSET or "/" in queue.topic:
            continue
        with suppress(InvalidInput):  # the topic cannot be a directory name
            directory = queue_directory(snapshot.layout.consume_queue, *queue)
            edits = [edit for edit in edits if Path(edit.path).parent != directory]
            edits += _expired_queue_edits(snapshot, queue, bound, directory)
            rows[queue] = QueueEnds(*queue, end, end)
    return replace(plan, edits=edits, queues=list(rows.values()))


def _expired_queue_edits(snapshot: Snapshot, queue: QueueId, bound: QueueBound, directory: Path) -> Iterator[Edit]:
    """Yield the file with the end of a queue, and moves of older files."""
    reason, there = "the end of a queue whose messages are all expired", snapshot.queues.get(queue, ())
    size, end = snapshot.queue_file_bytes, bound.queue_offset + 1
    start = bound.queue_offset * UNIT_BYTES // size * size
    units = pre_fill(end - start // UNIT_BYTES)
    units[-1] = bound.physical_offset, SMALLEST, 0
    offsets, same = np.arange(start // UNIT_BYTES, end), [e for e in there if e.name == file_name(start)]
    fix = QueueFix(queue, offsets, units, end, 0, shifted=False)
    yield from (Edit("move", entry.path, reason, ("I-070",)) for entry in there if entry not in same)
    yield from (edit._replace(reason=reason) for edit in queue_edits(fix, tuple(same), directory, size))


def _moves_of_files(layout: Layout) -> Iterator[Edit]:
    """Yield moves of queues in files: a broker with a RocksDB does not look at them."""
    topics = sorted({Path(each.path).parent for each in queue_directories(layout.consume_queue)})
    for topic in topics:
        yield Edit("move", str(topic), "the old queues in files: they are in the RocksDB now", ("I-070",))


_CODES = ("I-140",)


def config_in_files(layout: Layout, made_ms: int) -> Iterator[Edit]:
    """Yield edits that write config files from the databases and move the databases away. layout: as of `as_kind`.
    made_ms: time of a missing dataVersion. A database that cannot be read stays, and so do files of `files_kept`.
    """
    found = _databases_before(layout)
    written: dict[str, Any] = {}
    for name, path in found.databases.items():
        try:
            written[name] = table_of(path, name)
        except (Unreadable, Missing):
            continue
    unreadable = {path for name, path in found.databases.items() if name not in written}
    for name, content in written.items():
        path = found.databases[name]
        if name == OFFSETS:
            name, content = _offsets_file(layout, content)
            other = layout.config / (OFFSETS if name == LMQ_OFFSETS else LMQ_OFFSETS)
            if other.is_file():  # a broker reads one of the two
                yield Edit("move", str(other), f"older than {name}", _CODES)
        content.setdefault(DATA_VERSION.member, {"counter": 0, STATE_VERSION: 0, "timestamp": made_ms})
        data = json_bytes(dict(sorted(content.items())))
        reason = f"from the RocksDB {path.name}, which a broker with queues in files does not read"
        yield Edit.create(layout.config / name, data, reason, _CODES)
    for path in sorted(set(found.databases.values()) - unreadable):
        for file in database_files(path):
            yield Edit("move", str(file), "the old RocksDB: its content is in files now", _CODES)


def files_kept(layout: Layout) -> Iterator[str]:
    """Yield a sentence on each config file that a move leaves, as its RocksDB is gone. layout: as of `as_kind`."""
    for name, path in sorted(_databases_before(layout).databases.items()):
        if not path.exists() and (layout.config / name).is_file():
            file = f"config/{name}"
            older = "" if is_of_session(layout, file) else ", and may be older than what was lost"
            yield f"{file} stays as it is{older}: its RocksDB config/{path.name} is not there"


def config_for_databases(layout: Layout, profile: Profile, made_ms: int) -> Iterator[Edit]:
    """Yield edits that rewrite config files so that a broker with databases imports them: with a counter above that of
    an older database, and LMQ offsets in the common table. layout, made_ms: as of `config_in_files`.
    """
    before = in_force(layout.config, layout.broker_config)
    if before.form is ConfigForm.SECOND or _databases_before(layout).databases:
        return
    for name in SEPARATE:
        (source,) = files_in_use(without_kind_options(layout), (name,))
        loaded = load_config(layout.config, source, config_rules(profile))
        content = with_numbers(loaded.taken.value) if loaded.taken is not None else {}
        if source == LMQ_OFFSETS:
            content = in_one_table(content)
        if not content.get(KINDS[FILES[name]].tables[0].member):
            continue
        counter, own = counter_of(content) or 0, _counter_of_database(before.databases.get(name), name)
        if counter <= own or loaded.start is LoadAction.BACKUP or source != name:
            version = content.get(DATA_VERSION.member) or {STATE_VERSION: 0, "timestamp": made_ms}
            content[DATA_VERSION.member] = {**version, "counter": max(counter, own + 1)}
            data = json_bytes(content)
            what = "with a greater counter of its dataVersion" if source == name else f"what {source} has"
            reason = f"{what}, so that a broker with queues in a RocksDB imports it"
            yield Edit.create(layout.config / name, data, reason, _CODES)


def _counter_of_database(path: Path | None, name: str) -> int:
    """Return the counter of a database, 0 if the database or the counter is missing."""
    with suppress(Unreadable):
        return counter_of(table_of(path, name)) or 0 if path is not None and is_rocksdb(path) else 0
    return 0


def _databases_before(layout: Layout) -> InForce:
    """Return the databases that were in use while the queues were in a RocksDB."""
    nothing = InForce(ConfigForm.FILES, True, {})
    found = in_force(layout.config, (before := without_kind_options(layout)).broker_config)
    if found.form not in (ConfigForm.SEPARATE, ConfigForm.SINGLE):
        return nothing
    beside = any((layout.config / name).is_file() for name in found.databases)
    return found if before.rocksdb_queues or not beside else nothing


def _offsets_file(layout: Layout, content: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return name and content of the file of offsets that a broker reads: a separate one if LMQs are enabled."""
    table, topics = content[OFFSET_TABLE], dict[str, list[str]]()
    for key in sorted(table):
        topic, _, group = key.rpartition("@")
        topics.setdefault(group, []).append(topic)
    content = {**content, GROUP_TOPIC_MAP: topics}
    if not layout.broker_config.get_bool("enableLmq"):
        return OFFSETS, content
    lmq = {key: row for key, row in table.items() if key.rpartition("@")[2].startswith(LMQ_PREFIX)}
    rest = {key: row for key, row in table.items() if key not in lmq}
    lmq = {key: row[0] for key, row in lmq.items() if 0 in row}
    return LMQ_OFFSETS, {**content, OFFSET_TABLE: rest, LMQ_OFFSET_TABLE: lmq}
