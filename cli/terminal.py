"""What may reach a terminal: escaped text, times for people, colours.

Text out of a store is foreign: it can hold control characters that move the cursor, change the
window title or answer queries, and marks that turn the direction of a line. None of them is ever
printed as it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import IO

_STYLES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}


def escape(text: str) -> str:
    """`text` on one line with every dangerous character written out (`store/output/escaped.py`)."""
    if text.isprintable():
        return text
    from ..store.output import escaped

    return escaped.escape(text)


def escape_lines(text: str) -> str:
    """As `escape`, but line ends stay: for text of our own that has foreign text in it."""
    if text.isprintable():
        return text
    from ..store.output import escaped

    return escaped.escape_lines(text)


def page_of(lines: Iterable[str]) -> str:
    """Lines that stay one line each, whatever names are in them."""
    return "\n".join(map(escape, lines))


def paint(text: str, style: str, colour: bool) -> str:
    """`text`, escaped, in a style of `_STYLES` where `colour` is on."""
    safe = escape(text)
    return f"\x1b[{_STYLES[style]}m{safe}\x1b[0m" if colour and safe else safe


def colour_wanted(stream: IO[str] | None, no_color: bool) -> bool:
    """Colours only on a terminal that knows them, and if neither option nor NO_COLOR forbids."""
    if no_color or os.environ.get("NO_COLOR") or is_dumb():
        return False
    return is_terminal(stream)


def is_dumb() -> bool:
    """Whether the terminal knows no control sequences."""
    return os.environ.get("TERM") == "dumb"


def is_terminal(stream: IO[str] | None) -> bool:
    """Whether a person looks at `stream`; a closed one is nobody's."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def time_text(epoch_ms: int, utc: bool) -> str:
    """RFC 3339 with milliseconds, in local time with its offset or in UTC.

    A number that is no time a calendar has (damage) is printed as the number.

    >>> time_text(1700000000123, utc=True)
    '2023-11-14T22:13:20.123Z'
    """
    from datetime import UTC, datetime, timedelta

    try:
        moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=epoch_ms)
        if not utc:
            moment = moment.astimezone()
    except (OverflowError, ValueError, OSError):
        return str(epoch_ms)
    text = moment.isoformat("T", "milliseconds")
    return text.replace("+00:00", "Z") if utc else text
