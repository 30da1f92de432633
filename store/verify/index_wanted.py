"""The items that records ask for: what an index of them has. Spec 3.3."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..broker.dispatch import dispatch
from ..broker.dispatch_record import Dispatching
from ..columns.rows import Rows
from ..log.commit_log import CommitLog
from .context import Records
from .index_items import Picked

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Wanted(Rows):
    """Items that a batch of records asks for, int64[n] each, in the order of a broker."""

    record: Ints
    position: Ints
    key_hash: Ints
    store_timestamp: Ints

    @classmethod
    def of(cls, records: Records, *, tags: bool | None = None) -> Wanted:
        """Those of records. tags: as the dispatch of the pass has it, or with and without them."""
        dispatched = records.dispatched
        if tags is not None or dispatched is None:
            dispatched = dispatch(records.batch, Dispatching(bool(tags), multi_dispatch=False))
        items = dispatched.items
        position = records.position[items.record]
        return cls(items.record, position, items.key_hash, items.store_timestamp)


def asked_for(log: CommitLog, picked: Picked) -> Flags:
    """bool[n]: items that the record at their position asks for."""
    records = Records(log.records(np.unique(picked.position)))
    if not len(records):
        return np.zeros(len(picked), np.bool_)
    wanted = Wanted.of(records, tags=True)
    pairs = set(zip(wanted.position.tolist(), wanted.key_hash.tolist(), strict=True))
    items = zip(picked.position.tolist(), picked.key_hash.tolist(), strict=True)
    return np.array([pair in pairs for pair in items], np.bool_)
