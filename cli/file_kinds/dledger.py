"""A DLedger commit log, or a file of it: entries around records."""

from __future__ import annotations

from .commit_log import summary

__all__ = ["summary"]
