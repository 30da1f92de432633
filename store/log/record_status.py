"""What a record is worth (design, "One message as JSON").

What readers say of records and ranges that are not simply messages, told for people.

Which records stand for lost messages (formats.tombstone): they are no messages of anybody.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ...formats.tombstone import LOST, is_mark

if TYPE_CHECKING:
    from ...formats.derive import Columns
    from ...formats.derive.ragged import Flags


class Mark(IntEnum):
    """Where a record lies, as far as that makes a difference; the names are those of the JSON."""

    NONE = 0
    AFTER_DAMAGE = 1
    DEAD_TAIL = 2
    EARLIER_LIFE = 3
    EMBEDDED = 4


class MarkStory(NamedTuple):
    """One mark. label: as in JSON; shown: as in text. next: a command that has to do with it, or ""."""

    label: str
    shown: str
    found: str
    broker: str
    next: str


@cache
def mark_stories() -> dict[str, MarkStory]:
    """Every mark by its label."""
    import tomllib
    from pkgutil import get_data

    data = get_data(__package__, "status_texts.toml")
    assert data is not None
    return {name: MarkStory(name, **row) for name, row in tomllib.loads(data.decode()).items()}


def tombstones(columns: Columns) -> Flags:
    """bool[n]: which records of MESSAGE are tombstones. No broker has port 0, so it is quick."""
    import numpy as np

    from ...formats.property_columns import find

    found = np.asarray(columns.ints("store_host.port") == 0, np.bool_)
    for row in np.flatnonzero(found).tolist():
        (value,) = find(columns.ragged("properties")[row : row + 1], LOST).tolist()
        found[row] = is_mark(value.decode("utf-8", "replace"))
    return found
