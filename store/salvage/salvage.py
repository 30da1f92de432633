"""Salvage from beginning to end: carve, arrange the runs, write a new store and its manifest.

A store without holes gets the records by the writer, renumbered. The manifest has a line for each record that was
found, and for each head without a record.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ...formats.derive import Columns, Ragged
from ...formats.derive.ragged import Flags, Ints
from ...formats.message_properties import DELAY, INNER_MULTI_DISPATCH, ITEM_SEPARATOR, with_value
from ...formats.property_columns import PropertyItems
from ...formats.tombstone import FILLER_TOPIC
from ..broker.load_rules import unreadable_levels
from ..broker.system_topics import OP_TOPIC, SCHEDULE_TOPIC
from ..columns import dictionary
from ..counted import counted
from ..disk.broker_conf import BrokerConfig
from ..disk.byte_reader import Closing
from ..disk.files import Files, OpenFile
from ..disk.layout import COMMIT_LOG, Layout
from ..disk.lock import check_empty, new_directory
from ..errors import InvalidInput, LimitExceeded, Missing, NotFound, Refused, StoreError
from ..inspect.transactions import open_in, open_in_database
from ..log.message import stand_ins
from ..put.message_columns import columns_where
from ..put.new_message import COPIED, WriterOptions
from ..put.producer import refused_copies
from ..put.queue_kinds import without_blocking_names
from ..put.tail import check_new_store
from ..put.writer import StoreWriter
from ..search.selection import TimeRange, topic_mask
from ..search.store import StoreReader
from .carve import Arranged, Carved, Fragment, arrange, carve, join
from .original import (
    Restored,
    bring_along,
    check_layer,
    close_holes,
    complete,
    config_of_new,
    file_bytes_of,
    write_aside,
    write_log,
)
from .runs import Grade, Images, Layer, SalvageRun, SalvageSource, Sources, append, batches_of, mark_odd, split_far

NAME = "manifest.ndjson"
_BUFFER_BYTES = 1 << 20
T = TypeVar("T")
_SPLIT = "a record header without its body"
_EMBEDDED = "inside another, damaged record"


class Manifest(Closing):
    """A file of JSON lines in the directory of the new store.

    The file is created when there is something to write: a store begins in an empty directory.
    """

    def __init__(self, root: Path, sources: Sources, files: Files) -> None:
        self._path, self._files, self._sources = root / NAME, files, sources
        self._file: OpenFile | None = None
        self._lines: list[str] = []
        self._bytes = self._at = 0

    def runs(self, runs: list[SalvageRun], fate: str, folder: str = "") -> None:
        """Write all records of some runs. folder: where they lie beside the new store."""
        for run in runs:
            for columns in batches_of(run, self._sources):
                self.records(run, columns, fate, folder=folder)

    def kept(self, runs: list[SalvageRun], changed: Mapping[int, str]) -> None:
        """Write all records of runs that keep their places. changed: how records differ in the new log, by position."""
        for run in runs:
            for columns in batches_of(run, self._sources):
                at = columns.ints("physical_offset")
                reasons = np.array([changed.get(place, "") for place in at.tolist()] if changed else [""])
                for reason in np.unique(reasons).tolist():
                    rows = np.broadcast_to(reasons == reason, at.shape)
                    self.records(run, columns.take(rows), "kept", at[rows], reason=reason)

    def records(
        self, run: SalvageRun, columns: Columns, fate: str, to: Ints | None = None, folder: str = "", reason: str = ""
    ) -> None:
        """Write records of a run. to: their places in the new log, int64[n]. reason: why refused, or changed."""
        more = {"folder": folder, "reason": reason}
        tail = {"grade": run.grade.label, "fate": fate, **{name: text for name, text in more.items() if text}}
        names = ("total_size", "physical_offset", "queue_id", "queue_offset", "store_timestamp")
        numbers = [columns.ints("physical_offset") - run.shift, *map(columns.ints, names)]
        # what all lines share is made once: records are many
        line = "".join(
            (
                _fixed({"type": "salvaged", "source": self._name(run.source)}, "{", ","),
                *(f'"{name}":%d,' for name in ("offset", *names)),
                '"topic":%s,',
                _fixed(tail, "", "}" if to is None else ',"to":%d}'),
            )
        )
        topics = dictionary(columns.ragged("topic"))
        quoted = [json.dumps(topic.decode("utf-8", "replace")) for topic in topics.values]
        values = [column.tolist() for column in numbers]
        values.append([quoted[code] for code in topics.ids.tolist()])
        if to is not None:
            values.append(np.asarray(to).tolist())
        self._write([line % row for row in zip(*values, strict=True)])

    def fragment(self, fragment: Fragment) -> None:
        """Write a head without a record of its own."""
        record = {
            "type": "fragment",
            "source": self._name(fragment.source),
            "offset": fragment.at,
            "total_size": fragment.size,
            "physical_offset": fragment.position,
            "reason": _EMBEDDED if fragment.embedded else _SPLIT,
        }
        self._write([json.dumps(record, separators=(",", ":"))])

    def _name(self, source: int) -> str:
        return str(self._sources.paths[source])

    def _write(self, lines: list[str]) -> None:
        self._lines += lines
        self._bytes += sum(map(len, lines)) + len(lines)
        if self._bytes >= _BUFFER_BYTES:
            self._flush()

    def _flush(self) -> OpenFile:
        if self._file is None:
            self._file = self._files.create(self._path)
        if self._lines:
            data = "".join(f"{line}\n" for line in self._lines).encode()
            self._file.pwrite(data, self._at)
            self._at += len(data)
            self._lines, self._bytes = [], 0
        return self._file

    def close(self) -> None:
        """Write what is left; the file is there from then on."""
        with self._flush() as file:
            file.sync()


def _fixed(fields: dict[str, Any], before: str, after: str) -> str:
    """Return JSON of these fields, between two pieces of a template for `%`."""
    text = json.dumps(fields, separators=(",", ":"))[1:-1]
    return before + text.replace("%", "%%") + after


_FIELDS = (
    *("topic", "body", "queue_id", "flag", "sys_flag", "born_timestamp", "born_host.ip"),
    *("born_host.port", "store_timestamp", "reconsume_times", "prepared_transaction_offset"),
    *("properties", *COPIED),
)


@dataclass(frozen=True)
class SalvageSelection:
    """Which records go into the new store: of these topics, names or patterns (all without any), stored at these
    times.
    """

    topics: frozenset[str] = frozenset()
    times: TimeRange = field(default_factory=TimeRange)

    def rows(self, columns: Columns) -> Flags:
        """bool[n]: the record goes into the store."""
        time = columns.ints("store_timestamp")
        found: Flags = (time >= self.times.since_ms) & (time < self.times.until_ms)
        if self.topics:
            found &= np.any([topic_mask(columns.ragged("topic"), topic) for topic in self.topics], axis=0)
        return found


@dataclass
class Written:
    """Numbers of records that were put, left out, refused by the writer. op_records, pop_records: left out although
    asked for, since they name records that did not come along (`CopiedNumbers`). tombstones: left out, too.
    refused_runs: the refused ones.
    """

    stored: int = 0
    left_out: int = 0
    refused: int = 0
    op_records: int = 0
    pop_records: int = 0
    tombstones: int = 0
    refused_runs: list[SalvageRun] = field(default_factory=list)


def write_compact(
    layer: Layer,
    sources: Sources,
    writer: StoreWriter,
    selection: SalvageSelection,
    manifest: Manifest,
    told: Callable[[int], None] = lambda _: None,
) -> Written:
    """Put the records of a layer into a new store, in log order. Raises as `StoreWriter`."""
    done = Written()
    for run in layer.runs:
        for columns in batches_of(run, sources):
            wanted, topics = selection.rows(columns), columns.ragged("topic")
            # what closed a hole of the old log is left out; a tombstone of an op record still decides transactions
            closing = stand_ins(columns) & ~topics.equals(OP_TOPIC.encode())
            done.tombstones += int((wanted & closing & ~topics.equals(FILLER_TOPIC)).sum())
            wanted &= ~closing
            if not wanted.all():
                manifest.records(run, columns.take(~wanted), "left_out")
                done.left_out += int((~wanted).sum())
            if wanted.any():
                _append(writer, run, columns if wanted.all() else columns.take(wanted), manifest, done)
            told(int(columns.ends[-1] - columns.starts[0]))
    writer.sync()
    done.op_records, done.pop_records = writer.copies.op_records, writer.copies.pop_records
    return done


def _append(writer: StoreWriter, run: SalvageRun, columns: Columns, manifest: Manifest, done: Written) -> None:
    """Append records, but for those that do harm. Halving finds a record that the writer refuses."""
    fields, reasons = _fields(writer, run, columns)
    if harmful := refused_copies(fields, writer.profile.start.record):
        for row, reason in harmful.items():
            _refuse(run, columns.take(slice(row, row + 1)), reason, manifest, done)
        others = ~np.isin(np.arange(len(columns)), list(harmful))
        fields, columns, reasons = columns_where(fields, others), columns.take(others), reasons[others]
    if not len(columns):
        return
    try:
        stored = writer.append_columns(fields)
    except (InvalidInput, LimitExceeded) as error:
        if len(columns) == 1:
            _refuse(run, columns, str(error), manifest, done)
            return
        half = len(columns) // 2
        for part in (slice(0, half), slice(half, None)):
            _append(writer, run, columns.take(part), manifest, done)
        return
    if stored.kept is not None:
        manifest.records(run, columns.take(~stored.kept), "left_out")
        done.left_out += int((~stored.kept).sum())
        columns, reasons = columns.take(stored.kept), reasons[stored.kept]
    for reason in np.unique(reasons).tolist():
        rows, text = reasons == reason, "; ".join(text for bit, text in _REASONS.items() if reason & bit)
        manifest.records(run, columns.take(rows), "kept", stored.physical_offset[rows], reason=text)
    done.stored += len(columns)


def _refuse(run: SalvageRun, record: Columns, reason: str, manifest: Manifest, done: Written) -> None:
    """Put a record aside, in `REFUSED`."""
    manifest.records(run, record, "refused", folder=REFUSED, reason=reason)
    done.refused += 1
    position, size = (int(record.ints(name)[0]) for name in ("physical_offset", "total_size"))
    append(done.refused_runs, [run.part(position, position + size, 1)])


def _fields(writer: StoreWriter, run: SalvageRun, columns: Columns) -> tuple[dict[str, Any], Ints]:
    """Return what the writer gets of the records, and the bits of `_REASONS` of each, int64[n]."""
    fields: dict[str, Any] = {name: columns[name] for name in _FIELDS}
    lmq, reasons = writer.profile.lmq_queues, np.zeros(len(columns), np.int64)
    if run.grade is Grade.BODY:
        fields["properties"] = Ragged.repeat(b"", len(columns))  # torn properties mean nothing
        return fields, reasons
    if lmq is not None and writer.names_lmq_queues:
        # the message is still served from the other queues
        fields["properties"], changed = without_blocking_names(fields["properties"], lmq)
        reasons += changed * _UNSERVED
    fields["properties"], rows = _with_readable_levels(fields["properties"], columns)
    reasons[rows] += _NO_LEVEL
    return fields, reasons


def _with_readable_levels(texts: Ragged, columns: Columns) -> tuple[Ragged, Ints]:
    """Return property texts with the queue's delay level where brokers cannot read the level; and the changed rows."""
    topics = columns.ragged("topic")
    scheduled = np.flatnonzero(topics.equals(SCHEDULE_TOPIC.encode()))
    rows = scheduled[unreadable_levels(topics[scheduled], PropertyItems(texts[scheduled], (DELAY,)))]
    if not len(rows):
        return texts, rows
    made = texts.tolist()
    for row, queue_id in zip(rows.tolist(), columns.ints("queue_id")[rows].tolist(), strict=True):
        ended = made[row].endswith(ITEM_SEPARATOR)
        made[row] = with_value(made[row], DELAY, str(queue_id + 1), final_separator=ended)
    return Ragged.of(made), rows


CONFLICTS = "conflicts"
REFUSED = f"{CONFLICTS}/refused"
_UNSERVED, _NO_LEVEL = 1, 2
_REASONS = {
    _UNSERVED: f"stored without the names in {INNER_MULTI_DISPATCH} at which brokers stop dispatching",
    _NO_LEVEL: f"stored with the delay level of its queue, because {DELAY} was not a number",
}
"""How stored messages differ from those that were found; the keys are bits."""


class LayoutKind(StrEnum):
    """What the new store looks like."""

    ORIGINAL = "original"
    COMPACT = "compact"


@dataclass(frozen=True)
class SalvageRequest:
    """What is asked for. grade: the worst that the new store takes. version: of the brokers that will run on it, None
    for a guess."""

    layout: LayoutKind = LayoutKind.ORIGINAL
    grade: Grade = Grade.BODY
    selection: SalvageSelection = field(default_factory=SalvageSelection)
    version: str | None = None
    config: BrokerConfig = field(default_factory=BrokerConfig)


Told = Callable[[str, int], None]
"""Called with the name of a step and the number of bytes done since the last call."""


@dataclass
class Salvaged:
    """What was found and what was made of it. Counts are of records.

    stores: sources that are stores. brought, left_out: files that came along from the only one, and that could not.
    aside: layers that lie in `conflicts`. unreadable: bytes that a device did not give. open_transactions: those that a
    broker finds only in a RocksDB, which is not salvaged. left: what is left to do, "" for nothing.
    """

    sources: Sources
    found: Carved
    images: str
    stores: list[Layout] = field(default_factory=list)
    brought: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    arranged: Arranged = field(default_factory=Arranged)
    aside: list[Layer] = field(default_factory=list)
    file_bytes: int = 0
    unreadable: int = 0
    restored: Restored | None = None
    written: Written | None = None
    open_transactions: int = 0
    left: str = ""

    @property
    def log(self) -> Layer:
        """What the new store holds."""
        return self.arranged.layers[0]

    @property
    def grades(self) -> dict[str, int]:
        counts: Counter[Grade] = Counter()
        for run in self.found.runs:
            counts[run.grade] += run.records
        return {grade.label: counts[grade] for grade in Grade}

    @property
    def has_log(self) -> bool:
        """Whether the new store has a log."""
        return self.restored is not None or (self.written is not None and self.written.stored > 0)

    @property
    def complete(self) -> bool:
        """Whether every record found is whole and in its place."""
        left = self.left or self.left_out or (self.restored is not None and self.restored.unplaced)
        refused = self.written is not None and self.written.refused
        damaged = self.grades["body"] + self.grades["structure"] + self.found.split
        aside = any(layer.runs for layer in self.aside)
        return not (left or refused or damaged or aside or self.unreadable or self.open_transactions)


def look(images: Iterable[Path], paths: list[Path], wanted: SalvageRequest, told: Told) -> Salvaged:
    """Find all records and decide what becomes of them. Nothing is written.

    Raises NotFound if there is no record, Missing, Unreadable.
    """
    sources = Sources(paths)
    found, unreadable = Carved(), 0
    for number in range(len(sources)):
        try:
            source = sources[number]
        except Missing as error:
            sources.lose(error)
            continue
        assert isinstance(source, SalvageSource)
        carve(source, number, found, lambda size: told("searching", size))
        unreadable += sum(end - begin for begin, end in source.unreadable)
    images = list(images)
    done = Salvaged(sources, found, ", ".join(map(str, images)), _stores(images, wanted.config), unreadable=unreadable)
    return _without_expired(done, wanted, lambda: done, anew=True)


def _stores(images: list[Path], config: BrokerConfig) -> list[Layout]:
    """Return those of the images that are stores, each once."""
    found: dict[Path, Layout] = {}
    for image in images:
        with suppress(StoreError):
            found.setdefault(image.resolve(), Layout.open(image, config.for_new_store()))
    return list(found.values())


def _without_expired(done: Salvaged, wanted: SalvageRequest, job: Callable[[], T], *, anew: bool = False) -> T:
    """Return what a job on the records found returns. If a running broker has deleted a file meanwhile, do the job
    again without the records of that file. anew: decide first what becomes of the records. Raises what `_arrange` and
    the job raise.
    """
    while True:
        try:
            if anew:
                _arrange(done, wanted)
            return job()
        except Missing as error:
            done.sources.lose(error)
            done.found.forget(done.sources.expired)
            anew = True


def _arrange(done: Salvaged, wanted: SalvageRequest) -> None:
    """Decide what becomes of the records found. Raises NotFound if there is none, Missing, Unreadable."""
    found, sources = done.found, done.sources
    if not found.runs:
        raise NotFound(f"no record in {counted(found.bytes, 'byte')}", path=done.images)
    join(found, sources)
    mark_odd(found.runs)
    done.arranged = arrange(found.runs, sources, wanted.grade)
    done.file_bytes = file_bytes_of(done.log.runs, sources, found.blanks, wanted.config)
    done.arranged.layers[0], far = split_far(done.log, done.file_bytes)
    done.aside = [*done.arranged.layers[1:], *far]


def check_target(images: Images, target: Path, wanted: SalvageRequest) -> None:
    """Raise Refused for a target inside of what is salvaged, InvalidInput for a target that holds something,
    Unsupported for options with which no new messages are stored there.
    """
    check_empty(target)
    if wanted.layout is LayoutKind.COMPACT:
        check_new_store(target, wanted.config.for_new_store(), wanted.version)
    above = next(path for path in (target, *target.resolve().parents) if path.exists())
    for image in images.files:
        if image.is_block_device() and image.stat().st_rdev == above.stat().st_dev:
            hint = "each write there may destroy messages that can be salvaged: name another disk"
            raise Refused("the new store would lie on the device itself", path=target, hint=hint)
    if any(target.resolve().is_relative_to(folder.resolve()) for folder in images.folders):
        raise Refused("the new store would lie inside the source", path=target)


def write(salvaged: Salvaged, target: Path, wanted: SalvageRequest, files: Files, told: Told) -> None:
    """Make the new store at `target`, with `conflicts` and the manifest beside its parts.

    Raises Refused, InvalidInput, NoSpace: then the target is as it was.
    """
    if wanted.layout is LayoutKind.ORIGINAL and salvaged.log.runs:
        check_layer(salvaged.log, salvaged.file_bytes)

    like = salvaged.stores[0].root if salvaged.stores else None

    def make() -> None:
        with new_directory(target, files, like=like):
            _write(salvaged, target, wanted, files, told)

    _without_expired(salvaged, wanted, make)
    if not salvaged.log.runs:
        return
    with StoreReader(Layout.open(target, wanted.config.for_new_store())) as store:
        salvaged.open_transactions = open_in_database(store)


def open_if_written(salvaged: Salvaged, wanted: SalvageRequest) -> int:
    """As `open_in_database` of the new store."""

    def count() -> int:
        runs = salvaged.log.runs if salvaged.found.in_rocksdb else ()  # most images are read once
        return open_in(c.take(wanted.selection.rows(c)) for run in runs for c in batches_of(run, salvaged.sources))

    return _without_expired(salvaged, wanted, count)


def _write(salvaged: Salvaged, target: Path, wanted: SalvageRequest, files: Files, told: Told) -> None:
    log, sources = salvaged.log, salvaged.sources
    selection, version, config = wanted.selection, wanted.version, wanted.config.for_new_store()

    def writing(size: int) -> None:
        told("writing", size)

    if wanted.layout is LayoutKind.COMPACT:
        with Manifest(target, sources, files) as manifest:
            with StoreWriter.open(target, config, WriterOptions(as_broker=version), files=files) as writer:
                salvaged.written = write_compact(log, sources, writer, selection, manifest, writing)
            _beside(salvaged, target, manifest, files)
        return
    if log.runs:
        write_log(log, sources, target / COMMIT_LOG, salvaged.file_bytes, files, writing)
        restored, offsets = close_holes(log, salvaged.found.blanks, target, salvaged.file_bytes, files)
        if len(salvaged.stores) == 1:
            (old,) = salvaged.stores
            end = log.runs[-1].end
            salvaged.brought, salvaged.left_out = bring_along(old, target, end, offsets, files)
            with suppress(StoreError):  # the sizes are those of a broker that is configured like that
                config = config_of_new(old)
        restored = complete(target, restored, offsets, config, version, files)
        salvaged.restored, salvaged.left = restored, restored.left
    with Manifest(target, sources, files) as manifest:
        manifest.kept(log.runs, {} if salvaged.restored is None else salvaged.restored.changed)
        _beside(salvaged, target, manifest, files)


def _beside(salvaged: Salvaged, target: Path, manifest: Manifest, files: Files) -> None:
    """Note duplicates and fragments; write what has no place in the log to files of its own."""
    for number, layer in enumerate((each for each in salvaged.aside if each.runs), 1):
        folder = f"{CONFLICTS}/{number}"
        write_aside([[run] for run in layer.runs], salvaged.sources, target / folder, files)
        manifest.runs(layer.runs, "aside", folder)
    if salvaged.written is not None and salvaged.written.refused_runs:  # a file for each would be too many
        write_aside([salvaged.written.refused_runs], salvaged.sources, target / REFUSED, files)
    manifest.runs(salvaged.arranged.duplicates, "duplicate")
    for fragment in salvaged.found.fragments:
        manifest.fragment(fragment)
