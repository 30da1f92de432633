"""SparseConsumeQueue: where the records of a compaction log lie, 5.1+ (spec/02-consumequeue.md, 2.8).

`compaction/compactionCq/TOPIC/QUEUE_ID/%020d`. The unit is that of a batch queue. A file has the
name of the log file that it belongs to; END closes it when the log goes on in the next one.
"""

from __future__ import annotations

from construct import Int64sb, Struct

from . import batch_consume_queue

UNIT = Struct(
    "physical_offset" / Int64sb * "position of the record in the compaction log", *batch_consume_queue.UNIT.subcons[1:]
)
UNIT_BYTES = UNIT.sizeof()
assert UNIT_BYTES == batch_consume_queue.UNIT_BYTES

END = {
    "physical_offset": -1,
    "size": 0,
    "tags_code": 0,
    "store_time": 0,
    "msg_base_offset": 0,
    "batch_size": 0,
    "compacted_offset": -1,
    "reserved": 0,
}
"""The unit that closes a file."""
