"""What `dump` takes: conditions, times, formats, colour on a terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from .. import stores
from .datadriven import run_here
from .peak import ENVIRONMENT
from .printed import dumped

STORE = "5.3.3-clean"
KEY = next(m["properties"]["KEYS"].split(" ")[0] for m in stores.messages(STORE) if "KEYS" in m["properties"])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real store."""
    return stores.unpack(STORE, tmp_path_factory.mktemp("store"))


def _messages() -> list[dict[str, Any]]:
    return list(stores.messages(STORE))


def _offsets(records: list[dict[str, Any]]) -> list[int]:
    return [record["physical_offset"] for record in records]


@pytest.mark.parametrize(
    ("options", "fits"),
    [
        (("--topic", "orders"), lambda m: m["topic"] == "orders"),
        (("--topic", "orders", "--queue", "2"), lambda m: (m["topic"], m["queue_id"]) == ("orders", 2)),
        (("--tag", "BB"), lambda m: m["properties"].get("TAGS") == "BB"),
        (("--tag", "Aa || BB"), lambda m: m["properties"].get("TAGS") in ("Aa", "BB")),
        (
            ("--where", "TAGS = 'BB' AND @queue_id < 3"),
            lambda m: m["properties"].get("TAGS") == "BB" and m["queue_id"] < 3,
        ),
        (("--topic", "[!o]*"), lambda m: m["topic"] != "orders"),
        (("--key", KEY), lambda m: KEY in m["properties"].get("KEYS", "").split(" ")),
    ],
)
def test_conditions(store: Path, options: tuple[str, ...], fits: Any) -> None:
    """As the truth has them; nothing else is printed, no BLANK either."""
    expected = [m["physical_offset"] for m in _messages() if fits(m)]
    assert expected
    assert _offsets(dumped(store, *options)) == expected


def test_numbers_that_no_loop_counts_to(store: Path) -> None:
    """More than there are of: all, or none from there on, whatever the file."""
    more = str(10**30)
    for path in (store, store / "index", store / "consumequeue" / "orders" / "0", store / "config" / "topics.json"):
        assert dumped(path, "--count", more) == dumped(path) != []
        assert {record["type"] for record in dumped(path, "--at", more)} <= {"index_header"}


def test_times(store: Path) -> None:
    """since <= t < until."""
    times = sorted({m["store_timestamp"] for m in _messages()})
    since, until = times[len(times) // 3], times[2 * len(times) // 3]
    expected = [m["physical_offset"] for m in _messages() if since <= m["store_timestamp"] < until]
    assert _offsets(dumped(store, "--since", str(since), "--until", str(until))) == expected


def test_json_and_its_lines_are_the_same_records(store: Path) -> None:
    def shown(form: str, *options: str) -> str:
        return run_here(["dump", str(store), "--format", form, *options]).stdout

    lines = shown("ndjson").splitlines()
    assert len(lines) > 100
    assert shown("json") == "[\n" + ",\n".join(lines) + "\n]\n"
    for count in (1, 33, 90, len(lines), len(lines) + 1):
        assert shown("ndjson", "--count", str(count)).splitlines() == lines[:count]
    assert shown("json", "--count", "0") == "[]\n"
    fields = ",".join(name for name, value in json.loads(lines[0]).items() if value is not None)
    assert shown("ndjson", "--fields", fields).splitlines()[0] == lines[0]


def test_hex_covers_every_byte(store: Path) -> None:
    """Of each record, once, in order."""
    lines = run_here(["dump", str(store), "--hex", "--count", "20"]).stdout.splitlines()
    shown = {}
    for line in lines:
        if line.startswith("-- "):
            continue
        place, data = int(line[:16]), bytes.fromhex(line[18:66].strip())
        shown[place] = data
    for message in _messages()[:20]:
        at, end = message["physical_offset"], message["physical_offset"] + message["total_size"]
        log = min((store / "commitlog").iterdir()).read_bytes()
        rebuilt = b""
        while at + len(rebuilt) < end:
            rebuilt += shown[at + len(rebuilt)]
        assert rebuilt == log[at:end]


def _on_a_terminal(arguments: list[str], environment: Mapping[str, str]) -> bytes:
    """What a command writes to a terminal."""
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "mqstore", *arguments],
        stdout=follower,
        stderr=subprocess.DEVNULL,
        env={**ENVIRONMENT, "TERM": "xterm", **environment},
    ) as process:
        os.close(follower)
        written = b""
        while True:
            try:
                part = os.read(leader, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            written += part
        os.close(leader)
        assert process.wait(60) == 0
    return written


def test_colour_on_a_terminal_only(store: Path) -> None:
    """And not where the option or NO_COLOR forbids it."""
    arguments = ["dump", str(store), "--hex", "--count", "1"]
    assert b"\x1b[" in _on_a_terminal(arguments, {})
    assert b"\x1b" not in _on_a_terminal([*arguments, "--no-color"], {})
    assert b"\x1b" not in _on_a_terminal(arguments, {"NO_COLOR": "1"})
    assert "\x1b" not in run_here(arguments).stdout


@pytest.mark.few(1)
@pytest.mark.parametrize("format", ["text", "json", "ndjson", "csv"])
def test_nothing_of_a_store_steers_a_terminal(store: Path, format: str) -> None:
    """The topics, tags and bodies of this store hold control characters."""
    written = _on_a_terminal(["dump", str(store), "--format", format], {})
    assert not set(written) & (set(range(0x20)) - {0x0A, 0x0D} | {0x7F})


def test_what_is_refused(store: Path) -> None:
    """Conditions on what has no messages."""
    result = run_here(["dump", str(store / "index"), "--tag", "BB"])
    assert (result.code, result.stdout) == (2, "")
    assert "conditions select messages" in result.stderr


@pytest.mark.parametrize("other", [["--format", "json"], ["--fields", "topic"]])
def test_hex_is_for_people_alone(store: Path, other: list[str], tmp_path: Path) -> None:
    """Refused before anything is read or written."""
    file = tmp_path / "out"
    result = run_here(["dump", str(store), "--hex", *other, "--output", str(file)])
    assert (result.code, result.stdout, file.exists()) == (2, "", False)
    assert "--hex prints text for people" in result.stderr
