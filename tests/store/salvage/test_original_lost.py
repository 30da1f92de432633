"""Queue offsets that are missing from a log, and what a lost begin says about those in front."""

from __future__ import annotations

import numpy as np
import pytest

from mqstore.store.audit.messages import Messages
from mqstore.store.broker.snapshot import QueueId
from mqstore.store.salvage.original import MissingOffsets, MissingRange

_AT = 9_000
_BYTES = 200


def _message(queue: QueueId, offset: int) -> Messages:
    at, position, size, zero = np.array([[offset], [_AT], [_BYTES], [0]], np.int64)
    good, lost = np.array([[True], [False]])
    return Messages(queue, at, position, size, zero, zero, good, lost)


@pytest.mark.parametrize(("log_start", "lost"), [(0, True), (1000, False)])
def test_a_log_that_has_not_expired_lacks_what_is_in_front(log_start: int, lost: bool) -> None:
    """Of every queue, whether there is a hole for it or not."""
    offsets = MissingOffsets(np.zeros(0, np.int64), log_start)
    queues = [QueueId("orders", number) for number in range(5)]
    for queue in queues:
        offsets.messages(_message(queue, 3))
    assert offsets.certain() == ([MissingRange(_AT, 0, queue, 0, 3) for queue in queues] if lost else [])
