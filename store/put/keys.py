"""Unique keys for messages that have none, as the Java client makes them (spec 01, 1.8)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from ...formats.message_id import UNIQUE_KEY_COUNTERS, unique_key
from ..broker.topics import now_ms
from ..errors import InvalidInput


class UniqueKeys:
    """Gives one key after the other; no two of a process are the same.

    ip: the address in the keys. clock: ms since 1970.
    """

    def __init__(self, ip: bytes, clock: Callable[[], int] = now_ms) -> None:
        self._ip = ip
        self._clock = clock
        self._pid = os.getpid()
        self._loader_hash = int.from_bytes(os.urandom(4))
        self._month_start = _month_start(clock())
        self._time = 0
        self._counter = 0

    def next(self) -> str:
        """A key for one message."""
        now = self._clock() - self._month_start
        if now > self._time or self._counter == UNIQUE_KEY_COUNTERS:
            # a counter that is used up lends a millisecond of the future
            self._time = max(now, self._time + 1)
            self._counter = 0
        key = unique_key(self._ip, self._pid, self._loader_hash, self._time, self._counter)
        self._counter += 1
        return key


class NoKeys:
    """Gives no key: what has none is refused."""

    def next(self) -> str:
        """Raises InvalidInput."""
        raise InvalidInput(
            "no unique key: --resume cannot tell whether the store has the message already"
        )


def _month_start(now: int) -> int:
    """Start of the current month in local time, in ms since 1970."""
    local = time.localtime(now / 1000)
    begin = (local.tm_year, local.tm_mon, 1, 0, 0, 0, 0, 0, -1)
    return int(time.mktime(begin)) * 1000
