"""`mqstore sql`: what of stores a query sees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .. import stores
from .datadriven import Result, run_here

COUNT = "SELECT count(*) AS n FROM messages"


def asked(*words: str | Path) -> Result:
    return run_here(["sql", *map(str, words), "--format", "ndjson"])


def test_times_bound_messages_and_nothing_else(tmp_path: Path) -> None:
    """since <= t < until; queues have no times."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    times = sorted(message["store_timestamp"] for message in stores.messages("5.3.3-clean"))
    since, until = times[len(times) // 3], times[2 * len(times) // 3]
    bounds = ("--since", str(since), "--until", str(until))
    done = asked(COUNT, root, *bounds)
    assert (done.code, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"n": sum(since <= time < until for time in times)}
    units = "SELECT count(*) AS n FROM queues"
    assert asked(units, root, *bounds) == asked(units, root)
    wrong = asked(COUNT, root, "--since", str(until), "--until", str(since))
    assert (wrong.code, wrong.stdout) == (2, "")


def test_a_log_that_only_the_configuration_knows_is_read(tmp_path: Path) -> None:
    """Without it that is an error, and no store without messages."""
    name = "4.9.7-multipath"
    root = stores.unpack(name, tmp_path)
    paths = stores.config(name, root)["storePathCommitLog"].split(",")
    moved = []
    for number, path in enumerate(paths):
        target = tmp_path / f"disk{number}"
        Path(path).rename(target)
        moved.append(str(target))
    done = asked(COUNT, root, "--set", f"storePathCommitLog={','.join(moved)}")
    assert (done.code, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"n": len(list(stores.messages(name)))}
    assert (asked(COUNT, root).code, asked(COUNT, root).stdout) == (5, "")


def test_a_value_that_a_query_does_not_take_is_no_wrong_usage(tmp_path: Path) -> None:
    """Some bodies are no text."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    done = asked("SELECT decode(body) FROM messages", root)
    assert done.code == 5 and "a value that the query cannot use" in done.stderr
    assert asked("SELECT decode(body, 'replace') FROM messages", root).code == 0


@pytest.mark.parametrize("command", [["sql"], ["pipeline", "sql"]], ids=" ".join)
def test_a_query_that_is_no_text_makes_no_sense(command: list[str], tmp_path: Path) -> None:
    """Bytes that a shell gives and that are not UTF-8: Python keeps them in surrogates."""
    done = run_here([*command, "SELECT '\udcff'", str(tmp_path)])
    assert (done.code, done.stdout) == (2, "")
    assert "it is not UTF-8" in done.stderr
