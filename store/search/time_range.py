"""Times as people write them, and ranges of them: since ≤ t < until, in ms since 1970.

| text | meaning |
|---|---|
| `1795210681654` | epoch milliseconds, as stored |
| `2026-11-20T21:38:01.654Z`, `2026-11-20 21:38+08:00` | RFC 3339; seconds and fraction optional |
| `2026-11-20T21:38:01`, `2026-11-20` | the same in local time; a day begins at midnight |
| `21:38`, `21:38:01` | today, local time |
| `-1h`, `-90s`, `-2d12h`, `+5m` | from now; units ms s m h d w |
| `now`, `today`, `yesterday`, `tomorrow` | words; days begin at midnight, local time |
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, NamedTuple

from ..errors import InvalidInput

if TYPE_CHECKING:
    from datetime import date, datetime

LATEST_MS = (1 << 63) - 1
_UNIT_MS = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
}
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_SPAN = r"(\d+(?:\.\d+)?)(ms|[smhdw])"
_CLOCK = r"\d{1,2}:\d\d(:\d\d(\.\d+)?)?"
_HINT = "write 2026-11-20T21:38:00Z, 2026-11-20, 21:38, epoch milliseconds, -1h or yesterday"


class TimeRange(NamedTuple):
    """Times since_ms ≤ t < until_ms; all times by default, damaged ones before 1970 among them."""

    since_ms: int = 0
    until_ms: int = LATEST_MS

    def __contains__(self, time_ms: object) -> bool:
        within = isinstance(time_ms, int) and self.since_ms <= time_ms < self.until_ms
        return within or not self.bounded

    @property
    def bounded(self) -> bool:
        """The range leaves some times out."""
        return self != (0, LATEST_MS)


def parse_range(since: str | None, until: str | None, now_ms: int | None = None) -> TimeRange:
    """The range that `--since` and `--until` name. Raises InvalidInput, also for an empty range."""
    now_ms = _now_ms() if now_ms is None else now_ms
    found = TimeRange(
        parse_time(since, now_ms) if since is not None else 0,
        parse_time(until, now_ms) if until is not None else LATEST_MS,
    )
    if found.since_ms > found.until_ms:
        raise InvalidInput(f"--since {since} is later than --until {until}")
    return found


def parse_time(text: str, now_ms: int | None = None) -> int:
    """Milliseconds since 1970 of a time written in any of the forms above.

    now_ms: what relative times count from; default is the clock. Raises InvalidInput.

    >>> parse_time("1970-01-02T00:00:00Z"), parse_time("-1.5h", now_ms=7_200_000)
    (86400000, 1800000)
    """
    now_ms = _now_ms() if now_ms is None else now_ms
    stripped = text.strip()
    if stripped.isascii() and stripped.isdigit():
        found: int | None = int(stripped[:20])
    elif stripped[:1] in ("-", "+"):
        found = _relative(stripped, now_ms)
    else:
        found = _calendar(stripped, now_ms)
    if found is None or not 0 <= found <= LATEST_MS:
        raise InvalidInput(f"not a time: {text!r}", hint=_HINT)
    return found


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _relative(text: str, now_ms: int) -> int | None:
    """`-1h30m`: that long before now."""
    spans = re.findall(_SPAN, text[1:])
    if not spans or "".join(number + unit for number, unit in spans) != text[1:]:
        return None
    if any(len(number) > 15 for number, _ in spans):
        return None
    span_ms = sum(round(float(number) * _UNIT_MS[unit]) for number, unit in spans)
    return max(0, now_ms - span_ms) if text[0] == "-" else now_ms + span_ms


def _calendar(text: str, now_ms: int) -> int | None:
    """A word, a date, a time of day or both."""
    from datetime import datetime, timedelta

    if text.lower() == "now":
        return now_ms
    try:
        today = datetime.fromtimestamp(now_ms / 1000).astimezone().date()
        if text.lower() in _DAYS:
            return _local_ms(_midnight(today + timedelta(_DAYS[text.lower()])))
        if re.fullmatch(_CLOCK, text):
            text = f"{today.isoformat()}T{text.rjust(len(text) + (text[1] == ':'), '0')}"
        if re.fullmatch(r"\d{4}-\d\d-\d\d.*", text) is None:
            return None
        return _local_ms(datetime.fromisoformat(text))
    except (ValueError, OverflowError, OSError):
        return None


def _midnight(day: date) -> datetime:
    from datetime import datetime

    return datetime(day.year, day.month, day.day)


def _local_ms(moment: datetime) -> int:
    """Epoch milliseconds; a time without an offset is local."""
    from datetime import UTC, datetime, timedelta

    return (moment.astimezone() - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
