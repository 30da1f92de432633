"""What a broker reads of a record when it tells waiting consumers that it has come (4.9)."""

from __future__ import annotations

import re

import numpy as np

from ...formats import message_properties as names
from ...formats.derive import Columns
from ...formats.property_columns import find
from .dispatch import java_split

_LONG_MAX = 2**63 - 1


def unannounceable(columns: Columns) -> int | None:
    """Row of the first record whose further queues cannot be announced; None: there is none.

    Every offset in INNER_MULTI_QUEUE_OFFSET has to be a number, of records of transactions and of
    topics without further queues, too, and whether or not the broker has LMQ (B11).
    """
    properties = columns.ragged("properties")
    queues = find(properties, names.INNER_MULTI_DISPATCH)
    offsets = find(properties, names.INNER_MULTI_QUEUE_OFFSET)
    for row in np.flatnonzero((queues.length > 0) & (offsets.length > 0)).tolist():
        numbers = java_split(offsets[row])
        if len(numbers) == len(java_split(queues[row])) and not all(map(_is_long, numbers)):
            return int(row)
    return None


def _is_long(text: str) -> bool:
    """`Long.parseLong` takes it."""
    if not re.fullmatch(r"[+-]?[0-9]{1,30}", text):
        return False
    return -_LONG_MAX - 1 <= int(text) <= _LONG_MAX
