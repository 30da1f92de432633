"""Stores that somebody made to do harm: shown escaped, bounded, never followed out of the store."""

from __future__ import annotations

import errno
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from .hostile import FALSE_LINE, FORMULAS, PATHS, SIZES, TEXTS, check_output, check_terminal, content, hostile_store, mq

pytestmark = pytest.mark.long

FORMATS = ("text", "json", "ndjson", "csv")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of hostile texts, in a directory with a hostile name."""
    return hostile_store(tmp_path_factory.mktemp("hostile") / f"s\x1b[2J\u202e\n{FALSE_LINE}", (*TEXTS, *FORMULAS))


def reading_commands(root: Path) -> list[list[str]]:
    """Every command that reads, and some errors that name what was asked for."""
    store = str(root)
    return [
        ["inspect", store],
        ["inspect", f"{store}/commitlog"],
        ["inspect", f"{store}/consumequeue"],
        ["dump", store],
        ["dump", store, "--hex"],
        ["dump", store, "--raw"],
        ["dump", f"{store}/consumequeue"],
        ["get", store, "--key", TEXTS[0]],
        ["get", store, "--topic", TEXTS[0]],
        ["get", store, "--topic", f"no such {TEXTS[0]}"],
        ["get", store, "--topic", "*", "--limit", "3"],
        ["get", store, "--topic", TEXTS[4], "--queue", "0", "--offset", "0"],
        ["get", store, "--where", f"a = '{TEXTS[0]}' AND ("],
        ["inspect", store, "--delays", "--timers", "--retries", "--pop", "--transactions"],
        ["trace", store, TEXTS[0], "--group", TEXTS[1], "--next-start", "--verbose"],
        ["trace", store, "0", "--group", FORMULAS[0]],
        ["trace", store, f"no such {TEXTS[0]}"],
        ["inspect", f"{store}/config"],
        *([command, str(path)] for command in ("dump", "inspect") for path in sorted((root / "config").iterdir())),
        ["recover", store],
        ["recover", store, "--policy", "broker", "--verbose"],
        ["repair", store, "--verbose"],
        ["verify", store],
        ["offsets", store],
        ["dump", f"{store}/{TEXTS[0]}"],
        ["get", store, "--fields", TEXTS[0], "--at", "0"],
    ]


@pytest.mark.few(1)
@pytest.mark.parametrize("format", FORMATS)
def test_texts_of_a_store_reach_no_terminal_and_no_spreadsheet(texts: Path, format: str) -> None:
    """stdout and stderr of every command, in a pipe."""
    before = content(texts)
    for command in reading_commands(texts):
        result = mq(*command, "--format", format)
        if result.code in (0, 1, 3) and result.stdout:
            check_output(result.stdout, "text" if "--hex" in command else format)
        assert result.stderr.count("\n") <= 12, (command, result.stderr)
    assert content(texts) == before


def test_no_text_of_a_store_begins_a_line(texts: Path) -> None:
    """A topic, a tag, a key, a group, the name of a directory: where it had a line of its own it could say anything.

    The other commands are looked at with their formats.
    """
    store = str(texts)
    pages = [[command, store, "--verbose"] for command in ("verify", "recover", "inspect", "stats", "offsets")]
    pages += [["repair", store, "--all"], ["recover", store, "--policy", "broker"], ["stats", store, "--quick"]]
    pages += [["stats", store, "--by", by] for by in ("queue", "tag", "group")]
    for command in pages:
        told = mq(*command).stdout.splitlines()
        assert told
        assert [line for line in told if line.lstrip().startswith(FALSE_LINE)] == [], command


def test_all_hostile_texts_are_shown(texts: Path) -> None:
    """Escaped is not left out."""
    rows = [json.loads(line) for line in mq("dump", texts, "--format", "ndjson").stdout.splitlines()]
    shown = {row["topic"] for row in rows}
    for text in (*TEXTS, *FORMULAS):
        assert text.encode("utf-8", "surrogateescape").decode("utf-8", "replace") in shown or (text in shown), text


def on_terminal(command: list[str]) -> str:
    """What a command writes to a terminal, stdout and stderr."""
    main, other = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "mqstore", *command],
        stdin=other,
        stdout=other,
        stderr=other,
        env={**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8"},
    )
    os.close(other)
    parts = []
    try:
        while part := os.read(main, 1 << 16):
            parts.append(part)
    except OSError as error:  # Linux says so when the last writer is gone
        assert error.errno == errno.EIO
    os.close(main)
    process.wait(60)
    return b"".join(parts).decode().replace("\r\n", "\n")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "options",
    [
        ["inspect"],
        ["dump"],
        ["get", "--topic", "*", "--format", "hex"],
        ["get", "--at", "0", "--format", "body"],
        ["recover", "--broker-version", "5.3"],
    ],
    ids=lambda options: options[0] + "".join(options[-1:]),
)
def test_a_terminal_is_not_steered(texts: Path, options: list[str]) -> None:
    """With colours on; a body, too, is no control sequence."""
    command, *rest = options
    said = on_terminal([command, str(texts), "--no-progress", *rest, *SIZES])
    assert said
    check_terminal(said)


def test_topics_that_are_paths_lead_nowhere(tmp_path: Path) -> None:
    """put refuses them or keeps them below consumequeue."""
    root = tmp_path / "deep" / "down" / "store"
    root.parent.mkdir(parents=True)
    assert mq("put", root, "T", "first").code == 0
    for topic in PATHS:
        result = mq("put", root, topic.replace("\0", "\\0"), "x")
        assert result.code in (0, 2, 5), result
        lines = root.parent / "lines"
        lines.write_text(json.dumps({"topic": topic, "body": "x", "properties": {"KEYS": topic}}))
        result = mq("put", root, "--from", lines)
        lines.unlink()
        assert result.code in (0, 2, 5), result
        assert result.code == 2 or topic == "a/b", result
    assert {p.name for p in tmp_path.iterdir()} == {"deep"}
    assert {p.name for p in (tmp_path / "deep").iterdir()} == {"down"}
    assert {p.name for p in root.parent.iterdir()} == {"store"}
    assert mq("recover", root).code == 0


@pytest.mark.few(1)
@pytest.mark.parametrize("version", ["5.3", "4.9", "5.5"])
def test_recover_makes_no_queue_elsewhere(version: str, tmp_path: Path) -> None:
    """Topics of records that are paths; the queues are all to be made from the log."""
    root = hostile_store(tmp_path / "deep" / "down" / "store", ("plain", *PATHS, *TEXTS))
    outside = content(tmp_path / "deep").keys()
    mq("recover", root, "--broker-version", version, "--format", "json")
    result = mq("recover", root, "--apply", "--yes", "--broker-version", version)
    assert result.code in (0, 1, 5), result
    made = content(tmp_path / "deep").keys() - outside
    assert all(name.startswith("down/store/") for name in made), made
    assert {p.name for p in tmp_path.iterdir()} == {"deep"}
