"""All targets. Not in the package itself: atheris must be there before mqstore is imported."""

from __future__ import annotations

from . import bytes_targets, file_targets, kind_targets, text_targets
from .target import TARGETS

__all__ = ["TARGETS", "bytes_targets", "file_targets", "kind_targets", "text_targets"]
