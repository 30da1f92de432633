"""Checks of group A: layout (docs/invariants.md, I-001 … I-015): directories of logs and queues (I-001 … I-005, I-011),
the files beside them, permissions, disk space, and the RocksDBs with queues or more about messages.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from ...formats.index_file import NAME_DIGITS as INDEX_DIGITS
from ...formats.locked_range import CONTENT
from ...formats.message_properties import RETRY_PREFIX
from ...formats.message_request_mode import POP
from ...formats.pop import KV_OPTION, REVIVE_TOPIC
from ..broker.profiles import DLEDGER_LOAD, OnOddFile
from ..broker.snapshot import DirectoryEntry, QueueId, Snapshot, list_entries
from ..broker.system_topics import LMQ_PREFIX, ROCKSDB_HALF_TOPIC, TIMER_TOPIC, is_system_group
from ..counted import counted
from ..disk import layout as places
from ..disk.broker_conf import ROCKSDB_STORE_TYPE
from ..disk.compressed import is_compressed_name, plain_name, read_regular
from ..disk.file_queue import NAME_DIGITS, file_name, start_of
from ..disk.lock import holder
from ..errors import Missing, NoSpace, Unreadable, Unsupported, broken_link
from ..findings.catalogue import Severity
from ..findings.next_commands import ALL, RECOVER
from ..log.batch import Extent, ExtentKind
from ..log.scan import LogItems
from ..queues.rocksdb_copy import CutShort, emptiness, has_rows, loss_or_cut
from ..session.journal import barriers_left
from ..settings.rocksdb import read_whole
from ..start.config_load import config_rules, request_modes
from .context import VerifyContext, collected
from .register import after, before, of_extents

_SLASH_NAMES = "4.9"
"""The broker version that makes directories for LMQs with a slash in their name (B12)."""


class Directory(NamedTuple):
    """What one or several directories have: files that form one stream.

    file_bytes: length of each file, 0 if not known. queue: what its findings say of the queue. gaps: files may be
    missing in the middle.
    """

    entries: list[DirectoryEntry]
    file_bytes: int
    queue: Mapping[str, Any] = MappingProxyType({})
    is_log: bool = False
    gaps: bool = False

    @property
    def files(self) -> list[tuple[int, DirectoryEntry]]:
        """The files whose name is a position, with it, in order."""
        found = [(start_of(plain_name(e.name)), e) for e in self.entries if not e.directory]
        return sorted((start, e) for start, e in found if start is not None)


def check_directories(context: VerifyContext) -> None:
    """Check all directories of logs, queues and the index, limited to the topic and queue of the scope."""
    for directory in _directories(context):
        _check_entries(context, directory)
        if not directory.gaps:
            _check_order(context, directory)
    _check_index(context)


def _directories(context: VerifyContext) -> Iterator[Directory]:
    layout, sizes, config = context.store.layout, context.store.sizes, context.store.config
    entries = [entry for path in layout.commit_log_directories for entry in list_entries(path)]
    yield Directory(entries, sizes.commit_log.value, is_log=True)
    timer = list_entries(layout.timer_log)
    yield Directory(timer, sizes.timer_log.value if timer else 0)
    if not layout.rocksdb_queues:
        yield from _queues(context, layout.consume_queue, sizes.consume_queue.value)
    for root, option in (
        (layout.batch_consume_queue, "mapperFileSizeBatchConsumeQueue"),
        (layout.consume_queue_ext, "mappedFileSizeConsumeQueueExt"),
    ):
        value, origin = config.size(option)
        yield from _queues(context, root, value if origin == "configuration" else 0)
    yield from _queues(context, layout.compaction_log, 0, gaps=True)
    # files of compactionCq have the names of the log beside it, not their own positions


def _queues(context: VerifyContext, root: Path, file_bytes: int, *, gaps: bool = False) -> Iterator[Directory]:
    """Yield the queue directories below a root; report directories whose name is not a number."""
    scope, found = context.scope, []
    for topic in list_entries(root):
        if not topic.directory or scope.topic not in (None, topic.name):
            continue
        for queue in list_entries(topic.path):
            if not queue.directory:
                continue
            if not queue.name.isdigit():
                _report_odd_queue(context, topic.name, queue)
            elif scope.queue_id in (None, int(queue.name)):
                found.append((QueueId(topic.name, int(queue.name)), list_entries(queue.path)))
    if not file_bytes:
        lengths = Counter(e.size for _, es in found for e in es if e.size and not e.directory)
        file_bytes = max(lengths, key=lambda n: (lengths[n], n), default=0)
    for queue_id, entries in found:
        yield Directory(entries, file_bytes, queue_id._asdict(), gaps=gaps)


def _report_odd_queue(context: VerifyContext, topic: str, queue: DirectoryEntry) -> None:
    """Report a directory whose name is not the number of a queue."""
    lmq = context.profile.version == _SLASH_NAMES and topic.startswith(LMQ_PREFIX)
    if lmq:
        text = f"of an LMQ {topic}/{queue.name}: 4.9 makes such a queue and forgets it at the next start (B12)"
    else:
        text = f"{queue.name!r} is not the number of a queue of {topic}"
    severity = Severity.INFO if lmq else None
    context.findings.add("I-011", queue.path, text, severity=severity)


def _check_entries(context: VerifyContext, directory: Directory) -> None:
    last = max((entry.name for entry in directory.entries), default="")
    for entry in directory.entries:
        fault = _fault(context, directory, entry, last=entry.name == last)
        if fault is not None:
            code, text, severity = fault
            mend = _repair_of(directory, entry)
            context.findings.add(code, entry.path, text, severity=severity, repair=mend, **directory.queue)


def _repair_of(directory: Directory, entry: DirectoryEntry) -> str | None:
    """Return the repair of an entry if it is not that of the catalogue: no plan is made beside such a file."""
    if is_compressed_name(entry.name):
        return unpacking(entry.name)
    if not directory.is_log:
        return None
    from ..plan.normalize import right_name  # a run of few checks needs no plan

    names = {each.name for each in directory.entries}
    if path := right_name(entry, names, directory.file_bytes):
        return f"mv {{path}} {{directory}}/{Path(path).name}"
    return RECOVER


COMPRESSED = "compressed: mqstore can read it, a broker cannot"


def unpacking(name: str) -> str:
    """Return the command that unpacks a compressed file of this name."""
    return f"{'gunzip' if name.endswith('.gz') else 'zstd --decompress --rm'} {{path}}"


def _fault(
    context: VerifyContext, directory: Directory, entry: DirectoryEntry, *, last: bool
) -> tuple[str, str, Severity | None] | None:
    """Return the code, what is wrong, and the severity if it is not that of the code; None if nothing is wrong."""
    ledger = directory.is_log and context.store.layout.dledger is not None
    rules, size = DLEDGER_LOAD if ledger else context.profile.load, directory.file_bytes
    start = start_of(plain_name(entry.name))
    if entry.directory:
        ignored = rules.directory is OnOddFile.IGNORE
        return "I-005", "a directory among the files", Severity.WARNING if ignored else None
    if directory.is_log and entry.name.startswith(places.BARRIER_PREFIX):
        barriers = barriers_left(context.store.layout)
        if entry.name not in {path.name for path in barriers}:
            return None  # a tool at work removes its barrier, or has removed it
    if start is None:
        return "I-005", f"{entry.name!r} is not a file of a broker", None
    if is_compressed_name(entry.name):
        return "I-005", COMPRESSED, None
    if len(entry.name) != NAME_DIGITS or (size and start % size and not directory.gaps):
        return "I-001", f"its name is not a multiple of {size} in {NAME_DIGITS} digits", None
    if context.live and last:
        return None  # the broker is making it
    if not entry.size:
        harmless = last and rules.empty_last is not OnOddFile.REFUSE
        if (broken := broken_link(entry.path)) is not None:
            return "I-004", f"{broken.message}; {broken.hint}", Severity.ERROR if harmless else None
        return "I-004", "it is empty", Severity.WARNING if harmless else None
    if size and entry.size != size and not directory.gaps:
        return "I-003", f"it has {counted(entry.size, 'byte')}, not {size}", None
    return None


def _check_order(context: VerifyContext, directory: Directory) -> None:
    """Check that no file is missing between the others."""
    size = directory.file_bytes
    for (first, previous), (second, entry) in pairwise(directory.files):
        if not size or second <= first + size:
            continue
        missing = (second - first) // size - 1
        gone = Path(previous.path).with_name(file_name(first + size))
        more = f", and {missing - 1} behind it" if missing > 1 else ""
        text = f"this file is missing{more}; {file_name(second)} follows"
        alone = directory.is_log and entry is directory.files[-1][1] and _is_zero(context, second)
        if alone:
            text += ", all zeros: 4.9 waits for ever at the gap"
        level = Severity.FATAL if alone else None
        context.findings.add("I-002", gone, text, severity=level, **directory.queue)


def _is_zero(context: VerifyContext, start: int) -> bool:
    """Return whether the log file that begins at `start` has only zeros."""
    file = context.store.log_files.file_at(start)
    return file is not None and LogItems(context.store.log, file).is_zero(0, file.size)


def _check_index(context: VerifyContext) -> None:
    """Check that index files have one length; checks of the index report an empty one."""
    files = [e for e in list_entries(context.store.layout.index) if not e.directory and e.size]
    files = [e for e in files if e.name.isdigit() and len(e.name) == INDEX_DIGITS]
    lengths = Counter(entry.size for entry in files)
    if len(lengths) < 2:
        return
    usual = max(lengths, key=lambda length: (lengths[length], length))
    for entry in files:
        if entry.size != usual:
            text = f"it has {counted(entry.size, 'byte')}, the other files {usual}"
            context.findings.add("I-003", entry.path, text)


_FULL_PERCENT = 90
_TOLERANCE_S = 60
"""How far file times may be out of order: the system writes pages in any order."""
_LOCK_BYTES_MAX = 64


@before("I-001", "I-002", "I-003", "I-004", "I-005", "I-011")
def directories(context: VerifyContext) -> None:
    check_directories(context)
    if context.store.log_files.start and not context.live:
        from ..plan.normalize import front_without_files, lost_front_notes, unexpired_front

        snapshot = Snapshot.as_read(context.store.layout)
        directory = snapshot.layout.commit_log_directories[0]
        front, level = front_without_files(snapshot), Severity.WARNING
        if text := unexpired_front(snapshot, front):
            place, size = front.start, len(front)
            context.findings.add("I-002", directory, text, offset=place, length=size, severity=level, repair="")
        for text in lost_front_notes(snapshot, front):
            context.findings.add("I-002", directory, text, severity=level, repair="")


@before("I-006")
def one_file_of_a_name(context: VerifyContext) -> None:
    seen: dict[str, str] = {}
    for directory in context.store.layout.commit_log_directories:
        for entry in list_entries(directory):
            if entry.directory or not entry.name.isdigit():
                continue
            other = seen.setdefault(entry.name, entry.path)
            if other != entry.path:
                read = context.store.log_files.file_at(int(entry.name))
                text = f"{entry.name} is also in {Path(other).parent}"
                text += f"; the log is read from {Path(read.path).parent}: look at both" if read else ""
                context.findings.add("I-006", entry.path, text)


_ZERO_FILES = "files of zeros"


@of_extents("I-007")
def file_of_zeros(context: VerifyContext, extent: Extent) -> None:
    if extent.kind is ExtentKind.ZEROS:
        file = context.store.log_files.file_at(extent.position)
        if file is not None and (file.start, file.size) == (extent.position, extent.size):
            collected(context, _ZERO_FILES).append(file)


@after("I-007")
def files_made_in_advance(context: VerifyContext) -> None:
    waiting = collected(context, _ZERO_FILES)
    for file in waiting[1:]:
        text = f"{len(waiting)} files of zeros behind the end of the log: a start removes them"
        context.findings.add("I-007", file.path, text)


@before("I-008")
def lock(context: VerifyContext) -> None:
    path = context.store.layout.lock
    if path.is_dir():
        text = "the lock is a directory: no broker starts"
        context.findings.add("I-008", path, text, severity=Severity.ERROR, repair="mv {path} {aside}")
        return
    try:
        content = read_regular(path, _LOCK_BYTES_MAX)
    except Missing:
        return
    if content and content != CONTENT:
        text = f"its content is {content[:20]!r}, not {CONTENT!r}"
        # a broker writes it again when it starts
        context.findings.add("I-008", path, text, severity=Severity.WARNING, repair="")
    process = holder(path)
    if process is not None:
        text = f"a broker or a tool works on the store (process {process or 'unknown'})"
        context.findings.add("I-008", path, text, severity=Severity.INFO)


@before("I-009")
def no_abort(context: VerifyContext) -> None:
    if context.crashed and not context.live:
        text = "the last broker did not shut down cleanly"
        context.findings.add("I-009", context.store.layout.abort, text, unclean=True)


@before("I-010")
def kind_of_queues(context: VerifyContext) -> None:
    layout, config = context.store.layout, context.store.config
    store_type = config.get("storeType")
    entries = (e for e in list_entries(layout.consume_queue) if e.directory)
    topics = [e.name for e in entries if any(q.directory and q.name.isdigit() for q in list_entries(e.path))]
    alone = store_type == ROCKSDB_STORE_TYPE  # with any other value brokers read files (spec 7.14)
    if alone and topics:
        _report_unread_topics(context, topics, f"but storeType is {store_type}")
    if store_type and not alone and not topics and not config.get_bool("rocksdbCQDoubleWriteEnable"):
        for path in (layout.consume_queue, layout.root / places.ROCKSDB_CONSUME_QUEUE):
            if (path / places.ROCKSDB_CURRENT).is_file():
                context.findings.add("I-010", path, f"a RocksDB, but storeType is {store_type}")
    _place_of_database(context)


def _report_unread_topics(context: VerifyContext, topics: list[str], but: str) -> None:
    """Report queues in files that the broker does not read. Beside the RocksDB that it reads they do no harm."""
    layout = context.store.layout
    if layout.queue_database is None:
        context.findings.add("I-010", layout.consume_queue, f"{counted(len(topics), 'topic')}, {but}")
        return
    level, mend = Severity.WARNING, "mv {path} {aside}"
    for name in topics:
        text = f"queues in files, {but}: the broker does not read them"
        context.findings.add("I-010", layout.consume_queue / name, text, severity=level, repair=mend)


def _place_of_database(context: VerifyContext) -> None:
    """Check that the RocksDB of queues has its CURRENT and lies where the configuration says (spec 2.10)."""
    layout, config = context.store.layout, context.store.config
    apart = layout.root / places.ROCKSDB_CONSUME_QUEUE
    for path in (layout.consume_queue, apart):
        if places.was_rocksdb(path):
            text = "files of a RocksDB without its CURRENT: a broker refuses to start"
            mend = RECOVER if path == layout.queue_database else None
            context.findings.add("I-010", path, text, repair=mend)
    name, found = "useSeparateStorePathForRocksdbCQ", layout.queue_database
    wanted = apart if config.get_bool(name) else layout.consume_queue
    if name in config and found not in (None, wanted):
        text = f"a RocksDB, but the configuration says {wanted.name}: a broker refuses to start"
        context.findings.add("I-010", found, text)


_OWNERS, _GROUPS, _OTHERS = (stat.S_IRUSR | stat.S_IWUSR, stat.S_IRGRP | stat.S_IWGRP, stat.S_IROTH | stat.S_IWOTH)
"""Permission bits to read and write a file."""


@before("I-012")
def can_be_written(context: VerifyContext) -> None:
    root = context.store.layout.root
    try:
        owner = root.stat()
        disk = os.statvfs(root)
    except OSError:
        return
    for path in _all_paths(root):
        try:
            status = path.lstat()
        except OSError:
            continue
        if stat.S_ISLNK(status.st_mode):
            continue
        mine = status.st_uid == owner.st_uid
        if mine and status.st_mode & _OWNERS == _OWNERS:
            continue
        kept_out = not may_write(status, owner)
        text = f"its owner may not {'write' if status.st_mode & stat.S_IRUSR else 'read'} it"
        if not mine:
            text = f"belongs to user {status.st_uid}, the store to {owner.st_uid}"
            text += ", which may not write it" if kept_out else ""
        level = Severity.ERROR if kept_out else None
        mend = "chmod -R u+rwX {store}" if mine else "chown -R --reference={store} {store}"
        context.findings.add("I-012", path, text, severity=level, repair=mend)
    used = disk.f_blocks - disk.f_bfree
    if used * 100 >= _FULL_PERCENT * (used + disk.f_bavail) and used:
        text = f"{used * 100 // (used + disk.f_bavail)} % of the disk is used"
        context.findings.add("I-012", root, text)


def may_write(file: os.stat_result, store: os.stat_result) -> bool:
    """Return whether a broker run by the owner of the store may read and write a file, or add files to a directory."""
    if store.st_uid == 0:
        return True
    if file.st_uid == store.st_uid:
        return file.st_mode & _OWNERS == _OWNERS
    if file.st_gid == store.st_gid and file.st_mode & _GROUPS == _GROUPS:
        return True
    return file.st_mode & _OTHERS == _OTHERS


def _all_paths(root: Path) -> Iterator[Path]:
    """Yield all files and directories of the store, except the journal that mqstore keeps to undo its changes."""
    for directory, directories, files in os.walk(root):
        if directory == os.fspath(root) and places.JOURNAL in directories:
            directories.remove(places.JOURNAL)
        for name in (*directories, *files):
            yield Path(directory, name)


@after("I-013")
def times_of_files(context: VerifyContext) -> None:
    newest, before_it, older = 0.0, "", ""
    for file in context.store.log_files.files:
        if file.start >= context.log.end and context.log.end:
            return
        try:
            time_s = os.stat(file.path).st_mtime  # noqa: PTH116
        except OSError:
            continue
        if time_s < newest - _TOLERANCE_S:
            text = f"last changed {newest - time_s:.0f} s before the older file {before_it}"
            other = shlex.quote(older).replace("{", "{{").replace("}", "}}")
            mend = f"touch -r {{path}} {other}"
            context.findings.add("I-013", file.path, text, repair=mend)
        if time_s > newest:
            newest, before_it, older = time_s, file_name(file.start), file.path


@before("I-014")
def databases_of_messages(context: VerifyContext) -> None:
    """While a broker writes, its files come and go: then nothing can be said."""
    config = context.store.config
    for name, kept in KEPT_THERE.items():
        path = context.store.layout.root / name
        used = [what for option, what in kept.items() if config.get_bool(option)]
        there = f": it keeps {' and '.join(used)}" if used else ""
        level = Severity.ERROR if used else None
        if not list_entries(path):  # a broker makes one in an empty directory, too
            _report_missing_database(context, path, used)
            continue
        loss = None if context.live else loss_or_cut(path)
        if loss is None or isinstance(loss, CutShort):
            if used and name == places.KV_STORE and not context.live:
                _report_cut_kv_store(context, path, loss, *used)
            _check_readable(context, path, bool(used), there)
            continue
        mend = ALL if loss.manifest else "" if loss.opens else None
        if used and name == places.KV_STORE and not loss.opens:
            there, level = f"{there}, and a broker does not start without it", Severity.FATAL
        context.findings.add("I-014", path, f"{loss.sentence}{there}", severity=level, repair=mend)


_TRANSACTIONS, _TIMERS = "transactions", "timers"
KEPT_THERE = {
    places.ROCKSDB_STORE: {
        "timerRocksDBEnable": _TIMERS,
        "transRocksDBEnable": _TRANSACTIONS,
        "indexRocksDBEnable": "index items",
    },
    places.KV_STORE: {KV_OPTION: "messages that POP consumers have"},
}
"""Directories of such RocksDBs, the options of brokers to use them, and what brokers keep there."""
_KEPT_TOO = {
    _TRANSACTIONS: (ROCKSDB_HALF_TOPIC, "checks no earlier half message (inspect --transactions names them)"),
    _TIMERS: (TIMER_TOPIC, "delivers timers that wait, and again those that were delivered or cancelled, by the log"),
}
"""By what is kept there: the topic that has these messages as well, and what a start with a new RocksDB does."""


def _report_missing_database(context: VerifyContext, path: Path, used: list[str]) -> None:
    """Report a RocksDB that is missing: a start makes a new one, and fills it with timers from the log."""
    topics = {queue.topic for queue in context.store.queues}
    kept = {what: does for what, (topic, does) in _KEPT_TOO.items() if what in used and topic in topics}
    if kept:
        text = (
            f"it is missing, and it held {' and '.join(kept)}: a start makes a new one, {'; it '.join(kept.values())}"
        )
        level = Severity.ERROR if _TRANSACTIONS in kept else Severity.WARNING
        context.findings.add("I-014", path, text, severity=level, repair="")
    elif used and path.name == places.KV_STORE:
        _report_lost_kv_store(context, path, *used)


def _report_cut_kv_store(context: VerifyContext, path: Path, cut: CutShort | None, what: str) -> None:
    """Report that kvStore is empty where groups have consumed, or that its last entries are cut off."""
    empty = emptiness(path, cut)
    if empty and _report_lost_kv_store(context, path, what, empty):
        return
    if cut is not None:
        text = f"{cut.text}: what was written behind it of {what} is lost"
        context.findings.add("I-014", path, text, severity=Severity.WARNING, repair="")


def _report_lost_kv_store(context: VerifyContext, path: Path, what: str, how: str = "missing") -> bool:
    """Report that kvStore is missing where groups have consumed, or empty where that is sure; return whether it was.

    A broker makes it at its first start with its option, and has no check points in its own topics from then on: if
    those have none, a group that consumes by POP, or has read its retries of POP, had its check points in kvStore.
    Otherwise it is not known whether there was one.
    """
    reached = {(group, q.topic) for q, offsets in context.progress.items() for group, n in offsets.items() if n > 0}
    rules = config_rules(context.profile)
    if not rules.databases or all(is_system_group(group) for group, _ in reached):  # 5.1 has no such option
        return False
    modes = request_modes(context.store.layout, rules)
    retries = any(topic.startswith((f"{RETRY_PREFIX}{group}_", f"{RETRY_PREFIX}{group}+")) for group, topic in reached)
    own = any(queue.topic == TIMER_TOPIC or queue.topic.startswith(REVIVE_TOPIC) for queue in context.store.queues)
    if not own and (retries or any(modes.get(key, "").upper() == POP for key in reached)):
        text = f"it is {how}, and it held {what}"
        sure = how != "empty" or context.crashed  # a broker that started since has made a new one
        level = Severity.ERROR if sure else Severity.WARNING
        context.findings.add("I-014", path, text, severity=level, repair="")
    elif how == "missing":
        text = f"it is missing: if a broker ran with {KV_OPTION} before, it held {what}"
        context.findings.add("I-014", path, text, repair="")
    else:
        return False
    return True


def _check_readable(context: VerifyContext, path: Path, used: bool, there: str) -> None:
    """Check that a RocksDB can be read; only a warning if brokers are not known to use it."""
    why, failed, files = "", None, _names(path)
    if context.scope.quick:
        return
    try:
        why = "a broker is writing there" if context.live else read_whole(path, context.stopped)
    except (Unsupported, NoSpace) as error:
        why = error.hint or error.message
    except Unreadable as error:
        failed = error
        why = "its files changed during the check" if _names(path) != files else ""
    if why and (used or has_rows(path)):
        context.unread.append(f"{path.name}: {why}")
    elif failed is not None and not why:
        level = Severity.ERROR if used else None
        context.findings.add("I-014", path, f"cannot be read ({failed.message}){there}", severity=level)


def _names(path: Path) -> list[str]:
    return [entry.name for entry in list_entries(path)]
