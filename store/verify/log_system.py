"""Records of the broker's own topics, and bodies in special forms (docs/invariants.md, I-039, I-044 … I-049, I-057)."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

import numpy as np

from ...formats import message_properties as names
from ...formats.client_batch import count_of
from ...formats.derive.ragged import Flags, Ints
from ...formats.hashing import java_integer, java_string
from ...formats.pop import REVIVE_GROUP, REVIVE_TOPIC
from ...formats.property_columns import PropertyItems
from ...formats.sys_flag import SysFlag
from ...formats.tombstone import LOST
from ..broker.load_rules import NUMBER_BITS, unreadable_batches
from ..broker.snapshot import QueueId
from ..broker.system_topics import HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from ..columns import Ranges, rows_of
from ..counted import counted
from ..errors import NoSpace, Unreadable, Unsupported
from ..findings.catalogue import Severity
from ..findings.next_commands import RECOVER
from ..log.message import undecodable_bodies, unpack
from ..queues.rocksdb import is_rocksdb
from ..search.find import silent
from ..settings.options import options_of
from ..settings.read import read_pop
from ..settings.rocksdb import in_force, transactions_kept
from ..start.config import files_in_use
from ..start.config_load import OFFSETS, config_rules
from .context import Mergeable, Records, VerifyContext, add_rows
from .register import after, of_records

_NUMBERS = re.compile(rb"-?\d{1,19}(,\d{1,19})*,?")
_ENDS = "a broker's log ends here"


@of_records("I-039")
def compressed_bodies(context: VerifyContext, records: Records) -> None:
    """A body that is marked as compressed decompresses."""
    if context.scope.quick:
        return
    for row, error, put_back, too_large in undecodable_bodies(records.columns):
        severity = Severity.INFO if too_large else Severity.WARNING if put_back else None
        more = "; a transaction check stored it again as it was sent" if put_back else ""
        more = ": the rest was not checked" if too_large else more
        _one(context, records, "I-039", row, f"the body {error}{more}", severity)


@of_records("I-044")
def inner_batches(context: VerifyContext, records: Records) -> None:
    """The body of an inner batch has as many messages as its record says."""
    inner = records.columns.ints("sys_flag") & SysFlag.INNER_BATCH != 0
    if not (inner.any() or records.properties.has_name(names.INNER_NUM)):
        return
    flags = records.columns.ints("sys_flag")
    counts, bases = (records.properties.find(n) for n in (names.INNER_NUM, names.INNER_BASE))
    read = np.full(len(records), context.profile.record.inner_batches)
    for row in unreadable_batches(records.properties, read).tolist():
        texts = {names.INNER_NUM: counts[row], names.INNER_BASE: bases[row]}
        wrong = (_no_number(name, text) for name, text in texts.items() if _number(name, text) is None)
        _one(context, records, "I-044", row, f"{', '.join(wrong)}: {_ENDS}", repair=RECOVER)
        inner[row] = False
    bodies = records.columns.ragged("body")
    offset = records.columns.ints("queue_offset")
    in_database = context.store.layout.queues_for_rocksdb  # its broker writes no INNER_BASE
    for row in np.flatnonzero(inner).tolist():
        body = unpack(bodies[row], int(flags[row]))
        if body.too_large:
            continue  # told by I-039
        found, told = count_of(body.data), _number(names.INNER_NUM, counts[row])
        if found is None or found != told:
            text = f"INNER_NUM is {java_string(counts[row])!r}, the body has {found}"
            repair = RECOVER if found and told is not None and told < 1 else None
            _one(context, records, "I-044", row, text, repair=repair)
        elif offset[row] != _number(names.INNER_BASE, bases[row]) and (bases[row] or not in_database):
            text = f"INNER_BASE is {java_string(bases[row])!r}, the queue offset {offset[row]}"
            _one(context, records, "I-044", row, text)


def _number(name: str, text: bytes) -> int | None:
    """The value of this property as a broker reads it, None where that is none."""
    return java_integer(java_string(text), NUMBER_BITS[name])


def _no_number(name: str, text: bytes) -> str:
    return f"{name} {java_string(text)!r} is not a {NUMBER_BITS[name]}-bit number"


@of_records("I-045")
def scheduled(context: VerifyContext, records: Records) -> None:
    """A message that waits by delay level stands in the queue of its level."""
    rows = _live(records, records.of_topic(SCHEDULE_TOPIC))
    if not len(rows):
        return
    levels = len(options_of(context.store.layout).delay_levels.value)
    delays = records.properties.find(names.DELAY)
    queue_id = records.columns.ints("queue_id")
    complete = _real_place(records)
    for row in rows.tolist():
        level = _number(names.DELAY, delays[row])
        if level is None and delays.length[row] > 0:
            what = f"{_no_number(names.DELAY, delays[row])}: {_ENDS}"
            _one(context, records, "I-045", row, what, repair=RECOVER)
        elif min(level or 0, levels) != int(queue_id[row]) + 1:
            what = f"DELAY {java_string(delays[row])!r} in queue {queue_id[row]}"
            _one(context, records, "I-045", row, what)
        elif not complete[row]:
            _one(context, records, "I-045", row, "scheduled without REAL_TOPIC and REAL_QID")


@of_records("I-046")
def transactions(context: VerifyContext, records: Records) -> None:
    """Half messages know where they belong; what is decided names half messages."""
    queue_id = records.columns.ints("queue_id")
    rows = _live(records, _halves(records))
    if len(rows):
        complete = _real_place(records) & (records.properties.find(names.PGROUP).length > 0)
        for row in rows[(queue_id[rows] != 0) | ~complete[rows]].tolist():
            text = "a half message that is not in queue 0, or has no target topic and queue"
            _one(context, records, "I-046", row, text)
    rows = _live(records, records.of_topic(OP_TOPIC))
    if len(rows):
        bodies = records.columns.ragged("body")
        for row in rows.tolist():
            if not _NUMBERS.fullmatch(bodies[row]):
                text = f"decides about {bodies[row][:40]!r}, which is not a list of queue offsets"
                _one(context, records, "I-046", row, text)


@of_records("I-057")
def revived(context: VerifyContext, records: Records) -> None:
    """What a broker reads next in the revive topic is JSON, and its members are of their types."""
    columns = records.columns
    for topic in (topic for topic in records.topic_texts if topic.startswith(REVIVE_TOPIC)):
        grammar = config_rules(context.profile).grammar
        tags, bodies = records.properties.find(names.TAGS), columns.ragged("body")
        for row in _unread(context, records, topic).tolist():
            if why := read_pop(java_string(tags[row]), bodies[row], grammar)[1]:
                queue, offset = QueueId(topic, int(columns.ints("queue_id")[row])), columns.ints("queue_offset")[row]
                text = f"no broker can read message {offset} of {queue} ({why}): no message of that queue comes back"
                _one(context, records, "I-057", row, text)


def _unread(context: VerifyContext, records: Records, topic: str) -> Ints:
    """Rows of a revive topic that a broker has not dealt with."""
    rows = records.of_topic(topic)
    queue_ids, which = np.unique(records.columns.ints("queue_id")[rows], return_inverse=True)
    reached = [context.progress.get(QueueId(topic, number), {}).get(REVIVE_GROUP, 0) for number in queue_ids.tolist()]
    return rows[records.columns.ints("queue_offset")[rows] >= np.array(reached)[which]]


@dataclass
class _Halves(Mergeable):
    """Positions of half messages, ascending in each array.

    first_read: what is named in front of it was not read; None: nothing was. earlier: positions there that are named.
    read: of a sample, which reads pieces of the log, what it has read; None: all behind first_read.
    """

    positions: list[Ints] = field(default_factory=list)
    first_read: int | None = None
    earlier: list[Ints] = field(default_factory=list)
    read: Ranges | None = None

    def begin(self, context: VerifyContext, records: Records) -> int:
        """These records come next. Returns `first_read`."""
        if self.first_read is None:
            self.first_read = int(records.position[0])
        if context.scope.sample_percent is not None:
            self.read = self.read or Ranges()
            self.read.add_range(int(records.position[0]), int(records.ends[-1]))
        return self.first_read

    def has(self, wanted: Ints) -> Flags:
        """bool[n]: a half message stands there."""
        found = np.zeros(len(wanted), np.bool_)
        for positions in self.positions:
            found |= rows_of(positions, wanted)[1]
        return found

    def knows(self, named: Ints) -> Flags:
        """bool[n]: a half message stands there, or nobody has looked."""
        unread = named < (self.first_read or 0)
        if self.read is not None:
            unread |= ~self.read.has(named)
        return self.has(named) | (unread & (named >= 0))

    def can_merge(self, left: _Halves) -> bool:
        """What the part names in front of it is there."""
        known = self.first_read is None or all(self.knows(named).all() for named in left.earlier)
        return bool(known)

    def merge(self, context: VerifyContext, left: _Halves) -> None:
        """The half messages of the part come later."""
        self.positions += left.positions
        self.first_read = left.first_read if self.first_read is None else self.first_read


_TOGETHER = 1 << 16
"""Positions of half messages that are kept in one array."""


def _halves(records: Records) -> Ints:
    """Rows of half messages, of both topics that brokers may have for them."""
    rows = [records.of_topic(topic) for topic in (HALF_TOPIC, ROCKSDB_HALF_TOPIC)]
    return np.sort(np.concatenate(rows))  # np.union1d imports np.ma, which takes longer


@of_records("I-047")
def commits(context: VerifyContext, records: Records) -> None:
    """A committed message names the half message that it was."""
    halves = context.kept(_Halves, _Halves)
    first_read = halves.begin(context, records)
    rows = _halves(records)
    if len(rows):
        known = halves.positions
        if known and len(known[-1]) < _TOGETHER:
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
        _one(context, records, "I-047", int(rows[at]), text)


@after("I-189")
def positions_of_transactions(context: VerifyContext) -> None:
    """The broker has passed each half message that is settled, and no other one."""
    scope, store = context.scope, context.store
    asked = scope.topic in (None, HALF_TOPIC, OP_TOPIC) and not scope.quick
    if context.live or not asked or not context.log.complete or not store.queues.has_topic(HALF_TOPIC):
        return
    from ..inspect.own_topics import stored_positions, transaction_queues  # where there are transactions

    queues = transaction_queues(store)
    for text in queues.told(stored_positions(store)) if queues else ():
        database = in_force(store.layout.config, store.config).databases.get(OFFSETS)
        path = database or store.layout.config / files_in_use(store.layout, (OFFSETS,))[0]
        context.findings.add("I-189", os.fspath(path), text, repair="" if database else None)


@after("I-014")
def transactions_in_database(context: VerifyContext) -> None:
    """What rocksdbstore keeps of a transaction is at the place of its half message; else no broker asks for it. Of half
    messages that the log has not nothing is told: they are lost.
    """
    scope, store, path = context.scope, context.store, context.store.layout.rocksdb_store
    if context.live or scope.quick or scope.topic not in (None, ROCKSDB_HALF_TOPIC) or not is_rocksdb(path):
        return
    if not store.queues.has_topic(ROCKSDB_HALF_TOPIC):
        return
    from ..inspect.own_topics import topic_records  # where there are transactions

    try:
        kept = transactions_kept(path)
    except (Unreadable, Unsupported, NoSpace):
        return  # the check of the whole RocksDB tells
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
        context.findings.add("I-014", os.fspath(path), text, severity=level, repair="")


@of_records("I-049")
def timed(context: VerifyContext, records: Records) -> None:
    """A message that waits for a time says for which, and where it belongs."""
    rows = _live(records, records.of_topic(TIMER_TOPIC))
    if not len(rows):
        return
    precision = options_of(context.store.layout).timer_precision
    times, complete = records.properties.find(names.TIMER_OUT_MS), _real_place(records)
    for row in rows.tolist():
        text = times[row]
        time_ms = java_integer(java_string(text), 64)
        if time_ms is None:
            what = f"TIMER_OUT_MS {java_string(text)!r} is not a number: the timer stops here"
            _one(context, records, "I-049", row, what)
        elif time_ms % precision.value:
            what = f"TIMER_OUT_MS {time_ms} is not a multiple of {precision.value}"
            if precision.is_guess:
                what += f", the default of {precision.name} (the store does not show the real value)"
            severity = Severity.WARNING if precision.is_guess else None
            _one(context, records, "I-049", row, what, severity)
        elif not complete[row]:
            _one(context, records, "I-049", row, "waits without REAL_TOPIC and REAL_QID")


def _real_place(records: Records) -> Flags:
    """bool[n]: topic and queue that the message is meant for are there."""
    topic, queue = (records.properties.find(n) for n in (names.REAL_TOPIC, names.REAL_QID))
    found: Flags = (topic.length > 0) & (queue.length > 0)
    return found


def _live(records: Records, rows: Ints) -> Ints:
    """Without the tombstones among them."""
    return rows[records.properties.find(LOST).length[rows] < 0] if len(rows) else rows


def _one(
    context: VerifyContext,
    records: Records,
    code: str,
    row: int,
    text: str,
    severity: Severity | None = None,
    repair: str | None = None,
) -> None:
    position = int(records.position[row])
    size = int(records.ends[row]) - position
    told = f"record at {position}: {text}"
    context.log_finding(code, position, size, told, severity=severity, repair=repair)
