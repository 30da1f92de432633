"""Group B: the commit log (docs/invariants.md, I-020 … I-056)."""

from __future__ import annotations

from . import (
    log_chain,
    log_dledger,
    log_keys,
    log_order,
    log_properties,
    log_records,
    log_system,
    log_topics,
)

__all__ = [
    "log_chain",
    "log_dledger",
    "log_keys",
    "log_order",
    "log_properties",
    "log_records",
    "log_system",
    "log_topics",
]
