"""topics.json: the topics that a broker serves, all versions (spec/05-config.md, 5.3)."""

from __future__ import annotations

from .json_table import DATA_VERSION, TOPIC, JsonField, JsonTable

FILE = "topics.json"
TOPIC_CONFIG_TABLE, TOPIC_NAME, TOPIC_SYS_FLAG = "topicConfigTable", "topicName", "topicSysFlag"
READ_QUEUE_NUMS, WRITE_QUEUE_NUMS, TOPIC_FILTER_TYPE = "readQueueNums", "writeQueueNums", "topicFilterType"
TABLES = (
    JsonTable(
        TOPIC_CONFIG_TABLE,
        "topic_config",
        "one entry for each topic",
        (TOPIC,),
        (
            JsonField(TOPIC_NAME, "string", "the topic again"),
            JsonField(READ_QUEUE_NUMS, "integer", "queues that consumers see", bits=32),
            JsonField(WRITE_QUEUE_NUMS, "integer", "queues that producers see", bits=32),
            JsonField("perm", "integer", "4 read + 2 write + 1 inherit, 8 priority (5.x)", bits=32),
            JsonField("order", "boolean", "messages are kept in order"),
            JsonField(TOPIC_FILTER_TYPE, "string", "SINGLE_TAG or MULTI_TAG"),
            JsonField(TOPIC_SYS_FLAG, "integer", "1 unit, 2 has subscribers in units", bits=32),
            JsonField(
                "attributes",
                "object",
                "queue.type, cleanup.policy, message.type, reserve.time, lite.topic.expiration; 5.x",
            ),
        ),
    ),
    DATA_VERSION,
)
