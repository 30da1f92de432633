"""consumerFilter.json: SQL92 filters of consumer groups, 4.1+ (spec/05-config.md, 5.3)."""

from __future__ import annotations

from .json_table import CONSUMER_GROUP, EXPRESSION_TYPE, GROUP, TOPIC, JsonField, JsonTable, Member

FILE = "consumerFilter.json"
FILTER_DATA_BY_TOPIC, GROUP_FILTER_DATA, BORN_TIME = "filterDataByTopic", "groupFilterData", "bornTime"
BLOOM_FILTER_DATA, BIT_NUM, BIT_POS = "bloomFilterData", "bitNum", "bitPos"
_BIT = JsonField("bit", "integer", "number of a bit", bits=32, nullable=True)
_BITS = JsonTable(
    BLOOM_FILTER_DATA,
    "filter_bits",
    "bits of one filter",
    fields=(
        JsonField(BIT_NUM, "integer", "bits of a map", bits=32),
        JsonField(
            BIT_POS, "array", "those of the filter", inner=JsonTable("bit", "bit", "one item for each", value=_BIT)
        ),
    ),
)

TABLES = (
    JsonTable(
        FILTER_DATA_BY_TOPIC,
        "consumer_filter",
        "one entry for each topic and group",
        (TOPIC, Member(GROUP_FILTER_DATA), GROUP),
        (
            CONSUMER_GROUP,
            JsonField(EXPRESSION_TYPE, "string", "SQL92 or TAG"),
            JsonField("expression", "string", "what the group subscribes to"),
            JsonField(BORN_TIME, "integer", "when the group came with it, in ms"),
            JsonField("deadTime", "integer", "when it left, in ms; 0 while it is there"),
            JsonField("dead", "boolean", "it has left"),
            JsonField("clientVersion", "integer", "version that the client numbers it with"),
            JsonField(BLOOM_FILTER_DATA, "object", "its bits in the bit maps of consumequeue_ext", inner=_BITS),
        ),
    ),
)
