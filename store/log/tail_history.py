"""The newest good records of a scan, to tell dead ones behind the log end (spec 7.4, step 4).

A broker that cuts the log leaves the bytes behind the cut as they are, then writes new records
over the first of them. What remains is whole and in place, but older than the records before it,
or of a queue offset that has been given again. A clock that was set back makes good records behind
damage look old, too: there a queue names the record that stood where the damage begins, while
nothing names what a broker has written over (`references.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...formats.derive import Columns
from ...formats.derive.ragged import Ints
from ...formats.message import TRANSACTION_MASK, SysFlag

if TYPE_CHECKING:
    from .commit_log import CommitLog

#: Records before a gap whose queue offsets are compared with those behind it.
LOOK_BACK = 512


class Recent:
    """Time of the newest record and places of the last ones."""

    def __init__(self) -> None:
        self._store_timestamp = 0
        self._position: Ints = np.empty(0, np.int64)

    def note(self, position: Ints, columns: Columns) -> None:
        """Remember the last records of a batch."""
        self.remember(position, int(columns.ints("store_timestamp")[-1]))

    def remember(self, position: Ints, store_timestamp: int) -> None:
        """Remember the last of the records at `position`; when the very last one was stored."""
        self._store_timestamp = store_timestamp
        self._position = position[-LOOK_BACK:].copy()

    def is_dead(self, columns: Columns, log: CommitLog, gap: tuple[int, int]) -> bool:
        """The records behind a gap were cut off by a broker before. gap: its log positions."""
        if not len(self._position):
            return False
        older = int(columns.ints("store_timestamp")[0]) < self._store_timestamp
        if older and not (log.naming and log.naming.names(*gap)):
            return True
        taken = _queue_offsets(log.records(self._position).columns)
        return any(
            offset <= taken.get(queue, -1) for queue, offset in _queue_offsets(columns).items()
        )


def _queue_offsets(columns: Columns) -> dict[tuple[bytes, int], int]:
    """Highest queue offset by (topic, queue id), of records that have one of their own."""
    state = columns.ints("sys_flag") & TRANSACTION_MASK
    counted = (state == 0) | (state == SysFlag.COMMIT)
    found: dict[tuple[bytes, int], int] = {}
    rows = zip(
        columns.ragged("topic")[counted].tolist(),
        columns.ints("queue_id")[counted].tolist(),
        columns.ints("queue_offset")[counted].tolist(),
        strict=True,
    )
    for topic, queue_id, offset in rows:
        found[topic, queue_id] = max(offset, found.get((topic, queue_id), -1))
    return found
