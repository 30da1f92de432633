"""lock: a broker holds a POSIX record lock on its first byte (spec/04-checkpoint-timer.md, 4.3)."""

from __future__ import annotations

from construct import Bytes, Struct

LOCK = Struct("content" / Bytes(4) * "the text lock")
CONTENT = b"lock"
#: The byte range that carries the lock: start, length.
LOCKED_RANGE = (0, 1)
assert LOCK.sizeof() == len(CONTENT)
