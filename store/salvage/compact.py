"""A new store without holes: the records once more through the writer, renumbered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...formats.derive import Columns
from ...formats.derive.ragged import Ints
from ...formats.message import SysFlag
from ...formats.tombstone import FILLER_TOPIC
from ..disk.broker_conf import BrokerConfig
from ..disk.files import Files
from ..errors import InvalidInput, LimitExceeded
from ..put.options import WriterOptions
from ..put.writer import StoreWriter
from ..search.time_range import TimeRange
from .arrange import Layer
from .grade import Grade
from .manifest import Manifest, batches_of
from .runs import Run
from .source import Sources

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
