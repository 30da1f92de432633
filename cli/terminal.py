"""What may reach a terminal: escaped text, times for people, colours.

Text out of a store is foreign: it can hold control characters that move the cursor, change the
window title or answer queries, and marks that turn the direction of a line. None of them is ever
printed as it is.
"""

from __future__ import annotations

import os
import re
from typing import IO

DANGEROUS = (
    "[\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\u00ad\u061c\u180e\u200b-\u200f"  # soft hyphen, zero width, left-to-right and opposite marks
    "\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff"  # separators, bidi, invisible, non-characters
    "\ud800-\udfff"  # halves of a surrogate pair: undecodable bytes of a file name
    "\U000e0000-\U000e0fff]"  # tags
)
"""Every character that does something else than to show itself. Compiled when text has one: not all have."""

_KEPT_LINES = f"(?!\n){DANGEROUS}"
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}

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
    r"""`text` on one line with every dangerous character written out.

    >>> print(escape("a\x1b[2Jb\n\u202ec"))
    a\x1b[2Jb\n\u202ec
    """
    return text if text.isprintable() else re.sub(DANGEROUS, _written_out, text)


def escape_lines(text: str) -> str:
    """As `escape`, but line ends stay: for text of our own that has foreign text in it."""
    return text if text.isprintable() else re.sub(_KEPT_LINES, _written_out, text)


def _written_out(match: re.Match[str]) -> str:
    char = match[0]
    short = _SHORT.get(char)
    return short or char.encode("unicode_escape", "surrogatepass").decode("ascii")


def paint(text: str, style: str, colour: bool) -> str:
    """`text`, escaped, in a style of `_STYLES` where `colour` is on."""
    safe = escape(text)
    return f"\x1b[{_STYLES[style]}m{safe}\x1b[0m" if colour and safe else safe


def colour_wanted(stream: IO[str] | None, no_color: bool) -> bool:
    """Colours only on a terminal that knows them, and if neither option nor NO_COLOR forbids."""
    if no_color or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return is_terminal(stream)


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
