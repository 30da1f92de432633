"""Bodies of op records: which half messages are decided, by their queue offsets (spec/09-repair.md, 9.9.3).

Decimal numbers. Before 5.0 a record has one; since then one or several, each with a comma behind it.
"""

from __future__ import annotations

OFFSET_END = b","
OFFSET_BYTES = 20
"""Of a queue offset, and of what ends it, at most."""

_LARGEST = (1 << 63) - 1


def offset_text(offset: int, *, ended: bool) -> bytes:
    """A queue offset as a record names it; ended: with a comma."""
    return b"%d%b" % (offset, OFFSET_END if ended else b"")


def offsets_in(body: bytes) -> set[int]:
    """The queue offsets that a record names; what is no number of a broker is left out."""
    texts = (text for text in body.split(OFFSET_END) if text.isdigit() and len(text) < OFFSET_BYTES)
    return {offset for offset in map(int, texts) if offset <= _LARGEST}
