"""Bodies of op records: queue offsets of half messages that were decided (spec/09-repair.md, 9.9.3).

They are decimal numbers. Before 5.0 a record has one; since 5.0 one or several, each followed by a comma.
"""

from __future__ import annotations

OFFSET_END = b","
OFFSET_BYTES = 20
"""Most bytes of a queue offset with its comma."""

_LARGEST = (1 << 63) - 1


def offset_text(offset: int, *, ended: bool) -> bytes:
    """A queue offset as text of a record; ended: followed by a comma."""
    return b"%d%b" % (offset, OFFSET_END if ended else b"")


def offsets_in(body: bytes) -> set[int]:
    """The queue offsets in a record; texts that are not numbers of a broker are left out."""
    texts = (text for text in body.split(OFFSET_END) if text.isdigit() and len(text) < OFFSET_BYTES)
    return {offset for offset in map(int, texts) if offset <= _LARGEST}
