"""TimerCheckPoint: how far the timer had come, 5.x (spec/04-checkpoint-timer.md, 4.7).

`config/timercheck`, one page, the rest zero.
"""

from __future__ import annotations

from construct import Int64sb, Padded, Struct

FILE = "timercheck"
PAGE_BYTES = 4096

FIELDS = Struct(
    "last_read_time_ms" / Int64sb * "tick up to which messages were delivered, ms since 1970",
    "last_timer_log_flush_pos" / Int64sb * "flushed position of the timer log",
    "last_timer_queue_offset" / Int64sb * "next unit of the timer queue to be read",
    "master_timer_queue_offset" / Int64sb * "the same on the master",
    "state_version" / Int64sb * "data version: state",
    "timestamp" / Int64sb * "data version: ms since 1970",
    "counter" / Int64sb * "data version: count of changes",
)
TIMER_CHECK = Padded(PAGE_BYTES, FIELDS)
assert FIELDS.sizeof() == 56
assert TIMER_CHECK.sizeof() == PAGE_BYTES
