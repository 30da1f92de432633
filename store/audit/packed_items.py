"""Index items of many records, kept in little memory until the index is written."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..broker.dispatch import IndexItems
from ..log.batch import Batch


@dataclass(frozen=True)
class PackedItems:
    """Items of n records that follow one another: 16 bytes a record, 4 an item.

    begin: position of the first record. size, count: bytes of each record, and its items, int32[n];
    store_timestamp: int64[n], ms. key_hash: of all items, int32.
    """

    begin: int
    size: npt.NDArray[np.int32]
    count: npt.NDArray[np.int32]
    store_timestamp: npt.NDArray[np.int64]
    key_hash: npt.NDArray[np.int32]

    @classmethod
    def of(cls, batch: Batch, items: IndexItems) -> PackedItems:
        """Those of a batch whose records lie one behind the other."""
        return cls(
            int(batch.position[0]),
            batch.columns.ints("total_size").astype(np.int32),
            np.bincount(items.record, minlength=len(batch)).astype(np.int32),
            batch.columns.ints("store_timestamp").astype(np.int64),
            items.key_hash.astype(np.int32),
        )

    def unpacked(self) -> IndexItems:
        """The items as `dispatch` gave them."""
        record = np.repeat(np.arange(len(self.size), dtype=np.int64), self.count)
        ends = self.begin + np.cumsum(self.size, dtype=np.int64)
        position = ends - self.size
        times = self.store_timestamp[record]
        return IndexItems(record, self.key_hash.astype(np.int64), position[record], times)
