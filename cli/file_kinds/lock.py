"""`lock`: its content as text, as that of `abort`."""

from __future__ import annotations

from .abort import chunks, summary

__all__ = ["chunks", "summary"]
