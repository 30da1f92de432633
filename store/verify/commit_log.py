"""Group B: the commit log (docs/invariants.md, I-020 … I-056)."""

from __future__ import annotations

from . import (
    commit_log_chain,
    commit_log_dledger,
    commit_log_keys,
    commit_log_order,
    commit_log_properties,
    commit_log_records,
    commit_log_system,
    commit_log_topics,
)

__all__ = [
    "commit_log_chain",
    "commit_log_dledger",
    "commit_log_keys",
    "commit_log_order",
    "commit_log_properties",
    "commit_log_records",
    "commit_log_system",
    "commit_log_topics",
]
