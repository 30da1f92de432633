"""CommitLog: a file is records, then a BLANK (spec/01-commitlog.md, 1.1, 1.14).

What stands at a position is told by the magic code behind the size.
"""

from __future__ import annotations

from enum import StrEnum

from construct import Int32sb, Int32ub, Struct

from .blank import MAGIC_BLANK
from .message import MAGIC_V1, MAGIC_V2, MESSAGE

#: What every record begins with.
HEAD = Struct(
    "total_size" / Int32sb * "whole record, this field included",
    "magic_code" / Int32ub * "kind of record",
)
HEAD_BYTES = HEAD.sizeof()


class What(StrEnum):
    """What a magic code announces."""

    MESSAGE = "message"
    BLANK = "blank"
    OTHER = "other"


def what_is(magic_code: int) -> What:
    """Kind of the record with this magic code."""
    if magic_code in (MAGIC_V1, MAGIC_V2):
        return What.MESSAGE
    return What.BLANK if magic_code == MAGIC_BLANK else What.OTHER


__all__ = [
    "HEAD",
    "HEAD_BYTES",
    "MAGIC_BLANK",
    "MAGIC_V1",
    "MAGIC_V2",
    "MESSAGE",
    "What",
    "what_is",
]
