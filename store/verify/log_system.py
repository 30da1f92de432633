"""Checks of the broker's own topics and of special bodies (I-014, I-039, I-044 … I-049, I-057)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...formats import message_properties as names
from ...formats.client_batch import count_of
from ...formats.derive.ragged import Flags, Ints
from ...formats.hashing import java_integer, java_string
from ...formats.pop import REVIVE_GROUP, REVIVE_TOPIC
from ...formats.property_columns import PropertyItems
from ...formats.sys_flag import SysFlag
from ...formats.tombstone import LOST
from ..broker.load_rules import undeliverable, unreadable_batches
from ..broker.snapshot import QueueId
from ..broker.system_topics import (
    HALF_TOPIC,
    HALTING_BROKERS,
    OP_TOPIC,
    ROCKSDB_HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)
from ..columns import Ranges, rows_of
from ..counted import counted
from ..errors import NoSpace, Unreadable, Unsupported
from ..findings.catalogue import Severity
from ..findings.next_commands import RECOVER
from ..log.message import undecodable_bodies, unpack
from ..plan.gaps import is_pending
from ..queues.rocksdb import is_rocksdb
from ..search.store import silent
from ..settings.options import options_of
from ..settings.read import read_pop
from ..settings.rocksdb import transactions_kept
from ..start.config import delay_progress
from ..start.config_load import config_rules
from .context import Mergeable, Records, VerifyContext, add_rows
from .register import after, of_records

_NUMBERS = re.compile(rb"-?\d{1,19}(,\d{1,19})*,?")
_ENDS = "a broker's log ends here"


@of_records("I-039")
def compressed_bodies(context: VerifyContext, records: Records) -> None:
    if context.scope.quick:
        return
    for row, error, put_back, too_large in undecodable_bodies(records.columns):
        severity = Severity.INFO if too_large else Severity.WARNING if put_back else None
        more = "; a transaction check stored it again as it was sent" if put_back else ""
        more = ": the rest was not checked" if too_large else more
        _report_record(context, records, "I-039", row, f"the body {error}{more}", severity=severity)


@of_records("I-044")
def inner_batches(context: VerifyContext, records: Records) -> None:
    inner = records.columns.ints("sys_flag") & SysFlag.INNER_BATCH != 0
    if not (inner.any() or records.properties.has_name(names.INNER_NUM)):
        return
    flags = records.columns.ints("sys_flag")
    counts, bases = (records.properties.find(n) for n in (names.INNER_NUM, names.INNER_BASE))
    read = np.full(len(records), context.profile.record.inner_batches)
    for row in unreadable_batches(records.properties, read).tolist():
        texts = {names.INNER_NUM: counts[row], names.INNER_BASE: bases[row]}
        wrong = (_not_a_number(name, text) for name, text in texts.items() if _number_of(name, text) is None)
        _report_record(context, records, "I-044", row, f"{', '.join(wrong)}: {_ENDS}", repair=RECOVER)
        inner[row] = False
    bodies = records.columns.ragged("body")
    offset = records.columns.ints("queue_offset")
    in_database = context.store.layout.queues_for_rocksdb  # its broker writes no INNER_BASE
    for row in np.flatnonzero(inner).tolist():
        body = unpack(bodies[row], int(flags[row]))
        if body.too_large:
            continue  # I-039 reports it
        found, stored = count_of(body.data), _number_of(names.INNER_NUM, counts[row])
        if found is None or found != stored:
            text = f"INNER_NUM is {java_string(counts[row])!r}, the body has {found}"
            repair = RECOVER if found and stored is not None and stored < 1 else None
            _report_record(context, records, "I-044", row, text, repair=repair)
        elif offset[row] != _number_of(names.INNER_BASE, bases[row]) and (bases[row] or not in_database):
            text = f"INNER_BASE is {java_string(bases[row])!r}, the queue offset {offset[row]}"
            _report_record(context, records, "I-044", row, text)


def _number_of(name: str, text: bytes) -> int | None:
    """Return the value of this property as a broker reads it, None if it is not a number."""
    return java_integer(java_string(text), names.NUMBER_BITS[name])


def _not_a_number(name: str, text: bytes) -> str:
    return f"{name} {java_string(text)!r} is not a {names.NUMBER_BITS[name]}-bit number"


@of_records("I-045")
def scheduled(context: VerifyContext, records: Records) -> None:
    rows = records.of_topic(SCHEDULE_TOPIC)
    if not len(rows):
        return
    halts = context.profile.record.level_halts
    lost = undeliverable(records.columns.ragged("topic"), records.properties)
    rules = config_rules(context.profile)
    delivered = (delay_progress(context.store.layout, rules) or {}) if len(lost) else {}
    pending = is_pending(records.columns, lost, delivered)
    waits = dict(zip(lost.tolist(), pending.tolist(), strict=True))
    asked = np.zeros(len(records.columns), np.bool_)
    asked[_without_tombstones(records, rows)] = True
    if halts:  # at a plain tombstone, too
        asked[lost[pending]] = True
    levels = len(options_of(context.store.layout).delay_levels.value)
    delays = records.properties.find(names.DELAY)
    queue_id = records.columns.ints("queue_id")
    for row in np.flatnonzero(asked).tolist():
        level = _number_of(names.DELAY, delays[row])
        if level is None and delays.length[row] > 0:
            what = f"{_not_a_number(names.DELAY, delays[row])}: {_ENDS}"
            _report_record(context, records, "I-045", row, what, repair=RECOVER)
        elif row in waits:
            what, repair = "scheduled without a valid REAL_TOPIC and REAL_QID", None
            if waits[row] and halts:
                what += f": {HALTING_BROKERS} deliver no later message of delay level {queue_id[row] + 1}"
                repair = RECOVER
            elif waits[row]:
                what += ": the broker drops the message"
            _report_record(context, records, "I-045", row, what, repair=repair)
        elif min(level or 0, max(levels, int(queue_id[row]) + 1)) != int(queue_id[row]) + 1:
            what = f"DELAY {java_string(delays[row])!r} in queue {queue_id[row]}"
            _report_record(context, records, "I-045", row, what)


@of_records("I-046")
def transactions(context: VerifyContext, records: Records) -> None:
    queue_id = records.columns.ints("queue_id")
    rows = _without_tombstones(records, _rows_of_halves(records))
    if len(rows):
        complete = _real_place(records) & (records.properties.find(names.PGROUP).length > 0)
        for row in rows[(queue_id[rows] != 0) | ~complete[rows]].tolist():
            text = "a half message that is not in queue 0, or has no target topic and queue"
            _report_record(context, records, "I-046", row, text)
    rows = _without_tombstones(records, records.of_topic(OP_TOPIC))
    if len(rows):
        bodies = records.columns.ragged("body")
        for row in rows.tolist():
            if not _NUMBERS.fullmatch(bodies[row]):
                text = f"decides about {bodies[row][:40]!r}, which is not a list of queue offsets"
                _report_record(context, records, "I-046", row, text)


@of_records("I-057")
def revived(context: VerifyContext, records: Records) -> None:
    columns = records.columns
    for topic in (topic for topic in records.topic_texts if topic.startswith(REVIVE_TOPIC)):
        grammar = config_rules(context.profile).grammar
        tags, bodies = records.properties.find(names.TAGS), columns.ragged("body")
        for row in _not_processed(context, records, topic).tolist():
            if why := read_pop(java_string(tags[row]), bodies[row], grammar)[1]:
                queue, offset = QueueId(topic, int(columns.ints("queue_id")[row])), columns.ints("queue_offset")[row]
                text = f"no broker can read message {offset} of {queue} ({why}): no message of that queue comes back"
                _report_record(context, records, "I-057", row, text)


def _not_processed(context: VerifyContext, records: Records, topic: str) -> Ints:
    """Return the rows of a revive topic that a broker has not processed."""
    rows = records.of_topic(topic)
    queue_ids, which = np.unique(records.columns.ints("queue_id")[rows], return_inverse=True)
    reached = [context.progress.get(QueueId(topic, number), {}).get(REVIVE_GROUP, 0) for number in queue_ids.tolist()]
    return rows[records.columns.ints("queue_offset")[rows] >= np.array(reached)[which]]


@dataclass
class _Halves(Mergeable):
    """Positions of half messages, ascending in each array.

    first_read: log position before which nothing was read; None: nothing was read at all. earlier: positions before it
    that commits name. read: what a sample, which reads pieces of the log, has read; None: all behind first_read.
    """

    positions: list[Ints] = field(default_factory=list)
    first_read: int | None = None
    earlier: list[Ints] = field(default_factory=list)
    read: Ranges | None = None

    def begin(self, context: VerifyContext, records: Records) -> int:
        """Note that these records come next; return `first_read`."""
        if self.first_read is None:
            self.first_read = int(records.position[0])
        if context.scope.sample_percent is not None:
            self.read = self.read or Ranges()
            self.read.add_range(int(records.position[0]), int(records.ends[-1]))
        return self.first_read

    def has(self, wanted: Ints) -> Flags:
        """Return for each position whether a half message is there: bool[n]."""
        found = np.zeros(len(wanted), np.bool_)
        for positions in self.positions:
            found |= rows_of(positions, wanted)[1]
        return found

    def knows(self, named: Ints) -> Flags:
        """Return for each position whether a half message is there or may be, unread: bool[n]."""
        unread = named < (self.first_read or 0)
        if self.read is not None:
            unread |= ~self.read.has(named)
        return self.has(named) | (unread & (named >= 0))

    def can_merge(self, exported: _Halves) -> bool:
        """Return whether the half messages that the part names in front of itself are there."""
        known = self.first_read is None or all(self.knows(named).all() for named in exported.earlier)
        return bool(known)

    def merge(self, context: VerifyContext, exported: _Halves) -> None:
        """Append the half messages of the part."""
        self.positions += exported.positions
        self.first_read = exported.first_read if self.first_read is None else self.first_read


_HALVES_PER_ARRAY = 1 << 16
"""Number of positions of half messages to collect in one array."""


def _rows_of_halves(records: Records) -> Ints:
    """Return the rows of half messages, of both topics that brokers may use for them."""
    rows = [records.of_topic(topic) for topic in (HALF_TOPIC, ROCKSDB_HALF_TOPIC)]
    return np.sort(np.concatenate(rows))  # np.union1d imports np.ma, which takes longer


@of_records("I-047")
def commits(context: VerifyContext, records: Records) -> None:
    halves = context.kept(_Halves, _Halves)
    first_read = halves.begin(context, records)
    rows = _rows_of_halves(records)
    if len(rows):
        known = halves.positions
        if known and len(known[-1]) < _HALVES_PER_ARRAY:
            known[-1] = np.concatenate([known[-1], records.position[rows]])
        else:
            known.append(records.position[rows])
    offset = records.ints("prepared_transaction_offset")
    if not offset.any() and not records.transaction.any():
        return
    text = "it was never committed, but names a half message, at"
    add_rows(context, records, "I-047", (offset != 0) & (records.transaction == 0), text, offset)
    rows = np.flatnonzero(records.transaction == SysFlag.COMMIT)
    named = offset[rows]
    known_ones = halves.knows(named)
    if context.behind is not None and len(named):
        halves.earlier.append(named[named < first_read])
    for at in np.flatnonzero(~known_ones).tolist():
        text = f"committed, but there is no half message at {named[at]}"
        _report_record(context, records, "I-047", int(rows[at]), text)


@after("I-014")
def transactions_in_database(context: VerifyContext) -> None:
    """A broker checks no transactions at other positions. Half messages not in the log are lost, and not reported."""
    scope, store, path = context.scope, context.store, context.store.layout.rocksdb_store
    if context.live or scope.quick or scope.topic not in (None, ROCKSDB_HALF_TOPIC) or not is_rocksdb(path):
        return
    if not store.queues.has_topic(ROCKSDB_HALF_TOPIC):
        return
    from ..inspect.own_topics import topic_records  # only needed with transactions

    try:
        kept = transactions_kept(path)
    except (Unreadable, Unsupported, NoSpace):
        return  # the check of the whole RocksDB reports it
    records = store.log.records(np.array(sorted(kept), np.int64))
    own = PropertyItems(records.columns.ragged("properties")).find(names.UNIQ_KEY).tolist()
    for position, key in zip(records.position.tolist(), own, strict=True):
        if kept[position] == key:
            del kept[position]
    astray, there = set(kept.values()), set[bytes]()
    for batch in topic_records(store, ROCKSDB_HALF_TOPIC, silent) if astray else ():
        there.update(PropertyItems(batch.columns.ragged("properties")).find(names.UNIQ_KEY).tolist())
    if count := len(astray & there):
        text = f"the positions of {counted(count, 'open transaction')} are not those of their half messages: no broker"
        text += f" checks them; {path.name} belongs to a log with other positions"
        level = Severity.ERROR if store.config.get_bool("transRocksDBEnable") else None
        context.findings.add("I-014", path, text, severity=level, repair="")


@of_records("I-049")
def timed(context: VerifyContext, records: Records) -> None:
    rows = _without_tombstones(records, records.of_topic(TIMER_TOPIC))
    if not len(rows):
        return
    precision = options_of(context.store.layout).timer_precision
    times, complete = records.properties.find(names.TIMER_OUT_MS), _real_place(records)
    for row in rows.tolist():
        text = times[row]
        time_ms = java_integer(java_string(text), 64)
        if time_ms is None:
            what = f"TIMER_OUT_MS {java_string(text)!r} is not a number: the timer stops here"
            _report_record(context, records, "I-049", row, what)
        elif time_ms % precision.value:
            what = f"TIMER_OUT_MS {time_ms} is not a multiple of {precision.value}"
            if precision.is_guess:
                what += f", the default of {precision.name} (the store does not show the real value)"
            severity = Severity.WARNING if precision.is_guess else None
            _report_record(context, records, "I-049", row, what, severity=severity)
        elif not complete[row]:
            _report_record(context, records, "I-049", row, "waits without REAL_TOPIC and REAL_QID")


def _real_place(records: Records) -> Flags:
    """Return which records have the topic and queue that the message is meant for: bool[n]."""
    topic, queue = (records.properties.find(n) for n in (names.REAL_TOPIC, names.REAL_QID))
    found: Flags = (topic.length > 0) & (queue.length > 0)
    return found


def _without_tombstones(records: Records, rows: Ints) -> Ints:
    return rows[records.properties.find(LOST).length[rows] < 0] if len(rows) else rows


def _report_record(context: VerifyContext, records: Records, code: str, row: int, text: str, **more: Any) -> None:
    position = int(records.position[row])
    size = int(records.ends[row]) - position
    context.log_finding(code, position, size, f"record at {position}: {text}", **more)
