"""Queue offsets that are missing from a log, and what a lost begin says about those in front."""

from __future__ import annotations

import numpy as np
import pytest

from mqstore.store.audit.messages import Messages
from mqstore.store.broker.snapshot import QueueId
from mqstore.store.salvage.original import MissingOffsets, MissingRange

_AT = 9_000
_BYTES = 200


class _Holes(np.ndarray[tuple[int], np.dtype[np.int64]]):
    """Places of holes that know how often all of them were searched for one."""

    searched = 0

    def __contains__(self, place: object) -> bool:
        _Holes.searched += 1
        return super().__contains__(place)


def _message(queue: QueueId, offset: int) -> Messages:
    at, position, size, zero = np.array([[offset], [_AT], [_BYTES], [0]], np.int64)
    good, lost = np.array([[True], [False]])
    return Messages(queue, at, position, size, zero, zero, good, lost)


@pytest.mark.parametrize(
    ("begins", "log_start", "lost"),
    [
        ([], 0, False),
        ([0, _AT - 1], 0, True),
        ([0], 0, True),
        ([_AT - 1], 0, True),
        ([_AT], 0, False),
        ([1000], 1000, False),
    ],
)
def test_a_log_with_a_hole_lacks_what_is_in_front(begins: list[int], log_start: int, lost: bool) -> None:
    """Of every queue behind it, unless the log has expired; the holes are not searched for each of them."""
    _Holes.searched = 0
    offsets = MissingOffsets(np.array(begins, np.int64).view(_Holes), log_start)
    queues = [QueueId("orders", number) for number in range(5)]
    for queue in queues:
        offsets.messages(_message(queue, 3))
    expected = [MissingRange(_AT, 0, queue, 0, 3) for queue in queues] if lost else []
    assert offsets.certain() == expected
    assert _Holes.searched <= 1
