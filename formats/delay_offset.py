"""delayOffset.json: how far each delay level was delivered, all versions (spec/05-config.md, 5.3)."""

from __future__ import annotations

from .consumer_offset import OFFSET_TABLE
from .json_table import DATA_VERSION, JsonField, JsonTable

FILE = "delayOffset.json"
TABLES = (
    JsonTable(
        OFFSET_TABLE,
        "delay_offset",
        "one entry for each delay level that was ever used",
        (JsonField("delayLevel", "integer", "delay level; its queue is level - 1", bits=32),),
        value=JsonField("offset", "integer", "queue offset of the next message to deliver"),
    ),
    DATA_VERSION,
)
