"""consumerFilter.json: SQL92 filters of consumer groups, 4.1+ (spec/05-config.md, 5.3)."""

from __future__ import annotations

from .json_table import GROUP, TOPIC, JsonField, JsonTable, Member

_BIT = JsonField("bit", "integer", "number of a bit", bits=32, nullable=True)
_BITS = JsonTable(
    "bloomFilterData",
    "filter_bits",
    "bits of one filter",
    fields=(
        JsonField("bitNum", "integer", "bits of a map", bits=32),
        JsonField(
            "bitPos", "array", "those of the filter", inner=JsonTable("bit", "bit", "one item for each", value=_BIT)
        ),
    ),
)

TABLES = (
    JsonTable(
        "filterDataByTopic",
        "consumer_filter",
        "one entry for each topic and group",
        (TOPIC, Member("groupFilterData"), GROUP),
        (
            JsonField("consumerGroup", "string", "the group again"),
            JsonField("expressionType", "string", "SQL92 or TAG"),
            JsonField("expression", "string", "what the group subscribes to"),
            JsonField("bornTime", "integer", "when the group came with it, in ms"),
            JsonField("deadTime", "integer", "when it left, in ms; 0 while it is there"),
            JsonField("dead", "boolean", "it has left"),
            JsonField("clientVersion", "integer", "version that the client numbers it with"),
            JsonField("bloomFilterData", "object", "its bits in the bit maps of consumequeue_ext", inner=_BITS),
        ),
    ),
)
