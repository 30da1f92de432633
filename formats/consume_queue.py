"""ConsumeQueue: one unit per message of a topic-queue (spec/02-consumequeue.md, 2.1).

`consumequeue/TOPIC/QUEUE_ID/%020d`; unit number k is the queue offset and lies at byte 20·k of the
endless stream. A unit is valid when physical_offset >= 0 and size > 0. All versions.
"""

from __future__ import annotations

from construct import Int32sb, Int64sb, Struct

UNIT = Struct(
    "physical_offset" / Int64sb * "position of the record in the commit log",
    "size" / Int32sb * "total_size of the record",
    "tags_code" / Int64sb * "hash of TAGS, deliver time of a delayed message, or ext address",
)
UNIT_BYTES = UNIT.sizeof()
assert UNIT_BYTES == 20

#: Fills the beginning of the first file of a queue that does not begin at 0 (spec 2.1).
PRE_FILL = {"physical_offset": 0, "size": 2**31 - 1, "tags_code": 0}
#: A tags_code up to this value is an address in consumequeue_ext (spec 2.3).
EXT_ADDRESS_MAX = -(2**31) - 1
