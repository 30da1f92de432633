"""Good records that claim a place in a queue which a unit gives to another place.

The body is whole, the chain of records goes on behind them: a broker takes them for messages of the
queue that their damaged header names, as soon as it makes the queues anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ...formats.consume_queue import EXT_ADDRESS_MAX
from ...formats.message import TRANSACTION_MASK
from ..audit.queues import QueueAudit
from ..broker.dispatch import LMQ_PREFIX
from ..disk.snapshot import QueueId
from ..log.commit_log import CommitLog
from ..queues.units import is_valid
from .gaps import TornRecord
from .lost_units import LostUnits

Ints = npt.NDArray[np.int64]
Place = tuple[int, int, int, int, int]
"""Position, size, number of the queue, queue offset, tags code."""


def misnamed(
    log: CommitLog,
    audits: Mapping[QueueId, QueueAudit],
    misplaced: Sequence[TornRecord],
    silent: Sequence[Ints],
) -> LostUnits:
    """What units say of records whose header is wrong.

    audits: of all simple queues, once they have seen the log. misplaced: records that name another
    position than theirs. silent: positions of those that get no unit. Raises Unreadable.
    """
    queues = sorted(queue for queue in audits if not queue.topic.startswith(LMQ_PREFIX))
    rows: list[Place] = []
    if any(audits[queue].is_odd() for queue in queues):
        unnamed = [audits[queue].unnamed() for queue in queues]
        wanted = np.unique(np.concatenate([*unnamed, *silent, np.zeros(0, np.int64)]))
        for number, queue in enumerate(queues):
            rows += _named_elsewhere(log, audits[queue], number, wanted)
    known = {row[0] for row in rows}
    for record in misplaced:
        if record.position in known or record.sys_flag & TRANSACTION_MASK:
            continue
        queues.append(QueueId(record.topic.decode("utf-8", "surrogateescape"), record.queue_id))
        place = (len(queues) - 1, record.queue_offset, EXT_ADDRESS_MAX)
        rows.append((record.position, record.size, *place))
    columns = np.array(rows, np.int64).reshape(-1, 5).T
    found = LostUnits(queues, *columns)
    # a record that two queues claim is left alone
    once = np.isin(found.position, _repeated(found.position), invert=True)
    return found.take(once)


def _repeated(positions: Ints) -> Ints:
    values, counts = np.unique(positions, return_counts=True)
    repeated: Ints = values[counts > 1]
    return repeated


def _named_elsewhere(
    log: CommitLog, audit: QueueAudit, number: int, wanted: Ints
) -> Iterable[Place]:
    """Units of a queue that name records which no unit at their own place names."""
    for first, units in audit.on_disk():
        position = units["physical_offset"].astype(np.int64)
        used = is_valid(units) & np.isin(position, wanted)
        for at in np.flatnonzero(used).tolist():
            if audit.is_misnamed_at(log, first + at):
                size, tags = int(units["size"][at]), int(units["tags_code"][at])
                yield int(position[at]), size, number, first + at, tags
