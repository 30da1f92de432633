"""topicQueueMapping.json: static topics, 5.0+ (spec/05-config.md, 5.3). No store with one was seen."""

from __future__ import annotations

from .json_table import DATA_VERSION, TOPIC, JsonField, JsonTable

TABLES = (
    JsonTable(
        "topicQueueMappingInfoMap",
        "topic_queue_mapping",
        "one entry for each static topic",
        (TOPIC,),
        (
            JsonField("scope", "string", "__global__ or a name"),
            JsonField("totalQueues", "integer", "logical queues of the topic", bits=32),
            JsonField("bname", "string", "broker"),
            JsonField("epoch", "integer", "number of the mapping"),
            JsonField("dirty", "boolean", "not yet sent to all"),
            JsonField("hostedQueues", "object", "logical queue to its parts on brokers"),
        ),
    ),
    DATA_VERSION,
)
