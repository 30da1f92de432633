"""TimerWheel: first and last timer log entry of each tick, 5.x (spec/04-checkpoint-timer.md, 4.5).

`timerwheel`, 604,800 x 2 slots. A slot is in use for a tick only if its time equals the tick.
"""

from __future__ import annotations

from construct import Int32sb, Int64sb, Struct

SLOT = Struct(
    "time" / Int64sb * "tick in units of the precision, 0 = never used",
    "first_pos" / Int64sb * "timer log position of the first entry of the tick",
    "last_pos" / Int64sb * "timer log position of the newest entry",
    "num" / Int32sb * "adds minus deletes",
    "magic" / Int32sb * "0",
)
SLOT_BYTES = SLOT.sizeof()
SLOTS = 7 * 86_400 * 2
FILE_BYTES = SLOTS * SLOT_BYTES
assert (SLOT_BYTES, FILE_BYTES) == (32, 38_707_200)
