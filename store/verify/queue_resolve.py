"""What a unit names that is not the unit of its message: the record is read (I-062 … I-064, I-069)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ...formats import message_properties as names
from ...formats.hashing import java_string
from ...formats.message import TRANSACTION_MASK, SysFlag
from ...formats.property_columns import find
from ..broker.dispatch import LMQ_PREFIX, java_split
from ..broker.snapshot import QueueId
from ..log.commit_log import Batch
from ..log.record_status import tombstones
from ..queues.units import Units
from .context import Scene
from .queue_reader import QueueReader
from .unreadable import is_gone

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_RECORDS_AT_ONCE = 256
_BYTES_AT_ONCE = 8 << 20
"""Records are read whole, so many at a time."""


def resolve(scene: Scene, reader: QueueReader, offsets: Ints, units: Units) -> None:
    """Say of units (at ascending queue offsets) why they are not those of their messages."""
    for part in _lots(units["size"].astype(np.int64)):
        _resolve_lot(scene, reader, offsets[part], units[part])


def are_rolled_back(scene: Scene, queue: QueueId, units: Units) -> Flags:
    """bool[n]: units that name a half message or a rollback of this queue, with its size."""
    positions = units["physical_offset"].astype(np.int64)
    records = scene.store.log.records(positions)
    columns = records.columns
    state = columns.ints("sys_flag") & TRANSACTION_MASK
    rolled_back = (state == SysFlag.PREPARED) | (state == SysFlag.ROLLBACK)
    found = np.zeros(len(units), np.bool_)
    there = np.isin(positions, records.position)
    same = columns.ints("physical_offset") == records.position
    same &= columns.ints("total_size") == units["size"][there]
    same &= columns.ints("queue_id") == queue.queue_id
    topics = [java_string(value) == queue.topic for value in columns.ragged("topic").tolist()]
    found[there] = same & np.array(topics, np.bool_) & rolled_back
    return found


def _lots(sizes: Ints) -> Iterator[slice]:
    """Slices whose records fit into memory, if the sizes are right."""
    begin, total = 0, 0
    for at, size in enumerate(sizes.tolist()):
        if at > begin and (total + size > _BYTES_AT_ONCE or at - begin >= _RECORDS_AT_ONCE):
            yield slice(begin, at)
            begin, total = at, 0
        total += size
    yield slice(begin, len(sizes))


def _resolve_lot(scene: Scene, reader: QueueReader, offsets: Ints, units: Units) -> None:
    positions = units["physical_offset"].astype(np.int64)
    records = scene.store.log.records(positions)
    there = np.isin(positions, records.position)
    gone = is_gone(scene, positions)
    wrong: dict[str, dict[int, str]] = {}

    def note(code: str, row: int, text: str) -> None:
        wrong.setdefault(code, {})[row] = f"{reader.queue} unit {offsets[row]}: {text}"

    for row in np.flatnonzero(~there & ~gone).tolist():
        note("I-062", row, f"no record begins at {positions[row]}")
    named = _Named(records, reader)
    for at, row in enumerate(np.flatnonzero(there).tolist()):
        for code, text in named.problems(at, int(offsets[row]), int(units["size"][row])):
            note(code, row, text)
    for code, texts in wrong.items():
        rows = np.array(sorted(texts), np.int64)
        _report(scene, reader, code, offsets[rows], [texts[row] for row in rows.tolist()])


def _report(scene: Scene, reader: QueueReader, code: str, offsets: Ints, texts: list[str]) -> None:
    reader.report(scene.findings, code, offsets, lambda row: texts[row])


class _Named:
    """Records that units of one queue name."""

    def __init__(self, records: Batch, reader: QueueReader) -> None:
        columns = records.columns
        self._queue = reader.queue
        self._topics = [java_string(value) for value in columns.ragged("topic").tolist()]
        self._numbers = {
            name: columns.ints(name).tolist()
            for name in ("queue_id", "queue_offset", "total_size", "sys_flag", "physical_offset")
        }
        self._position = records.position.tolist()
        self._lost = tombstones(columns)
        properties = columns.ragged("properties")
        self._queues = find(properties, names.INNER_MULTI_DISPATCH).tolist()
        self._offsets = find(properties, names.INNER_MULTI_QUEUE_OFFSET).tolist()

    def problems(self, at: int, offset: int, size: int) -> Iterator[tuple[str, str]]:
        """Codes and texts: what is wrong with a unit that names record `at`."""
        number = {name: values[at] for name, values in self._numbers.items()}
        position = self._position[at]
        if number["physical_offset"] != position:
            yield "I-062", f"the record at {position} is left from an earlier life of the file"
            return
        if number["total_size"] != size:
            yield "I-062", f"the record at {position} has {number['total_size']} bytes, not {size}"
        if (self._topics[at], number["queue_id"]) != self._queue:
            if not self._lost[at]:  # what stands for a lost message names one queue of it
                yield from self._further(at, offset)
            return
        if number["sys_flag"] & TRANSACTION_MASK in (SysFlag.PREPARED, SysFlag.ROLLBACK):
            yield "I-069", f"the record at {position} is a half message or a rollback"
        elif number["queue_offset"] != offset:
            yield "I-064", f"the record at {position} is message {number['queue_offset']}"
        elif number["total_size"] == size:
            yield "I-062", f"the record at {position} is no part of the log"

    def _further(self, at: int, offset: int) -> Iterator[tuple[str, str]]:
        """The record is of another queue: right only if it names this one besides."""
        topic, queue_id = self._topics[at], self._numbers["queue_id"][at]
        of = f"the record at {self._position[at]} is of {topic}/{queue_id}"
        light = self._queue.topic.startswith(LMQ_PREFIX)
        mine = 0 if light else queue_id
        queues, offsets = java_split(self._queues[at]), java_split(self._offsets[at])
        if self._queue.topic not in queues or mine != self._queue.queue_id:
            yield "I-063", of
            if light:
                yield "I-078", f"{of} and goes to no light queue of that name"
            return
        if len(queues) == len(offsets):
            wanted = offsets[queues.index(self._queue.topic)]
            if wanted != str(offset):
                yield "I-064", f"{of} and is message {wanted or '(none)'} here"
