"""config/timercheck: how far the timer of a 5.x broker had come (spec 04, 4.7)."""

from __future__ import annotations

import os
from typing import NamedTuple

from ...formats.fixed import numbers_of
from ...formats.timer_check import FIELDS
from ..errors import Missing
from .regular_file import read_regular

_FIELDS = numbers_of(FIELDS)


class TimerCheck(NamedTuple):
    """The fields of timercheck, by the names of the schema: ms since 1970, offsets, versions."""

    last_read_time_ms: int = 0
    last_timer_log_flush_pos: int = 0
    last_timer_queue_offset: int = 0
    master_timer_queue_offset: int = 0
    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    @classmethod
    def from_bytes(cls, data: bytes) -> TimerCheck:
        """The fields of the file's content; missing bytes count as zeros, as in a broker."""
        return cls(*_FIELDS.unpack(data[: _FIELDS.size].ljust(_FIELDS.size, b"\0")))

    def to_bytes(self) -> bytes:
        """The fields as they lie at the beginning of the file."""
        return _FIELDS.pack(*self)


def read_timer_check(path: str | os.PathLike[str]) -> TimerCheck | None:
    """The timercheck at `path`, None where there is none. Raises Unreadable."""
    try:
        return TimerCheck.from_bytes(read_regular(path, _FIELDS.size))
    except Missing:
        return None
