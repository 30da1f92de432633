"""What these tests write is forced to the disk at every step: they have their files in memory."""

from __future__ import annotations

from ..memory import tmp_path

__all__ = ["tmp_path"]
