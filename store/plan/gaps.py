"""Gaps of the commit log without good records, and the forms of the tombstones that close them.

A plain tombstone halts some of a broker's own services for ever: the timer of every version, a delay level of 4.9, the
op progress of 4.9, POP's revive service of 5.1. `Forms` has tombstones that each service passes over, measured with the
real services (spec 9.9).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from ...formats import message_properties as names
from ...formats.derive import Columns
from ...formats.derive.ragged import Flags, Ints
from ...formats.hashing import java_integer, java_string, utf8
from ...formats.message import SMALLEST, TOPIC_BYTES_MAX_V1, TRANSACTION_MASK, SysFlag
from ...formats.message_properties import CRC_ITEM_BYTES, NUMBER_BITS, crc_ok, ends_with_crc, format_properties
from ...formats.pop import REVIVE_TOPIC
from ...formats.property_columns import PropertyItems
from ...formats.tombstone import FILLER_TOPIC, LOST_ITEM
from ..audit.messages import Messages
from ..audit.verified import VerifiedRun
from ..broker.dispatch import Dispatched, java_split, queue_offset_of
from ..broker.load_rules import rows_not_to_store
from ..broker.profiles import RecordRules
from ..broker.snapshot import QueueId
from ..broker.system_topics import HALF_TOPIC, OFFSET_MOVED, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from ..disk.file_queue import in_files
from ..log.batch import Batch, Extent, ExtentKind
from ..log.message import Mark, tombstones

_SERVICE_TOPICS = (TIMER_TOPIC, SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC, REVIVE_TOPIC)
_SERVICE_PREFIXES = tuple(topic.encode() for topic in _SERVICE_TOPICS)
_SECOND_MS = 1000
_PLAIN_GENERATION = "4.3"
"""The only generation whose delay service drops a message without a target topic."""


def is_for_service(topic: bytes) -> bool:
    """Whether a service of the broker reads this topic, and may halt at a record without properties."""
    return topic.startswith(_SERVICE_PREFIXES)


class FillerForm(NamedTuple):
    """Property text behind the mark of a tombstone. small: the text if both do not fit. born_timestamp: ms; None takes
    the store time.
    """

    properties: bytes = b""
    small: bytes = b""
    born_timestamp: int | None = None

    def text(self, room: int, further: bytes = b"") -> bytes:
        """Return the text that fits beside the mark in `room` bytes; the smallest text may not fit. further: properties
        that name further queues, left out where they do not fit.
        """
        if room < len(LOST_ITEM) + len(self.small) + len(further):
            further = b""
        room -= len(LOST_ITEM) + len(further)
        return (self.properties if room >= len(self.properties) else self.small) + further


def batch_text(queue_offset: int, messages: int) -> bytes:
    """Return the properties of a record that stands for several messages, "" for a single one.

    Without them the queue would have a hole, where a broker delivers the batch before again.
    """
    if messages < 2:
        return b""
    return format_properties({names.INNER_NUM: str(messages), names.INNER_BASE: str(queue_offset)})


NO_OFFSET = b"-1"
"""Body of an op record that names no half message."""


class Forms(NamedTuple):
    """The forms of this store's tombstones.

    made_ms: when the plan was made. generations: those that may start on the store. lost_tag: tag of ordinary
    tombstones. append_crc: records carry a CRC over all their bytes.
    """

    made_ms: int
    generations: tuple[str, ...] = ()
    lost_tag: str = ""
    append_crc: bool = False

    def of(self, topic: str) -> FillerForm:
        """Return the form for a topic."""
        if topic == TIMER_TOPIC:
            return _single_form(self._timer())
        if topic == SCHEDULE_TOPIC:
            return self._schedule()
        if topic == OP_TOPIC:
            return _single_form(format_properties({names.TAGS: "d"}))
        if topic.startswith(REVIVE_TOPIC):
            # it belongs to no check point, so it needs no time
            return _single_form(format_properties({names.TIMER_DELIVER_MS: "0"}))
        if topic == HALF_TOPIC:
            # older than any check waits for: written to TRANS_CHECK_MAX_TIME_TOPIC at once
            return FillerForm(born_timestamp=1)
        text = format_properties({names.TAGS: self.lost_tag}) if self.lost_tag else b""
        return FillerForm(text)

    def smallest(self, topic: str) -> int:
        """Return the bytes of the smallest tombstone of a topic, without the mark if that does not fit."""
        size = len(utf8(topic))
        around = SMALLEST + size + (size > TOPIC_BYTES_MAX_V1)
        around += CRC_ITEM_BYTES if self.append_crc else 0
        if topic == OP_TOPIC:
            around += len(LOST_ITEM) + len(NO_OFFSET)
        return around + len(self.of(topic).small)

    @property
    def smallest_filler(self) -> int:
        return self.smallest(FILLER_TOPIC.decode())

    def whole(self, topic: str) -> int:
        """Return the bytes of the smallest tombstone of a topic with mark and all properties."""
        form = self.of(topic)
        return self.smallest(topic) + len(LOST_ITEM) + len(form.properties) - len(form.small)

    def _timer(self) -> bytes:
        """Properties of a request to delete a message that nobody has, due now."""
        due = self.made_ms // _SECOND_MS * _SECOND_MS
        target = {names.TIMER_DEL_UNIQKEY: "x", names.REAL_TOPIC: "x", names.REAL_QID: "0"}
        return format_properties({names.TIMER_OUT_MS: str(due), **target})

    def _schedule(self) -> FillerForm:
        """Return the form for the delay service: a target topic that it discards, or if the version is unknown one that
        suits all versions.

        A lost record without a unique key may be too small for either. Every version delivers a tombstone for the topic
        of fillers there, where nobody reads: no delayed record has fewer properties than that.
        """
        if set(self.generations) == {_PLAIN_GENERATION}:
            return FillerForm()
        open_question = not self.generations or _PLAIN_GENERATION in self.generations
        topic = OFFSET_MOVED if open_question else HALF_TOPIC
        return FillerForm(_for_topic(topic), small=_for_topic(FILLER_TOPIC.decode()))


def _single_form(properties: bytes) -> FillerForm:
    """Return a form without a smaller variant."""
    return FillerForm(properties, small=properties)


def _for_topic(topic: str) -> bytes:
    """Return the properties of a delayed message for queue 0 of a topic."""
    return format_properties({names.REAL_TOPIC: topic, names.REAL_QID: "0"})


class Gap(NamedTuple):
    """Log positions [begin, end) in one file without a good record.

    to_file_end: the gap reaches the end of the file. store_timestamp: of the good record before, else of the next one,
    else 0. previous: position of the good record that ends at `begin`, -1 without one. blank: a BLANK closes it.
    """

    begin: int
    end: int
    to_file_end: bool
    store_timestamp: int
    previous: int = -1
    blank: bool = False


class TornRecord(NamedTuple):
    """Fields of a damaged record whose lengths add up: its body or its position does not match its header, or its
    properties are damaged. unusable: the body is whole, and a broker's log or delay level ends at its properties.
    tombstone: the record stands for a message that was lost before.
    """

    position: int
    size: int
    topic: bytes
    queue_id: int
    queue_offset: int
    sys_flag: int
    unusable: bool = False
    tombstone: bool = False

    @classmethod
    def of(cls, batch: Batch, row: int) -> TornRecord:
        """Return row `row` of a batch."""
        columns = batch.columns
        size, queue_id, queue_offset, sys_flag = (int(columns.ints(name)[row]) for name in _NUMBERS)
        return cls(int(batch.position[row]), size, columns.ragged("topic")[row], queue_id, queue_offset, sys_flag)


def torn_records(
    batch: Batch, properties: PropertyItems, good: Flags, rules: RecordRules, delivered: Mapping[int, int]
) -> list[TornRecord]:
    """Return the records of a batch that are not good. rules, delivered: as of a `GapFinder`."""
    if good.all():
        return []
    unusable, lost = np.zeros(len(batch), np.bool_), tombstones(batch.columns)
    unusable[unusable_rows(batch, properties, rules, delivered)] = True
    if batch.body_crc_ok is not None:
        unusable &= batch.body_crc_ok
    marks = {"unusable": unusable.tolist(), "tombstone": lost.tolist()}
    rows = np.flatnonzero(~good).tolist()
    return [TornRecord.of(batch, row)._replace(**{name: mark[row] for name, mark in marks.items()}) for row in rows]


_NUMBERS = ("total_size", "queue_id", "queue_offset", "sys_flag")


@dataclass
class GapFinder:
    """Finds gaps in a scan of the log, item by item in log order.

    file_bytes: of a log file. files: start positions of the existing files. covered: behind the last good record or
    BLANK. end: end of the log by its good records. verify: the broker rejects a record whose own CRC over all bytes is
    wrong (forceVerifyPropCRC). record_rules: which properties end the broker's log, or halt a delay level.
    delivered: by delay level, the queue offset of the next message to deliver.
    """

    file_bytes: int
    files: frozenset[int]
    covered: int
    verify: bool
    record_rules: RecordRules
    delivered: Mapping[int, int] = field(default_factory=dict)
    end: int = -1
    gaps: list[Gap] = field(default_factory=list)
    torn: list[TornRecord] = field(default_factory=list)
    #: Good records that name another position.
    misplaced: list[TornRecord] = field(default_factory=list)
    #: Good records that have lost properties.
    cut: list[TornRecord] = field(default_factory=list)
    #: Good records that name LMQs without a number for each.
    undispatchable: list[TornRecord] = field(default_factory=list)
    #: Positions of good records that get no unit: prepared and rolled back ones.
    silent: list[Ints] = field(default_factory=list)
    #: Ranges that a BLANK closes; gaps only if units name records in them.
    blanks: list[Gap] = field(default_factory=list)
    #: Positions of records that an earlier cut has given up.
    dead: list[Ints] = field(default_factory=list)
    #: Position behind the last record of an earlier life of the log.
    stale_end: int = -1
    #: Records behind the end use queue offsets that are taken.
    given_up: bool = False
    #: Store times of the first and of the last good record.
    first_timestamp: int = 0
    last_timestamp: int = 0
    #: Begin and end of the last good record.
    last: tuple[int, int] = (-1, -1)
    #: Records carry a CRC over all their bytes.
    crc_items: bool = False
    #: By queue, the offset behind all its messages.
    queue_ends: dict[QueueId, int] = field(default_factory=dict)

    @property
    def filled(self) -> int:
        """Position behind the last good record, or behind the BLANK after it that fills its file."""
        return self.covered if self.stale_end <= self.end else self.end

    def extent(self, extent: Extent) -> None:
        """Take a BLANK; other extents do not matter."""
        if extent.kind is ExtentKind.BLANK:
            self._blank(extent)

    def stale(self, batch: Batch) -> None:
        """Take records that do not belong, or no longer belong, to this log."""
        self.stale_end = max(self.stale_end, batch.end)
        if batch.mark is Mark.DEAD_TAIL:
            self.dead.append(batch.position.copy())

    def messages(self, messages: Messages) -> None:
        behind = int(messages.offset.max()) + 1
        self.queue_ends[messages.queue] = max(behind, self.queue_ends.get(messages.queue, 0))

    def all_gaps(self, end: int) -> list[Gap]:
        """Return all gaps up to `end`, BLANKs included, in order, each with a time."""
        found = sorted(self.gaps + self.blanks, key=lambda gap: gap.begin)
        first = self.first_timestamp
        return [gap._replace(store_timestamp=gap.store_timestamp or first) for gap in found if gap.begin < end]

    def give_up(self, end: int) -> None:
        """End the log at `end`: the good records behind it do not belong to it any more."""
        self.stale_end = max(self.stale_end, self.end)
        self.end = self.covered = end
        self.gaps = [gap for gap in self.gaps if gap.begin < end]
        self.given_up = True

    def close(self, position: int, next_ms: int = 0) -> None:
        """Add gaps between the last good record and `position`, one per file.

        next_ms: time of the good record there, for gaps at the beginning of the log: a record needs a time.
        """
        for _, end in in_files(self.covered, position, self.file_bytes):
            gap = self._gap_to(end, end % self.file_bytes == 0)
            self.gaps.append(gap._replace(store_timestamp=gap.store_timestamp or next_ms))
            self.covered = end

    def _gap_to(self, end: int, to_file_end: bool) -> Gap:
        previous = self.last[0] if self.last[1] == self.covered else -1
        return Gap(self.covered, end, to_file_end, self.last_timestamp, previous)

    def _blank(self, blank: Extent) -> None:
        """Take a BLANK, which closes its file. If the next file exists, the log ends there for now. A BLANK behind
        records of an earlier life belongs to them.
        """
        if self.covered < self.stale_end == blank.position:
            self.close(blank.end)
            return
        self.close(blank.position)
        # A BLANK covers the rest of a file of the configured length: not more in a longer file, all in a truncated one.
        end = (blank.position // self.file_bytes + 1) * self.file_bytes
        self.blanks.append(self._gap_to(end, True)._replace(blank=True))
        self.covered = end
        if end in self.files:
            self.end = max(self.end, end)

    def can_skip(self, run: VerifiedRun) -> bool:
        """Whether a run can be skipped: its records are good, but it does not know their CRCs over all bytes."""
        return not self.verify

    def skip(self, run: VerifiedRun) -> None:
        """Take a run of good records, as `records` and `messages` would."""
        self.close(run.begin, run.first_timestamp)
        self.covered = self.end = run.end
        self.last = run.last, run.end
        self.first_timestamp = self.first_timestamp or run.first_timestamp
        self.last_timestamp = run.store_timestamp
        self.crc_items |= run.with_crc
        for queue, queue_range in run.queues.items():
            self.queue_ends[queue] = max(queue_range.next, self.queue_ends.get(queue, 0))

    def records(self, batch: Batch, dispatched: Dispatched) -> None:
        """Take records of this log; those with a damaged body are part of a gap."""
        good = self.good(batch, dispatched.properties)
        self.torn += torn_records(batch, dispatched.properties, good, self.record_rules, self.delivered)
        elsewhere = good & (batch.columns.ints("physical_offset") != batch.position)
        self._note(self.misplaced, batch, np.flatnonzero(elsewhere))
        self._note(self.cut, batch, np.flatnonzero(good & dispatched.properties.torn()))
        if dispatched.properties.has_name(names.INNER_MULTI_DISPATCH):
            self._note(self.undispatchable, batch, undispatchable(dispatched.properties, good))
        self.silent.append(silent_records(batch, good))
        positions = batch.position[good]
        if not len(positions):
            return
        times = batch.columns.ints("store_timestamp")[good]
        self.first_timestamp = self.first_timestamp or int(times[0])
        ends = positions + batch.columns.ints("total_size")[good]
        before = np.concatenate([np.array([self.covered], np.int64), ends[:-1]])
        for at in np.flatnonzero(positions > before).tolist():
            if at:
                self._note_last(positions, ends, times, at - 1)
            self.close(int(positions[at]), int(times[at]))
        self._note_last(positions, ends, times, len(positions) - 1)
        self.end = self.covered
        self.crc_items |= ends_with_crc(batch.columns.ragged("properties")[len(batch) - 1])

    def good(self, batch: Batch, properties: PropertyItems) -> Flags:
        """bool[n]: the record is not part of a gap.

        A record for one of the broker's own services is useless without its properties, and a broker's log or delay
        level ends at a record with unusable ones.
        """
        good = ~properties.torn()
        for row in np.flatnonzero(~good).tolist():
            good[row] = not is_for_service(batch.columns.ragged("topic")[row])
        if batch.body_crc_ok is not None:
            good &= batch.body_crc_ok
        if self.verify:
            good &= ~_damaged(batch)
        return good & has_usable_properties(batch, properties, self.record_rules, self.delivered)

    def _note_last(self, positions: Ints, ends: Ints, times: Ints, at: int) -> None:
        self.covered = int(ends[at])
        self.last = int(positions[at]), self.covered
        self.last_timestamp = int(times[at])

    def _note(self, records: list[TornRecord], batch: Batch, rows: Ints) -> None:
        records += [TornRecord.of(batch, row) for row in rows.tolist()]


def silent_records(batch: Batch, good: Flags) -> Ints:
    """Return positions of the good records that get no unit: prepared and rolled back ones."""
    state = batch.columns.ints("sys_flag") & TRANSACTION_MASK
    return batch.position[good & np.isin(state, (SysFlag.PREPARED, SysFlag.ROLLBACK))]


_ALL_PENDING: Mapping[int, int] = {}


def has_usable_properties(
    batch: Batch, properties: PropertyItems, rules: RecordRules, delivered: Mapping[int, int] = _ALL_PENDING
) -> Flags:
    """bool[n]: a broker reads all numbers in the properties, no batch has 0 messages, and a waiting message can be
    delivered: its log, queue or delay level would end there. delivered: as of a `GapFinder`.
    """
    usable = np.ones(len(batch), np.bool_)
    usable[unusable_rows(batch, properties, rules, delivered)] = False
    if rules.inner_batches and properties.has_name(names.INNER_NUM):
        usable[empty_batches(properties)] = False
    return usable


def unusable_rows(batch: Batch, properties: PropertyItems, rules: RecordRules, delivered: Mapping[int, int]) -> Ints:
    """Return rows at which a broker's log ends, or a delay level halts, for their properties: I-044 and I-045."""
    pending = partial(is_pending, batch.columns, delivered=delivered)
    return rows_not_to_store(batch.columns.ragged("topic"), properties, rules, pending)


def is_pending(columns: Columns, rows: Ints, delivered: Mapping[int, int]) -> Flags:
    """bool[n]: the delayed messages in these rows still wait. delivered: as of a `GapFinder`."""
    levels, offsets = columns.ints("queue_id")[rows] + 1, columns.ints("queue_offset")[rows]
    waits = (at >= delivered.get(level, 0) for at, level in zip(offsets.tolist(), levels.tolist(), strict=True))
    return np.fromiter(waits, np.bool_, len(rows))  # a file may name any number


def empty_batches(properties: PropertyItems) -> Ints:
    """Return rows of batches whose message count is 0 or less."""
    number, base = properties.find(names.INNER_NUM), properties.find(names.INNER_BASE)
    rows = np.flatnonzero((number.length > 0) & (base.length > 0))
    rows = rows[np.isin(number.buffer[number.start[rows]], [ord(first) for first in "0-+"])]  # hardly any
    values = [java_integer(java_string(number[row]), NUMBER_BITS[names.INNER_NUM]) for row in rows.tolist()]
    return rows[np.array([value is not None and value < 1 for value in values], np.bool_)]


def is_undispatchable(queue_names: bytes, queue_offsets: bytes) -> bool:
    """Whether a broker makes no units of these LMQs, or throws at them (spec 2.9)."""
    wanted, given = java_split(queue_names), java_split(queue_offsets)
    return len(wanted) != len(given) or None in map(queue_offset_of, given)


def undispatchable(properties: PropertyItems, good: Flags) -> Ints:
    """Return rows of good records whose LMQ offsets no broker can read, tested one by one as few records name LMQs.
    Records without any offset do not count: the option was off, or the message waits for its delay.
    """
    queues = properties.find(names.INNER_MULTI_DISPATCH)
    offsets = properties.find(names.INNER_MULTI_QUEUE_OFFSET)
    rows = np.flatnonzero(good & (queues.length > 0) & (offsets.length > 0))
    wrong = [is_undispatchable(queues[row], offsets[row]) for row in rows.tolist()]
    return rows[np.array(wrong, np.bool_)]


def _damaged(batch: Batch) -> Flags:
    """bool[n]: the record has a CRC over all its bytes, and the CRC is wrong. Tested one by one, as few records have
    any.

    A record without one is not damaged: it is older than the option that appends them.
    """
    columns = batch.columns
    data = columns.ragged("properties").buffer
    ends = (columns.starts + columns.ints("total_size")).tolist()
    places = zip(columns.starts.tolist(), ends, strict=True)
    found = [crc_ok(data[begin:end].tobytes()) is False for begin, end in places]
    return np.array(found, np.bool_)
