"""consumerOrderInfo.json: messages that POP consumers hold in order, 5.0+ (spec/05-config.md, 5.3)."""

from __future__ import annotations

from .json_table import GROUP, QUEUE_ID, TOPIC, JsonField, JsonTable

TABLES = (
    JsonTable(
        "table",
        "consumer_order_info",
        "one entry for each topic, group and queue",
        ((TOPIC, GROUP), QUEUE_ID),
        (
            JsonField("popTime", "integer", "when they were handed out, in ms"),
            JsonField("i", "integer", "for how long nobody else sees them, in ms"),
            JsonField("o", "array", "queue offsets: the first one, the others relative to it"),
            JsonField("ot", "object", "queue offset to the time when it is seen again"),
            JsonField("oc", "object", "queue offset to how often it was consumed"),
            JsonField("l", "integer", "time of the last consumption in ms"),
            JsonField("cm", "integer", "bits of those that are committed"),
            JsonField("a", "string", "attempt id"),
        ),
    ),
)
