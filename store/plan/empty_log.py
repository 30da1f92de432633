"""A store whose log is gone for good: what is left is put away, and a broker begins anew.

A broker that starts without a log deletes the files of all queues. The plan does the same, and takes
index and timer with them: what they name would be found in the records of the new log. All of it is
moved, so that it can be taken back.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ...formats.consume_queue import UNIT_BYTES
from ..audit.messages import Messages
from ..disk.edits import Edit
from ..disk.snapshot import Entry, QueueId, Snapshot
from ..errors import Refused
from ..queues.edits import is_whole_file
from ..queues.units import is_valid, pre_fill, read_units

Ints = npt.NDArray[np.int64]
_UNITS_AT_ONCE = 1 << 16
_PRE_FILL = pre_fill(1)[0]
_REASON = "what it names is gone with the log"
_CODES = ("I-002",)


def put_away(snapshot: Snapshot) -> Iterator[Edit]:
    """Edits that leave a store without queues, index and timer. Raises Refused.

    A log directory has to be there: it is what keeps brokers from starting meanwhile.
    """
    directory = snapshot.layout.commit_log_directories[0]
    if not directory.is_dir():
        raise Refused(
            "there is no commit log directory",
            path=directory,
            hint="make it, if the log is to begin anew",
        )
    for queues in (snapshot.queues, snapshot.batch_queues, snapshot.ext):
        for _, entries in sorted(queues.items()):
            yield from _moved(entries)
    yield from _moved(snapshot.index)
    yield from _moved(snapshot.timer_log)
    layout = snapshot.layout
    for path in (layout.timer_wheel, layout.config / "timercheck"):
        if path.exists():
            yield Edit("move", str(path), _REASON, _CODES)


def _moved(entries: tuple[Entry, ...]) -> Iterator[Edit]:
    for entry in entries:
        yield Edit("move", entry.path, _REASON, _CODES)


def named_messages(snapshot: Snapshot) -> Iterator[Messages]:
    """The messages that units tell of: all that is known of them. Raises Unreadable."""
    size = snapshot.queue_file_bytes
    for queue, entries in sorted(snapshot.queues.items()):
        for entry in entries:
            if not is_whole_file(entry, size):
                continue
            for first in range(0, size // UNIT_BYTES, _UNITS_AT_ONCE):
                units = read_units(entry, first, min(_UNITS_AT_ONCE, size // UNIT_BYTES - first))
                used = np.flatnonzero(is_valid(units) & (units != _PRE_FILL))
                if len(used):
                    offsets = int(entry.name) // UNIT_BYTES + first + used
                    yield _messages(queue, offsets, units[used])


def _messages(queue: QueueId, offsets: Ints, units: npt.NDArray[np.void]) -> Messages:
    positions, sizes, tags = (
        units[name].astype(np.int64) for name in ("physical_offset", "size", "tags_code")
    )
    nothing = np.zeros(len(offsets), np.bool_)
    times = np.zeros(len(offsets), np.int64)
    return Messages(queue, offsets, positions, sizes, tags, times, ~nothing, nothing)
