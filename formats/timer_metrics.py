"""timermetrics: counts of timer messages that wait, 5.x (spec/04-checkpoint-timer.md, 4.8).

`config/timermetrics`, one line. Statistics only: a broker makes them again.
"""

from __future__ import annotations

from .json_table import DATA_VERSION, TIME_STAMP, TOPIC, JsonField, JsonTable

FILE = "timermetrics"
TIMING_COUNT = "timingCount"
TABLES = (
    JsonTable(
        TIMING_COUNT,
        "timer_count",
        "one entry for each real topic",
        (TOPIC,),
        (JsonField("count", "integer", "timer messages that wait"), TIME_STAMP),
    ),
    DATA_VERSION,
)
