"""Content and locked range of the file `lock`, for commands that do without construct."""

from __future__ import annotations

CONTENT = b"lock"
#: The byte range that is locked: start, length.
LOCKED_RANGE = (0, 1)
