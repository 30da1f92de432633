"""broker.properties: the broker's settings as Java properties (spec/05-config.md, 5.5).

Normally the file that the broker is started with; `updateBrokerConfig` rewrites it.
"""

from __future__ import annotations

from .json_table import properties_table

FILE = "broker.properties"
TABLES = (properties_table("broker_property", "name of the setting"),)
