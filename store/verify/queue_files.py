"""Checks of directories and files of consume queues (I-060, I-073, I-074, I-076 … I-078, I-083).

Consume queues in a RocksDB: bounds, holes, and the queues in files beside it (I-084; spec 2.10).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from construct import ConstructError

from ...formats import batch_consume_queue, consume_queue
from ...formats import rocksdb_consume_queue as formats
from ...formats.config import BACKUP
from ...formats.consume_queue import EXT_ADDRESS_MAX
from ...formats.derive.ragged import Ints
from ...formats.hashing import utf8
from ...formats.rocksdb_consume_queue import BOUNDS, MAX
from ..broker.snapshot import QueueId, list_entries
from ..broker.system_topics import LMQ_PREFIX, SCHEDULE_TOPIC
from ..broker.topics import BATCH_QUEUES, QUEUE_TYPE
from ..counted import counted
from ..disk.broker_conf import ROCKSDB_STORE_TYPE
from ..disk.byte_reader import noted
from ..disk.file_queue import MappedFileQueue
from ..disk.layout import LARGEST_QUEUE_ID, queue_directories
from ..errors import Missing
from ..findings.catalogue import Severity
from ..queues.read import ConsumeQueue, QueueSummary
from ..queues.rocksdb import RocksDb, RocksdbConsumeQueue, readable
from ..queues.units import is_used
from ..start.config import delay_progress
from ..start.config_load import DELAYS, LoadAction, config_rules, load_config
from ..start.queue_stores import batches_in_database
from .context import VerifyContext
from .queue_state import LEFT_OUT, QueueReader, QueueStates, queues_of
from .register import after, before


def _all_queues(queues: QueueStates) -> Iterator[tuple[QueueId, str, int]]:
    """Yield queues in files, those of batches too: queue, directory, bytes of a unit."""
    for queue, path in sorted(queues.paths.items()):
        if not queues.in_database(queue):
            yield queue, path, consume_queue.UNIT_BYTES
    for queue, path in sorted(queues.batch_paths.items()):
        yield queue, path, batch_consume_queue.UNIT_BYTES


@before("I-060", "I-073", "I-074")
def files_of_queues(context: VerifyContext) -> None:
    queues = queues_of(context)
    for queue, path, unit_bytes in _all_queues(queues):
        if not context.scope.wants(queue):
            continue
        with MappedFileQueue.open(path) as files:
            for file in files.files:
                if file.size % unit_bytes:
                    text = f"its length {file.size} is no multiple of {unit_bytes}"
                    context.queue_finding("I-060", queue, file.path, text)
            with suppress(Missing):  # a running broker may delete the file
                _report_files_of_zeros(context, queue, files, unit_bytes)


def _report_files_of_zeros(context: VerifyContext, queue: QueueId, files: MappedFileQueue, unit_bytes: int) -> None:
    """Report files of zeros: between others one ends the queue there; behind a full file it adds a unit."""
    for number, file in enumerate(files.files):
        if not file.size or files.first_data(file) is not None:
            continue
        before = files.files[number - 1]
        if number < len(files.files) - 1:
            context.queue_finding("I-074", queue, file.path, "all zeros, but files follow: units are lost")
        elif number and files.read_file(before, before.size - unit_bytes, unit_bytes).strip(b"\0"):
            batches = unit_bytes == batch_consume_queue.UNIT_BYTES
            text = "all zeros behind a full file: a recovery counts its first unit"
            text += f"{', and the queue begins again at 0' if batches else ''} (B4)"
            context.queue_finding("I-073", queue, file.path, text)
        elif number:
            text = "all zeros behind a file that is not full: no broker reads it"
            context.queue_finding("I-073", queue, file.path, text, severity=Severity.INFO)


@before("I-076", "I-083")
def queues_of_topics(context: VerifyContext) -> None:
    queues = queues_of(context)
    topics = queues.topics
    for queue in sorted({*queues.paths, *queues.batch_paths}):
        if not context.scope.wants(queue):
            continue
        count = topics.queues(queue.topic) if topics is not None else None
        path = queues.paths.get(queue) or queues.batch_paths[queue]
        if count and queue.queue_id >= count and queue.topic != SCHEDULE_TOPIC:
            text = f"topics.json gives the topic {counted(count, 'queue')}"
            context.queue_finding("I-076", queue, path, text)
    for topic in sorted({queue.topic for queue in queues.batch_paths}):
        simple = sorted(queue for queue in queues.paths if queue.topic == topic)
        if simple and context.scope.wants(simple[0]):
            text = "the topic has queues in consumequeue and in batchconsumequeue"
            context.queue_finding("I-083", simple[0], queues.paths[simple[0]], text)
    for topic in sorted(batches_in_database(context.store.layout, context.profile)):
        for queue in sorted(queue for queue in queues.paths if queue.topic == topic and context.scope.wants(queue))[:1]:
            text = f"its type is {BATCH_QUEUES}, but it is in a RocksDB: pulls at an inner batch fail; it needs files"
            context.queue_finding("I-083", queue, queues.paths[queue], text, severity=Severity.WARNING, repair="")
    if not queues.batches:
        _report_unread_batches(context)
    elif topics is not None:
        _check_types(context, queues)


def _report_unread_batches(context: VerifyContext) -> None:
    """Report queues of batches in the store of a broker version that has none: no broker reads them."""
    root = context.store.layout.batch_consume_queue
    count = sum(1 for _ in queue_directories(root))
    if not count or context.scope.topic is not None:
        return
    text = f"{counted(count, 'queue')} of batches, but a broker {context.profile.version} reads none"
    mend = "mv {path} {aside}"
    context.findings.add("I-083", root, text, severity=Severity.WARNING, repair=mend)


def _check_types(context: VerifyContext, queues: QueueStates) -> None:
    """Check that each queue is in the directory of the type that topics.json has."""
    topics = queues.topics
    for paths, batches in ((queues.paths, False), (queues.batch_paths, True)):
        seen: set[str] = set()
        for queue in sorted(paths):
            if topics is None or queue.topic in seen or queue.topic not in topics:
                continue
            seen.add(queue.topic)
            queue_type = topics.attribute(queue.topic, QUEUE_TYPE)
            if (queue_type == BATCH_QUEUES) != batches and context.scope.wants(queue):
                text = f"its directory is not the one for its type, {queue_type or 'SimpleCQ'}"
                context.queue_finding("I-083", queue, paths[queue], text)


@before("I-078")
def lmq_queues(context: VerifyContext) -> None:
    queues = queues_of(context)
    for queue, path in sorted(queues.paths.items()):
        lmq = queue.topic.startswith(LMQ_PREFIX) and context.scope.wants(queue)
        if lmq and queue.queue_id and any(list_entries(path)):
            text, mend = "an LMQ can have only number 0", "mv {path} {aside}"
            context.queue_finding("I-078", queue, path, text, repair=mend)
    if context.store.layout.rocksdb_queues:
        return
    made = context.profile.dispatch.slash_names
    for topic in list_entries(context.store.layout.consume_queue):
        if not topic.directory or context.scope.topic not in (None, topic.name):
            continue
        for inner in list_entries(topic.path):
            if not inner.directory or (inner.name.isdecimal() and int(inner.name) <= LARGEST_QUEUE_ID):
                continue
            if any(entry.directory for entry in list_entries(inner.path)):
                text = f"a queue named {topic.name}/{inner.name}: no broker finds it after a start (B12)"
                severity = Severity.WARNING if made else Severity.ERROR
                context.findings.add("I-078", inner.path, text, severity=severity, topic=topic.name)


@after("I-077")
def delayed_messages(context: VerifyContext) -> None:
    queues = queues_of(context)
    layout, rules = context.store.layout, config_rules(context.profile)
    if queues.unreadable or context.scope.topic not in (None, SCHEDULE_TOPIC):
        return
    from_backup = load_config(layout.config, DELAYS, rules).start is LoadAction.BACKUP
    path = layout.config / (DELAYS + BACKUP * from_backup)
    reached = delay_progress(layout, rules) or {}
    for level, offset in reached.items():
        queue = QueueId(SCHEDULE_TOPIC, level - 1)
        check = queues.checks.get(queue)
        end = check.live_end if check is not None else 0
        if context.crashed:  # a start dispatches again what has no unit yet
            end = max(end, context.log.next_offset.get(queue, 0))
        if context.scope.wants(queue) and offset > end and not context.live and context.log.complete:
            text = f"delay level {level} goes on at offset {offset}, but its queue ends at {end}"
            context.queue_finding("I-077", queue, path, text)


def check_database(context: VerifyContext, queues: QueueStates) -> None:
    """Check that the bounds in a RocksDB are those of its units, and that queues in files agree with it."""
    store, database = context.store, queues.database
    if database is None:
        _report_unreadable(context)
        return
    bounds = _bounds(database.database)
    for topic, queue_id, _ in database:
        queue = QueueId(topic, queue_id)
        if context.scope.wants(queue):
            opened = database.open(*queue)
            summary = opened.summary(store.log_files.start)
            if isinstance(opened, RocksdbConsumeQueue):
                _check_bound(context, queue, summary, bounds, opened)
                _check_holes(context, queue, summary, bounds, opened)
    if store.config.get("storeType") == ROCKSDB_STORE_TYPE:
        return  # the broker does not read those in files: I-010
    for directory in queue_directories(store.layout.consume_queue):
        queue = QueueId(directory.topic, directory.queue_id)
        if context.scope.wants(queue) and queue in bounds.last:
            _compare_units(context, queue, directory.path, database.open(*queue))


def _report_unreadable(context: VerifyContext) -> None:
    """Report a RocksDB of queues that does not open, unless this machine can open none."""
    path = context.store.layout.queue_database
    if path is None:
        return
    context.unread.append(context.store.queues_unread)
    of_disk = any(unread.path.startswith(os.fspath(path)) for unread in noted())  # I-015 reports it
    if readable() and not of_disk and not context.live and context.scope.topic is None:
        text = f"{context.store.queues_unread}: a broker refuses to start, or every pull fails"
        context.findings.add("I-084", path, text)


def _check_bound(
    context: VerifyContext, queue: QueueId, summary: QueueSummary, bounds: _Bounds, opened: RocksdbConsumeQueue
) -> None:
    """Check that the greatest offset of a queue in the database is that of its last unit."""
    last = summary.max_offset - 1
    if summary.last_position is None or context.live:
        return
    _check_first(context, queue, summary, bounds.first.get(queue))
    bound = bounds.last.get(queue)
    if bound is None:
        _add_bound(context, queue, f"its last unit is {last}, but no greatest offset is stored")
    elif bound != (last, summary.last_position) and not _has_old_units_behind(context, opened, bound):
        stored = f"the greatest offset stored is {bound[0]}, of the record at {bound[1]}"
        _add_bound(context, queue, f"{stored}; but its last unit is {last}, at {summary.last_position}")


def _has_old_units_behind(context: VerifyContext, opened: RocksdbConsumeQueue, bound: tuple[int, int]) -> bool:
    """Return whether a broker set this greatest offset, and left the units behind it: it cut its log (spec 7.14), or
    was killed after the topic was deleted and created again, and its start wrote the new units over the old ones.

    They name records that were cut off, or earlier ones; when new messages get their queue offsets, they are replaced.
    """
    unit, end = opened.unit(bound[0]), context.store.log_end.position
    if unit is None or unit.physical_offset != bound[1]:
        return False
    for first, units in opened.stream.windows(bound[0] + 1):
        position = units["physical_offset"].astype(np.int64)
        inside = np.flatnonzero(position < end)
        if (position[inside] > bound[1]).any() or not _are_messages(context, opened, first + inside, position[inside]):
            return False
    return True


def _are_messages(context: VerifyContext, queue: RocksdbConsumeQueue, offset: Ints, position: Ints) -> bool:
    """Return whether the records at these positions are the messages of a queue with these queue offsets."""
    records = context.store.log.records(position)
    columns, place = records.columns, (utf8(queue.topic), queue.queue_id)
    places = zip(columns.ragged("topic").tolist(), columns.ints("queue_id").tolist(), strict=True)
    return np.array_equal(columns.ints("queue_offset"), offset) and all(each == place for each in places)


def _check_holes(
    context: VerifyContext, queue: QueueId, summary: QueueSummary, bounds: _Bounds, opened: RocksdbConsumeQueue
) -> None:
    """Check that no unit is missing between two others: a pull there ends with an exception (spec 2.10, B4).

    I-070 reports messages of the log without units, in queues that count; this check finds other holes, as of LMQs.
    """
    if context.live or queues_of(context).counts_in_files(queue):
        return
    if queue.topic in batches_in_database(context.store.layout, context.profile):
        return  # I-083
    reached, missing, first_missing = summary.min_offset, 0, 0
    stop = min(summary.max_offset, bounds.last.get(queue, (summary.max_offset, 0))[0] + 1)
    for first, units in opened.stream.windows(summary.min_offset, stop):
        if first > reached and not missing:
            first_missing = reached
        missing += first - reached
        reached = first + len(units)
    if missing:
        many = counted(missing, "unit is", "units are")
        text = f"{many} missing, from {first_missing} on: every pull there fails"
        _add_bound(context, queue, text, missing)


def _add_bound(context: VerifyContext, queue: QueueId, text: str, count: int = 1) -> None:
    """Add a finding; a warning for queues that brokers read from files and correct in the database."""
    prefers = context.store.config.get("combineCQPreferCQType") == ROCKSDB_STORE_TYPE
    in_files = queues_of(context).counts_in_files(queue) and not prefers
    level = Severity.WARNING if in_files else None
    context.queue_finding("I-084", queue, context.store.layout.queue_database or "", text, count=count, severity=level)


class _Bounds(NamedTuple):
    """The first and the last queue offset of each queue in the database, with the log position of its record."""

    first: dict[QueueId, tuple[int, int]]
    last: dict[QueueId, tuple[int, int]]


def _bounds(database: RocksDb) -> _Bounds:
    found = _Bounds({}, {})
    for key, value in database.items(BOUNDS):
        try:
            name, bound = formats.BOUND_KEY.parse(key), formats.BOUND.parse(value)
        except ConstructError:
            continue  # another kind of row: how far the log was dispatched
        if name.topic != formats.CHECKPOINT_TOPIC:
            queue = QueueId(name.topic.decode("utf-8", "surrogateescape"), name.queue_id)
            rows = found.last if name.bound == MAX else found.first
            rows[queue] = bound.queue_offset, bound.physical_offset
    return found


def _check_first(context: VerifyContext, queue: QueueId, summary: QueueSummary, bound: tuple[int, int] | None) -> None:
    """Check that no message lies before the first offset in the database.

    For queues that are in files, too, brokers set it when they start (spec 2.10).
    """
    in_files = queues_of(context).counts_in_files(queue)
    if bound is not None and bound[0] > summary.min_offset and not in_files:
        hidden = bound[0] - summary.min_offset
        text = f"the first offset stored is {bound[0]}, but units exist from {summary.min_offset} on"
        _add_bound(context, queue, f"{text}: no consumer gets {counted(hidden, 'message')}", hidden)


def _compare_units(context: VerifyContext, queue: QueueId, path: str, in_database: ConsumeQueue) -> None:
    """Compare units of a queue in files with the database, which may lack some: brokers begin late (spec 2.10)."""
    opened = ConsumeQueue(queue.topic, queue.queue_id, MappedFileQueue.open(path))
    other, summary = QueueReader(queue, path, in_database), in_database.summary()
    for first, units in QueueReader(queue, path, opened).windows():
        offsets = first + np.flatnonzero(is_used(units))
        mine, stored = units[offsets - first], other.lookup(offsets)
        same = (mine["physical_offset"] == stored["physical_offset"]) & (mine["size"] == stored["size"])
        # in files the unit of a tombstone has the tags code of the former message, and any unit may have the
        # address of its tags code in consumequeue_ext instead
        comparable = (stored["tags_code"] != 0) & (mine["tags_code"] > EXT_ADDRESS_MAX)
        same &= (mine["tags_code"] == stored["tags_code"]) | ~comparable
        differs = is_used(stored) & ~same
        first_record = ~is_used(stored) & (mine["physical_offset"] == 0)
        if (left_out := first_record & (offsets < summary.min_offset)).any():
            text = f"{queue} unit {offsets[left_out][0]} {LEFT_OUT}; the queue in files has it"
            place = context.store.layout.queue_database or ""
            context.findings.add("I-070", place, text, severity=Severity.WARNING, **queue._asdict())
        lacks = ~is_used(stored) & (offsets >= summary.min_offset) & (offsets < summary.max_offset)
        for wrong, text in (
            (differs, "differs from the unit in the database"),
            (lacks, "is missing in the database, which has later ones"),
        ):
            if wrong.any():
                at = int(offsets[wrong][0])
                _add_bound(context, queue, f"unit {at} in {path} {text}", int(wrong.sum()))
