"""The messages of parts of logs, written as files: what a local export and a task of Spark do.

A body that fails its checksum is never written as a sound one: it is refused, left out, or stands
beside a `body_crc_ok` that is false.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from ..disk.files import Files
from ..put.on_damage import CorruptedBodies, OnDamage
from .ask import BODY_CRC_OK, Ask
from .export_files import DAY_COLUMN, FILE_BYTES, ExportFile, ExportFiles
from .export_formats import NOTE, FileKind, holds_note
from .log_columns import SCHEMA
from .log_rows import Damage, LogPart, fields_of, rows_of

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

    kind: FileKind = field(default_factory=FileKind)
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
    parts: Iterable[LogPart],
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
        folder,
        how.named(name),
        how.kind,
        schema,
        files,
        by_day=how.by_day,
        file_bytes=how.file_bytes,
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


def _taken(
    rows: pa.RecordBatch, store: str, corrupted: CorruptedBodies
) -> Iterator[pa.RecordBatch]:
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
