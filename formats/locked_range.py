"""What of the file lock is locked, and what stands in it, for commands that are over without construct."""

from __future__ import annotations

CONTENT = b"lock"
#: The byte range that carries the lock: start, length.
LOCKED_RANGE = (0, 1)
