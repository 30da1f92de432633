"""Rows become files of a wanted size, all in one folder or in one a day.

    part-PART-N.FORMAT, or date=YYYY-MM-DD/part-PART-N.FORMAT

with `.draft` behind until they are published.

Every column stands in the files, with its type: readers guess the types of what stands in paths, and
take the topic 00123 for a number. A day is a day for all of them. What is kept back to make large
pieces is bounded; a piece is written by another thread while the next one is read.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa

from ..disk.files import Files
from ..errors import from_os_error
from ..output.stage import DRAFT
from .export_formats import FileKind, Sink, open_sink

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
class _Kept:
    """Rows of one key that are not written yet."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    bytes: int = 0


@dataclass
class _Open:
    """A file that gets more."""

    path: str
    sink: Sink
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
        kind: FileKind,
        schema: pa.Schema,
        files: Files,
        *,
        by_day: bool = False,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self.written: list[ExportFile] = []
        self._folder, self._part, self._kind, self._schema = folder, part, kind, schema
        self._files, self._by_day, self._file_bytes = files, by_day, file_bytes
        self._kept: dict[Day, _Kept] = {}
        self._kept_bytes = 0
        self._open: dict[Day, _Open] = {}
        self._numbers: dict[Day, int] = {}
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="mqstore-export")
        self._writing: Future[None] | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        """Rows with the columns of the schema, and the one that tells the day."""
        for day, some in by_day(rows) if self._by_day else [(_ONE, rows)]:
            part = some.select(self._schema.names)
            kept = self._kept.setdefault(day, _Kept())
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
        path = name if day is None else f"date={np.datetime64(day, 'D')}/{name}"
        file = self._draft(path)
        self._files.make_directory(file.parent)
        try:
            return _Open(path, open_sink(self._kind, file, self._schema))
        except OSError as error:
            raise from_os_error(error, file, "cannot write") from error

    def _end(self, day: Day) -> None:
        ended = self._open.pop(day)
        file = self._draft(ended.path)
        try:
            ended.sink.close()
            size = file.stat().st_size
        except OSError as error:
            raise from_os_error(error, file, "cannot write") from error
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
