"""consumerOffset.json: how far each consumer group has consumed each queue, all versions.

An offset names the next message to consume (spec/05-config.md, 5.3).
"""

from __future__ import annotations

from .json_table import DATA_VERSION, GROUP, QUEUE_ID, TOPIC, JsonField, JsonTable

OFFSET = JsonField("offset", "integer", "queue offset of the next message to consume")
TABLES = (
    JsonTable(
        "offsetTable",
        "consumer_offset",
        "one entry for each topic, group and queue",
        ((TOPIC, GROUP), QUEUE_ID),
        value=OFFSET,
    ),
    JsonTable(
        "pullOffsetTable",
        "consumer_offset",
        "the same for consumers that pull; 5.5",
        ((TOPIC, GROUP), QUEUE_ID),
        value=OFFSET,
    ),
    DATA_VERSION,
)
OFFSET_TABLES = tuple(table.member for table in TABLES if table.record_type == "consumer_offset")
"""What has positions of groups in queues."""
