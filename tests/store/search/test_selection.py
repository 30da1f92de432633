"""Times as people write them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.store.errors import InvalidInput
from mqstore.store.search.selection import LATEST_MS, TimeRange, parse_range, parse_time

NOW = 1_795_210_681_654  # 2026-11-20T21:38:01.654Z
HOUR = 3_600_000


@pytest.fixture(autouse=True)
def shanghai(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def utc(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=UTC).timestamp() * 1000)  # type: ignore[arg-type,misc]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1795210681654", NOW),
        ("2026-11-20T21:38:01.654Z", NOW),
        ("2026-11-20 21:38:01.654+00:00", NOW),
        ("2026-11-21T05:38:01.654", NOW),
        ("2026-11-20T21:38Z", NOW - 1_654),
        ("2026-11-21", utc(2026, 11, 20, 16)),
        ("05:38", NOW - 1_654),
        ("5:38:01", NOW - 654),
        ("now", NOW),
        ("Now", NOW),
        ("today", utc(2026, 11, 20, 16)),
        ("yesterday", utc(2026, 11, 19, 16)),
        ("tomorrow", utc(2026, 11, 21, 16)),
        ("-1h", NOW - HOUR),
        ("-1h30m", NOW - HOUR * 3 // 2),
        ("-1.5h", NOW - HOUR * 3 // 2),
        ("-90s", NOW - 90_000),
        ("-500ms", NOW - 500),
        ("-1w2d", NOW - 9 * 24 * HOUR),
        ("+5m", NOW + 300_000),
        (" -1h ", NOW - HOUR),
        ("-99999d", 0),
    ],
)
def test_understands(text: str, expected: int) -> None:
    assert parse_time(text, NOW) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "x", "-", "-1", "-1y", "-h", "1h", "-1h x", "--1h", "-1h-1m", "1e3"),
        *("2026-13-01", "2026-11-20T25:00", "25:00", "9" * 30, "\u0661", "2026-11-20T"),
        *("-" + "9" * 400 + "h", "1900-01-01T00:00Z", "last week", "\0", "12:3"),
    ],
)
def test_refuses(text: str) -> None:
    with pytest.raises(InvalidInput, match="not a time"):
        parse_time(text, NOW)


@given(st.text(max_size=30))
def test_any_text_is_a_time_or_refused(text: str) -> None:
    try:
        assert 0 <= parse_time(text, NOW) <= LATEST_MS
    except InvalidInput as error:
        assert "\n" not in str(error)


@given(st.integers(0, utc(2200, 1, 1)))
def test_every_form_of_a_moment_is_that_moment(time_ms: int) -> None:
    moment = datetime.fromtimestamp(time_ms // 1000, UTC).replace(microsecond=time_ms % 1000 * 1000)
    assert parse_time(moment.isoformat(timespec="milliseconds")) == time_ms
    assert parse_time(moment.astimezone().isoformat(timespec="milliseconds")) == time_ms
    assert parse_time(str(time_ms)) == time_ms


def test_ranges() -> None:
    assert parse_range(None, None) == TimeRange(0, LATEST_MS)
    assert not parse_range(None, None).bounded
    hour = parse_range("-1h", "now", NOW)
    assert hour == (NOW - HOUR, NOW) and hour.bounded
    assert NOW - HOUR in hour and NOW - 1 in hour and NOW not in hour and NOW - HOUR - 1 not in hour
    assert parse_range("5", "5") == (5, 5)
    with pytest.raises(InvalidInput, match="later"):
        parse_range("now", "-1h", NOW)


def test_all_times_have_damaged_ones_among_them() -> None:
    assert -1 in TimeRange() and (1 << 63) - 1 in TimeRange()
    assert -1 not in TimeRange(until_ms=5)
