"""`config/timercheck`: one record, as the checkpoint is."""

from __future__ import annotations

from .checkpoint import chunks, summary

__all__ = ["chunks", "summary"]
