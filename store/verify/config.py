"""Group G: the configuration (docs/invariants.md, I-140 … I-156)."""

from __future__ import annotations

from . import config_files, config_offsets, config_start, config_topics

__all__ = ["config_files", "config_offsets", "config_start", "config_topics"]
