"""position-checkpoint: how far compaction has come, 5.1+ (spec/06-compaction-ha.md, 6.1).

`compaction/position-checkpoint`, of every broker that was stopped, and its .bak.
"""

from __future__ import annotations

from .json_table import QUEUE_ID, TOPIC, JsonField, JsonTable

FILE = "position-checkpoint"
QUEUE_OFFSET_MAP = "queueOffsetMap"
TABLES = (
    JsonTable(
        QUEUE_OFFSET_MAP,
        "compaction_position",
        "one entry for each queue of a compaction topic",
        ((TOPIC, QUEUE_ID._replace(after="_")),),
        value=JsonField("offset", "integer", "highest queue offset that has been compacted"),
    ),
)
