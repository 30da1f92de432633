"""tieredStoreMetadata.json: what the tiered store holds, 5.1+ (spec/05-config.md, 5.3).

Described after what the real classes of 5.3.3 and 5.5.0 write.
"""

from __future__ import annotations

from .json_table import QUEUE_ID, TOPIC, JsonField, JsonTable

FILE = "tieredStoreMetadata.json"
_SEGMENT = (
    JsonField("type", "integer", "0 commit log, 1 consume queue, 2 index", "segment_type"),
    JsonField("status", "integer", "0 new, 1 sealed, 2 deleted"),
    JsonField("size", "integer", "bytes"),
    JsonField("createTimestamp", "integer", "when it was made, in ms"),
    JsonField("beginTimestamp", "integer", "store time of its first message in ms"),
    JsonField("endTimestamp", "integer", "store time of its last message in ms"),
    JsonField("sealTimestamp", "integer", "when it was sealed, in ms"),
)
_PLACE = (
    JsonField("path", "string", "path of the flat file"),
    JsonField("baseOffset", "integer", "position of its first byte in the flat file"),
)

_UPDATED = JsonField("updateTimestamp", "integer", "time of the last change in ms")
SERIAL = JsonField("topicSerialNumber", "integer", "highest topicId that was given")
"""Member besides the tables. A broker that does not find it assigns numbers a second time."""
TOPIC_ID = JsonField("topicId", "integer", "number of the topic")


def _segments(member: str, what: str) -> JsonTable:
    return JsonTable(member, "tiered_segment", f"segments of {what}", _PLACE, _SEGMENT)


TOPIC_TABLE = JsonTable(
    "topicMetadataTable",
    "tiered_topic",
    "one entry for each topic",
    (TOPIC,),
    (
        TOPIC_ID,
        JsonField("status", "integer", "status"),
        JsonField("reserveTime", "integer", "hours it is kept, -1 for the default"),
        _UPDATED,
    ),
)
SEGMENT_TABLES = (
    _segments("commitLogFileSegmentTable", "commit logs"),
    _segments("consumeQueueFileSegmentTable", "consume queues"),
    _segments("indexFileSegmentTable", "indexes"),
)
TABLES = (
    TOPIC_TABLE,
    JsonTable(
        "queueMetadataTable",
        "tiered_queue",
        "one entry for each queue",
        (TOPIC, QUEUE_ID),
        (
            JsonField("queue", "object", "the same queue, with the name of its broker"),
            JsonField("minOffset", "integer", "first queue offset that is there"),
            JsonField("maxOffset", "integer", "behind the last one"),
            _UPDATED,
        ),
    ),
    *SEGMENT_TABLES,
)
