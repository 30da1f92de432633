"""transactionMetrics: counts of open half messages, 5.x (spec/05-config.md, 5.3).

Statistics only: counts may be negative.
"""

from __future__ import annotations

from .json_table import DATA_VERSION, TIME_STAMP, TOPIC, JsonField, JsonTable

FILE = "transactionMetrics"
TRANSACTION_COUNT = "transactionCount"
TABLES = (
    JsonTable(
        TRANSACTION_COUNT,
        "transaction_count",
        "one entry for each topic",
        (TOPIC,),
        (JsonField("count", "integer", "half messages less commits and rollbacks"), TIME_STAMP),
    ),
    DATA_VERSION,
)
