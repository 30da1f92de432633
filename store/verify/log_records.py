"""Checks of single records: fixed fields, topics, properties (docs/invariants.md).

No broker checks the property text, and no CRC covers it unless `__CRC32#` is switched on: a broker serves a record with
torn properties, without its keys and tags.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ...formats import message_properties as names
from ...formats.derive.ragged import Flags
from ...formats.message import MAGIC_V2, TOPIC_BYTES_MAX_V1
from ...formats.pop import is_topic_name
from ...formats.sys_flag import SysFlag
from ...formats.tombstone import FILLER_TOPIC
from ..broker.dispatch import java_split, queue_offset_of
from ..broker.dispatch_record import Dispatching
from ..counted import counted
from ..errors import UnreadableRange
from ..findings.catalogue import Severity
from ..log.batch import numbered_halves, odd_crc_items, odd_flags, odd_ports
from .context import LOOK, Mergeable, Records, VerifyContext, add_rows, collected
from .register import after, of_records

_TOLERANCE_MS = 60_000
"""Difference between clocks that is not reported."""


@of_records("I-023")
def body_crc(context: VerifyContext, records: Records) -> None:
    ok = records.batch.body_crc_ok
    if ok is None or ok.all():
        return
    stored = records.ints("body_crc")
    add_rows(context, records, "I-023", ~ok, "the body does not match its CRC", stored)


@of_records("I-024")
def empty_body(context: VerifyContext, records: Records) -> None:
    length = records.columns.ints("body_length")
    if length.min() > 0:
        return
    crc = records.columns.ints("body_crc")
    add_rows(context, records, "I-024", (length == 0) & (crc != 0), "the body is empty, but its CRC is", crc)


@of_records("I-025")
def own_position(context: VerifyContext, records: Records) -> None:
    own = records.columns.ints("physical_offset")
    add_rows(context, records, "I-025", own != records.position, "it names another position:", own)


@of_records("I-027")
def has_store_time(context: VerifyContext, records: Records) -> None:
    """Brokers choose a file by the time of its first record."""
    time = records.columns.ints("store_timestamp")
    if time.min() > 0:
        return
    wrong = time <= 0
    file = context.store.log_files.file_at(int(records.position[0]))
    first, text = np.zeros(len(wrong), np.bool_), "store timestamp"
    first[0] = file is not None and int(records.position[0]) - file.start <= context.store.log.frame_of(file).payload
    add_rows(context, records, "I-027", wrong & first, f"first of its file, {text}", time)
    add_rows(context, records, "I-027", wrong & ~first, text, time, severity=Severity.ERROR, repair=LOOK)


@of_records("I-029")
def plausible_times(context: VerifyContext, records: Records) -> None:
    time = records.columns.ints("store_timestamp")
    latest = context.now_ms + _TOLERANCE_MS
    if time.max() > latest:
        add_rows(context, records, "I-029", time > latest, "stored in the future, at", time)
    early = records.columns.ints("born_timestamp") - _TOLERANCE_MS > time
    if early.any():
        born = records.columns.ints("born_timestamp")
        add_rows(context, records, "I-029", early, "stored before it was sent, at", born)


@of_records("I-030")
def queue_number(context: VerifyContext, records: Records) -> None:
    queue_id = records.columns.ints("queue_id")
    add_rows(context, records, "I-030", queue_id < 0, "queue", queue_id)


@of_records("I-032")
def half_offsets(context: VerifyContext, records: Records) -> None:
    flags = records.columns.ints("sys_flag")
    if not (flags & SysFlag.PREPARED).any():
        return
    offset = records.columns.ints("queue_offset")
    wrong = numbered_halves(records.columns)
    add_rows(context, records, "I-032", wrong, "prepared or rolled back, but has queue offset", offset)


@of_records("I-033")
def known_flags(context: VerifyContext, records: Records) -> None:
    flags = records.columns.ints("sys_flag")
    if not flags.any():
        return
    wrong = odd_flags(records.columns, records.properties)
    add_rows(context, records, "I-033", wrong, "flags that contradict each other:", flags)


@of_records("I-034")
def ports(context: VerifyContext, records: Records) -> None:
    for name in ("born_host", "store_host"):
        port = records.columns.ints(f"{name}.port")
        add_rows(context, records, "I-034", odd_ports(records.columns, name), f"{name} has port", port)


_NUL = b"\0"


@of_records("I-035")
def topic_name(context: VerifyContext, records: Records) -> None:
    topics = records.topics
    for number, value in enumerate(topics.values):
        fault = _topic_fault(value)
        if not fault or value == FILLER_TOPIC:
            continue
        wrong = topics.ids == number
        text = f"topic {value[:40]!r}: {fault}"
        severity = Severity.FATAL if _NUL in value else None
        add_rows(context, records, "I-035", wrong, text, severity=severity)


@lru_cache(1 << 12)
def _topic_fault(value: bytes) -> str:
    """Return what is wrong with a topic, "" if nothing is."""
    if not value:
        return "it is empty"
    if _NUL in value:
        return "it has a NUL byte, so no directory can have this name"
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return "it is not UTF-8"
    return "" if is_topic_name(text) else "brokers do not accept such a name"


@of_records("I-036", "I-037")
def long_topics(context: VerifyContext, records: Records) -> None:
    newer = records.columns.ints("magic_code") == MAGIC_V2
    if not newer.any():
        return
    if not context.profile.record.v2:
        version = context.profile.version
        text = f"version 2, at which a broker {version} cuts the log"
        add_rows(context, records, "I-037", newer, text)
    lengths = np.array([len(text) for text in records.topic_texts], np.int64)[records.topics.ids]
    short = newer & (lengths <= TOPIC_BYTES_MAX_V1)
    text = "version 2 for a short topic, number of characters:"
    add_rows(context, records, "I-036", short, text, lengths)


_ENDED_BY = frozenset({"4.3", "5.3", "5.4", "5.5", "5.5.1"})
"""Broker versions that write a separator behind the last property."""
_BATCHES_REPEAT = frozenset({"5.1", "5.3"})
"""Broker versions that write the unique key of a batch into each of its records (B13)."""
_DUP_PARTS = re.compile(rb"[^_]+_[^_]+")


@of_records("I-026")
def record_crc(context: VerifyContext, records: Records) -> None:
    if not records.properties.has_name(names.CRC32):
        return
    wrong = odd_crc_items(records.columns, records.properties)
    has = records.properties.find(names.CRC32).length >= 0
    add_rows(context, records, "I-026", wrong, "its __CRC32# is not the last property, or does not match the record")
    around = np.append(True, has[:-1]) & np.append(has[1:], True) & has.any()
    text = "it has no __CRC32#, but the records around it have one: the property name may be damaged"
    add_rows(context, records, "I-026", ~has & around, text, severity=Severity.WARNING)


@of_records("I-038", "I-055", "I-056")
def property_text(context: VerifyContext, records: Records) -> None:
    properties = records.properties
    lost = properties.has_lost_items()
    text = "a NUL byte in the properties: they are torn, keys and tags are lost"
    add_rows(context, records, "I-055", lost, text)
    _report_malformed(context, records, properties.malformed() & ~lost)
    text = "two properties without a separator: the value of the first contains the name of the next"
    add_rows(context, records, "I-038", properties.run_together() & ~lost, text)
    _check_final_separator(context, records, lost)
    _report_repeated(context, records)


def _report_malformed(context: VerifyContext, records: Records, odd: Flags) -> None:
    """Report malformed properties; only an empty value, as clients themselves write at times, is no more than INFO."""
    if not odd.any():
        return
    texts = records.columns.ragged("properties")
    empty = np.zeros(len(records), np.bool_)
    for row in np.flatnonzero(odd).tolist():
        items = [item for item in texts[row].split(names.ITEM_SEPARATOR) if item]
        empty[row] = all(_NAMED.match(item) for item in items)
    text = "a property with an empty value, as some clients write it: readers ignore it"
    add_rows(context, records, "I-038", empty, text, severity=Severity.INFO)
    add_rows(context, records, "I-038", odd & ~empty, "a property without a name or a separator")


_NAMED = re.compile(rb"[^\x01]+\x01")


@dataclass
class _LastText(Mergeable):
    """Whether the last record so far lacks the separator behind its last property."""

    open_end: bool = False

    def merge(self, context: VerifyContext, exported: _LastText) -> None:
        """Continue behind the last record of the part."""
        self.open_end = exported.open_end


def _check_final_separator(context: VerifyContext, records: Records, lost: Flags) -> None:
    """Report a single record without the last separator as damaged; a run of such records came from a client. The last
    record of the log may be the first of a run: of a broker 4.x that uses the store now.
    """
    if context.profile.version not in _ENDED_BY:
        return
    before = context.kept(_LastText, _LastText)
    open_before, before.open_end = before.open_end, False
    if records.properties.ended:
        return
    open_end = _open_ends(records)
    before.open_end = bool(open_end[-1])
    alone = open_end & ~lost
    alone[1:] &= ~open_end[:-1]
    alone[:-1] &= ~open_end[1:]
    alone[0] &= not open_before
    last = np.zeros_like(alone)
    if alone[-1]:
        following = _record_behind(context, records)
        alone[-1], last[-1] = len(following) and not _open_ends(following)[0], not len(following)
    add_rows(context, records, "I-055", alone, "no separator behind the last property")
    text = "the last record has no separator behind its last property: written by 4.x, or damaged"
    add_rows(context, records, "I-055", last, text, severity=Severity.WARNING)


def _open_ends(records: Records) -> Flags:
    """Return which records have properties without a separator behind the last one: bool[n]."""
    texts = records.columns.ragged("properties")
    ends = texts.buffer[np.maximum(texts.start + texts.length - 1, 0)]
    open_end: Flags = (texts.length > 0) & (ends != _SEPARATOR)
    return open_end


def _record_behind(context: VerifyContext, records: Records) -> Records:
    """Return the record directly behind a batch, here or at the start of the next file; or no record."""
    store, end = context.store, records.batch.end
    file = store.log_files.file_at(end - 1)
    places = [place + store.payload_at(place) for place in (end, file.end if file else end)]
    try:
        found = store.log.records(np.array(places, np.int64))
    except UnreadableRange:  # the scan reports it
        found = records.batch.take(slice(0))
    return Records(found.take(slice(1)))


_SEPARATOR = names.ITEM_SEPARATOR[0]


def _report_repeated(context: VerifyContext, records: Records) -> None:
    repeated = np.flatnonzero(records.properties.repeated())
    if not len(repeated):
        return
    known = context.profile.version in _BATCHES_REPEAT
    unique = records.properties.count(names.UNIQ_KEY)
    texts = records.columns.ragged("properties")
    of_batch, other = np.zeros(len(records), np.bool_), np.zeros(len(records), np.bool_)
    for row in repeated.tolist():
        twice = _names_twice(texts[row])
        if twice == {names.UNIQ_KEY.encode()} and known and unique[row]:
            of_batch[row] = True
        elif twice:
            other[row] = True
    text = "UNIQ_KEY twice: the broker added the key of the batch"
    add_rows(context, records, "I-056", of_batch, text, severity=Severity.INFO)
    add_rows(context, records, "I-056", other, "a property name occurs twice", severity=Severity.WARNING)


def _names_twice(text: bytes) -> set[bytes]:
    found = Counter(item.partition(names.NAME_VALUE_SEPARATOR)[0] for item in text.split(names.ITEM_SEPARATOR))
    return {name for name, count in found.items() if name and count > 1}


_UNDISPATCHABLE = "undispatchable records"
"""Records whose LMQs a broker cannot read: position, size, message, and the rest of the finding."""


@of_records("I-048")
def lmq_queues(context: VerifyContext, records: Records) -> None:
    """Note records that do not have as many queue offsets as names of LMQs, each a number."""
    if not records.properties.has_name(names.INNER_MULTI_DISPATCH):
        return
    queues = records.properties.find(names.INNER_MULTI_DISPATCH)
    rows = np.flatnonzero(queues.length > 0)
    offsets = records.properties.find(names.INNER_MULTI_QUEUE_OFFSET)
    in_database = context.store.layout.queue_database is not None
    how = Dispatching(slash_names=in_database or context.profile.dispatch.slash_names)
    for row in rows.tolist():
        wanted, given = java_split(queues[row]), java_split(offsets[row])
        wrong = [queue_offset_of(text) is None for text in given]
        if len(wanted) == len(given) and not any(wrong):
            continue
        throws = (bad and not how.skips(name) for name, bad in zip(wanted, wrong, strict=False))
        lmq, more = counted(len(wanted), "LMQ"), dict[str, Any]()
        text = f"record at {records.position[row]}: {lmq} with the offsets {','.join(given)[:60]!r}"
        if offsets.length[row] <= 0:  # without enableMultiDispatch, or of a delayed message
            text = f"record at {records.position[row]}: {lmq}, no option of the broker that stored it"
            more = {"severity": Severity.INFO, "repair": LOOK}
        elif len(wanted) == len(given) and any(throws) and context.crashed:  # not dispatched before
            text += "; dispatch throws at this record for ever"
            more = {"severity": Severity.FATAL}
        size = int(records.ends[row] - records.position[row])
        collected(context, _UNDISPATCHABLE).append((int(records.position[row]), size, text, more))


@after("I-048")
def undispatchable_records(context: VerifyContext) -> None:
    """Report, at the end, records with unreadable LMQs: a part of the log with a finding would be read again
    (`Mergeable`).
    """
    for position, size, text, more in collected(context, _UNDISPATCHABLE):
        context.log_finding("I-048", position, size, text, **more)


@of_records("I-050")
def duplication(context: VerifyContext, records: Records) -> None:
    """Check that DUP_INFO has two parts: in duplication mode in each record, else in those that have it."""
    needed = context.store.config.get_bool("duplicationEnable")
    if not needed and not records.properties.has_name(names.DUP_INFO):
        return
    info = records.properties.find(names.DUP_INFO)
    rows = np.arange(len(records)) if needed else np.flatnonzero(info.length >= 0)
    wrong = np.zeros(len(records), np.bool_)
    for row in rows.tolist():
        wrong[row] = _DUP_PARTS.fullmatch(info[row]) is None
    severity = None if needed else Severity.WARNING
    add_rows(context, records, "I-050", wrong, "DUP_INFO does not have two parts", severity=severity)
