"""The units of consume queues as rows (spec 02, 2.1)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...formats.consume_queue import PRE_FILL, UNIT
from ..disk.layout import CONSUME_QUEUE, Layout
from ..queues.read import ConsumeQueues
from ..search.selection import matches
from .ask import Ask
from .table import Table, Values, fields_of_schema

_PART_UNITS = 8 << 20
"""Units of a queue that one task reads."""
_PART_QUEUES = 64
"""Queues that one task reads."""
_INVALID, _PRE_FILL = 0, 1
_STATES = ["invalid", "pre_fill"]
"""No Arrow array: that imports pandas, and every session looks at this module."""


class QueuePart(NamedTuple):
    """Units start ≤ k < stop of a queue; stop None for all of it."""

    topic: str
    queue_id: int
    start: int
    stop: int


class QueueTable(Table):
    """A row is a unit. state: `invalid` or `pre_fill` where it points at no message."""

    of = "queue"
    columns: ClassVar = {
        "topic": "string",
        "queue_id": "int",
        "queue_offset": "bigint",
        **fields_of_schema(UNIT),
        "state": "string",
    }

    needs: ClassVar = {CONSUME_QUEUE}

    def parts(self, layout: Layout, ask: Ask) -> list[list[QueuePart]]:
        found = iter(list(_queue_parts(layout, ask)))
        return list(iter(lambda: list(islice(found, _PART_QUEUES)), []))

    def rows(self, layout: Layout, ask: Ask, part: list[QueuePart]) -> Iterator[tuple[int, Values]]:
        queues = ConsumeQueues(layout)
        for topic, queue_id, start, stop in part:
            with queues.open(topic, queue_id) as queue:
                for first, units in queue.units(start, stop):
                    yield len(units), _values(topic, queue_id, first, units)


def _queue_parts(layout: Layout, ask: Ask) -> Iterator[QueuePart]:
    for topic, queue_id, start, stop, *_ in ConsumeQueues(layout).summaries():
        if ask.queue_id not in (None, queue_id):
            continue
        if not ask.topics or any(matches(topic, wanted) for wanted in ask.topics):
            with ConsumeQueues(layout).open(topic, queue_id) as queue:
                start = min(start, queue.first_offset)
            for begin in range(start, stop, _PART_UNITS):
                yield QueuePart(topic, queue_id, begin, min(stop, begin + _PART_UNITS))


def _values(topic: str, queue_id: int, first: int, units: npt.NDArray[np.void]) -> Values:
    names = units.dtype.names or ()
    invalid = (units["size"] <= 0) | (units["physical_offset"] < 0)
    pre_fill = np.logical_and.reduce([units[name] == value for name, value in PRE_FILL.items()])
    state = np.where(invalid, _INVALID, _PRE_FILL)
    ids = pa.array(state, pa.int64(), mask=~(invalid | pre_fill))
    return {
        "topic": topic,
        "queue_id": queue_id,
        "queue_offset": np.arange(first, first + len(units)),
        **{name: units[name] for name in names},
        "state": pa.array(_STATES, pa.string()).take(ids),
    }
