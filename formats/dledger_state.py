"""The state of a DLedger member: checkpoint and currterm, all versions (spec/01-commitlog.md, 1.13).

`dledger-SELF/checkpoint` (endIndex, committedIndex) and `dledger-SELF/currterm` (currTerm,
voteLeader), Java properties, each with a .bak.
"""

from __future__ import annotations

from .json_table import properties_table

FILE, FILES = "", ("checkpoint", "currterm")
"""No single file name: both files have this layout."""
END_INDEX, COMMITTED_INDEX = "endIndex", "committedIndex"
TERM, VOTE = "currTerm", "voteLeader"
TABLES = (properties_table("dledger_state", "what it is"),)
