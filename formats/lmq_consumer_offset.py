"""lmqConsumerOffset.json: offsets of groups of LMQs (light message queues), 4.9.3+ (spec/05-config.md, 5.3)."""

from __future__ import annotations

from .consumer_offset import OFFSET
from .consumer_offset import TABLES as _PLAIN
from .json_table import GROUP, TOPIC, JsonTable

FILE = "lmqConsumerOffset.json"
LMQ_OFFSET_TABLE = "lmqOffsetTable"
TABLES = (
    JsonTable(
        LMQ_OFFSET_TABLE,
        "consumer_offset",
        "one entry for each LMQ and group; the queue id is always 0",
        ((TOPIC, GROUP),),
        value=OFFSET,
    ),
    *_PLAIN,
)
