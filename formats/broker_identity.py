"""brokerIdentity: who the broker is to its controller, 5.1+ (spec/06-compaction-ha.md, 6.3).

One line of text in the store's directory: `cluster#brokerName#brokerId`. While a broker registers,
`brokerIdentity-temp` has its check code as a fourth part. The format is that of the real classes; no
real store with this file was available.
"""

from __future__ import annotations

from .json_table import JsonField, JsonTable

FILE, TEMPORARY = "brokerIdentity", "-temp"
SEPARATOR = "#"
IDENTITY = "identity"
FIELDS = (
    JsonField("clusterName", "string", "cluster"),
    JsonField("brokerName", "string", "name of the broker"),
    JsonField("brokerId", "integer", "number that the controller gave it"),
    JsonField("registerCheckCode", "string", "only in brokerIdentity-temp"),
)
TABLES = (JsonTable(IDENTITY, "broker_identity", "the one line", fields=FIELDS),)
