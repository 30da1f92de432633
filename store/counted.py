"""Numbers of things, as people write them."""

from __future__ import annotations


def counted(count: int, thing: str, several: str = "") -> str:
    """`1 record`, `2 records`; several: what more than one of them are called, or do.

    >>> counted(1, "record"), counted(0, "record"), counted(2, "index", "indexes")
    ('1 record', '0 records', '2 indexes')
    """
    return f"{count} {thing if count == 1 else several or thing + 's'}"
