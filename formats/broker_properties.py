"""broker.properties: the broker's settings as Java properties (spec/05-config.md, 5.5).

Normally the file that the broker is started with; `updateBrokerConfig` rewrites it.
"""

from __future__ import annotations

from .json_table import JsonField, JsonTable

FILE = "broker.properties"
TABLES = (
    JsonTable(
        "",
        "broker_property",
        "one entry for each line",
        (JsonField("name", "string", "name of the setting"),),
        value=JsonField("value", "string", "its value"),
    ),
)
