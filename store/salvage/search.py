"""Where a record may begin: the magic codes in a window. Pure."""

from __future__ import annotations

import re

import numpy as np

from ...formats.commit_log import HEAD, PLAIN
from ...formats.derive.ragged import Ints


def _pattern() -> re.Pattern[bytes]:
    """All magic codes of records: what they share, then the rest as a class of bytes."""
    codes = [HEAD.magic_code.build(magic) for magic in PLAIN.magics]
    shared, last = codes[0][:-1], b"".join(re.escape(code[-1:]) for code in codes)
    assert all(code.startswith(shared) for code in codes)
    return re.compile(re.escape(shared) + b"[" + last + b"]", re.DOTALL)


_MAGIC = _pattern()
OVERLAP_BYTES = HEAD.sizeof() - 1
"""So many bytes at the end of a window may be the front of a head."""


def first(data: bytearray, begin: int, end: int) -> int | None:
    """The first byte from `begin` on where a record may begin."""
    found = _MAGIC.search(data, begin + PLAIN.magic_offset, end)
    return None if found is None else found.start() - PLAIN.magic_offset


def every(data: bytearray, begin: int, end: int) -> Ints:
    """All such bytes, int64[n]."""
    found = _MAGIC.finditer(data, begin + PLAIN.magic_offset, end)
    return np.fromiter((hit.start() for hit in found), np.int64) - PLAIN.magic_offset
