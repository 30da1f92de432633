"""Safe output on a terminal: escaped text, times for people, colours.

Text from a store can hold control characters that move the cursor, change the window title or send answers, and marks
that change the direction of text. All of them are escaped before they are printed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import IO

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def escape(text: str) -> str:
    """`text` on one line, with every dangerous character escaped (`store/output/escaped.py`)."""
    if text.isprintable():
        return text
    from ..store.output import escaped

    return escaped.escape(text)


def escape_lines(text: str) -> str:
    """As `escape`, but line ends stay: for mqstore's own text with text from a store in it."""
    if text.isprintable():
        return text
    from ..store.output import escaped

    return escaped.escape_lines(text)


def page_of(lines: Iterable[str]) -> str:
    """The lines as one text, each escaped, so that each stays one line."""
    return "\n".join(map(escape, lines))


def paint(text: str, style: str, colour: bool) -> str:
    """`text`, escaped, in a style of `_STYLES` if `colour` is true."""
    safe = escape(text)
    return f"\x1b[{_STYLES[style]}m{safe}\x1b[0m" if colour and safe else safe


def colour_wanted(stream: IO[str] | None, no_color: bool) -> bool:
    """Whether to use colours: on a terminal that knows them, unless `--no-color` or NO_COLOR is set."""
    if no_color or os.environ.get("NO_COLOR") or is_dumb():
        return False
    return is_terminal(stream)


def is_dumb() -> bool:
    """Whether the terminal does not know control sequences."""
    return os.environ.get("TERM") == "dumb"


def is_terminal(stream: IO[str] | None) -> bool:
    """Whether `stream` is a terminal; false if it is closed."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def time_text(epoch_ms: int, utc: bool) -> str:
    """A time in RFC 3339 with milliseconds, in UTC or in local time with its offset.

    A number outside the calendar (damage) is returned as the number.

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
