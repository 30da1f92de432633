"""lock: a broker holds a POSIX record lock on its first byte (spec/04-checkpoint-timer.md, 4.3)."""

from __future__ import annotations

from construct import Bytes, Struct

from .locked_range import CONTENT

LOCK = Struct("content" / Bytes(4) * "the text lock")
assert LOCK.sizeof() == len(CONTENT)
