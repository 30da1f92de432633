"""What the records of a part of a log add to queues and index, by `dispatch`. No Spark.

Units of batch queues and of consumequeue_ext have no fixed place: they follow one another. `put`'s writers write them
while the log is read, so one process reads all parts of a store with such queues, in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ..formats.consume_queue import UNIT_BYTES
from ..formats.derive.ragged import Flags, Ints
from ..store.broker.dispatch import Dispatched, Units, dispatch
from ..store.broker.profiles import profile_of
from ..store.broker.system_topics import LMQ_PREFIX
from ..store.disk.byte_reader import note_expired
from ..store.disk.file_queue import LARGEST_START
from ..store.disk.files import Files
from ..store.disk.layout import queue_directory
from ..store.errors import InvalidInput
from ..store.log.batch import DAMAGED, Batch
from ..store.log.commit_log import Split, scan_split
from ..store.log.message import Mark
from ..store.queues.batches import batch_units
from ..store.queues.ext import BitMaps, ExtWriter
from ..store.queues.references import commit_log_of
from ..store.queues.units import UNIT_DTYPE
from ..store.queues.write import BatchQueuesWriter
from ..store.settings.options import options_of
from .log_part import ITEM, ROW, LogPart, PartRows, rows_of
from .plan import StorePlan

_NO_PLACE = "its topic, queue or queue offset cannot be stored in a file"


@dataclass
class BatchQueue:
    """What was written of a batch queue. first, end: of its messages. units: number of records."""

    topic: str
    queue_id: int
    first: int
    end: int
    units: int = 0


@dataclass
class FoundInPart:
    """What was found in a part of a log besides its rows.

    damage: position, size and reason of what is in no queue. last_record: its position, -1 without records.
    last_timestamp: when that was stored, ms.
    """

    start: int
    items: int = 0
    last_record: int = -1
    last_timestamp: int = 0
    damage: list[dict[str, Any]] = field(default_factory=list)

    def lose(self, position: int, size: int, reason: str) -> None:
        self.damage.append({"position": position, "size": size, "reason": reason})


class LogReader:
    """Reads the log of one store, part after part. folder: for queues that have no rows."""

    def __init__(self, store: StorePlan, folder: Path, files: Files) -> None:
        self.batch_queues: dict[tuple[str, int], BatchQueue] = {}
        self._store = store
        self._rules = profile_of(store.broker_version).dispatch
        self._levels = options_of(store.layout).delay_levels.value
        self._output = store.output(folder)
        self._ext = ExtWriter(files, self._output) if store.ext_file_bytes else None
        self._maps = BitMaps(store.layout)
        self._batches = BatchQueuesWriter(files, self._output, {})
        self._rows = PartRows(store.units_per_file)

    def read(self, split: Split) -> tuple[LogPart, FoundInPart]:
        """Read one part. Raises Unreadable, NoSpace."""
        found = FoundInPart(split.start)
        log = commit_log_of(self._store.layout)
        with log.queue:
            if split.start < log.min_offset:  # expired since the splits were made
                note_expired(log.queue.directories[0], log.min_offset)
            for item in scan_split(log, split):
                if not isinstance(item, Batch):
                    if item.kind in DAMAGED:
                        found.lose(item.position, item.size, item.reason)
                elif item.mark <= Mark.AFTER_DAMAGE:
                    self._take(item, found)
        return self._rows.part(), found

    def close(self) -> list[Path]:
        """Flush what was written to the disk, and return the files."""
        if self._ext is not None:
            self._ext.sync()
        self._batches.sync()
        folders = (self._output.consume_queue_ext, self._output.batch_consume_queue)
        return [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]

    def _take(self, batch: Batch, found: FoundInPart) -> None:
        own, sizes = (batch.columns.ints(name) for name in ("physical_offset", "total_size"))
        for row in np.flatnonzero(own != batch.position).tolist():  # the unit leads to that one, as a broker's does
            reason = f"the record names another position: {int(own[row])}"
            found.lose(int(batch.position[row]), int(sizes[row]), reason)
        made = self._dispatch(batch)
        found.items += len(made.items)
        found.last_record = int(batch.position[-1])
        found.last_timestamp = int(batch.columns.ints("store_timestamp")[-1])
        self._rows.add_items(rows_of(made.items, ITEM))
        units = self._placed(made, found)
        if self._store.batch_topics:
            units = self._without_batches(batch, made, units, found)
        if self._ext is not None:
            units = self._with_ext(self._ext, batch, made, units)
        self._rows.add(made.topics, units.topic_id, units.queue_id, rows_of(units, ROW))

    def _dispatch(self, batch: Batch) -> Dispatched:
        items = bool(self._store.index_items)
        light = self._store.light_queues
        return dispatch(batch, self._rules.how(items=items, multi_dispatch=light, delay_levels=self._levels))

    def _placed(self, made: Dispatched, found: FoundInPart) -> Units:
        """Return the units that have a place in a file; note the others as damage."""
        units = made.units
        placeless = _of_topics(units, [not _is_directory(name) for name in made.topics])
        placeless |= (units.queue_id < 0) | (units.queue_offset < 0)
        placeless |= units.queue_offset > LARGEST_START // UNIT_BYTES
        if not placeless.any():
            return units
        _lose(units.take(placeless), found)
        return units.take(~placeless)

    def _without_batches(self, batch: Batch, made: Dispatched, units: Units, found: FoundInPart) -> Units:
        """Write the units of batch queues (spec 02, 2.7), and return the others."""
        mine = _of_topics(units, [name in self._store.batch_topics for name in made.topics])
        rest, units = units.take(~mine), units.take(mine)
        whole = batch_units(batch.columns, units.record, rows_of(units, UNIT_DTYPE))
        base, sizes = (whole[name].astype(np.int64) for name in ("msg_base_offset", "batch_size"))
        placeless = (base < 0) | (sizes < 0)
        if placeless.any():
            _lose(units.take(placeless), found)
        units, sizes = units.replace(queue_offset=base).take(~placeless), sizes[~placeless]
        for queue, rows in _queues_of(made, units):
            some = units.take(rows)
            first, end = int(some.queue_offset[0]), int(some.queue_offset[-1] + sizes[rows][-1])
            self._batches.add(queue, some, sizes[rows])
            now = self.batch_queues.setdefault(queue, BatchQueue(*queue, first, end))
            now.end, now.units = end, now.units + len(some)
        return rest

    def _with_ext(self, ext: ExtWriter, batch: Batch, made: Dispatched, units: Units) -> Units:
        """Move the tags codes of the units to consumequeue_ext, except for LMQs; return the units."""
        codes = units.tags_code.copy()
        ext.take_maps(self._maps.of(batch.columns, made.stored_topics))
        for queue, rows in _queues_of(made, units):
            if not queue[0].startswith(LMQ_PREFIX):
                codes[rows] = ext.add(*queue, units.take(rows))
        return units.replace(tags_code=codes)


def _of_topics(units: Units, chosen: list[bool]) -> Flags:
    """bool[n]: the topic of the unit is one of `chosen`."""
    found: Flags = np.array(chosen, np.bool_)[units.topic_id] if len(units) else np.zeros(0, bool)
    return found


def _queues_of(made: Dispatched, units: Units) -> list[tuple[tuple[str, int], Ints]]:
    """Return each queue of some units, and its rows in order."""
    rows: dict[tuple[int, int], list[int]] = {}
    for row, queue in enumerate(zip(units.topic_id.tolist(), units.queue_id.tolist(), strict=True)):
        rows.setdefault(queue, []).append(row)
    return [((made.topics[t], q), np.array(some, np.int64)) for (t, q), some in rows.items()]


def _lose(units: Units, found: FoundInPart) -> None:
    for position, size in zip(units.physical_offset.tolist(), units.size.tolist(), strict=True):
        found.lose(position, size, _NO_PLACE)


@lru_cache(maxsize=1 << 12)
def _is_directory(topic: str) -> bool:
    try:
        queue_directory(Path(), topic, 0)
    except InvalidInput:
        return False
    return True
