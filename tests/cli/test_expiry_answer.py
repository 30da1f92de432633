"""`stats --expires`."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from mqstore.cli.expiry_answer import ExpiryOptions, _folded
from mqstore.store.errors import InvalidInput

from ..stores import unpack
from .datadriven import run_here


@pytest.mark.parametrize(
    "words",
    [("--expires", "--quick"), ("--within", "1d"), ("--now", "now"), ("--expires", "--master", "local[1]")],
    ids=" ".join,
)
def test_what_does_not_go_with_expiry(words: tuple[str, ...], tmp_path: Path) -> None:
    done = run_here(["stats", str(tmp_path), *words])
    assert done.code == 2
    assert "--expires" in done.stderr


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"disk_size": 100}, "--disk-size and --disk-used need each other"),
        ({"disk_used": 100}, "--disk-size and --disk-used need each other"),
        ({"disk_size": 100, "disk_used": 101}, "--disk-used is larger than --disk-size"),
    ],
)
def test_a_disk_that_is_none(given: dict[str, Any], told: str) -> None:
    with pytest.raises(Exception, match=told):
        ExpiryOptions(expires=True, **given).disk()


def test_spans_count_from_the_time_that_is_asked_for() -> None:
    """A week ahead and a day back, where nothing is said; a span that is none is refused."""
    day = 86_400_000
    assert ExpiryOptions(now="1000").spans_ms() == (1000, 1000 + 7 * day, day)
    assert ExpiryOptions(now="1000", within="2h", trend="1m").spans_ms() == (1000, 1000 + 7_200_000, 60_000)
    wrong: list[dict[str, Any]] = [{"within": "soon"}, {"trend": "-1d"}, {"within": ""}, {"now": "late"}]
    for given in wrong:
        with pytest.raises(InvalidInput):
            ExpiryOptions(**given).spans_ms()


@pytest.mark.parametrize("text", ["-1h", "yesterday", "2026-11-20"])
def test_a_span_that_is_none_is_named_as_it_was_typed_and_what_helps_is_a_span(text: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        ExpiryOptions(within=text).spans_ms()
    assert raised.value.message == f"not a span of time: {text!r}"
    assert raised.value.hint == "use 90s, 30m, 24h, 7d or 1h30m"


def test_of_each_store_the_first_groups_and_files_are_told() -> None:
    rows = [{"type": kind} for kind in ("expiry", *["losing_group"] * 12, *["expiring_file"] * 10)] * 2
    kinds = [row["type"] for row in _folded(rows)]
    half = ["expiry", *["losing_group"] * 10, "more", *["expiring_file"] * 10]
    assert kinds == half * 2


def test_a_csv_has_groups_that_lose_messages_and_a_column_for_each_field(tmp_path: Path) -> None:
    root = unpack("4.9.7-expired", tmp_path)
    table = {"offsetTable": {"TopicA@billing": {"0": 20, "1": 20}}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps(table))
    words = ["stats", str(root), "--expires", "--disk-size", "100G", "--disk-used", "95G"]
    done = run_here([*words, "--format", "csv"])
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    kinds = {row["type"] for row in rows}
    assert (done.code, kinds) == (1, {"expiry", "losing_group", "expiring_file"})
    assert [row["group"] for row in rows if row["type"] == "losing_group"] == ["billing"]
    told = map(json.loads, run_here([*words, "--format", "ndjson"]).stdout.splitlines())
    of_delayed = {"delay_level", "next_timestamp"}  # nothing waits here
    assert {name for record in told for name in record} | of_delayed == rows[0].keys()


def test_what_the_timer_files_do_not_show_is_said(tmp_path: Path) -> None:
    root = unpack("5.3.3-timer-killed", tmp_path)
    words = ["--disk-size", "100G", "--disk-used", "95G", "--now", "2026-11-20T21:43:00Z"]
    told = run_here(["stats", str(root), "--expires", *words])
    why = "the timer has still to read 12 messages: it is not known which timed messages go undelivered"
    assert (told.code, why in told.stderr, "timed messages deleted undelivered" in told.stdout) == (1, True, True)


def test_files_with_a_time_in_the_future_are_told(tmp_path: Path) -> None:
    root = unpack("4.9.7-expired", tmp_path)
    first = min((root / "commitlog").iterdir())
    os.utime(first, (4e9, 4e9))
    told = run_here(["stats", str(root), "--expires", "--utc", "--disk-size", "1T", "--disk-used", "1G"]).stderr
    assert f"1 file has a modification time in the future, {first.name} first, up to 2096-10-02T07:06:40" in told
