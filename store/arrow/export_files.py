"""Rows become files of a wanted size, all in one folder or in one a day.

    part-PART-N.FORMAT, or date=YYYY-MM-DD/part-PART-N.FORMAT

with `.draft` behind until they are published.

Every column stands in the files, with its type: readers guess the types of what stands in paths, and
take the topic 00123 for a number. A day is a day for all of them. What is kept back to make large
pieces is bounded; a piece is written by another thread while the next one is read.

The messages of parts of logs, written as files: what a local export and a task of Spark do.

A body that fails its checksum is never written as a sound one: it is refused, left out, or stands
beside a `body_crc_ok` that is false.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..disk.files import Files
from ..errors import from_os_error, os_errors
from ..output.stage import DRAFT
from ..put.on_damage import CorruptedBodies, OnDamage
from .export_formats import NOTE, ExportFormat, ExportSink, holds_note, open_sink
from .log_columns import SCHEMA
from .log_rows import Damage, LogSplit, fields_of, rows_of
from .stores import BODY_CRC_OK, DAY_FOLDERS, Ask

DAY_COLUMN = "store_timestamp"
"""What tells the day of a message."""
DAY_MS = 86_400_000
FILE_BYTES = 128 << 20
_KEPT_BYTES_MAX = 48 << 20
"""Rows that are kept back, of all files together; as many are being written."""
_OPEN_MAX = 64
"""Files of different days that are open at once."""
_ONE = None
"""The key of all rows that are not sorted out by day."""

Day = int | None
"""Days since 1970, UTC; None where days do not count."""


@dataclass
class ExportFile:
    """One file that was written. path: below the target."""

    path: str
    rows: int
    bytes: int


@dataclass
class _KeptRows:
    """Rows of one key that are not written yet."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    bytes: int = 0


@dataclass
class _Open:
    """A file that gets more."""

    path: str
    sink: ExportSink
    rows: int = 0


class ExportFiles:
    """Writes rows as the files of one attempt below `folder`; a context manager.

    part: names whoever writes. schema: of what is written, with its note. by_day: rows need `DAY_COLUMN`, and a day
    has a folder. file_bytes: a file that has become so large gets no more. Leaving the context ends
    the files. Raises NoSpace, Unreadable from any call behind the one that it belongs to.
    """

    def __init__(
        self,
        folder: Path,
        part: str,
        kind: ExportFormat,
        schema: pa.Schema,
        files: Files,
        *,
        by_day: bool = False,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self.written: list[ExportFile] = []
        self._folder, self._part, self._kind, self._schema = folder, part, kind, schema
        self._files, self._by_day, self._file_bytes = files, by_day, file_bytes
        self._kept: dict[Day, _KeptRows] = {}
        self._kept_bytes = 0
        self._open: dict[Day, _Open] = {}
        self._numbers: dict[Day, int] = {}
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="mqstore-export")
        self._writing: Future[None] | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        """Rows with the columns of the schema, and the one that tells the day."""
        for day, some in by_day(rows) if self._by_day else [(_ONE, rows)]:
            part = some.select(self._schema.names)
            kept = self._kept.setdefault(day, _KeptRows())
            kept.batches.append(part)
            kept.bytes += part.nbytes
            self._kept_bytes += part.nbytes
        while self._kept_bytes > _KEPT_BYTES_MAX:
            self._flush(max(self._kept, key=lambda day: self._kept[day].bytes))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                for day in list(self._kept):
                    self._flush(day)
                self._wait()
                for day in list(self._open):
                    self._end(day)
        finally:
            self._writer.shutdown()
            for left in self._open.values():
                with suppress(OSError):  # on a full disk it fails once more
                    left.sink.give_up()

    def write_one(self) -> None:
        """Write a file without rows where none has any: what is read back has columns and types."""
        self._write(_ONE, self._schema.empty_table())

    def _flush(self, day: Day) -> None:
        """Have what is kept of a day written, as soon as what is being written is."""
        kept = self._kept.pop(day)
        self._kept_bytes -= kept.bytes
        self._wait()
        rows = pa.Table.from_batches(kept.batches, self._schema)
        self._writing = self._writer.submit(self._write, day, rows)

    def _wait(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _write(self, day: Day, rows: pa.Table) -> None:
        file = self._open.pop(day, None) or self._begun(day)
        self._open[day] = file  # the last one is that of which rows came last
        try:
            file.sink.write(rows)
            size = file.sink.size
        except OSError as error:
            raise from_os_error(error, self._draft(file.path), "cannot write") from error
        file.rows += rows.num_rows
        if size >= self._file_bytes:
            self._end(day)

    def _begun(self, day: Day) -> _Open:
        if len(self._open) >= _OPEN_MAX:
            self._end(next(iter(self._open)))
        number = self._numbers[day] = self._numbers.get(day, -1) + 1
        name = f"part-{self._part}-{number}.{self._kind.form}"
        path = name if day is None else f"{DAY_FOLDERS}={np.datetime64(day, 'D')}/{name}"
        file = self._draft(path)
        self._files.make_directory(file.parent)
        with os_errors(file, "cannot write"):
            return _Open(path, open_sink(self._kind, file, self._schema))

    def _end(self, day: Day) -> None:
        ended = self._open.pop(day)
        file = self._draft(ended.path)
        with os_errors(file, "cannot write"):
            ended.sink.close()
            size = file.stat().st_size
        with self._files.open(file) as written:
            written.sync()
        self.written.append(ExportFile(ended.path, ended.rows, size))

    def _draft(self, path: str) -> Path:
        return self._folder / f"{path}{DRAFT}"


def by_day(rows: pa.RecordBatch) -> list[tuple[Day, pa.RecordBatch]]:
    """The rows of each UTC day of their store time, in their order."""
    days = rows.column(DAY_COLUMN).to_numpy() // DAY_MS
    found = np.unique(days)
    if len(found) == 1:
        return [(int(found[0]), rows)]
    return [(int(day), rows.filter(pa.array(days == day))) for day in found]


_TIME = pa.timestamp("ms", "UTC")
_FIRST_MS, _BEHIND_MS = -62_135_596_800_000, 253_402_300_800_000
"""The years 1 and 10000: beyond, readers have no calendar, and no message was stored."""
_RAW, _SHOWN = "_timestamp", "_time"
_READ = ("position", "total_size")
"""Columns that are read to tell how far it is, and where something is wrong."""


@dataclass(frozen=True)
class ExportHow:
    """How files are written. times: beside milliseconds a column that is a time.

    series: number of the export among those of a data set. note: what files hold beside their rows.
    """

    kind: ExportFormat = field(default_factory=ExportFormat)
    times: bool = False
    by_day: bool = False
    file_bytes: int = FILE_BYTES
    on_damage: OnDamage = OnDamage.MARK
    series: int = 0
    note: str = ""

    def named(self, writer: str) -> str:
        """Who writes, among all that ever write into the data set."""
        return f"{self.series:05}-{writer}" if self.series else writer


@dataclass
class Exported:
    """What has become of some parts."""

    corrupted: CorruptedBodies
    files: list[ExportFile] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)


def schema_of(ask: Ask, how: ExportHow) -> pa.Schema:
    """What is written: the columns asked for, behind a time in milliseconds the same as a time."""
    found = []
    for name in fields_of(ask):
        found.append(SCHEMA.field(name))
        if how.times and name.endswith(_RAW):
            found.append(pa.field(name.removesuffix(_RAW) + _SHOWN, _TIME))
    told = {NOTE: how.note} if how.note and holds_note(how.kind.form) else None
    return pa.schema(found, told)


def export_parts(
    ask: Ask,
    parts: Iterable[LogSplit],
    how: ExportHow,
    folder: Path,
    name: str,
    files: Files,
    note: Callable[[int], None] = lambda size: None,
) -> Exported:
    """Write the messages of some parts into files below a folder, in the order of the parts.

    name: of the one who writes, part of the names of files. note: told how many bytes were read.
    Raises StoreError where a log cannot be read any more, Corrupted, NoSpace, Unreadable.
    """
    done = Exported(CorruptedBodies(how.on_damage))
    schema = schema_of(ask, how)
    days = (DAY_COLUMN,) if how.by_day else ()
    reading = replace(ask, fields=tuple(dict.fromkeys((*fields_of(ask), *_READ, *days))))
    with ExportFiles(
        folder, how.named(name), how.kind, schema, files, by_day=how.by_day, file_bytes=how.file_bytes
    ) as out:
        for part in parts:
            for rows in rows_of(reading, part, done.damage.append):
                note(pc.sum(rows.column("total_size")).as_py())
                for sound in _taken(rows, part.store, done.corrupted):
                    out.add(_with_times(sound, schema))
    done.files = out.written
    return done


def write_empty(ask: Ask, how: ExportHow, folder: Path, files: Files) -> list[ExportFile]:
    """A file without rows, for an export that has no other: readers find columns and types."""
    with ExportFiles(folder, "none", how.kind, schema_of(ask, how), files) as out:
        out.write_one()
    return out.written


def _taken(rows: pa.RecordBatch, store: str, corrupted: CorruptedBodies) -> Iterator[pa.RecordBatch]:
    """Those that are written. Raises Corrupted."""
    if BODY_CRC_OK in rows.schema.names:
        sound = rows.column(BODY_CRC_OK).fill_null(True)
        if wrong := len(rows) - sound.true_count:
            first = rows.column("position")[pc.index(sound, False).as_py()]
            if not corrupted.take(wrong, f"{store} at {first}"):
                rows = rows.filter(sound)
    if rows.num_rows:
        yield rows


def _with_times(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    for name in schema.names:
        if name not in rows.schema.names:
            raw = rows.column(name.removesuffix(_SHOWN) + _RAW)
            inside = pc.and_(pc.greater_equal(raw, _FIRST_MS), pc.less(raw, _BEHIND_MS))
            shown = pc.if_else(inside, raw, None)
            rows = rows.append_column(pa.field(name, _TIME), shown.cast(_TIME))
    return rows
