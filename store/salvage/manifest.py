"""The manifest: a line for each record that was found, and for each head without a record.

A new store without holes: the records once more through the writer, renumbered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ...formats.derive import Columns, decode
from ...formats.derive.ragged import Ints
from ...formats.message import MESSAGE, SysFlag
from ...formats.tombstone import FILLER_TOPIC
from ..disk.broker_conf import BrokerConfig
from ..disk.files import Files, OpenFile
from ..errors import InvalidInput, LimitExceeded
from ..put.new_message import WriterOptions
from ..put.writer import StoreWriter
from ..search.selection import TimeRange
from .arrange import Layer
from .carve import Fragment
from .runs import Grade, Run, windows_of
from .source import Sources

NAME = "manifest.ndjson"
_BUFFER_BYTES = 1 << 20
_SPLIT = "a head whose body does not follow"
_EMBEDDED = "inside another record, which is damaged"


class Manifest:
    """A file of JSON lines in the directory of the new store; a context manager.

    It is made when there is something to write: a store begins in an empty directory.
    """

    def __init__(self, root: Path, sources: Sources, files: Files) -> None:
        self._path, self._files = root / NAME, files
        self._file: OpenFile | None = None
        self._sources = sources
        self._lines: list[str] = []
        self._bytes = self._at = 0

    def runs(self, runs: list[Run], fate: str, folder: str = "") -> None:
        """All records of some runs. folder: where they lie beside the new store."""
        for run in runs:
            for columns in batches_of(run, self._sources):
                to = columns.ints("physical_offset") if fate == "kept" else None
                self.records(run, columns, fate, to, folder)

    def records(
        self, run: Run, columns: Columns, fate: str, to: Ints | None = None, folder: str = ""
    ) -> None:
        """Records of a run. to: their places in the new store's log, int64[n]."""
        head: dict[str, Any] = {"type": "salvaged", "source": self._name(run.source)}
        tail: dict[str, Any] = {"grade": run.grade.label, "fate": fate}
        if folder:
            tail["folder"] = folder
        offsets = columns.ints("physical_offset") - run.shift
        names = ("total_size", "physical_offset", "queue_id", "queue_offset", "store_timestamp")
        numbers = [columns.ints(name).tolist() for name in names]
        topics = [topic.decode("utf-8", "replace") for topic in columns.ragged("topic").tolist()]
        places = [None] * len(topics) if to is None else np.asarray(to).tolist()
        for offset, topic, place, *row in zip(
            offsets.tolist(), topics, places, *numbers, strict=True
        ):
            record = {**head, "offset": offset, **dict(zip(names, row, strict=True))}
            record |= {"topic": topic, **tail}
            if place is not None:
                record["to"] = place
            self._add(record)

    def fragment(self, fragment: Fragment) -> None:
        """A head without a record of its own."""
        self._add(
            {
                "type": "fragment",
                "source": self._name(fragment.source),
                "offset": fragment.at,
                "total_size": fragment.size,
                "physical_offset": fragment.position,
                "reason": _EMBEDDED if fragment.embedded else _SPLIT,
            }
        )

    def _name(self, source: int) -> str:
        return str(self._sources.paths[source]).encode("utf-8", "backslashreplace").decode()

    def _add(self, record: dict[str, Any]) -> None:
        line = json.dumps(record, separators=(",", ":"))
        self._lines.append(line)
        self._bytes += len(line) + 1
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._flush() as file:
            file.sync()


def batches_of(run: Run, sources: Sources) -> Iterator[Columns]:
    """The records of a run as columns, valid until the next ones are asked for."""
    for window, starts, _ in windows_of(run, sources):
        yield decode(MESSAGE, window.array, starts)


_FIELDS = (
    *("topic", "body", "queue_id", "flag", "sys_flag", "born_timestamp", "born_host.ip"),
    *("born_host.port", "store_timestamp", "reconsume_times", "prepared_transaction_offset"),
    "properties",
)


@dataclass(frozen=True)
class Selection:
    """Which records come to the new store: of these topics (all without any), stored at these times."""

    topics: frozenset[bytes] = frozenset()
    times: TimeRange = field(default_factory=TimeRange)

    def rows(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """bool[n]: the record comes to the store."""
        time = columns.ints("store_timestamp")
        found: npt.NDArray[np.bool_] = (time >= self.times.since_ms) & (time < self.times.until_ms)
        if self.topics:
            names = columns.ragged("topic").tolist()
            found &= np.array([name in self.topics for name in names], np.bool_)
        return found


@dataclass
class Written:
    """Records that were put, left out by the selection, refused by the writer."""

    stored: int = 0
    left_out: int = 0
    refused: int = 0


def write_compact(
    layer: Layer,
    sources: Sources,
    root: Path,
    config: BrokerConfig,
    version: str | None,
    selection: Selection,
    manifest: Manifest,
    files: Files,
    told: Callable[[int], None] = lambda _: None,
) -> Written:
    """Put the records of a layer into a new store, in log order. Raises as `StoreWriter`."""
    done = Written()
    options = WriterOptions(as_broker=version)
    with StoreWriter.open(root, config, options, files=files) as writer:
        for run in layer.runs:
            for columns in batches_of(run, sources):
                _put(writer, run, columns, selection, manifest, done)
                told(int(columns.ends[-1] - columns.starts[0]))
        writer.sync()
    return done


def _put(
    writer: StoreWriter,
    run: Run,
    columns: Columns,
    selection: Selection,
    manifest: Manifest,
    done: Written,
) -> None:
    wanted = selection.rows(columns)
    # what closed a hole of the old log
    flags = columns.ints("sys_flag") & SysFlag.ROLLBACK == SysFlag.ROLLBACK
    for row in np.flatnonzero(flags).tolist():
        wanted[row] &= columns.ragged("topic")[row] != FILLER_TOPIC
    if not wanted.all():
        manifest.records(run, columns.take(~wanted), "left_out")
        done.left_out += int((~wanted).sum())
        columns = columns.take(wanted)
    if len(columns):
        _append(writer, run, columns, manifest, done)


def _append(
    writer: StoreWriter, run: Run, columns: Columns, manifest: Manifest, done: Written
) -> None:
    """Append records; one that the writer refuses is found by halves."""
    try:
        to = _stored(writer, run, columns)
    except (InvalidInput, LimitExceeded):
        if len(columns) == 1:
            manifest.records(run, columns, "refused")
            done.refused += 1
            return
        half = len(columns) // 2
        for part in (slice(0, half), slice(half, None)):
            _append(writer, run, columns.take(part), manifest, done)
        return
    manifest.records(run, columns, "kept", to)
    done.stored += len(columns)


def _stored(writer: StoreWriter, run: Run, columns: Columns) -> Ints:
    fields: dict[str, Any] = {name: columns[name] for name in _FIELDS}
    if run.grade is Grade.BODY:
        fields["properties"] = b""  # what is torn means nothing
    return writer.append_columns(fields).physical_offset
