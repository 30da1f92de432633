"""Checks of group E: checkpoint and abort (docs/invariants.md, I-110 … I-118).

The checkpoint decides where the next start after a crash begins to read the log (spec 7.3).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ...formats.checkpoint import FIELDS, PAGE_BYTES
from ..broker.load_rules import load_files
from ..broker.snapshot import Snapshot
from ..counted import counted
from ..disk.checkpoint import Checkpoint
from ..disk.compressed import read_regular
from ..errors import Missing, NotFound, StoreError
from ..findings.catalogue import Severity
from ..findings.next_commands import RECOVER
from ..log.batch import Extent, ExtentKind
from ..start.log import Switches, start_file
from .context import VerifyContext
from .queue_state import may_have_none, queues_of
from .register import after

_INDEX_TIME = "index_msg_timestamp"
_TIMES = ("physic_msg_timestamp", "logics_msg_timestamp", _INDEX_TIME)
_FAR_BEHIND_MS = 60_000
"""Age that logics_msg_timestamp may have in a running 5.5 broker; I-115 reports more in a store at rest."""

_FIRST_FLUSH_MS = 11_000
"""A broker has flushed the whole log, and set physic_msg_timestamp, so long after its first message: it looks each half
second whether ten seconds are over.
"""


class _CheckpointFile(NamedTuple):
    """The checkpoint file: its bytes and the values in them."""

    path: Path
    data: bytes
    values: Checkpoint


def _checkpoint_file(context: VerifyContext) -> _CheckpointFile | None:
    """Return the checkpoint file, None if it is missing. It is read once per run."""

    def read() -> _CheckpointFile | None:
        path = context.store.layout.checkpoint
        if path.is_dir():
            return None
        try:
            data = read_regular(path, PAGE_BYTES + 1)
        except Missing:
            return None
        return _CheckpointFile(path, data, Checkpoint.from_bytes(data))

    return context.kept(_CheckpointFile, read)


@after("I-110")
def page(context: VerifyContext) -> None:
    found = _checkpoint_file(context)
    if found is None:
        path = context.store.layout.checkpoint
        if path.is_dir():
            text = "a directory, not a file: no broker starts"
            context.findings.add("I-110", path, text, severity=Severity.ERROR, repair=RECOVER)
        elif context.log.records:
            text = "the checkpoint is missing: a start after a crash would read the whole log"
            context.findings.add("I-110", path, text)
        return
    size = len(found.data)
    if size != PAGE_BYTES:
        more = "more than " if size > PAGE_BYTES else ""
        text = f"it has {more}{counted(min(size, PAGE_BYTES), 'byte')}, not {PAGE_BYTES}"
        context.findings.add("I-110", found.path, text)
    known = FIELDS.sizeof()
    if not context.profile.queues.has_flushed_position:
        known -= FIELDS.logics_physical_offset.sizeof()
    behind = found.data[known:]
    if behind.strip(b"\0"):
        first = known + len(behind) - len(behind.lstrip(b"\0"))
        text = f"bytes behind the fields that {context.profile.version} knows are not zero"
        context.findings.add("I-110", found.path, text, offset=first, length=1)
    dispatched = context.log.records and context.log.dispatched
    if dispatched and not context.live and not found.data.strip(b"\0"):
        text = "it has only zeros: it was wiped"
        young = context.log.start == 0 and (context.crashed or _is_short(context))
        if young:
            ended = "killed" if context.crashed else "stopped"
            text = f"it has only zeros: the broker was {ended} before its first write, or the file was wiped"
        severity = Severity.WARNING if young else Severity.ERROR
        context.findings.add("I-110", found.path, text, severity=severity, unclean=young and context.crashed)


def _is_short(context: VerifyContext) -> bool:
    """Return whether a broker may have written no time yet when it was stopped: the flush of a stop sets none, nor does
    a put of 5.5 or into a RocksDB (spec 4.1).
    """
    by_puts = not (context.profile.queues.has_flushed_position or context.store.layout.rocksdb_queues)
    first_ms = None if by_puts else context.store.store_time(0)
    return first_ms is not None and context.log.newest - first_ms < _FIRST_FLUSH_MS


@after("I-111")
def times(context: VerifyContext) -> None:
    found = _checkpoint_file(context)
    if found is None:
        return
    newest = max(context.log.newest, context.log.newest_dead)
    for name in _TIMES:
        value = getattr(found.values, name)
        if value < 0:
            context.findings.add("I-111", found.path, f"{name} is {value}")
        elif context.log.complete and context.log.records and not context.live and value > newest:
            text = f"{name} is {value - newest} ms later than the newest message"
            usual = name == _INDEX_TIME and value <= (_newest_full(context) or 0)
            if usual:
                text += ", and so are the full index files: the last messages that they name are lost"
            else:
                text += ": the log has lost its last messages, or the field is wrong"
            severity = Severity.WARNING if usual else None
            context.findings.add("I-111", found.path, text, severity=severity)


@after("I-112")
def index_time(context: VerifyContext) -> None:
    found = _checkpoint_file(context)
    if found is None or not found.values.index_msg_timestamp or context.live:
        return
    newest = _newest_full(context)
    if newest is None:
        return
    value = found.values.index_msg_timestamp
    if value > newest:
        full = "there is no full index file"
        if newest:
            full = f"the newest full index file ends {value - newest} ms before"
        text = f"index_msg_timestamp is {value}, but {full}"
        mend = None if context.store.index.files else "index"  # the repair of the index restores the time
        context.findings.add("I-112", found.path, text, repair=mend)


def _newest_full(context: VerifyContext) -> int | None:
    """Return the end time of the newest full index file, 0 if none is full, None if a header cannot be read."""
    try:
        ends = [file.header.end_timestamp for file in context.store.index.files if file.full]
    except StoreError:  # I-090 and others report the unreadable file
        return None
    return max(ends, default=0)


@after("I-113")
def confirmed(context: VerifyContext) -> None:
    found = _checkpoint_file(context)
    if found is None or not context.profile.queues.has_confirm_offset or context.live:
        return
    values = found.values
    if values.master_flushed_offset < 0:
        text = f"master_flushed_offset is {values.master_flushed_offset}"
        context.findings.add("I-113", found.path, text)
    at = values.confirm_phy_offset
    if at == 0 or context.log.start > at > 0 or not context.log.complete:
        return
    if context.store.layout.may_be_master and at > context.log.end:
        return  # it tells what the log has lost, I-191
    if at < 0 or at > _log_end(context):
        text = f"confirm_phy_offset {at} is behind the end of the log, {_log_end(context)}"
        context.findings.add("I-113", found.path, text)
    elif at < context.log.end and not _is_record(context, at):
        text = f"no record begins at confirm_phy_offset, {at}: the next recovery corrects it"
        context.findings.add("I-113", found.path, text)


def _log_end(context: VerifyContext) -> int:
    """Return the end of the log file that contains the end of the last record, else the end of the last record."""
    file = context.store.log_files.file_at(context.log.end)
    return file.end if file is not None else context.log.end


def _is_record(context: VerifyContext, position: int) -> bool:
    """Return whether a record that names this position, or a BLANK, begins there."""
    try:
        batch = context.store.log.record(position)
    except NotFound:
        first = next(context.store.log.scan(position, position + 1, crc=False), None)
        return isinstance(first, Extent) and first.kind is ExtentKind.BLANK and first.position == position
    return int(batch.columns.ints("physical_offset")[0]) == position


@after("I-114")
def complete_after_a_stop(context: VerifyContext) -> None:
    if context.crashed or context.live:
        return
    count, _ = _missing_units(context, context.uncommitted)
    gone = "" if queues_of(context).any_there else "consumequeue is missing: "
    if gone and context.scope.quick and not context.waits(context.log.start):  # which compares no unit with the log
        count = context.log.records
    if count:
        has = counted(count, "message has", "messages have")
        who = "brokers 4.3 and 5.1 do" if gone and context.store.layout.dledger is None else "a start does"
        text = f"{gone}{has} no queue unit, but there is no abort file: {who} not look for them"
        context.findings.add("I-114", context.store.layout.abort, text, count=count)


@after("I-115")
def far_behind(context: VerifyContext) -> None:
    found = _checkpoint_file(context)
    if found is None or context.crashed or context.live or not context.log.complete:
        return
    for name in _TIMES[:2]:
        value = getattr(found.values, name)
        if 0 < value < context.log.newest - _FAR_BEHIND_MS:
            behind_s = (context.log.newest - value) // 1000
            text = f"{name} is {behind_s} s older than the newest message"
            context.findings.add("I-115", found.path, text)


@after("I-116", "I-118")
def start_after_a_crash(context: VerifyContext) -> None:
    if not context.crashed or context.live:
        return
    start = start_of_recovery(context)
    if start is None:
        return
    missing, first = _missing_units(context, start.position)
    if missing:
        gone = "" if queues_of(context).any_there else "consumequeue is missing: "
        text = f"{gone}{counted(missing, 'message has', 'messages have')} no queue unit, the first at"
        text += f" {first}, but the next start begins at {start.position} ({start.reason})"
        context.findings.add("I-116", context.store.layout.checkpoint, text, count=missing)
    found = _checkpoint_file(context)
    saved = found.values.index_msg_timestamp if found else 0
    for file in context.store.index.files:
        try:
            header = file.header
        except StoreError:
            continue
        if header.end_timestamp > saved and 0 <= header.begin_physical_offset < start.position:
            text = (
                f"the next start deletes this file and fills a new one from {start.position} on:"
                f" keys of messages from {header.begin_physical_offset} on are lost"
            )
            context.findings.add("I-118", file.path, text)


def _missing_units(context: VerifyContext, before: int | None) -> tuple[int, int]:
    """Return the number of messages without a unit in all queues and the log position of the first one, 0 if there is
    none. before: only those in front of it count. After a clean shutdown queues of deleted topics do not count.
    """
    messages, positions, queues = 0, list[int](), queues_of(context)
    for queue, check in queues.checks.items():
        if may_have_none(context, queue) or (not context.crashed and queues.deleted(queue.topic)):
            continue
        counts, position = check.missing_counts
        if before is not None:
            counts, position = counts[position < before], position[position < before]
        if len(counts):
            messages += int(counts.sum())
            positions.append(int(position.min()))
    return messages, min(positions, default=0)


@after("I-117")
def flushed_position(context: VerifyContext) -> None:
    found = _checkpoint_file(context)
    if found is None or not context.profile.queues.has_flushed_position or context.live:
        return
    if context.store.layout.rocksdb_queues:
        return  # what such a broker has dispatched is in its RocksDB
    at = found.values.logics_physical_offset
    if at == 0 or 0 < at < context.log.start or not context.log.complete:
        return
    if at < 0 or at >= context.log.end or not _is_record(context, at):
        text = f"logics_physical_offset is {at}: no record of the log begins there"
        context.findings.add("I-117", found.path, text)
        return
    missing, first = _missing_units(context, at)
    if missing:
        text = f"logics_physical_offset is {at}, but the message at {first} has no unit"
        context.findings.add("I-117", found.path, text)


class StartPosition(NamedTuple):
    """Log position where a start begins to read, and why it begins there."""

    position: int
    reason: str


def start_of_recovery(context: VerifyContext) -> StartPosition | None:
    """Return where a start of the store's broker version begins to read the log; None if that is not known."""
    layout = context.store.layout
    if layout.rocksdb_queues or layout.dledger is not None:
        return None
    try:
        snapshot = Snapshot.of(layout)
        loaded = load_files(snapshot.log, snapshot.log_file_bytes, context.profile.load)
        if loaded.refusal is not None or not loaded.files:
            return None
        end, switches = context.log.dispatched, Switches.of(context.store.config)
        found = start_file(snapshot, loaded.files, context.profile, end, switches)
    except StoreError:  # the checks of the layout report files that cannot be loaded
        return None
    return StartPosition(loaded.files[found.number].start, found.reason)
