"""Segments of a tiered consume queue: one unit per message, 5.1+.

`HASH_CLUSTER/BROKER/TOPIC/QUEUE_ID/CONSUME_QUEUE/`, names as of the tiered commit log. The unit is
that of a consume queue and lies at 20 times its queue offset; physical_offset is a position in the
tiered commit log of the queue.
"""

from __future__ import annotations

from construct import Int64sb, Struct

from . import consume_queue

UNIT = Struct(
    "physical_offset" / Int64sb * "position of the record in the tiered commit log", *consume_queue.UNIT.subcons[1:]
)
assert UNIT.sizeof() == consume_queue.UNIT_BYTES
