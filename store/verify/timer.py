"""Group F: the timer (docs/invariants.md, I-120 … I-137)."""

from __future__ import annotations

from . import timer_log, timer_progress, timer_records, timer_wheel

__all__ = ["timer_log", "timer_progress", "timer_records", "timer_wheel"]
