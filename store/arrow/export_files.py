"""Messages written to files of a wanted size, in one folder or in one per day.

    part-PART-N.FORMAT, or date=YYYY-MM-DD/part-PART-N.FORMAT

with the suffix `.draft` until they are published. `export_parts` is what a local export and a Spark task do.

Every column is in the files, with its type: readers guess the types of values in paths, and take the topic 00123 for a
number. Only the day is in the path, which all readers take for a day. (Null would be true for a time that no calendar
has, but pandas does not read a table with null there.) What is kept back to make large pieces is bounded; one thread
writes a piece while the next is read.

A body that failed its checksum is never written as a sound one: it is refused, left out, or marked by a false
`body_crc_ok`.
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
from .stores import BODY_CRC_OK, DAY_FOLDERS, ReadOptions

DAY_COLUMN = "store_timestamp"
"""The column that determines the day of a message."""
DAY_MS = 86_400_000
FILE_BYTES = 128 << 20
_KEPT_BYTES_MAX = 48 << 20
"""Bytes of rows kept back, for all files together; as many more may be in writing."""
_OPEN_MAX = 64
"""Files of different days open at once."""
_ALL_DAYS = None
"""The key of all rows if they are not split by day."""

_FIRST_MS, _BEHIND_MS = -62_135_596_800_000, 253_402_300_800_000
"""The years 1 and 10000: outside of them readers have no calendar, and no message was stored."""

Day = int | None
"""Days since 1970, UTC; None if rows are not split by day."""


@dataclass
class ExportFile:
    """A file that was written. path: relative to the target."""

    path: str
    rows: int
    bytes: int


@dataclass
class _KeptRows:
    """Rows of one day that are not written yet."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    bytes: int = 0


@dataclass
class _Open:
    """A file that is being written."""

    path: str
    sink: ExportSink
    rows: int = 0


class ExportFiles:
    """Writes rows to the files of one attempt below `folder`; a context manager.

    part: names the writer. schema: of the files, with their note. by_day: a folder for each day; rows need
    `DAY_COLUMN`. file_bytes: a file of that size gets no more rows. Leaving the context closes the files. Any call may
    raise the NoSpace or Unreadable of an earlier one, as writing is asynchronous.
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
        """Add rows with the columns of the schema, and with `DAY_COLUMN` if split by day."""
        for day, some in by_day(rows) if self._by_day else [(_ALL_DAYS, rows)]:
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
            for unfinished in self._open.values():
                with suppress(OSError):  # on a full disk closing fails once more
                    unfinished.sink.give_up()

    def write_one(self) -> None:
        """Write a file without rows, for an export without any: readers find columns and types."""
        self._write(_ALL_DAYS, self._schema.empty_table())

    def _flush(self, day: Day) -> None:
        """Start to write what is kept for a day, after the writing before it has finished."""
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
        file = self._open.pop(day, None) or self._new_file(day)
        self._open[day] = file  # the dict is ordered by last use
        try:
            file.sink.write(rows)
            size = file.sink.size
        except OSError as error:
            raise from_os_error(error, self._draft(file.path), "cannot write") from error
        file.rows += rows.num_rows
        if size >= self._file_bytes:
            self._end(day)

    def _new_file(self, day: Day) -> _Open:
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
    """The rows of each UTC day of their store time, in their order; times of no calendar count as its ends."""
    days = rows.column(DAY_COLUMN).to_numpy().clip(_FIRST_MS, _BEHIND_MS - 1) // DAY_MS
    found = np.unique(days)
    if len(found) == 1:
        return [(int(found[0]), rows)]
    return [(int(day), rows.filter(pa.array(days == day))) for day in found]


_TIME = pa.timestamp("ms", "UTC")
_RAW, _SHOWN = "_timestamp", "_time"
_READ = ("position", "total_size")
"""Columns read to report progress and the place of damage."""


@dataclass(frozen=True)
class ExportHow:
    """How files are written. times: add a timestamp column next to each column of milliseconds.

    series: the number of the export in its data set. note: what files hold besides their rows.
    """

    kind: ExportFormat = field(default_factory=ExportFormat)
    times: bool = False
    by_day: bool = False
    file_bytes: int = FILE_BYTES
    on_damage: OnDamage = OnDamage.MARK
    series: int = 0
    note: str = ""

    def named(self, writer: str) -> str:
        """The name of a writer, unique in the data set."""
        return f"{self.series:05}-{writer}" if self.series else writer


@dataclass
class Exported:
    """Counts and files of exported parts."""

    corrupted: CorruptedBodies
    files: list[ExportFile] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)


def schema_of(ask: ReadOptions, how: ExportHow) -> pa.Schema:
    """The schema of the files: the columns asked for, and with `times` a timestamp column after each one in ms."""
    found = []
    for name in fields_of(ask):
        found.append(SCHEMA.field(name))
        if how.times and name.endswith(_RAW):
            found.append(pa.field(name.removesuffix(_RAW) + _SHOWN, _TIME))
    metadata = {NOTE: how.note} if how.note and holds_note(how.kind.form) else None
    return pa.schema(found, metadata)


def export_parts(
    ask: ReadOptions,
    parts: Iterable[LogSplit],
    how: ExportHow,
    folder: Path,
    name: str,
    files: Files,
    note: Callable[[int], None] = lambda size: None,
) -> Exported:
    """Write the messages of some parts to files below a folder, in the order of the parts.

    name: of the writer, part of file names. note: called with the number of bytes read. Raises StoreError for a log
    that cannot be read any more, Corrupted, NoSpace, Unreadable.
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
                for sound in _accepted(rows, part.store, done.corrupted):
                    out.add(_with_times(sound, schema))
    done.files = out.written
    return done


def write_empty(ask: ReadOptions, how: ExportHow, folder: Path, files: Files) -> list[ExportFile]:
    """Write a file without rows, for an export that has no other: readers find columns and types."""
    with ExportFiles(folder, "none", how.kind, schema_of(ask, how), files) as out:
        out.write_one()
    return out.written


def _accepted(rows: pa.RecordBatch, store: str, corrupted: CorruptedBodies) -> Iterator[pa.RecordBatch]:
    """Yield the rows to write. Raises Corrupted."""
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
