"""Writing the checkpoint as an edit."""

from __future__ import annotations

from pathlib import Path

from ...formats.checkpoint import FIELDS, PAGE_BYTES
from ...formats.fixed import numbers_of
from ..checkpoint import Checkpoint
from .edits import Edit

_REASON = "times and positions of a complete store"
_CODES = ("I-111", "I-113")


def checkpoint_edit(path: Path, checkpoint: Checkpoint) -> Edit:
    """The edit that leaves `checkpoint` at `path`: its fields written, or a whole new file."""
    data = numbers_of(FIELDS).pack(*checkpoint)
    if path.exists() and path.stat().st_size == PAGE_BYTES:
        return Edit("write", str(path), _REASON, _CODES, 0, len(data), data)
    return Edit("create", str(path), _REASON, _CODES, length=PAGE_BYTES, pieces=((0, data),))
