"""topicQueueMapping.json: static topics, 5.0+ (spec/05-config.md, 5.3)."""

from __future__ import annotations

from .json_table import DATA_VERSION, QUEUE_ID, TOPIC, JsonField, JsonTable

FILE = "topicQueueMapping.json"
LOGIC_OFFSET = "logicOffset"
BROKER = JsonField("bname", "string", "broker")
_PART = JsonTable(
    "part",
    "topic_queue_part",
    "what a queue of a broker has of a logical queue",
    fields=(
        JsonField("gen", "integer", "number of the part", bits=32),
        QUEUE_ID._replace(doc="queue of the broker"),
        BROKER,
        JsonField(LOGIC_OFFSET, "integer", "its first offset in the logical queue, -1 while unknown"),
        JsonField("startOffset", "integer", "the same in the queue of the broker"),
        JsonField("endOffset", "integer", "behind its last offset there, -1 while it is written"),
        JsonField("timeOfStart", "integer", "in ms"),
        JsonField("timeOfEnd", "integer", "in ms"),
    ),
)
HOSTED_QUEUES = JsonTable(
    "hostedQueues",
    "hosted_queue",
    "one entry for each logical queue",
    (QUEUE_ID,),
    value=JsonField("parts", "array", "its parts", inner=_PART),
)
_QUEUE_OF = JsonTable("currIdMap", "current_queue", "one entry for each logical queue", (QUEUE_ID,), value=QUEUE_ID)

MAPPING_TABLE = JsonTable(
    "topicQueueMappingInfoMap",
    "topic_queue_mapping",
    "one entry for each static topic",
    (TOPIC,),
    (
        JsonField("scope", "string", "__global__ or a name"),
        JsonField("totalQueues", "integer", "logical queues of the topic", bits=32),
        BROKER,
        JsonField("epoch", "integer", "number of the mapping"),
        JsonField("dirty", "boolean", "not yet sent to all"),
        JsonField(HOSTED_QUEUES.member, "object", "logical queue to its parts on brokers", inner=HOSTED_QUEUES),
        JsonField(_QUEUE_OF.member, "object", "logical queue to the queue that it is written to", inner=_QUEUE_OF),
    ),
)
TABLES = (MAPPING_TABLE, DATA_VERSION)
