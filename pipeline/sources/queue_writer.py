"""Writing `rocketmq-queue` and `rocketmq-index`: units and items become files of a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...formats.consume_queue import UNIT
from ...formats.derive import dtype_of
from ...formats.derive.ragged import Ints
from ...store.dispatch import IndexItems
from ...store.errors import InvalidInput
from ...store.layout import Layout
from ...store.write.consume_queue import QueueWriter, queue_directory
from ...store.write.index import IndexWriter
from ..stage import Stage
from .spool import SpoolWriter

_UNIT = dtype_of(UNIT)
_KEYS = ("topic", "queue_id", "queue_offset")


class QueueUnitsWriter(SpoolWriter):
    """Units of each queue by queue offset, without gaps.

    `repartition("topic", "queue_id").sortWithinPartitions("topic", "queue_id", "queue_offset")`.
    """

    needed = (*_KEYS, *(_UNIT.names or ()))

    def __init__(self, options: Mapping[str, str], names: Sequence[str], overwrite: bool) -> None:
        super().__init__(options, names, overwrite, set())

    def replay(self, stage: Stage, batches: Iterable[pa.RecordBatch]) -> None:
        """Write all units. Raises Refused for one that does not follow the one before."""
        layout = Layout.of(stage.tree, self.config)
        size = layout.sizes.consume_queue.value
        queues: dict[tuple[str, int], QueueWriter] = {}
        for batch in batches:
            for queue, offsets, units in _queues_of(batch):
                if queue not in queues:
                    directory = queue_directory(layout.consume_queue, *queue)
                    queues[queue] = QueueWriter(stage.files, directory, size, None)
                writer = queues[queue]
                cuts = np.flatnonzero(np.diff(offsets) != 1) + 1
                for part in np.split(np.arange(len(offsets)), cuts):
                    writer.append(int(offsets[part[0]]), units[part].tobytes())
        for writer in queues.values():
            writer.sync()


def _queues_of(
    batch: pa.RecordBatch,
) -> Iterator[tuple[tuple[str, int], Ints, npt.NDArray[np.void]]]:
    """The rows of each queue in a batch, in their order: queue offsets, units."""
    topics = batch.column("topic").dictionary_encode()
    if topics.null_count:
        raise InvalidInput("a unit without a topic", hint="filter rows that tell a problem")
    ids = topics.indices.to_numpy().astype(np.int64)
    queue_ids = _numbers(batch, "queue_id")
    offsets = _numbers(batch, "queue_offset")
    units = np.empty(batch.num_rows, _UNIT)
    for name in _UNIT.names or ():
        units[name] = _numbers(batch, name)
    pairs = np.stack([ids, queue_ids], axis=1)
    for topic_id, queue_id in np.unique(pairs, axis=0).tolist():
        mine = np.flatnonzero((ids == topic_id) & (queue_ids == queue_id))
        yield (topics.dictionary[topic_id].as_py(), queue_id), offsets[mine], units[mine]


def _numbers(batch: pa.RecordBatch, name: str) -> Ints:
    column = batch.column(name)
    if column.null_count:
        raise InvalidInput(f"a row without {name}")
    found: Ints = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return found


class IndexItemsWriter(SpoolWriter):
    """Items by physical offset: `orderBy("physical_offset")`."""

    needed = ("key_hash", "physical_offset", "store_timestamp")

    def __init__(self, options: Mapping[str, str], names: Sequence[str], overwrite: bool) -> None:
        super().__init__(options, names, overwrite, set())

    def replay(self, stage: Stage, batches: Iterable[pa.RecordBatch]) -> None:
        """Write all items. Raises InvalidInput where they are not in order."""
        layout = Layout.of(stage.tree, self.config)
        writer = IndexWriter.of(stage.files, layout, count_every_put=False)
        last = -1
        for batch in batches:
            hashes, places, times = (_numbers(batch, name) for name in self.needed)
            if not len(places):
                continue
            if places[0] < last or (np.diff(places) < 0).any():
                raise InvalidInput("items are not in the order of physical_offset")
            if hashes.min() < 0:
                raise InvalidInput("a key hash is negative")
            last = int(places[-1])
            record = np.searchsorted(np.unique(places), places)
            items = IndexItems(record, hashes, places, times)
            writer.append(items, int(record[-1]) + 1)
        writer.sync()
        writer.close()
