"""Messages sorted out into files by topic and day. Arrow and numpy only; a task of Spark calls it.

    topic=TOPIC/date=YYYY-MM-DD/part-SPLIT-N.FORMAT

A file has the messages of one split of a log. What is kept back to make large pieces is bounded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from ..errors import from_os_error
from ..write.files import Files
from .export_formats import open_sink

NEEDED = ("topic", "store_timestamp")
"""Columns that say where a message goes."""
DAY_MS = 86_400_000
_KEPT_BYTES_MAX = 96 << 20
"""Rows that are kept back, of all files together."""
_NAME_BYTES_MAX = 200
_NO_TOPIC = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^") | frozenset(map(chr, range(32)))

Key = tuple[str, int]
"""Topic and day since 1970, UTC."""


@dataclass
class ExportFile:
    """One file that a task wrote. path: below the target."""

    path: str
    topic: str
    date: str
    rows: int
    bytes: int


@dataclass
class _Kept:
    """Rows of one key that are not written yet."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    bytes: int = 0


class ExportFiles:
    """Writes rows as the files of one attempt below `folder`.

    part: names the split. columns: those that are written. A file is open only while rows are
    written to it: one that gets more later is followed by another.
    """

    def __init__(
        self, folder: Path, part: str, form: str, columns: Sequence[str], files: Files
    ) -> None:
        self.written: list[ExportFile] = []
        self._folder = folder
        self._part = part
        self._form = form
        self._columns = list(columns)
        self._files = files
        self._kept: dict[Key, _Kept] = {}
        self._kept_bytes = 0
        self._numbers: dict[Key, int] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        """Rows with the columns `NEEDED` and those that are written. Raises NoSpace, Unreadable."""
        for key, some in _by_key(rows):
            part = some.select(self._columns)
            kept = self._kept.setdefault(key, _Kept())
            kept.batches.append(part)
            size = part.get_total_buffer_size()
            kept.bytes += size
            self._kept_bytes += size
        while self._kept_bytes > _KEPT_BYTES_MAX:
            self._flush(max(self._kept, key=lambda key: self._kept[key].bytes))

    def close(self) -> None:
        """Write what is left. Raises NoSpace, Unreadable."""
        for key in list(self._kept):
            self._flush(key)

    def _flush(self, key: Key) -> None:
        kept = self._kept.pop(key)
        self._kept_bytes -= kept.bytes
        topic, day = key
        number = self._numbers[key] = self._numbers.get(key, -1) + 1
        date = str(np.datetime64(day, "D"))
        name = f"part-{self._part}-{number}.{self._form}"
        path = f"topic={folder_name(topic)}/date={date}/{name}"
        file = self._folder / path
        self._files.make_directory(file.parent)
        rows = pa.Table.from_batches(kept.batches).combine_chunks()
        try:
            sink = open_sink(self._form, file, rows.schema)
            for batch in rows.to_batches():
                sink.write(batch)
            sink.close()
            size = file.stat().st_size
        except OSError as error:
            raise from_os_error(error, file, "cannot write") from error
        with self._files.open(file) as written:
            written.sync()
        self.written.append(ExportFile(path, topic, date, rows.num_rows, size))


def _by_key(rows: pa.RecordBatch) -> Iterator[tuple[Key, pa.RecordBatch]]:
    """The rows of each topic and day, in their order."""
    topics = rows.column("topic").dictionary_encode()
    ids = topics.indices.to_numpy()
    days = rows.column("store_timestamp").to_numpy() // DAY_MS
    first = int(days.min())
    code = ids.astype(np.int64) * (int(days.max()) - first + 1) + (days - first)
    order = np.argsort(code, kind="stable")
    edges = np.flatnonzero(np.diff(code[order])) + 1
    for some in np.split(order, edges):
        key = topics.dictionary[int(ids[some[0]])].as_py(), int(days[some[0]])
        yield key, rows.take(pa.array(some)) if len(some) < rows.num_rows else rows


def folder_name(topic: str) -> str:
    """The topic as part of a path, escaped as Hive and Spark read it; a long one with its hash."""
    text = "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in topic) or _NO_TOPIC
    data = text.encode("utf-8", "replace")
    if len(data) <= _NAME_BYTES_MAX:
        return text
    digest = hashlib.sha256(topic.encode("utf-8", "replace")).hexdigest()[:16]
    return f"{data[: _NAME_BYTES_MAX - 20].decode('utf-8', 'ignore')}~{digest}"
