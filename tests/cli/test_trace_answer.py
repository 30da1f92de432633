"""A trace as lines and as rows: an event, a verdict, a proof is one, whatever its texts are."""

from __future__ import annotations

from typing import Any

import pytest

from mqstore.cli.options import Common
from mqstore.cli.trace_answer import CSV_COLUMNS, _text, flat

from .hostile import TEXTS

UTC = Common(utc=True)


def event(text: str, **other: Any) -> dict[str, Any]:
    place = {"topic": text, "queue_id": 0, "queue_offset": 7, "position": 4096}
    return {"event": "queued", "timestamp": 1000, "group": text, "text": text, "path": text, **place, **other}


def verdict(text: str) -> dict[str, Any]:
    proof = {"fact": text, "where": text}
    place = {"topic": text, "queue_id": 0, "queue_offset": 7}
    told = {"verdict": "not_consumed", "reason": text, "until_timestamp": 2000, "bug": None, "evidence": [proof]}
    return {"group": text, "next_command": text, **place, **told}


def trace(text: str, groups: int = 1) -> dict[str, Any]:
    events = [event(text), event(text, event="indexed"), event(text, timestamp=None, position=None, topic=None)]
    guess = {"broker_version": "5.3", "broker_version_reason": text, "broker_versions": ["5.3", "5.4"]}
    start = {**guess, "fate": "cut_off", "reason": text}
    return {
        "topic": text,
        "queue_id": 0,
        "queue_offset": 7,
        "position": 4096,
        "unique_key": text,
        "found_by": "key",
        "via": "index",
        "other_groups": 2,
        "next_start": start,
        "next_commands": [text],
        "events": events,
        "for_all": verdict(text),
        "groups": [verdict(text)] * groups,
    }


PLAIN = _text(trace("x"), UTC).splitlines()


def test_a_page_tells_events_verdicts_and_what_is_next() -> None:
    assert PLAIN == [
        "message x/0/7, unique key x, record at 4096; found by key (index)",
        "  1970-01-01T00:00:01.000Z          4096  queued [x]: x/0/7: x  (x)",
        "  -                queued [x]: x  (x)",
        "  (1 index item names it: --verbose lists them)",
        "",
        "no group gets it now: not consumed: x, 1970-01-01T00:00:02.000Z",
        "    x  (x)",
        "",
        "groups:",
        "  x: not consumed: x, 1970-01-01T00:00:02.000Z",
        "      x  (x)",
        "  (2 other groups in config/ have no connection with the topic; --group shows one of them)",
        "next start of 5.3 (a guess; it may be 5.4): cut off: x",
        "next: x",
    ]


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_texts_of_a_store_make_no_lines_of_their_own(text: str) -> None:
    page = _text(trace(text), UTC)
    assert len(page.splitlines()) == len(PLAIN)
    assert all(line.isprintable() for line in page.split("\n"))


@pytest.mark.parametrize(
    ("reason", "wanted"), [(None, "next start of 5.3: cut off: x"), ("x", "next start of 5.3 (a guess): cut off: x")]
)
def test_a_version_that_was_given_is_no_guess(reason: str | None, wanted: str) -> None:
    record = trace("x")
    record["next_start"] |= {"broker_version_reason": reason, "broker_versions": ["5.3"] if reason else []}
    assert _text(record, UTC).splitlines()[-2] == wanted


def test_many_groups_are_folded() -> None:
    """All of them with --verbose, and the items of the index, too."""
    page = _text(trace("x", 23), UTC).splitlines()
    assert "  … 3 more (--verbose shows all)" in page
    every = _text(trace("x", 23), Common(utc=True, verbose=True)).splitlines()
    assert len(every) == len(page) + 2 * 3 - 1 and "indexed" in "\n".join(every)


def test_rows_of_a_csv_have_one_shape() -> None:
    rows = list(flat(trace("x", 2)))
    assert [row["row"] for row in rows] == ["event"] * 3 + ["verdict"] * 2
    assert all(row.keys() <= set(CSV_COLUMNS) for row in rows)
    assert (rows[0]["name"], rows[-1]["name"]) == ("queued", "not_consumed")
    assert rows[-1]["where"] == "x (x)" and rows[-1]["position"] == 4096
