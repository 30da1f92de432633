"""Checks of group H: compaction (docs/invariants.md, I-160 … I-167), and files of brokers with a controller.

`CompactedQueue` has one queue of a compaction topic as columns: queue units and log records (spec 06, 6.1).

Epoch file and broker identity (I-170, I-171; spec 06, 6.2 and 6.3) are checked wherever they exist: nothing in a store
says whether its broker still has a controller.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...formats import message_properties as names
from ...formats.broker_identity import TEMPORARY
from ...formats.config import BACKUP
from ...formats.derive.ragged import Flags, Ints
from ...formats.epoch_file import EPOCHS, HEADER, LINE_END
from ...formats.hashing import crc31, utf8
from ...formats.hashing_columns import java_hash_column
from ...formats.position_checkpoint import FILE as POSITION_CHECKPOINT
from ...formats.property_columns import PropertyItems
from ...formats.sparse_consume_queue import END, UNIT_BYTES
from ..broker.snapshot import QueueId
from ..columns import rows_of
from ..counted import counted
from ..disk.file_queue import MappedFile, MappedFileQueue
from ..disk.layout import queue_directories
from ..findings.catalogue import Severity
from ..findings.findings import Details
from ..log.commit_log import Batch, CommitLog, ExtentKind
from ..log.message import Mark
from ..queues.batches import SparseRange, sparse_units
from ..queues.units import Units, is_valid
from ..settings.read import EPOCH_FILE, ConfigFile, parse_epochs, read_content, read_epochs, read_if_there
from .context import VerifyContext, of_record
from .queue_state import queue_bounds
from .register import after, before

_NO_KEYS = -1
_NAMED = ("physical_offset", "size", "msg_base_offset", "store_time")
"""Fields of a unit that `CompactedUnits` has."""


class CompactedRecords(NamedTuple):
    """n records of a compaction log. keys: hash of KEYS, _NO_KEYS without KEYS. Flags, 0 or 1: torn, the properties
    contain a NUL byte; foreign, the record names another topic or queue; wrong_body, the body does not match its CRC.
    """

    position: Ints
    physical_offset: Ints
    size: Ints
    queue_offset: Ints
    store_timestamp: Ints
    keys: Ints
    torn: Ints
    foreign: Ints
    wrong_body: Ints


class CompactedUnits(NamedTuple):
    """n units that name a record. place: byte position of the unit in the queue, the start of its file included."""

    place: Ints
    physical_offset: Ints
    size: Ints
    base: Ints
    store_time: Ints


class CompactedQueue:
    """The files of one compacted queue; each part is read when it is first used."""

    def __init__(self, context: VerifyContext, topic: str, queue_id: int) -> None:
        layout = context.store.layout
        self.topic, self.queue_id, self.name = topic, queue_id, QueueId(topic, queue_id)
        self.queue_path = layout.compaction_queues / topic / str(queue_id)
        self.log_path = layout.compaction_log / topic / str(queue_id)
        self._layout = layout
        self._quick = context.scope.quick
        self.blank_ends: set[int] = set()
        self.closed: set[int] = set()
        self.odd_units: list[SparseRange] = []

    @cached_property
    def queue_files(self) -> list[MappedFile]:
        with MappedFileQueue.open(self.queue_path) as files:
            return list(files.files)

    @cached_property
    def log_files(self) -> list[MappedFile]:
        return list(self.log.queue.files)

    @cached_property
    def log(self) -> CommitLog:
        from ..search.queue_search import open_log  # only needed with compacted topics

        return open_log(self._layout, self.topic, self.queue_id)

    def before_gap(self, file: MappedFile) -> bool:
        """Return whether the file's log file is the last that compaction wrote: no log file begins where that ends."""
        log = next((one for one in self.log_files if one.start == file.start), None)
        return log is not None and all(one.start != log.end for one in self.log_files)

    @cached_property
    def records(self) -> CompactedRecords:
        """All records in order of position, without embedded ones. Memory: 72 bytes each. Raise Unreadable."""
        parts = [np.zeros((len(CompactedRecords._fields), 0), np.int64)]
        with self.log.queue:
            for item in self.log.scan(crc=not self._quick, reuse=True):
                if isinstance(item, Batch):
                    if item.mark is not Mark.EMBEDDED:
                        parts.append(self._columns(item))
                elif item.kind is ExtentKind.BLANK:
                    self.blank_ends.add(item.end)
        found = np.concatenate(parts, axis=1)
        return CompactedRecords(*found[:, np.argsort(found[0], kind="stable")])

    def _columns(self, batch: Batch) -> Ints:
        """Return the rows of `CompactedRecords` for a batch."""
        columns, no_body = batch.columns, np.zeros(len(batch), np.bool_)
        items = PropertyItems(columns.ragged("properties"))
        keys = items.find(names.KEYS)
        hashes = java_hash_column(keys).view(np.uint32).astype(np.int64)
        hashes = np.where(keys.length > 0, hashes, _NO_KEYS)
        stored = ("physical_offset", "total_size", "queue_offset", "store_timestamp")
        numbers = (columns.ints(name).astype(np.int64) for name in stored)
        foreign = ~columns.ragged("topic").equals(utf8(self.topic))
        foreign |= columns.ints("queue_id") != self.queue_id
        wrong = no_body if self._quick or batch.body_crc_ok is None else ~batch.body_crc_ok
        flags = (flag.astype(np.int64) for flag in (items.has_lost_items(), foreign, wrong))
        return np.stack([batch.position, *numbers, hashes, *flags])

    @cached_property
    def units(self) -> CompactedUnits:
        """All units that name a record. Memory: 40 bytes each. Raise Unreadable."""
        parts = [np.zeros((5, 0), np.int64)]
        with MappedFileQueue.open(self.queue_path) as files:
            for part in sparse_units(files):
                if isinstance(part, SparseRange):
                    self.odd_units.append(part)
                    continue
                valid = is_valid(part.units)
                ends = _is_end(part.units)
                self.closed.update(part.position[ends].tolist())
                for place in part.position[~valid & ~ends].tolist():
                    self.odd_units.append(SparseRange(place, UNIT_BYTES, "the unit is not of a message"))
                columns = (part.units[name][valid].astype(np.int64) for name in _NAMED)
                parts.append(np.stack([part.position[valid], *columns]))
        return CompactedUnits(*np.concatenate(parts, axis=1))


def _is_end(units: Units) -> Flags:
    names_ = ("physical_offset", "size", "compacted_offset")
    found: Flags = np.logical_and.reduce([units[name] == END[name] for name in names_])
    return found


def compacted_queues(context: VerifyContext) -> list[CompactedQueue]:
    """Return the queues that either compaction directory has, limited to the topic and queue of the scope."""

    def make() -> list[CompactedQueue]:
        layout = context.store.layout
        both = (*queue_directories(layout.compaction_queues), *queue_directories(layout.compaction_log))
        wanted = {(queue.topic, queue.queue_id) for queue in both if context.scope.wants(queue)}
        return [CompactedQueue(context, topic, queue_id) for topic, queue_id in sorted(wanted)]

    return context.kept("compacted queues", make)


def leftovers(context: VerifyContext) -> Iterator[Path]:
    """Yield files and directories that a compaction or a copy from the master left in the directories of the queues."""
    for queue in compacted_queues(context):
        for directory in (queue.log_path, queue.queue_path):
            for path in sorted(directory.iterdir()) if directory.is_dir() else ():
                if path.suffix == ".delete" or path.name in ("compacting", "replicating"):
                    yield path


_BUSY = "compaction logs against their queues: a broker is writing"
FEWEST_QUEUE_FILES = 5
"""The least length of a log file, in lengths of its queue file."""


@before("I-160")
def files_come_in_pairs(context: VerifyContext) -> None:
    for queue in _queues_at_rest(context):
        of_log = {file.start: file.path for file in queue.log_files}
        of_queue = {file.start: file.path for file in queue.queue_files}
        for start in sorted(of_log.keys() ^ of_queue.keys()):
            path = of_log.get(start) or of_queue[start]
            other = "queue" if start in of_log else "log"
            _report(context, "I-160", queue, path, f"its file of the compaction {other} is missing")


@before("I-161")
def files_have_sizes_that_fit(context: VerifyContext) -> None:
    wanted = context.store.config.get_int("compactionMappedFileSize")
    for queue in compacted_queues(context):
        sizes = {file.start: file.size for file in queue.queue_files}
        for file in queue.log_files:
            unit = sizes.get(file.start, 0)
            if not unit:
                continue
            if wanted is None:
                can_merge = file.size % unit == 0 and file.size >= FEWEST_QUEUE_FILES * unit
            else:
                can_merge = file.size == log_bytes(wanted, unit)
            if not can_merge or unit % UNIT_BYTES:
                text = f"{counted(file.size, 'byte')}; its queue file has {unit}"
                _report(context, "I-161", queue, file.path, text)


def log_bytes(wanted: int, queue_bytes: int) -> int:
    """Return the length of a log file. wanted: compactionMappedFileSize. queue_bytes: length of its queue file."""
    times, rest = divmod(wanted, queue_bytes)
    if times < FEWEST_QUEUE_FILES:
        return FEWEST_QUEUE_FILES * queue_bytes
    down = 0 < rest < queue_bytes / 2
    return (times if down else times + 1) * queue_bytes


@before("I-162")
def records_are_those_of_the_queue(context: VerifyContext) -> None:
    for queue in compacted_queues(context):
        records, own = queue.records, queue.records.physical_offset
        _report_records(context, queue, "I-162", own != records.position, "it names another position:", own)
        text = f"its topic or queue is not {queue.topic}, queue {queue.queue_id}"
        _report_records(context, queue, "I-162", records.foreign > 0, text)
        _report_records(context, queue, "I-023", records.wrong_body > 0, "the body does not match its CRC")
        text = "a NUL byte in the properties: they are torn, keys and tags are lost"
        _report_records(context, queue, "I-055", records.torn > 0, text)


def _report_records(
    context: VerifyContext, queue: CompactedQueue, code: str, wrong: Flags, text: str, value: Ints | None = None
) -> None:
    """Report the `wrong` records of a compaction log. value: numbers to add to the text, one for each record."""
    if context.live:
        wrong[-1:] = False  # the broker may be writing it
    begins, message = queue.records.position, of_record(queue.records.position, text, value)
    more = {**queue.name._asdict(), "repair": "compaction", "severity": Severity.ERROR}
    context.file_rows(code, queue.log_files, wrong, begins, begins + queue.records.size, message, **more)


@before("I-163")
def units_name_their_records(context: VerifyContext) -> None:
    for queue in _queues_at_rest(context):
        units, records = queue.units, queue.records
        row, known = rows_of(records.position, units.physical_offset)
        same = known.copy()
        if len(records.position):
            same &= records.size[row] == units.size
            same &= records.queue_offset[row] == units.base
            same &= records.store_timestamp[row] == units.store_time
        ordered = np.append(True, np.diff(units.base) > 0)[: len(units.base)]
        _report_units(context, queue, ~(same & ordered))
        for odd in queue.odd_units:
            file = next(f for f in queue.queue_files if f.start <= odd.position < f.end)
            place = Details(offset=odd.position - file.start, length=UNIT_BYTES)
            _report(context, "I-163", queue, file.path, odd.reason, **place)
        lost = ~rows_of(np.sort(units.physical_offset), records.position)[1]
        there = {file.start for file in queue.queue_files}
        for file in queue.log_files:
            if file.start not in there:  # I-160
                lost &= (records.position < file.start) | (records.position >= file.end)
        if lost.any():
            first = int(records.position[lost][0])
            text = f"no unit names the record at {first}"
            more = Details(unclean=True, severity=Severity.WARNING) if context.crashed else Details()
            _report(context, "I-163", queue, queue.queue_path, text, count=int(lost.sum()), **more)


def _report_units(context: VerifyContext, queue: CompactedQueue, wrong: Flags) -> None:
    units = queue.units

    def message(row: int) -> str:
        place = f"{counted(int(units.size[row]), 'byte')} at {units.physical_offset[row]}"
        return f"the unit of queue offset {units.base[row]} names {place}, which is another message"

    ends, of_queue = units.place + UNIT_BYTES, queue.name._asdict()
    context.file_rows("I-163", queue.queue_files, wrong, units.place, ends, message, **of_queue)


@before("I-164")
def full_files_are_closed(context: VerifyContext) -> None:
    for queue in _queues_at_rest(context):
        units, records = queue.units, queue.records
        if not len(units.place) and not len(records.position):
            continue
        for file in queue.queue_files[:-1]:
            closed = any(file.start <= place < file.end for place in queue.closed)
            if not closed and not queue.before_gap(file):
                _report(context, "I-164", queue, file.path, "it has no end unit, but more files follow")
        for file in queue.log_files[:-1]:
            if file.end not in queue.blank_ends and not queue.before_gap(file):
                _report(context, "I-164", queue, file.path, "it has no BLANK, but more files follow")


@after("I-165")
def compaction_is_not_ahead(context: VerifyContext) -> None:
    file, reached = _positions(context)
    if file is None:
        return
    if file.problem is not None:
        text = f"cannot be read: {file.problem.reason}"
        context.findings.add("I-165", file.path, text, offset=file.problem.position)
    for queue, offset in reached:
        if context.scope.topic not in (None, queue.topic) or not context.log.complete:
            continue
        bounds = queue_bounds(context, queue)
        end = bounds[1] if bounds is not None else 0
        if offset >= max(end, 1):
            text = f"compacted up to {offset}, the queue ends at {end}"
            context.queue_finding("I-165", queue, file.path, text)


def _positions(context: VerifyContext) -> tuple[ConfigFile | None, list[tuple[QueueId, int]]]:
    """Return position-checkpoint, None without it, and the queue offsets up to which it says queues are compacted."""
    path = context.store.layout.compaction_log.parent / POSITION_CHECKPOINT
    file = read_if_there(path, "position-checkpoint")
    rows = (row for row in (file.records() if file else ()) if row["type"] == "compaction_position")
    return file, [(QueueId(row["topic"], row["queue_id"]), row["offset"]) for row in rows]


@before("I-166")
def nothing_is_left_of_a_compaction(context: VerifyContext) -> None:
    if context.live:
        return
    for path in leftovers(context):
        fatal = path.suffix == ".delete"
        text = "the name is not a number: brokers do not load it" if fatal else "left over from a compaction"
        level = Severity.FATAL if fatal else None
        context.findings.add("I-166", path, text, severity=level)


@after("I-167")
def keys_are_there_once(context: VerifyContext) -> None:
    file, reached = _positions(context)
    upto = dict(reached)
    for queue in compacted_queues(context) if file is not None else ():
        records = queue.records
        done = records.queue_offset <= upto.get(queue.name, -1)
        keys = records.keys[done & (records.keys >= 0)]
        counts = np.unique(keys, return_counts=True)[1]
        if (extra := int((counts - 1).sum())) > 0:
            text = f"{counted(int((counts > 1).sum()), 'key is', 'keys are')} there more than once"
            _report(context, "I-167", queue, queue.log_path, text, count=extra)


def _queues_at_rest(context: VerifyContext) -> list[CompactedQueue]:
    """Return the queues; none while a broker may be writing, since log and queue are read one after the other."""
    queues = compacted_queues(context)
    if not context.live or not queues:
        return queues
    if _BUSY not in context.unread:
        context.unread.append(_BUSY)
    return []


def _report(context: VerifyContext, code: str, queue: CompactedQueue, path: str | Path, text: str, **more: Any) -> None:
    context.findings.add(code, path, text, **queue.name._asdict(), **more)


_IDENTITY = "broker-identity"
_IDENTITY_OPTIONS = {"cluster_name": "brokerClusterName", "broker_name": "brokerName"}
"""Fields of an identity, and the options that must have the same value."""


_COPY = "cp {path}.bak {path}"


@after("I-170")
def epochs_are_those_of_the_log(context: VerifyContext) -> None:
    """A .bak is one change of role older, so it seldom helps."""
    path = context.store.config.epoch_file(context.store.layout.root)
    file, taken = read_epochs(path)
    backup = read_if_there(path.with_name(path.name + BACKUP), EPOCH_FILE) if taken is file else taken
    broken = backup.problem if backup is not None else None
    if file is None and broken is not None:
        context.findings.add("I-170", path, f"missing, and its .bak cannot be read: {broken.reason}", repair="")
    elif file is None and backup is not None:
        told = "missing; its .bak, which a broker reads instead, may lack the newest epoch"
        context.findings.add("I-170", path, told, severity=Severity.WARNING, repair="")
    backup = backup if broken is None else None
    lacks = file is not None and backup is not None and _lacks_newest(context, file, backup)
    if file is not None and file.problem is not None:
        _report_broken_epochs(context, file, backup, lacks=lacks)
    if taken is not None and taken.problem is None:
        copied = taken is file and backup is not None and not lacks and not any(_odd_epochs(context, backup))
        for text in _odd_epochs(context, taken):
            context.findings.add("I-170", taken.path, text, repair=_COPY if copied else "")


def _report_broken_epochs(context: VerifyContext, file: ConfigFile, backup: ConfigFile | None, *, lacks: bool) -> None:
    """Report a file that cannot be read. backup: its .bak if that is whole. lacks: as `_lacks_newest` says."""
    assert file.problem is not None
    text, level, repair = f"cannot be read: {file.problem.reason}", None, _own_lines(context, file, backup)
    if backup is not None:
        if file.problem.gives_up:
            text += "; its .bak may lack the newest epoch" if lacks else ""
        else:  # the broker reads the .bak, as if the file were missing
            text += "; with its .bak a broker forgets the newest epoch" if lacks else "; its .bak is whole"
            level = None if lacks else Severity.WARNING
        if not repair and not lacks and not any(_odd_epochs(context, backup)):
            repair = _COPY
    context.findings.add("I-170", file.path, text, offset=file.problem.position, severity=level, repair=repair)


def _lacks_newest(context: VerifyContext, file: ConfigFile, backup: ConfigFile) -> bool:
    """Whether the .bak lacks an epoch with records in the log, as far as can be read of the file."""
    own, others = (one.value.get(EPOCHS, {}) for one in (file, backup))
    count = file.value.get(HEADER, {}).get("count", 0)
    if not own or (file.problem is not None and count > len(own)):
        return not own or bool(count > len(others))
    newest = max((int(epoch) for epoch, begin in own.items() if begin < context.log.end), default=-1)
    return newest > max(map(int, others), default=-1)


def _own_lines(context: VerifyContext, file: ConfigFile, backup: ConfigFile | None) -> str:
    """Return the command that gives a file the count and the CRC of its own epochs, "" if one is missing, or they do
    not fit the log, or its .bak.
    """
    own, header = file.value.get(EPOCHS, {}), file.value.get(HEADER, {})
    data = b"" if context.live or not own else read_content(file.path).data
    lines = data.split(LINE_END)
    crc = crc31(b"".join(line + LINE_END for line in data.splitlines()[2:]))
    lines[:2] = b"%d" % len(own), b"%d" % crc
    parsed = parse_epochs(LINE_END.join(lines))
    other = {} if backup is None else backup.value[EPOCHS]
    complete = len(own) == header.get("count") or crc == header.get("crc")
    agree = all(own.get(epoch, begin) == begin for epoch, begin in other.items())
    fits = not parsed.problem and not any(_odd_epochs(context, file._replace(note=parsed.note)))
    if not (complete and agree and fits):
        return ""
    return f"sed -i -e 1s/.*/{len(own)}/ -e 2s/.*/{crc}/ {{path}}"


def _odd_epochs(context: VerifyContext, file: ConfigFile) -> Iterator[str]:
    """Yield what is wrong with the epochs that a broker reads."""
    if file.note:
        yield file.note
        return
    log, end = context.store.log, context.log.end
    rows = [(r["epoch"], r["start_offset"]) for r in file.records() if "start_offset" in r]
    if context.log.complete and not context.live:
        behind = [epoch for epoch, start in rows if start > end]
        if behind:
            more = f" (and {counted(len(behind) - 1, 'epoch')} before it)" if behind[1:] else ""
            yield f"the last epoch begins at {rows[-1][1]}, the log ends at {end}{more}"
    for epoch, start in rows:
        # records in front of the log have expired, and a broker forgets their epochs
        if context.store.log_files.start < start < end and not log.begins_at(start):
            yield f"epoch {epoch} begins at {start}, but no record does: a slave cannot be cut there"


@before("I-171")
def the_identity_is_this_broker(context: VerifyContext) -> None:
    path = context.store.config.identity_file(context.store.layout.root)
    for place in (path, path.with_name(path.name + TEMPORARY)):
        file = read_if_there(place, _IDENTITY)
        if file is None:
            continue
        for text, position in _odd_identity(context, file):
            mend = _repair_of(place) if file.problem is not None else ""
            context.findings.add("I-171", place, text, offset=position, repair=mend)


def _odd_identity(context: VerifyContext, file: ConfigFile) -> Iterator[tuple[str, int | None]]:
    """Yield what is wrong with an identity, and its byte position, None for the whole file."""
    if file.problem is not None:
        yield file.problem.reason, file.problem.position
        return
    record: dict[str, Any] = next(iter(file.records()), {})
    for name, option in _IDENTITY_OPTIONS.items():
        configured = context.store.config.get(option)
        if configured is not None and record.get(name) not in (None, configured):
            text = f"{option} is {configured!r}, the {name.replace('_', ' ')} here {record[name]!r}"
            yield f"{text}: the broker does not register", None


def _repair_of(path: Path) -> str | None:
    """Return the repair of a finding: None, that of the catalogue, if the file has a .bak to copy; else ""."""
    return None if path.with_name(path.name + BACKUP).exists() else ""
