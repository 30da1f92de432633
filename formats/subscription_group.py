"""subscriptionGroup.json: the consumer groups, all versions (spec/05-config.md, 5.3)."""

from __future__ import annotations

from .json_table import DATA_VERSION, EXPRESSION_TYPE, GROUP, TOPIC, JsonField, JsonTable

FILE = "subscriptionGroup.json"
SUBSCRIPTION_GROUP_TABLE, FORBIDDEN_TABLE, GROUP_NAME = "subscriptionGroupTable", "forbiddenTable", "groupName"
_DELAY = JsonField("delay", "integer", "ms until the next delivery", nullable=True)
_CUSTOMIZED = JsonTable(
    "customizedRetryPolicy",
    "customized_retry_policy",
    "a delay for each delivery",
    fields=(JsonField("next", "array", "delays", inner=JsonTable("delay", "delay", "in order", value=_DELAY)),),
)
_EXPONENTIAL = JsonTable(
    "exponentialRetryPolicy",
    "exponential_retry_policy",
    "delays that grow",
    fields=(
        JsonField("initial", "integer", "the first one in ms"),
        JsonField("max", "integer", "the longest one in ms"),
        JsonField("multiplier", "integer", "each one by the one before"),
    ),
)
_RETRY = JsonTable(
    "groupRetryPolicy",
    "group_retry_policy",
    "when a message comes again",
    fields=(
        JsonField("type", "string", "CUSTOMIZED or EXPONENTIAL"),
        JsonField(_CUSTOMIZED.member, "object", "of the first type", inner=_CUSTOMIZED),
        JsonField(_EXPONENTIAL.member, "object", "of the second type", inner=_EXPONENTIAL),
    ),
)
_SUBSCRIPTION = JsonTable(
    "subscription",
    "subscription",
    "one item for each topic",
    fields=(
        JsonField("topic", "string", "topic"),
        JsonField(EXPRESSION_TYPE, "string", "TAG or SQL92"),
        JsonField("expression", "string", "what of it"),
        JsonField("version", "integer", "version that the client numbers it with"),
    ),
)

TABLES = (
    JsonTable(
        SUBSCRIPTION_GROUP_TABLE,
        "subscription_group",
        "one entry for each consumer group",
        (GROUP,),
        (
            JsonField(GROUP_NAME, "string", "the group again"),
            JsonField("consumeEnable", "boolean", "the group may consume"),
            JsonField("consumeFromMinEnable", "boolean", "may start at the oldest message"),
            JsonField("consumeBroadcastEnable", "boolean", "may consume in broadcast mode"),
            JsonField("consumeMessageOrderly", "boolean", "consumes in order; 5.x"),
            JsonField("retryQueueNums", "integer", "queues of its %RETRY% topic", bits=32),
            JsonField("retryMaxTimes", "integer", "deliveries before the dead letter topic", bits=32),
            JsonField(_RETRY.member, "object", "when a message comes again; 5.x", inner=_RETRY),
            JsonField("brokerId", "integer", "broker that is consumed from"),
            JsonField("whichBrokerWhenConsumeSlowly", "integer", "broker for slow consumers"),
            JsonField("notifyConsumerIdsChangedEnable", "boolean", "members are notified of changes"),
            JsonField("groupSysFlag", "integer", "flags; 5.x", bits=32),
            JsonField("consumeTimeoutMinute", "integer", "minutes; 5.x", bits=32),
            JsonField("subscriptionDataSet", "array", "what the group subscribes to; 5.x", inner=_SUBSCRIPTION),
            JsonField("attributes", "object", "more settings; 5.x"),
        ),
    ),
    JsonTable(
        FORBIDDEN_TABLE,
        "forbidden",
        "topics that a group may not consume; 5.x",
        (GROUP, TOPIC),
        value=JsonField("forbidden", "integer", "bits of what is forbidden", bits=32),
    ),
    DATA_VERSION,
)
