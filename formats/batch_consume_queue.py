"""BatchConsumeQueue: one unit per batch, 5.x (spec/02-consumequeue.md, 2.7, 2.8).

`batchconsumequeue/TOPIC/QUEUE_ID/%020d` of topics with queue.type=BatchCQ. The sparse queues of
compaction have the same unit.
"""

from __future__ import annotations

from construct import Int16sb, Int32sb, Int64sb, Struct

UNIT = Struct(
    "physical_offset" / Int64sb * "position of the record in the commit log",
    "size" / Int32sb * "total_size of the record",
    "tags_code" / Int64sb * "hash of TAGS",
    "store_time" / Int64sb * "store_timestamp of the record, ms since 1970",
    "msg_base_offset" / Int64sb * "queue offset of the first message of the batch",
    "batch_size" / Int16sb * "messages in the batch, 1 for a plain message",
    "compacted_offset" / Int32sb * "-1",
    "reserved" / Int32sb * "0",
)
UNIT_BYTES = UNIT.sizeof()
assert UNIT_BYTES == 46
#: compacted_offset of all units that brokers write.
NO_COMPACTED_OFFSET = -1
