"""`inspect --delays`, `--timers`, `--retries`, `--pop`, `--transactions`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mqstore.cli.record_types import schema_of

from .. import stores
from .datadriven import run_here
from .json_schema import errors

VIEWS = ("delays", "timers", "retries", "pop", "transactions")


@pytest.mark.few(6)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(
    "name", ["4.9.7-clean", "5.3.3-killed", "5.3.3-lmq", "5.3.3-timer-roll", "5.1.4-timer-killed", "5.5.0-pop"]
)
def test_one_view(view: str, name: str, tmp_path: Path) -> None:
    root = str(stores.unpack(name, tmp_path))
    said = run_here(["inspect", root, f"--{view}", "--format", "json"])
    assert said.code == 0, said.stderr
    record = json.loads(said.stdout)
    assert list(errors(schema_of(view), record)) == []
    text = run_here(["inspect", root, f"--{view}", "--utc", "--now", "2026-12-01T00:00:00Z"])
    assert text.stdout.startswith(f"{view}: ")
    assert run_here(["inspect", root, f"--{view}", "--format", "csv"]).code == 0


def test_all_of_them(tmp_path: Path) -> None:
    root = str(stores.unpack("4.9.7-clean", tmp_path))
    said = run_here(["inspect", root, *(f"--{view}" for view in VIEWS), "--format", "ndjson"])
    assert [json.loads(line)["type"] for line in said.stdout.splitlines()] == list(VIEWS)


def test_timers_in_words(tmp_path: Path) -> None:
    """Counts, hours, and what needs a look: overdue, lost for ever; all with --verbose."""
    root = str(stores.unpack("5.3.3-timer-clean", tmp_path))
    said = run_here(["inspect", root, "--timers", "--utc", "--now", "2026-11-20T22:00:00Z"])
    lines = said.stdout.splitlines()
    assert lines[0].startswith("timers: 16 pending, 3 rolled, 14 delivered, 5 cancelled, 0 never")
    assert "  due from 2026-11-20T21:00:00.000Z: 11" in lines
    overdue = [line for line in lines if "(overdue)" in line]
    assert f"{len(overdue)} overdue at 2026-11-20T22:00:00.000Z" in lines[0]
    every = run_here(["inspect", root, "--timers", "--verbose", "--now", "2026-11-20T22:00:00Z"])
    assert every.stdout.count("record at") == 16 + 3 + 14 + 5
    late = run_here(["inspect", root, "--timers", "--now", "2027-11-20T22:00:00Z"])
    assert "due too long ago" in late.stdout and "more (--verbose" in late.stdout


def test_what_is_no_store(tmp_path: Path) -> None:
    root = stores.unpack("4.9.7-clean", tmp_path)
    said = run_here(["inspect", str(root / "commitlog"), "--delays"])
    assert said.code == 2 and said.stderr.count("\n") == 1
    said = run_here(["inspect", str(root), "--delays", "--now", "soon"])
    assert said.code == 2 and said.stderr.count("\n") == 1


def test_a_csv_of_several_views_has_the_columns_of_each(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-clean", tmp_path)
    words = ["inspect", str(root), "--format", "csv", "--pop"]
    one, both = run_here(words), run_here([*words, "--retries"])
    first, *rows = both.stdout.splitlines()
    assert {*one.stdout.splitlines()[0].split(","), "dead_letter"} <= {*first.split(",")}
    assert [row.split(",")[0] for row in rows] == ["retries", "pop"]
