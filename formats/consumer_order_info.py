"""consumerOrderInfo.json: messages that POP consumers hold in order, 5.0+ (spec/05-config.md, 5.3)."""

from __future__ import annotations

from .json_table import GROUP, QUEUE_ID, TOPIC, JsonField, JsonTable

FILE = "consumerOrderInfo.json"
_OFFSET = JsonField("queueOffset", "integer", "queue offset")
_TIME = JsonField("time", "integer", "in ms", nullable=True)
_COUNT = JsonField("count", "integer", "deliveries", bits=32, nullable=True)
_HELD = JsonTable("offset", "held", "one item for each message", value=_OFFSET)
_TIMES = JsonTable("ot", "seen_again", "one entry for each message", (_OFFSET,), value=_TIME)
_COUNTS = JsonTable("oc", "consumed", "one entry for each message", (_OFFSET,), value=_COUNT)

TABLES = (
    JsonTable(
        "table",
        "consumer_order_info",
        "one entry for each topic, group and queue",
        ((TOPIC, GROUP), QUEUE_ID),
        (
            JsonField("popTime", "integer", "when they were handed out, in ms"),
            JsonField("i", "integer", "for how long nobody else sees them, in ms"),
            JsonField("o", "array", "queue offsets: the first one, the others relative to it", inner=_HELD),
            JsonField("ot", "object", "queue offset to the time when it is seen again", inner=_TIMES),
            JsonField("oc", "object", "queue offset to how often it was consumed", inner=_COUNTS),
            JsonField("l", "integer", "time of the last consumption in ms"),
            JsonField("cm", "integer", "bits of those that are committed"),
            JsonField("a", "string", "attempt id"),
        ),
    ),
)
