"""transactionMetrics: counts of open half messages, 5.x (spec/05-config.md, 5.3).

Statistics only: counts may be negative.
"""

from __future__ import annotations

from .json_table import DATA_VERSION, TOPIC, JsonField, JsonTable

TABLES = (
    JsonTable(
        "transactionCount",
        "transaction_count",
        "one entry for each topic",
        (TOPIC,),
        (
            JsonField("count", "integer", "half messages less commits and rollbacks"),
            JsonField("timeStamp", "integer", "time of the last change in ms"),
        ),
    ),
    DATA_VERSION,
)
