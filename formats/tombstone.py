"""Records that a recovery writes in place of lost ones (not RocketMQ's own).

A **tombstone** is an ordinary record with the place and size of a lost record, for the same topic, queue and queue
offset; the property LOST marks it. A **filler** covers bytes that belong to no queue position: a rolled-back record,
which no broker dispatches, in a topic of its own.
"""

from __future__ import annotations

from typing import Final

from .message_properties import ITEM_SEPARATOR, NAME_VALUE_SEPARATOR
from .sys_flag import TRANSACTION_MASK, SysFlag

LOST: Final = "LOST"
"""Property that marks a tombstone."""
LOST_ITEM: Final = LOST.encode() + NAME_VALUE_SEPARATOR + b"t" + ITEM_SEPARATOR
_AROUND_VALUE: Final = len(LOST_ITEM) - 1
FILLER_TOPIC: Final = b"-"
FILLER_SYS_FLAG: Final = int(SysFlag.ROLLBACK)
FILLER_BYTES_MAX: Final = 4 << 20
"""Brokers allocate memory of the size of a record that they check."""


def lost_item(length: int) -> bytes:
    """The LOST item in exactly `length` bytes; its value is filled up. Raises ValueError for too few bytes."""
    if length <= _AROUND_VALUE:
        raise ValueError(f"no mark has {length} bytes")
    value = b"t" * (length - _AROUND_VALUE)
    return LOST.encode() + NAME_VALUE_SEPARATOR + value + ITEM_SEPARATOR


def is_mark(value: str) -> bool:
    """Whether a value of the property LOST marks a tombstone."""
    return bool(value) and not value.strip("t")


def is_filler(topic: bytes, sys_flag: int) -> bool:
    return topic == FILLER_TOPIC and sys_flag & TRANSACTION_MASK == FILLER_SYS_FLAG
