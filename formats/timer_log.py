"""TimerLog: linked entries of delayed messages, 5.x (spec/04-checkpoint-timer.md, 4.6).

`timerlog/%020d`: units of 52 bytes from the start of each file, then a BLANK when less than
52 + 16 bytes are left.
"""

from __future__ import annotations

from construct import Int32sb, Int32ub, Int64sb, Struct

from .blank import MAGIC_BLANK

UNIT = Struct(
    "size" / Int32sb * "52",
    "prev_pos" / Int64sb * "previous entry of the same tick, -1 = none",
    "magic" / Int32sb * "1 default, +2 rolled, +4 delete",
    "curr_write_time" / Int64sb * "write tick of the wheel, ms",
    "delayed_time" / Int32sb * "ms after curr_write_time",
    "offset_py" / Int64sb * "position of the message in the commit log",
    "size_py" / Int32sb * "total_size of the message",
    "hash_code_of_real_topic" / Int32sb * "hash of REAL_TOPIC, 0 if there is none",
    "reserved" / Int64sb * "0",
)
BLANK = Struct(
    "size" / Int32sb * "bytes from here to the end of the file",
    "prev_pos" / Int64sb * "0",
    "magic" / Int32ub * "CBD43194",
)
#: The magic of a BLANK, read as the signed field of a unit.
MAGIC_BLANK_SIGNED: int = UNIT.magic.parse(BLANK.magic.build(MAGIC_BLANK))
UNIT_BYTES = UNIT.sizeof()
BLANK_BYTES = BLANK.sizeof()
assert (UNIT_BYTES, BLANK_BYTES) == (52, 16)

MAGIC_DEFAULT = 1
MAGIC_ROLL = 2
MAGIC_DELETE = 4
#: A broker accepts units whose magic is 0 to this.
MAGIC_MAX = 15
