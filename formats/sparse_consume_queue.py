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

END: dict[str, int] = {str(field.name): 0 for field in UNIT.subcons} | {"physical_offset": -1, "compacted_offset": -1}
"""The unit that closes a file."""
