"""The answer of `inspect`: what a store is and in what state, from a bounded part of its bytes.

The end of a log of at most `WALKED_BYTES` is found by a walk from its start. In a larger log the highest unit of the
queues names one of the last records, and the walk begins there. `Log.end_reason` says which way was taken.

Each part of a store beside log, consume queues, index and `config/` gets a line. `dump` shows what the parts hold.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ...formats.kinds import KINDS
from ..broker.load_rules import directory_for_file, load_files
from ..broker.profiles import DLEDGER_LOAD, Profile, profile_of
from ..broker.snapshot import DirectoryEntry, Snapshot, list_entries
from ..counted import counted, listed
from ..disk.checkpoint import Checkpoint, lost_end, seen_checkpoint
from ..disk.compressed import read_regular
from ..disk.file_queue import ForeignEntry, MappedFileQueue, start_of
from ..disk.layout import Layout, QueueDirectory, queue_directories
from ..disk.lock import holder, stream_of
from ..errors import Missing, StoreError, os_errors
from ..index.read import Header, Index, sizes_of
from ..log.commit_log import Batch, Extent, LogEnd
from ..queues.batches import BatchConsumeQueue, batch_summaries
from ..queues.batches import summary_of as sparse_summary
from ..queues.hybrid import HybridConsumeQueues, open_queues
from ..queues.read import ConsumeQueue, ConsumeQueues, QueueSummary
from ..queues.references import commit_log_of
from ..search.store import StoreReader
from ..settings.generation import Generation, generation_of
from ..settings.options import BrokerOption, options_of
from ..settings.read import FILES, WHOLE, ConfigSummary, read_config_file, summaries_of, summary_of
from ..settings.rocksdb import InForce, in_force
from ..start.log import Switches, start_file
from ..tiered.segments import is_of_tier

_WALKED_BYTES = 64 << 20
"""The compaction queues of a topic are walked if they have at most this many bytes together."""
_POSITIONS_SHOWN = 8
Record = dict[str, Any]


class StorePart(NamedTuple):
    """A part of a store, and what is in it."""

    part: str
    text: str


def parts_of(layout: Layout) -> Iterator[StorePart]:
    """Yield a line for each part that exists. Raises Unreadable."""
    yield from _batch_queues(layout)
    yield from _files(layout, "broker-identity")
    yield from _compaction(layout)
    yield from _ext(layout)
    yield from _dledger(layout)
    yield from _files(layout, "epoch-file")


def _by_topic(queues: Iterator[QueueDirectory]) -> dict[str, list[QueueDirectory]]:
    found: dict[str, list[QueueDirectory]] = defaultdict(list)
    for queue in queues:
        found[queue.topic].append(queue)
    return found


def _batch_queues(layout: Layout) -> Iterator[StorePart]:
    for topic, queues in _by_topic(queue_directories(layout.batch_consume_queue)).items():
        batches = count = 0
        for one in queues:
            with BatchConsumeQueue(topic, one.queue_id, stream_of(layout, one.path)) as queue:
                ends = queue.summary()
                batches += queue.stop - queue.first
                count += ends.max_offset - ends.min_offset
        held = f"{counted(batches, 'batch', 'batches')} of {counted(count, 'message')}"
        text = f"{topic}: {counted(len(queues), 'queue')}, {held}"
        yield StorePart(layout.batch_consume_queue.name, text)


def _compaction(layout: Layout) -> Iterator[StorePart]:
    """Yield a line for each compacted topic, and for the position checkpoint: without topics only if it is damaged."""
    name = layout.compaction_queues.parent.name
    topics = _by_topic(queue_directories(layout.compaction_queues))
    for topic, queues in topics.items():
        streams = [MappedFileQueue.open(queue.path) for queue in queues]
        text = f"{topic}: {counted(len(queues), 'queue')}"
        if sum(files.size for files in streams) <= _WALKED_BYTES:
            remaining = damaged = 0
            for files in streams:
                with files:
                    found = sparse_summary(files)
                remaining, damaged = remaining + found.units, damaged + found.damaged_bytes
            text += f", {counted(remaining, 'message')} left"
            text += f", {counted(damaged, 'damaged byte')}" if damaged else ""
        yield StorePart(name, text)
    yield from _files(layout, "position-checkpoint", quiet=not topics)


def _ext(layout: Layout) -> Iterator[StorePart]:
    topics = _by_topic(queue_directories(layout.consume_queue_ext))
    if topics:
        queues = [queue for found in topics.values() for queue in found]
        count = counted(len(queues), "queue")
        text = f"tag codes and SQL bit maps of {count}: {', '.join(sorted(topics))}"
        yield StorePart(layout.consume_queue_ext.name, text)


def _dledger(layout: Layout) -> Iterator[StorePart]:
    """Yield how far the DLedger member has come, by its files `checkpoint` and `currterm`."""
    if layout.dledger is None:
        return
    member = layout.dledger.parent
    state: dict[str, str] = {}
    for name in ("checkpoint", "currterm"):
        try:
            state |= read_config_file(member / name, "dledger-state").value
        except Missing:
            continue
    text = ", ".join(f"{key} {value}" for key, value in state.items())
    yield StorePart(member.name, text or "neither checkpoint nor currterm")


def _files(layout: Layout, kind: str, *, quiet: bool = False) -> Iterator[StorePart]:
    """Yield a line about a text file outside `config/`. quiet: only if the file is damaged."""
    (name,) = (file for file, of in FILES.items() if of == kind)
    try:
        found = read_config_file(layout.root / KINDS[kind].place / name, kind)
    except Missing:
        return
    summary = summary_of(found)
    if summary.state != WHOLE:
        yield StorePart(name, summary.text)
    elif not quiet:
        yield StorePart(name, _TEXTS[kind](list(found.records())))


def _identity(records: list[Record]) -> str:
    (one,) = records
    return f"broker {one['broker_name']} of {one['cluster_name']}, id {one['broker_id']}"


def _epochs(records: list[Record]) -> str:
    epochs = [record for record in records if record["type"] == "epoch"]
    if not epochs:
        return "no epochs"
    last = epochs[-1]
    return f"{counted(len(epochs), 'epoch')}, {last['epoch']} begins at {last['start_offset']}"


def _positions(records: list[Record]) -> str:
    found = [record for record in records if record["type"] == "compaction_position"]
    texts = [f"{r['topic']}/{r['queue_id']} to {r['offset']}" for r in found]
    return f"compacted: {listed(texts, _POSITIONS_SHOWN)}"


_TEXTS: Mapping[str, Callable[[list[Record]], str]] = {
    "broker-identity": _identity,
    "epoch-file": _epochs,
    "position-checkpoint": _positions,
}


WALKED_BYTES = 256 << 20
"""A log of at most this many bytes is walked from its start."""
_ABORT_BYTES = 64


class Log(NamedTuple):
    """The commit log. end: behind its last record; end_reason: how that was found.

    damaged_ranges, damaged_bytes: in the part that was walked, missing files included; first_damage: the first range.
    torn: an incomplete record behind the last one.
    """

    directories: tuple[Path, ...]
    origin: str
    files: int
    bytes: int
    start: int
    end: int
    end_reason: str
    first_store_timestamp: int | None
    last_store_timestamp: int | None
    damaged_ranges: int
    damaged_bytes: int
    first_damage: Extent | None
    torn: Extent | None


class IndexSummary(NamedTuple):
    """One index file: name, number of slots, number of items that it has room for, header."""

    file: str
    slots: int
    items: int
    header: Header


class QueueStorage(NamedTuple):
    """Where the consume queues are (spec 2.10). mode: `files`, `rocksdb`, or `both` if each message has a unit in both.
    database: the RocksDB or None. in_files, in_database: numbers of queues.
    """

    mode: str
    database: Path | None
    in_files: int
    in_database: int


class Restart(NamedTuple):
    """Where the recovery of the next start begins by the rules of `version`, and why.

    file: "" if the start fails before.
    """

    version: str
    file: str
    reason: str


@dataclass(frozen=True)
class Description:
    """A store. exit: `clean`, `crashed`, or `running` if a process holds the lock.

    holder: id of that process, 0 if it cannot be named, None without one. end_is_lost: see `StoreReader`.
    lost_end: what the log has lost at its end, if a controller may make the broker the master.
    """

    layout: Layout
    generation: Generation
    exit: str
    exit_reason: str
    holder: int | None
    log: Log
    queues: list[QueueSummary]
    storage: QueueStorage
    checkpoint: Checkpoint | None
    restart: Restart | None
    index_files: list[IndexSummary]
    foreign: list[ForeignEntry]
    config: list[ConfigSummary] = field(default_factory=list)
    config_form: InForce = field(default_factory=lambda: in_force(Path()))
    parts: list[StorePart] = field(default_factory=list)
    options: list[BrokerOption[Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    end_is_lost: bool = False
    lost_end: range = range(0)


def describe(layout: Layout) -> Description:
    """Describe a store by a bounded part of its bytes. Raises Unreadable, InvalidInput."""
    generation = generation_of(layout)
    foreign = [entry for entry in layout.foreign if not is_of_tier(Path(entry.path).name)]
    notes: list[str] = []
    found, storage = _queues(layout, foreign, notes)
    queues = sorted(found, key=lambda queue: queue.directory)
    log = _log(layout, queues, foreign)
    summaries = [*_summaries(layout, queues, log, profile_of(generation.version))]
    summaries += batch_summaries(layout, log.start, log.end)
    pid = holder(layout.lock)
    exit_kind, exit_reason = last_exit(layout.abort, pid)
    checkpoint = seen_checkpoint(layout.checkpoint)
    behind = [each.summary.end_position or 0 for each in queues] if pid is None else []
    end_is_lost = max(behind, default=0) > log.end and _end_is_lost(layout)
    fields, file_bytes = (checkpoint or Checkpoint())._asdict(), sizes_of(layout).commit_log.value
    torn_end = commit_log_of(layout).torn_end(log.end)
    gone = lost_end(layout, fields, log.end, file_bytes, behind if end_is_lost else (), torn_end=torn_end)
    return Description(
        layout=layout,
        generation=generation,
        exit=exit_kind,
        exit_reason=exit_reason,
        holder=pid,
        log=log,
        queues=sorted(summaries, key=lambda one: (one.topic, one.queue_id)),
        storage=storage,
        checkpoint=checkpoint,
        restart=_restart(layout, generation, queues, in_use=pid is not None),
        index_files=_index_files(layout, foreign),
        foreign=foreign,
        config=list(summaries_of(layout.config)) if layout.config.is_dir() else [],
        config_form=in_force(layout.config, layout.broker_config),
        parts=list(parts_of(layout)),
        options=options_of(layout).used,
        notes=[*notes, *options_of(layout).notes(), *_odd_files(layout, in_use=pid is not None), *_links(layout)],
        end_is_lost=end_is_lost,
        lost_end=gone if pid is None else range(0),
    )


def _end_is_lost(layout: Layout) -> bool:
    try:
        with StoreReader(layout) as store:
            return store.end_is_lost
    except StoreError:
        return False  # commands that read the whole store report what cannot be read


@dataclass(frozen=True)
class _DescribedQueue:
    """A queue as its own files describe it, without regard to the log."""

    directory: QueueDirectory
    open: Callable[[], ConsumeQueue]
    summary: QueueSummary


def _queues(
    layout: Layout, foreign: list[ForeignEntry], notes: list[str]
) -> tuple[list[_DescribedQueue], QueueStorage]:
    """Return all queues and where they are; of a hybrid store the queues in files and the LMQs of its database."""
    if layout.queue_database is None:
        found = list(_in_files(layout, foreign))
        return found, QueueStorage("files", None, len(found), 0)
    queues, problem = open_queues(layout)
    notes += [problem] if problem else []
    if layout.rocksdb_queues:
        found = list(_in_database(queues, queues))
        return found, QueueStorage("rocksdb", layout.queue_database, 0, len(found))
    found, in_database = list(_in_files(layout, foreign)), 0
    in_files = len(found)
    if isinstance(queues, HybridConsumeQueues):
        found += _in_database(queues, queues.lmq)
        in_database = len(list(queues.in_database))
    return found, QueueStorage("both", layout.queue_database, in_files, in_database)


def _in_database(queues: ConsumeQueues, directories: Iterable[QueueDirectory]) -> Iterator[_DescribedQueue]:
    for directory in directories:
        opened = partial(queues.open, directory.topic, directory.queue_id)
        yield _DescribedQueue(directory, opened, opened().summary())


def _in_files(layout: Layout, foreign: list[ForeignEntry]) -> Iterator[_DescribedQueue]:
    size = sizes_of(layout).consume_queue.value
    for directory in queue_directories(layout.consume_queue):
        files = stream_of(layout, directory.path, size)
        foreign += files.foreign
        opened = partial(ConsumeQueue, directory.topic, directory.queue_id, files)
        with opened() as queue:
            yield _DescribedQueue(directory, opened, queue.summary())


def _summaries(layout: Layout, queues: list[_DescribedQueue], log: Log, profile: Profile) -> Iterator[QueueSummary]:
    """Yield the summaries of the queues within the existing log: dead and expired units do not count."""
    broker_4 = profile.version.startswith("4.")
    for found in queues:
        end = found.summary.end_position
        if log.start == 0 and (end is None or end <= log.end):
            yield found.summary
        else:
            with found.open() as queue:
                yield queue.summary(log.start, log.end, broker_4=broker_4)


def _log(layout: Layout, queues: list[_DescribedQueue], foreign: list[ForeignEntry]) -> Log:
    log = commit_log_of(layout)
    foreign += log.queue.foreign
    total = log.queue.size
    first = next((item for item in log.scan(crc=False, reuse=True) if isinstance(item, Batch)), None)
    first_time = int(first.columns.ints("store_timestamp")[0]) if first is not None else None
    begin, how = None, "the log was walked from its start"
    if total > WALKED_BYTES:
        begin, how = _near_the_end(layout, queues)
    end = log.end(begin) if log.files else LogEnd(0, "there are no files")
    return Log(
        directories=layout.commit_log_directories,
        origin=layout.commit_log_origin,
        files=len(log.files),
        bytes=total,
        start=log.min_offset,
        end=end.position,
        end_reason=f"{end.reason}; {how}",
        first_store_timestamp=first_time,
        last_store_timestamp=end.store_timestamp,
        damaged_ranges=end.damaged_ranges,
        damaged_bytes=end.damaged_bytes,
        first_damage=end.first_damage,
        torn=end.torn,
    )


def _near_the_end(layout: Layout, queues: list[_DescribedQueue]) -> tuple[int | None, str]:
    """Return the position of a record near the end of the log, None to walk from its start, and how it was found."""
    with StoreReader(layout) as store:
        position, queue = store.near_the_end(found.summary for found in queues)
        if queue is not None:
            place = f"{queue.topic}/{queue.queue_id} @{queue.max_offset - 1}"
            return position, f"walked from the highest queue unit, {place}"
        file = None if position is None else store.log_files.file_at(position)
    if file is None:
        return None, "the log was walked from its start"
    return position, f"walked from the last file with a record, {Path(file.path).name}"


def last_exit(abort: Path, pid: int | None) -> tuple[str, str]:
    """Return how the last broker ended, and the evidence."""
    if pid is not None:
        who = f"process {pid}" if pid else "a process that cannot be named"
        return "running", f"{who} holds the lock"
    try:
        text = read_regular(abort, _ABORT_BYTES).decode("ascii", "replace").strip()
    except Missing:
        return "clean", "there is no abort file"
    except StoreError as error:  # a broker only asks whether the file exists
        return "crashed", f"abort is there: {error.message}"
    return "crashed", f"abort is there, of process {text}" if text else "abort is there"


def _is_odd(entry: DirectoryEntry, file_bytes: int) -> bool:
    """Whether the entry is a log file with another length than `file_bytes`."""
    return start_of(entry.name) is not None and not entry.directory and entry.size != file_bytes


def _restart(layout: Layout, generation: Generation, queues: list[_DescribedQueue], *, in_use: bool) -> Restart | None:
    """Return where the recovery of the next start begins, or why a broker does not start; None for another start of
    DLedger, and for a log without files.
    """
    profile, file_bytes = profile_of(generation.version), sizes_of(layout).commit_log.value
    ledger = layout.dledger
    paths = [ledger] if ledger is not None else layout.as_started().commit_log_directories
    entries = [entry for path in paths for entry in list_entries(path)]
    entries.sort(key=lambda entry: entry.name)
    if in_use and entries and _is_odd(entries[-1], file_bytes):
        entries.pop()  # the broker is creating it
    snapshot = Snapshot(
        layout=layout,
        log=tuple(entries),
        log_file_bytes=file_bytes,
        queues={},
        queue_file_bytes=sizes_of(layout).consume_queue.value,
        index=tuple(list_entries(layout.index)),
        checkpoint=(seen_checkpoint(layout.checkpoint) or Checkpoint())._asdict(),
        abort=layout.abort.exists(),
    )
    loaded = load_files(snapshot.log, snapshot.log_file_bytes, DLEDGER_LOAD if ledger else profile.load)
    refusal = loaded.refusal or directory_for_file(snapshot, profile.load)
    if refusal is None and ledger and not in_use:  # a file that DLedger makes has another length
        from ..start.dledger import refusal_of_files

        refusal = refusal_of_files(snapshot, loaded.files)
    if refusal is not None:
        return Restart(generation.version, "", refusal.text(os.fspath(layout.root)))
    if ledger or not loaded.files:
        return None
    ends = (found.summary.end_position for found in queues)
    queues_end = max((end for end in ends if end is not None), default=-1)
    switches = Switches.of(layout.broker_config)
    chosen = start_file(snapshot, loaded.files, profile, queues_end, switches)
    entry = loaded.files[chosen.number].entry
    return Restart(generation.version, entry.name if entry else "", chosen.reason)


def _index_files(layout: Layout, foreign: list[ForeignEntry]) -> list[IndexSummary]:
    with Index.open(layout.index, layout.broker_config) as index:
        foreign += index.foreign
        return [IndexSummary(Path(file.path).name, file.slots, file.items, file.header) for file in index.files]


def _odd_files(layout: Layout, *, in_use: bool) -> Iterator[str]:
    """Yield notes on compressed log files, log files of a wrong size, and missing ones.

    In a store in use the size of the last file is not checked: the broker may be creating it.
    """
    files = layout.commit_log_files()
    compressed = sum(file.compressed for file in files.files)
    if compressed:
        yield counted(
            compressed, "log file is compressed: no broker reads it", "log files are compressed: no broker reads these"
        )
    for file in files.files:
        if file.size != files.file_size and not (in_use and file is files.files[-1]):
            yield f"{file.path} has {counted(file.size, 'byte')}, not {files.file_size}"
    for gap in files.gaps:
        yield f"no file of the log holds {gap.position} … {gap.position + gap.size}"


def _links(layout: Layout) -> Iterator[str]:
    """Yield notes on links in the store directory: commands that write follow them only when told to."""
    with os_errors(layout.root), os.scandir(layout.root) as entries:
        links = sorted(entry.path for entry in entries if entry.is_symlink())
    for path in links:
        yield f"{os.path.basename(path)} is a link to {os.readlink(path)}"  # noqa: PTH115, PTH119
