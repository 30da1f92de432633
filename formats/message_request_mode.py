"""messageRequestMode.json: PULL or POP for each topic and group, 5.0+ (spec/05-config.md, 5.3)."""

from __future__ import annotations

from .json_table import CONSUMER_GROUP, GROUP, TOPIC, JsonField, JsonTable

FILE = "messageRequestMode.json"
POP = "POP"
MESSAGE_REQUEST_MODE_MAP = "messageRequestModeMap"
TABLES = (
    JsonTable(
        MESSAGE_REQUEST_MODE_MAP,
        "message_request_mode",
        "one entry for each topic and group",
        (TOPIC, GROUP),
        (
            CONSUMER_GROUP,
            JsonField("mode", "string", "PULL or POP"),
            JsonField("popShareQueueNum", "integer", "queues that members share", bits=32),
        ),
    ),
)
