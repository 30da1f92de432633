"""Checks of entries of `config/` against the queues and against each other (I-142 … I-154), and of tiered segments.

With the POSIX provider a segment lies in `HASH_CLUSTER/PATH/KIND/` below tieredStoreFilePath (spec 05, 5.3). With other
providers segments are in an object storage: what is not on this machine is not checked.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from glob import escape
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...formats.consume_queue import UNIT_BYTES
from ...formats.consumer_offset import OFFSET_TABLES, steps_to_next
from ...formats.derive import dtype_of
from ...formats.lmq_consumer_offset import LMQ_OFFSET_TABLE
from ...formats.tiered_consume_queue import UNIT
from ...formats.topic_queue_mapping import LOGIC_OFFSET
from ..broker.snapshot import QueueId
from ..broker.system_topics import LMQ_PREFIX, SCHEDULE_TOPIC, SYSTEM_GROUPS, is_system_topic
from ..broker.topics import CLEANUP_POLICY, COMPACTED, LITE, LITE_EXPIRATION, MESSAGE_TYPE
from ..columns import rows_of
from ..counted import counted
from ..disk.file_queue import start_of
from ..disk.layout import queue_directories
from ..findings.catalogue import Severity
from ..findings.findings import Details
from ..log.batch import Batch, Extent, ExtentKind
from ..log.commit_log import CommitLog
from ..log.message import Mark
from ..settings.options import options_of
from ..settings.parse import CONFIG_VALUE
from ..settings.rocksdb import SECOND
from ..start.config import delay_progress
from ..start.config_load import DELAYS, TIERED, TOPICS, config_rules
from ..tiered.segments import MEMBERS, index_faults, is_of_tier, open_segments, tiered_roots
from .config_files import (
    ConfigTables,
    FileFault,
    TableEntry,
    config_start_of,
    config_tables,
    counted_by_file,
    not_served,
    used_topics,
)
from .context import VerifyContext
from .queue_state import queue_bounds
from .register import after, before

_CLAMPS_SINCE = "4.9"


@counted_by_file(after, "I-144")
def consumers_are_inside_their_queues(context: VerifyContext) -> Iterator[FileFault]:
    tables = config_tables(context)
    topics = tables.names("topic_config", "topic")
    for row in tables.entries("consumer_offset", context.scope.topic):
        if row.values.get("table") == LMQ_OFFSET_TABLE:
            continue
        queue = QueueId(row.values["topic"], row.values["queue_id"])
        if not context.scope.wants(queue):
            continue
        offset, group = row.values["offset"], row.values["group"]
        text, severity = _outside(context, queue, offset, steps_to_next(group), known=queue.topic in topics)
        if text:
            yield FileFault(row.path, f"{group!r} on {queue.topic}/{queue.queue_id}: {text}", severity)
    for row in tables.entries(CONFIG_VALUE):
        table, _, key = str(row.values.get("name", "")).partition(".")
        if table in OFFSET_TABLES and row.values.get("problem") and not _is_of_delays(row):
            yield FileFault(row.path, f"{key!r} in {table} is not an offset of a topic, group and queue")


def _outside(
    context: VerifyContext, queue: QueueId, offset: int, steps: int, *, known: bool
) -> tuple[str, Severity | None]:
    """Return (what is wrong with a group's offset, severity). steps: to its next message. known: the topic exists."""
    if offset + steps < 0:
        return f"offset {offset}", None
    bounds = queue_bounds(context, queue)
    if bounds is None:
        sure = known and context.log.complete and context.log.start == 0 and offset + steps > 0
        return (f"offset {offset}, but the queue never had a message", None) if sure else ("", None)
    first, end = bounds
    if offset + steps > end and context.log.complete:
        last = f"the end of the queue, {end}" if not steps else f"the last record of the queue, {end - steps}"
        return f"offset {offset} is behind {last}", None
    if offset + steps < first:
        return f"offset {offset}, but the queue begins at {first}: messages expired", Severity.INFO
    return "", None


def _is_of_delays(row: TableEntry) -> bool:
    return str(row.values.get("file", "")).startswith(DELAYS)


@counted_by_file(before, "I-145")
def offsets_are_of_known_ones(context: VerifyContext) -> Iterator[FileFault]:
    tables = config_tables(context)
    topics = tables.names("topic_config", "topic")
    groups = tables.names("subscription_group", "group")
    for row in tables.entries("consumer_offset", context.scope.topic):
        topic, group = row.values["topic"], row.values["group"]
        if group.startswith(SYSTEM_GROUPS):
            continue
        if topics and topic not in topics and not topic.startswith(LMQ_PREFIX):
            yield FileFault(row.path, f"an offset of {group!r} on {topic!r}, but there is no such topic")
        elif groups and group not in groups and not group.startswith(LMQ_PREFIX):
            yield FileFault(row.path, f"an offset of {group!r} on {topic!r}, but there is no such group")


@counted_by_file(after, "I-146")
def delays_are_inside_their_queues(context: VerifyContext) -> Iterator[FileFault]:
    if context.scope.topic not in (None, SCHEDULE_TOPIC):
        return
    options = options_of(context.store.layout)
    option = options.delay_levels
    levels, given = len(option.value), option.is_given
    _levels_without_broker(context)
    skipped = {lost.delay_level: lost.before or 0 for lost in config_start_of(context).lost_delays if lost.skips}
    clamps = context.profile.version >= _CLAMPS_SINCE
    for row in config_tables(context).entries("delay_offset"):
        level, offset = row.values["delay_level"], row.values["offset"]
        if offset > skipped.get(level, offset):
            text = f"delay level {level}: offset {offset} is past message {skipped[level]}, which was not delivered:"
            yield FileFault(row.path, f"{text} it is due after the newest record of the log")
            continue
        bounds = queue_bounds(context, QueueId(SCHEDULE_TOPIC, level - 1))
        if not 1 <= level <= levels and bounds is None:
            text = f"delay level {level} is not one of 1 to {levels}"
            # where no message has expired, a level without a queue delivered nothing
            guess = level > levels and not given and (context.log.start > 0 or offset == 0)
            text += f"; {option.name} may have more (--set {option.name}=…)" if guess else ""
            yield FileFault(row.path, text, Severity.WARNING if guess else None)
            continue
        if bounds is None and context.log.start > 0:
            continue
        first, end = bounds or (0, 0)
        text = f"delay level {level}: offset {offset} is outside the queue, {first} to {end}"
        if offset < 0 or (offset > end and context.log.complete):
            moved = clamps and not options.lacks_level(level)  # a broker leaves levels alone that it does not have
            more = ": a start of 4.9 or later moves it to the end" if moved else ""
            yield FileFault(row.path, text + more, Severity.WARNING if clamps else None)
        elif offset < first:
            yield FileFault(row.path, text + ": expired", Severity.INFO)
    for row in filter(_is_of_delays, config_tables(context).entries(CONFIG_VALUE)):
        table, _, level = str(row.values.get("name", "")).partition(".")
        if row.values.get("problem") and table in OFFSET_TABLES:
            yield FileFault(row.path, f"delay level {level}: {row.values['value']!r} is not a whole number")


def _levels_without_broker(context: VerifyContext) -> None:
    """Find levels with messages that wait, but that the configured messageDelayLevel does not have any more.

    One finding a queue, with the number of its messages: `verdict.but_unserved` adds them up.
    """
    options, store = options_of(context.store.layout), context.store
    if not options.delay_levels.is_given or store.queues_problem:
        return
    reached = delay_progress(store.layout, config_rules(context.profile)) or {}
    for topic, queue_id, path in store.queues.of_topic(SCHEDULE_TOPIC):
        level, (first, end) = queue_id + 1, queue_bounds(context, QueueId(topic, queue_id)) or (0, 0)
        waiting = end - max(first, reached.get(level, 0))
        if waiting > 0 and context.scope.wants(QueueId(topic, queue_id)) and options.lacks_level(level):
            text = f"{counted(waiting, 'message waits', 'messages wait', form=',')} in delay level {level}"
            text += f", but {options.delay_levels.name} ends at level {len(options.delay_levels.value)}"
            more = f"no broker delivers messages of level {level} until the option has {counted(level, 'level')} again"
            about = Details(count=waiting, severity=Severity.WARNING, topic=topic, queue_id=queue_id, repair="")
            context.findings.add("I-146", path, f"{text}: {more}", **about)


@counted_by_file(after, "I-152")
def lmq_consumers_are_inside_their_queues(context: VerifyContext) -> Iterator[FileFault]:
    for row in config_tables(context).entries("consumer_offset", context.scope.topic):
        if row.values.get("table") != LMQ_OFFSET_TABLE:
            continue
        topic, group, offset = row.values["topic"], row.values["group"], row.values["offset"]
        bounds, lmq = queue_bounds(context, QueueId(topic, 0)), topic.startswith(LMQ_PREFIX)
        end = 0 if bounds is None else bounds[1]
        if not group.startswith(LMQ_PREFIX):
            text = f"an offset of {group!r} on {topic!r}: brokers look in offsetTable, the group has no {LMQ_PREFIX}"
            yield FileFault(row.path, text, Severity.INFO)
        elif not lmq and bounds is None:
            yield FileFault(row.path, f"{topic!r} is not an LMQ: its name has no {LMQ_PREFIX}")
        elif offset < 0 or (offset > end and context.log.complete and (bounds or not context.log.start)):
            yield FileFault(row.path, f"{topic}: offset {offset} is behind the end of the queue, {end}")
        elif not lmq:
            text = f"{topic!r} is not an LMQ, but a group for LMQs consumes it"
            yield FileFault(row.path, text, Severity.INFO)


PERM_MOST = 15
_ATTRIBUTES: dict[str, frozenset[str] | None] = {
    "queue.type": frozenset({"SimpleCQ", "BatchCQ", "RocksDBCQ"}),
    CLEANUP_POLICY: frozenset({"DELETE", COMPACTED}),
    MESSAGE_TYPE: frozenset({"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "PRIORITY", LITE}),
    "reserve.time": None,
    LITE_EXPIRATION: None,
}
"""Attributes of a topic and their possible values; None: any number."""
MODES = frozenset({"PULL", "POP"})


@counted_by_file(before, "I-142")
def topics_are_possible(context: VerifyContext) -> Iterator[FileFault]:
    for row in config_tables(context).entries("topic_config", context.scope.topic):
        if text := _wrong_topic(row.values):
            yield FileFault(row.path, text)


def _wrong_topic(entry: dict[str, Any]) -> str:
    topic = entry["topic"]
    if (name := entry.get("topic_name", topic)) != topic:
        return f"topic {topic!r} is called {name!r} in its entry"
    if not 0 <= entry.get("perm", 0) <= PERM_MOST:
        return f"topic {topic!r}: perm {entry['perm']} is not of 0 to {PERM_MOST}"
    for column in ("read_queue_nums", "write_queue_nums"):
        if entry.get(column, 1) <= 0:
            return f"topic {topic!r}: {column} is {entry[column]}"
    return ""


@counted_by_file(before, "I-143")
def groups_are_possible(context: VerifyContext) -> Iterator[FileFault]:
    for row in config_tables(context).entries("subscription_group"):
        group = row.values["group"]
        if (name := row.values.get("group_name", group)) != group:
            yield FileFault(row.path, f"group {group!r} is called {name!r} in its entry")


@counted_by_file(after, "I-148")
def attributes_are_known(context: VerifyContext) -> Iterator[FileFault]:
    tables = config_tables(context)
    compacted = set()
    for row in tables.entries("topic_config", context.scope.topic):
        attributes = row.values.get("attributes", {})
        if attributes.get(CLEANUP_POLICY) == COMPACTED:
            compacted.add(row.values["topic"])
        for text in _odd_attributes(row.values["topic"], attributes):
            yield FileFault(row.path, text)
    yield from _compare_compaction(context, tables, compacted)


def _odd_attributes(topic: str, attributes: dict[str, Any]) -> Iterator[str]:
    for name, value in attributes.items():
        if name not in _ATTRIBUTES:
            yield f"topic {topic!r}: no broker knows the attribute {name!r}"
            continue
        known = _ATTRIBUTES[name]
        number = isinstance(value, int) or str(value).removeprefix("-").isdecimal()
        if (value not in known) if known is not None else not number:
            yield f"topic {topic!r}: {name} is {value!r}"


def _compare_compaction(context: VerifyContext, tables: ConfigTables, compacted: set[str]) -> Iterator[FileFault]:
    layout = context.store.layout
    there = {queue.topic for queue in queue_directories(layout.compaction_queues)}
    if not tables.rows["topic_config"]:
        return
    for topic in sorted(there - compacted):
        if context.scope.topic in (None, topic):
            text = f"topic {topic!r} has compaction files, but its {CLEANUP_POLICY} is not {COMPACTED}"
            yield FileFault(layout.compaction_queues / topic, text)
    in_log = {queue.topic for queue in context.log.next_offset}
    enabled = context.store.config.get_bool("enableCompaction", default=True)
    for topic in sorted((compacted & in_log) - there) if enabled else ():
        text = f"compaction topic {topic!r} has messages, but no compaction files: no consumer gets the messages"
        yield FileFault(layout.compaction_queues, text, repair="compaction")


@counted_by_file(before, "I-149")
def filters_name_themselves(context: VerifyContext) -> Iterator[FileFault]:
    for row in config_tables(context).entries("consumer_filter", context.scope.topic):
        topic, group = row.values["topic"], row.values["group"]
        inner = row.values.get("more", {}).get("topic", topic)
        own = row.values.get("consumer_group", group)
        if (inner, own) != (topic, group):
            text = f"the filter of {topic!r} and {group!r} says that it is of {inner!r} and {own!r}"
            yield FileFault(row.path, text)


@counted_by_file(after, "I-150")
def queues_have_a_topic(context: VerifyContext) -> Iterator[FileFault]:
    tables = config_tables(context)
    database = _database_of_topics(context)
    known = tables.names("topic_config", "topic")
    if database is not None and database.name == SECOND:  # a broker ignores files beside it
        known = {row.values["topic"] for row in tables.entries("topic_config") if row.path == os.fspath(database)}
    elif TOPICS in dict(config_start_of(context).cut_databases):
        database = None  # a repair completes it
    whole = context.scope.topic is None and context.log.complete
    bare = whole and config_start_of(context).bare
    layout = context.store.layout
    # a store that never had a configuration gets none; made-up entries may come before those of a master
    repair = "" if bare or database or layout.copies_config else None
    unknown = {queue.topic for queue in context.store.queues} - known
    if unknown:
        from ..inspect.own_topics import has_own_records  # only needed then
    used = frozenset[str]()
    if whole and not bare and database is None and not context.live:
        unserved = config_start_of(context).unserved
        used = used_topics(context.store, context.profile, tables, unserved, context.log.last)
    if used:
        yield FileFault(layout.config / TOPICS, not_served(context, used), Severity.ERROR, "config")
    for topic in sorted(unknown - used):
        if is_system_topic(topic) or topic.startswith(LMQ_PREFIX):
            continue
        if context.scope.topic in (None, topic):
            text = f"topic {topic!r} has queues but no entry: a broker does not serve it"
            legal = context.profile.dispatch.any_queue and not has_own_records(context.store, topic)
            text += "; a 4.9 broker makes queues for any name in a message" if legal else ""
            text += f"; repair does not write config/{database.name}, use mqadmin updateTopic" if database else ""
            text += " before it has copied that of its master" if layout.copies_config and not legal else ""
            path = layout.consume_queue
            yield FileFault(path, text, Severity.INFO if legal else None, repair)


def _database_of_topics(context: VerifyContext) -> Path | None:
    """Return the RocksDB from which a broker of the store's version reads its topics, None if it reads a file."""
    path = config_tables(context).force.databases.get(TOPICS)
    return path if path is not None and TOPICS in config_start_of(context).databases else None


@counted_by_file(before, "I-151")
def static_topics_are_ordered(context: VerifyContext) -> Iterator[FileFault]:
    own = context.store.config.broker_name
    for row in config_tables(context).entries("topic_queue_mapping", context.scope.topic):
        for text in _odd_mapping(row, own):
            yield FileFault(row.path, text)


def _odd_mapping(row: TableEntry, own: str | None) -> Iterator[str]:
    topic, broker = row.values["topic"], row.values.get("bname")
    if own is not None and broker not in (None, own):
        yield f"static topic {topic!r} is of the broker {broker!r}, this one is {own!r}"
    for queue, items in row.values.get("hosted_queues", {}).items():
        parts = [part for part in items or [] if isinstance(part, dict)]
        for one, later in pairwise(parts):
            for name in ("gen", LOGIC_OFFSET):
                before_, then = one.get(name), later.get(name)
                ordered = isinstance(before_, int) and isinstance(then, int) and before_ <= then
                if not ordered and not (name == LOGIC_OFFSET and then == -1):
                    yield f"static topic {topic!r}, queue {queue}: {name} {then} behind {before_}"


@counted_by_file(before, "I-154")
def modes_are_known(context: VerifyContext) -> Iterator[FileFault]:
    for row in config_tables(context).entries("message_request_mode", context.scope.topic):
        mode = row.values.get("mode")
        if mode not in MODES:
            topic, group = row.values["topic"], row.values["group"]
            yield FileFault(row.path, f"{group!r} on {topic!r}: mode {mode!r} is neither PULL nor POP")


_NEW, _SEALED, _DELETED = 0, 1, 2
_QUEUE, _LOG, _INDEX = "CONSUME_QUEUE", "COMMIT_LOG", "INDEX"


class FlatFile(NamedTuple):
    """One tiered file: what the metadata says of it, and the segment files that are there.

    source: the metadata file. path: BROKER/TOPIC/QUEUE. segments: metadata rows by position, without deleted ones;
    none for files on this machine that the metadata does not have. deleted: their base offsets. there: length of each
    segment file by base offset, None without a directory on this machine.
    """

    source: str
    path: str
    kind: str
    directory: Path
    segments: list[dict[str, Any]]
    deleted: frozenset[int]
    there: dict[int, int] | None

    @property
    def queue(self) -> QueueId | None:
        """The queue that the path names, None if it names none."""
        _, _, rest = self.path.partition("/")
        topic, _, number = rest.rpartition("/")
        return QueueId(topic, int(number)) if topic and start_of(number) is not None else None


def flat_files(context: VerifyContext) -> list[FlatFile]:
    """Return the tiered files of the metadata and of this machine, read once per run. Raise Unreadable."""
    return context.kept("tiered files", lambda: list(_flat_files(context)))


def _flat_files(context: VerifyContext) -> Iterator[FlatFile]:
    rows: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in config_tables(context).entries("tiered_segment"):
        kind = MEMBERS.get(str(row.values.get("table")))
        if kind is not None:
            rows[row.path, row.values["path"], kind].append(row.values)
    roots = tiered_roots(context.store.layout.root, context.store.config)
    for (source, path, kind), found in rows.items():
        place = f"*_*/{escape(path)}/{kind}"
        directories = sorted(one for root in roots for one in root.glob(place) if one.is_dir())
        there = None
        for directory in directories:
            there = (there or {}) | _segments_in(directory)
        found.sort(key=lambda segment: int(segment["base_offset"]))
        used = [segment for segment in found if segment.get("status") != _DELETED]
        deleted = {s["base_offset"] for s in found if s.get("status") == _DELETED}
        directory = directories[0] if directories else Path(path) / kind
        yield FlatFile(source, path, kind, directory, used, frozenset(deleted), there)
    known = {(path, kind) for _, path, kind in rows}
    own = context.store.config.broker_name or ("*" if roots[1:] else "")  # brokers may share a configured directory
    owners = {escape(path.partition("/")[0]) for path, _ in known} or {own if own == "*" else escape(own)}
    places = [f"*_*/{owner}/*/*/{kind}" for owner in sorted(owners - {""}) for kind in (_LOG, _QUEUE)]
    for folder in (one for root in roots for place in places for one in sorted(root.glob(place))):
        path = "/".join(folder.parts[-4:-1])
        if (path, folder.name) not in known and is_of_tier(folder.parts[-5]) and (there := _segments_in(folder)):
            source = os.fspath(context.store.layout.config / TIERED)
            yield FlatFile(source, path, folder.name, folder, [], frozenset(), there)


def _segments_in(directory: Path) -> dict[int, int]:
    """Return the length of each segment file by its base offset."""
    with open_segments(directory) as files:
        return {file.start: file.size for file in files.files}


@counted_by_file(before, "I-153")
def tiered_segments_are_contiguous(context: VerifyContext) -> Iterator[FileFault]:
    """5.1 seals a segment when the next one begins; the classes of 5.3 to 5.5 seal none."""
    for file in flat_files(context):
        for one, later in pairwise(file.segments):
            end, begin = one["base_offset"] + one.get("size", 0), later["base_offset"]
            if end != begin:
                yield FileFault(file.source, f"{file.path}: a segment ends at {end}, the next begins at {begin}")
            elif (one.get("status"), later.get("status")) == (_NEW, _SEALED):
                text = f"{file.path}: the segment at {one['base_offset']} is open, the next sealed"
                yield FileFault(file.source, text)


@counted_by_file(before, "I-157")
def tiered_segments_are_there(context: VerifyContext) -> Iterator[FileFault]:
    files = flat_files(context)
    away = sum(len(file.segments) for file in files if file.there is None)
    local = any(file.there is not None for file in files)
    if context.live and local:
        context.unread.append("tiered segments: a broker is writing")
        return
    if not local:
        if away:
            many = counted(away, "tiered segment")
            context.unread.append(f"{many}: not on this machine (--set tieredStoreFilePath=DIR)")
        return
    if not any(file.segments or file.deleted for file in files):
        count = counted(sum(len(file.there or ()) for file in files), "tiered segment is", "tiered segments are")
        text = f"{count} there, but {TIERED} has none of them: a broker with a tiered store writes over them"
        yield FileFault(files[0].directory, text, Severity.FATAL)
        return
    yield from (FileFault(one.directory, f"{one.path}: {text}") for one in files for text in _odd_segments(one))


def _odd_segments(file: FlatFile) -> Iterator[str]:
    """Yield what is wrong with the segments of one file. An unsealed last one may be longer than its row says."""
    there = file.there or {}
    for number, segment in enumerate(file.segments):
        base, size = segment["base_offset"], segment.get("size", 0)
        grows = number == len(file.segments) - 1 and segment.get("status") != _SEALED
        found = there.get(base)
        if found is None and size:
            yield f"the segment at {base}, {counted(size, 'byte')}, is not there"
        elif found is not None and (found < size or (found > size and not grows)):
            yield f"the segment at {base} has {counted(found, 'byte')}, the metadata says {size}"
    known = {segment["base_offset"] for segment in file.segments} | file.deleted
    for base in sorted(there.keys() - known):
        yield f"the segment at {base} is not in the metadata: a broker does not see it"


@counted_by_file(after, "I-159")
def tiered_segments_can_be_read(context: VerifyContext) -> Iterator[FileFault]:
    if context.live or context.scope.quick:
        return  # the verdict says so: a broker appends to segments, or a quick run does not check CRCs
    queues = defaultdict[str, dict[str, FlatFile]](dict)
    for file in flat_files(context):
        if file.there and file.queue is not None and context.scope.wants(file.queue):
            queues[file.path][file.kind] = file
    for path, files in sorted(queues.items()):
        if reason := context.stopped():
            context.unread.append(f"tiered segments from {path} on: {reason}")
            return
        log = _RecordsOfTier()
        if _LOG in files:
            yield from log.read(files[_LOG])
        if len(files) == len((_LOG, _QUEUE)):
            yield from log.compare(files[_QUEUE])
    if context.scope.topic is None:
        store, unread = context.store, context.unread
        sealed = [(files[_INDEX].directory, _end_of(files[_INDEX])) for files in queues.values() if _INDEX in files]
        for place, text in index_faults(sealed, store.layout.root, store.config, unread, context.stopped):
            yield FileFault(place, text, Severity.WARNING)  # consumers are served without the index


def _end_of(file: FlatFile) -> int:
    """Return where the file ends by its metadata: after a start a broker appends there, whatever follows."""
    last = file.segments[-1] if file.segments else {}
    end: int = last.get("base_offset", 0) + last.get("size", 0)
    return end


class _RecordsOfTier:
    """Positions and sizes of the records of one tiered log. Memory: 16 bytes each."""

    def __init__(self) -> None:
        self._start, self._position, self._size = 0, np.empty(0, np.int64), np.empty(0, np.int64)

    def read(self, file: FlatFile) -> Iterator[FileFault]:
        """Read all records, and yield a fault for each range that is not a record. Raise Unreadable."""
        parts, end = [], _end_of(file)
        with open_segments(file.directory) as files:
            log = CommitLog(files)
            self._start = log.min_offset
            for item in log.scan(reuse=True):
                place = files.file_at(int(item.position if isinstance(item, Extent) else item.position[0]))
                path = os.fspath(file.directory) if place is None else place.path
                if isinstance(item, Batch) and item.mark <= Mark.AFTER_DAMAGE:
                    size = item.columns.ints("total_size").astype(np.int64)
                    parts.append((item.position.copy(), size))
                    ok = item.checked().body_crc_ok
                    assert ok is not None
                    for position in item.position[~ok].tolist():
                        yield FileFault(path, f"the body of the record at {position} does not match its CRC")
                elif isinstance(item, Batch):
                    yield FileFault(path, f"the record at {item.position[0]} belongs to another log")
                elif item.kind not in _NO_FAULTS and item.position < end:
                    yield FileFault(path, f"{counted(item.size, 'byte')} at {item.position} are not a record")
        if parts:
            self._position, self._size = (np.concatenate(column) for column in zip(*parts, strict=True))

    def compare(self, file: FlatFile) -> Iterator[FileFault]:
        """Yield each unit that names no record, or one in front of that of the unit before. Raise Unreadable."""
        last = -1
        with open_segments(file.directory) as files:
            for one in files.files:
                for begin, data in files.windows(one, 0, one.size, _WINDOW_BYTES, UNIT_BYTES):
                    units = np.frombuffer(data, dtype_of(UNIT), len(data) // UNIT_BYTES)
                    position = units["physical_offset"].astype(np.int64)
                    rows, known = rows_of(self._position, position)
                    right = known & (units["size"] == self._size[rows]) if len(self._size) else known
                    expired = (position < self._start) & (units["size"] > 0)
                    named = np.append(last, np.where(right, position, -1))  # a wrong unit says nothing of the next one
                    back, last = right & (position <= named[:-1]), int(named[-1])
                    for number in np.flatnonzero(back | (~right & ~expired)).tolist():
                        offset = (one.start + begin) // UNIT_BYTES + number
                        if offset * UNIT_BYTES >= _end_of(file):
                            break
                        size = counted(int(units["size"][number]), "byte")
                        text = f"the unit at queue offset {offset} names {size} at {position[number]}"
                        why = "the one before names no earlier record" if back[number] else "there is no such record"
                        yield FileFault(one.path, f"{text}, but {why}")


_NO_FAULTS = (ExtentKind.BLANK, ExtentKind.MISSING)
"""Extents that are no fault here: BLANK is usual, MISSING is reported by I-157."""
_WINDOW_BYTES = 1 << 20


@counted_by_file(after, "I-158")
def nothing_is_between_tier_and_log(context: VerifyContext) -> Iterator[FileFault]:
    if not context.log.complete:
        return
    for file in flat_files(context):
        queue = file.queue
        if file.kind != _QUEUE or queue is None or not file.segments:
            continue
        if not context.scope.wants(queue):
            continue
        first, last = context.log.first_offset.get(queue), file.segments[-1]
        found = (file.there or {}).get(last["base_offset"])
        end = (last["base_offset"] + max(last.get("size", 0), found or 0)) // UNIT_BYTES
        if first is None or end >= first:
            continue
        text = (
            f"{queue.topic}/{queue.queue_id}: the tier ends at queue offset {end}, the log begins at "
            f"{first}: {counted(first - end, 'message')} in neither"
        )
        # while a segment is written its row in the metadata is older than the segment
        yield FileFault(file.source, text, Severity.WARNING if found is None else None)
