"""Group D: the index (docs/invariants.md, I-090 … I-109), against the log in both directions."""

from __future__ import annotations

from . import index_chains, index_files, index_log

__all__ = ["index_chains", "index_files", "index_log"]
