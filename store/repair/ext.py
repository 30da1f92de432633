"""Queue units whose address in consumequeue_ext leads nowhere, or to another message's entry.

Such a unit gets the hash of its message's tags, as it has in a store without consumequeue_ext: a
broker filters by it, and by the record itself where that is not enough. Spec 02, 2.3 and 2.6; I-080.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ...formats.consume_queue import EXT_ADDRESS_MAX, UNIT_BYTES
from ...formats.consume_queue_ext import ADDRESS_BASE
from ..commit_log import CommitLog
from ..consume_queue_ext import ext_units_at
from ..dispatch import dispatch
from ..mapped_file_queue import MappedFileQueue
from ..recovery.edits import Edit
from ..recovery.queue_edits import is_whole_file
from ..recovery.queue_units import UNIT_DTYPE, Units, is_valid, read_units
from ..recovery.snapshot import Entry, QueueId, Snapshot

Ints = npt.NDArray[np.int64]
_WINDOW_UNITS = 1 << 14
_TAGS_CODE = UNIT_DTYPE["tags_code"]
_TAGS_AT = UNIT_DTYPE.fields["tags_code"][1] if UNIT_DTYPE.fields else 0


def ext_repair(snapshot: Snapshot, log: CommitLog) -> Iterator[Edit]:
    """The edits, queue by queue. Raises Unreadable."""
    for queue, entries in sorted(snapshot.queues.items()):
        path = snapshot.layout.consume_queue_ext / queue.topic / str(queue.queue_id)
        with MappedFileQueue.open(os.fspath(path)) as ext:
            for entry in entries:
                if is_whole_file(entry, snapshot.queue_file_bytes):
                    yield from _file(queue, entry, ext, log)


def _file(queue: QueueId, entry: Entry, ext: MappedFileQueue, log: CommitLog) -> Iterator[Edit]:
    for first in range(0, entry.size // UNIT_BYTES, _WINDOW_UNITS):
        count = min(_WINDOW_UNITS, entry.size // UNIT_BYTES - first)
        units = read_units(entry, first, count)
        rows = np.flatnonzero(is_valid(units) & (units["tags_code"] <= EXT_ADDRESS_MAX))
        if not len(rows):
            continue
        for row, code in _wrong(units[rows], ext, log):
            number = first + int(rows[row])
            data = np.array([code], _TAGS_CODE).tobytes()
            reason = "1 units with an address that is none in consumequeue_ext"
            offset = number * UNIT_BYTES + _TAGS_AT
            yield Edit("write", entry.path, reason, ("I-080",), offset, len(data), data)


def _wrong(units: Units, ext: MappedFileQueue, log: CommitLog) -> Iterator[tuple[int, int]]:
    """Rows whose entry is none of their message's, and the hash to write; a lost message has none."""
    position = units["physical_offset"].astype(np.int64)
    batch = log.records(np.unique(position))
    made = dispatch(batch, index_tags=False, index=False, multi_dispatch=False).units
    codes = dict(zip(batch.position[made.record].tolist(), made.tags_code.tolist(), strict=True))
    times = dict(
        zip(batch.position.tolist(), batch.columns.ints("store_timestamp").tolist(), strict=True)
    )
    places = units["tags_code"].astype(np.int64) - np.int64(ADDRESS_BASE)
    found = ext_units_at(ext, places)
    for row, (at, place) in enumerate(zip(position.tolist(), places.tolist(), strict=True)):
        unit, code = found.get(place), codes.get(at)
        if code is None:
            continue
        if unit is None or (unit.tags_code, unit.msg_store_time) != (code, times[at]):
            yield row, code
