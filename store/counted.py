"""Numbers as people write them."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, thing: str, several: str = "", *, form: str = "") -> str:
    """Return `1 record`, `2 records`. several: the plural, or plural and verb, if it is not `thing` with an s.

    form: the format specification of the number.

    >>> counted(1, "record"), counted(0, "record"), counted(2, "index", "indexes")
    ('1 record', '0 records', '2 indexes')
    >>> counted(1, "message has", "messages have"), counted(2048, "message", form=",")
    ('1 message has', '2,048 messages')
    """
    return f"{count:{form}} {thing if count == 1 else several or thing + 's'}"


def listed(texts: Sequence[str], most: int) -> str:
    """Return the first texts with commas between them, and the number of the others.

    >>> listed(["a", "b"], 2), listed(["a", "b", "c"], 2)
    ('a, b', 'a, b and 1 more')
    """
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more} more" if more > 0 else "")


def bytes_text(size: int) -> str:
    """A number of bytes for people.

    >>> bytes_text(0), bytes_text(1536), bytes_text(1 << 30)
    ('0 B', '1.5 KiB', '1.0 GiB')
    """
    if abs(size) < 1024:
        return f"{size} B"
    value = float(size)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        if abs(value) < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} PiB"
