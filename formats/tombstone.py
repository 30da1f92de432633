"""Records that a recovery writes in the place of what was lost (not RocketMQ's own).

A **tombstone** is an ordinary record at the place and of the size of a lost one, for the same topic,
queue and queue offset; the property LOST marks it. A **filler** closes bytes that belong to no queue
position: a rolled back record, which no broker dispatches, of a topic of its own.
"""

from __future__ import annotations

from typing import Final

from .message_properties import ITEM_SEPARATOR, NAME_VALUE_SEPARATOR
from .sys_flag import TRANSACTION_MASK, SysFlag

LOST: Final = "LOST"
"""Property of a tombstone."""
LOST_ITEM: Final = LOST.encode() + NAME_VALUE_SEPARATOR + b"t" + ITEM_SEPARATOR
_AROUND_VALUE: Final = len(LOST_ITEM) - 1
FILLER_TOPIC: Final = b"-"
FILLER_SYS_FLAG: Final = int(SysFlag.ROLLBACK)
FILLER_BYTES_MAX: Final = 4 << 20
"""Every broker allocates the size of a record that it checks."""


def lost_item(length: int) -> bytes:
    """The mark in exactly `length` bytes: its value takes what is left. Raises ValueError."""
    if length <= _AROUND_VALUE:
        raise ValueError(f"no mark has {length} bytes")
    value = b"t" * (length - _AROUND_VALUE)
    return LOST.encode() + NAME_VALUE_SEPARATOR + value + ITEM_SEPARATOR


def is_mark(value: str) -> bool:
    """Whether a value of the property LOST is that of a tombstone."""
    return bool(value) and not value.strip("t")


def is_filler(topic: bytes, sys_flag: int) -> bool:
    """A record with this topic and these flags closes a hole."""
    return topic == FILLER_TOPIC and sys_flag & TRANSACTION_MASK == FILLER_SYS_FLAG
