"""ConsumeQueueExt: what does not fit into a unit of a queue (spec/02-consumequeue.md, 2.6).

`consumequeue_ext/TOPIC/QUEUE_ID/%020d`, only with enableConsumeQueueExt. The tags_code of the unit
in the queue is then the address here: its place in the stream minus 2^63. All versions.
"""

from __future__ import annotations

from construct import Bytes, Int16sb, Int64sb, Rebuild, Struct
from construct import this as _unit

from .primitives import record_size_field, size_

UNIT = Struct(
    "size" / record_size_field(Int16sb) * "whole unit, this field included",
    "tags_code" / Int64sb * "hash of TAGS, or deliver time of a delayed message",
    "msg_store_time" / Int64sb * "store_timestamp of the record, ms since 1970",
    "bit_map_size" / Rebuild(Int16sb, size_(_unit.bit_map)) * "bytes of the bit map, 0 = none",
    "bit_map" / Bytes(_unit.bit_map_size) * "which SQL filters the message passes",
)
#: A unit without its bit map.
HEAD = Struct(*UNIT.subcons[:-1])
UNIT_BYTES_MIN = HEAD.sizeof()
UNIT_BYTES_MAX = 32767

#: Stands in place of a size where the rest of a file is unused.
END_OF_FILE = -1
END = Struct("size" / Int16sb * "-1: go on in the next file")
END_MARK = END.build({"size": END_OF_FILE})
#: Bytes that a broker keeps free at the end of a file.
SPARE_BYTES = 2 * END.sizeof()

#: An address is the position in the stream plus this number.
ADDRESS_BASE = -(2**63)
