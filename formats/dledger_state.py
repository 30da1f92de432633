"""The state of a DLedger member: checkpoint and currterm, all versions (spec/01-commitlog.md, 1.13).

`dledger-SELF/checkpoint` (endIndex, committedIndex) and `dledger-SELF/currterm` (currTerm,
voteLeader), Java properties, each with a .bak.
"""

from __future__ import annotations

from .json_table import JsonField, JsonTable

FILE, FILES = "", ("checkpoint", "currterm")
"""No single file name: both files have this layout."""
END_INDEX, COMMITTED_INDEX = "endIndex", "committedIndex"
TERM, VOTE = "currTerm", "voteLeader"
TABLES = (
    JsonTable(
        "",
        "dledger_state",
        "one entry for each line",
        (JsonField("name", "string", "what it is"),),
        value=JsonField("value", "string", "its value"),
    ),
)
