"""consumerOffset.json: how far each consumer group has consumed each queue, all versions.

An offset names the next message to consume, of one group alone the last one (spec/05-config.md, 5.3).
"""

from __future__ import annotations

from .json_table import DATA_VERSION, GROUP, QUEUE_ID, TOPIC, JsonField, JsonTable
from .pop import REVIVE_GROUP

FILE = "consumerOffset.json"
OFFSET = JsonField(
    "offset", "integer", f"queue offset of the next message to consume; {REVIVE_GROUP}: of the last one read"
)
OFFSET_TABLE, PULL_OFFSET_TABLE = "offsetTable", "pullOffsetTable"
GROUP_TOPIC_MAP = "groupTopicMap"
"""Member besides the tables: the topics of each group."""
_KEYS = ((TOPIC, GROUP), QUEUE_ID)
TABLES = (
    JsonTable(OFFSET_TABLE, "consumer_offset", "one entry for each topic, group and queue", _KEYS, value=OFFSET),
    JsonTable(PULL_OFFSET_TABLE, "consumer_offset", "the same for consumers that pull; 5.5", _KEYS, value=OFFSET),
    DATA_VERSION,
)
OFFSET_TABLES = tuple(table.member for table in TABLES if table.record_type == "consumer_offset")
"""Members that have offsets of groups in queues."""


def steps_to_next(group: str) -> int:
    """Number to add to a stored offset of this group to get the next message to consume.

    1 for the group that redelivers messages which POP consumers did not acknowledge: for it a broker stores the last
    record that it has read, -1 for none.
    """
    return 1 if group == REVIVE_GROUP else 0
