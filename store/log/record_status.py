"""What a record is worth (design, "One message as JSON")."""

from __future__ import annotations

from enum import IntEnum


class Mark(IntEnum):
    """Where a record lies, as far as that makes a difference; the names are those of the JSON."""

    NONE = 0
    AFTER_DAMAGE = 1
    DEAD_TAIL = 2
    EARLIER_LIFE = 3
    EMBEDDED = 4
