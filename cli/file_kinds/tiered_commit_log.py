"""Segments of a tiered commit log; what `dump` prints of them is in `cli/dump_log.py`."""

from __future__ import annotations

from .commit_log import summary

__all__ = ["summary"]
