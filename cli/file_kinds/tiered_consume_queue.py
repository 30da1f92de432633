"""Segments of a tiered consume queue: its units are those of a consume queue."""

from __future__ import annotations

from .consume_queue import chunks, summary

__all__ = ["chunks", "summary"]
