"""Which records the queues of a store name, to tell what stood where a hole of the log begins.

The records behind a hole may be dead: a broker has cut them off, and written its new records over
the first of them (`recent.py`). Then nothing names what it wrote over. A unit that names a record
which begins right where the hole does tells that the log went on there.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..formats.consume_queue import PRE_FILL
from ..formats.message import SMALLEST
from .batch_consume_queue import BatchConsumeQueue, is_valid
from .consume_queue import ConsumeQueues, queue_directories
from .errors import StoreError
from .mapped_file_queue import MappedFileQueue

if TYPE_CHECKING:
    from .layout import Layout

Units = npt.NDArray[np.void]


class Naming:
    """The units of a store's queues, read when somebody asks."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def names(self, begin: int, end: int) -> bool:
        """A unit names a record that begins at log position `begin` and ends at or before `end`.

        Where no queue has a unit none can deny it: true. A queue that cannot be read names nothing.
        """
        empty = True
        for windows in self._queues(begin):
            try:
                for units in windows:
                    position, size = units["physical_offset"], units["size"]
                    fits = (size >= SMALLEST) & (size <= end - begin)
                    if (fits & (position == begin)).any():
                        return True
                    empty = empty and not len(units)
            except StoreError:  # who reads queues tells what keeps it from being read
                empty = False
        return empty

    def _queues(self, begin: int) -> Iterator[Iterator[Units]]:
        """Of each queue the windows of its units that may name a record at `begin`."""
        for directory in self._readable:
            yield self._units(directory.topic, directory.queue_id, begin)
        for directory in queue_directories(self._layout.batch_consume_queue):
            yield _batches(directory.topic, directory.queue_id, directory.path)

    @cached_property
    def _readable(self) -> ConsumeQueues:
        """The queues in files or in a RocksDB; none where that cannot be read."""
        if self._layout.rocksdb_queues:
            from .rocksdb_consume_queue import open_queues

            return open_queues(self._layout)[0]
        return ConsumeQueues(self._layout)

    def _units(self, topic: str, queue_id: int, begin: int) -> Iterator[Units]:
        """From the last one back to the first window of which all lie before `begin`."""
        with self._readable.open(topic, queue_id) as queue:
            stop = queue.summary().max_offset
            for _, units in queue.units(queue.first_offset, stop, reverse=True):
                named = units[_is_used(units)]
                yield named
                if len(named) and int(named["physical_offset"].max()) < begin:
                    return


def _batches(topic: str, queue_id: int, path: str) -> Iterator[Units]:
    with MappedFileQueue.open(path) as files:
        queue = BatchConsumeQueue(topic, queue_id, files)
        for _, units in queue.units(queue.first, queue.stop):
            yield units[is_valid(units)]


def _is_used(units: Units) -> npt.NDArray[np.bool_]:
    """bool[n]: units that name a record; pre-fill names none."""
    used: npt.NDArray[np.bool_] = (units["physical_offset"] >= 0) & (units["size"] > 0)
    used &= units["size"] != PRE_FILL["size"]
    return used
