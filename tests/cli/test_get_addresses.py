"""`mqstore get --addresses`: one answer for each line, in order, whatever the lines are."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqstore.cli.record_types import schema_of

from ..stores import messages
from .datadriven import Result, run_here
from .json_schema import errors
from .test_reads_only import nothing_is_written

NAME = "5.3.3-clean"
Record = dict[str, Any]


@pytest.fixture
def root(store: Callable[[str], Path]) -> Path:
    return store(NAME)


@pytest.fixture(scope="module")
def known() -> list[Record]:
    return list(messages(NAME))


def get(root: Path, lines: list[str], *options: str) -> Result:
    """`get` with the addresses in a file."""
    source = root.parent / "addresses"
    source.write_text("\n".join(lines), encoding="utf-8")
    return run_here(["get", str(root), "--addresses", str(source), *options])


def mixed(known: list[Record]) -> tuple[list[str], list[int | None]]:
    """Lines of every kind, with the positions of their messages."""
    lines, expected = list[str](), list[int | None]()
    for number, record in enumerate(known[::7]):
        position = record["physical_offset"]
        place = {name: record[name] for name in ("topic", "queue_id", "queue_offset")}
        forms = [
            str(position),
            record["offset_msg_id"],
            record["offset_msg_id"].lower(),
            "/".join(map(str, place.values())),
            json.dumps({"physical_offset": position}),
            json.dumps({"message_id": record["offset_msg_id"], "topic": "ignored"}),
            str(position + 1),
            "nope/0/0",
        ]
        lines.append(forms[number % len(forms)])
        expected.append(position if number % len(forms) < 6 else None)
        if number % 5 == 0:
            lines.append("")
    return lines, expected


def test_one_answer_each_in_order(root: Path, known: list[Record]) -> None:
    lines, expected = mixed(known)
    with nothing_is_written(root):
        result = get(root, lines, "--format", "ndjson")
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert [answer.get("physical_offset") for answer in answers] == expected
    asked = [(number, line) for number, line in enumerate(lines, 1) if line]
    for (number, line), answer in zip(asked, answers, strict=True):
        assert list(errors(schema_of(answer["type"]), answer)) == []
        if answer["type"] == "missing":
            assert (answer["line"], answer["address"]) == (number, line)
            assert answer["reason"] in ("no record begins here", "no such topic: nope")
    missing = expected.count(None)
    assert result.code == 1
    assert result.stderr == (f"mqstore: {missing} addresses have no message, out of {len(expected)}: {root}\n")


def test_every_format(root: Path, known: list[Record]) -> None:
    lines, expected = mixed(known)
    answers = json.loads(get(root, lines, "--format", "json").stdout)
    assert len(answers) == len(expected)
    rows = list(csv.DictReader(io.StringIO(get(root, lines, "--format", "csv").stdout)))
    assert [row["type"] for row in rows] == [answer["type"] for answer in answers]
    assert {"line", "address", "reason", "found_by", "topic"} <= set(rows[0])
    text = get(root, lines)
    assert len(text.stdout.splitlines()) == len(expected)
    assert "missing  line=" in text.stdout
    chosen = get(root, lines, "--fields", "type,topic").stdout.splitlines()
    assert len(chosen) == len(expected)
    bodies = get(root, lines[:4], "--format", "body")
    assert bodies.stdout == "".join(answer["body"] for answer in answers[:3])
    hexadecimal = get(root, [lines[0], "nope/0/0"], "--format", "hex")
    assert hexadecimal.stdout.startswith("-- message at 0, ")
    assert hexadecimal.stderr.startswith("mqstore: line 2: no such topic: nope\n")
    assert hexadecimal.code == 1


def test_keys_say_how_they_were_found(root: Path, known: list[Record]) -> None:
    keys = [r["properties"]["UNIQ_KEY"] for r in known if "UNIQ_KEY" in r["properties"]]
    result = get(root, [*keys[:3], json.dumps({"unique_key": keys[4]})], "--format", "ndjson")
    assert (result.code, result.stderr) == (0, "")
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert [answer["unique_key"] for answer in answers] == [*keys[:3], keys[4]]
    assert {answer["found_by"] for answer in answers} == {"index"}
    absent = get(root, ["F" * 32])
    assert "message id or unique key" in absent.stdout
    assert absent.stderr.splitlines() == [
        "mqstore: 1 unique key is not in the index: scanning the log",
        f"mqstore: 1 address has no message, out of 1: {root}",
    ]


def test_a_line_that_is_no_address_ends_it(root: Path) -> None:
    """What came before is answered; the JSON is whole."""
    for form in ("json", "ndjson", "csv", "text"):
        result = get(root, ["0", "", "so not", "0"], "--format", form)
        assert result.code == 2
        assert result.stderr.startswith("mqstore: line 3: not an address: 'so not'; one per line:")
        assert "hello #0" in result.stdout
    assert len(json.loads(get(root, ["0", "x"], "--format", "json").stdout)) == 1
    assert json.loads(get(root, ["x"], "--format", "json").stdout) == []
    kept = root.parent / "kept"
    kept.write_text("kept")
    assert get(root, ["0", "x"], "--output", str(kept)).code == 2
    assert kept.read_text() == "kept"
    control = get(root, ["x\x1b[31m"])
    assert "\x1b" not in control.stderr
    hostile = get(root, ["\x1b[31m/0/1"], "--format", "text")
    assert "\x1b" not in hostile.stdout


def test_no_addresses(root: Path) -> None:
    for lines in ([], ["", " ", ""]):
        result = get(root, lines, "--format", "json")
        assert (result.code, result.stdout, result.stderr) == (0, "[]\n", "")


def test_bytes_that_are_no_text(root: Path) -> None:
    source = root.parent / "raw"
    source.write_bytes(b"\xff\xfe/0/1\n0\n" + b"\0\n")
    result = run_here(["get", str(root), "--addresses", str(source), "--format", "ndjson"])
    assert result.code == 2
    missing, message = map(json.loads, result.stdout.splitlines())
    assert (missing["address"], message["physical_offset"]) == ("\ufffd\ufffd/0/1", 0)


@pytest.mark.parametrize(
    "options",
    [
        *(["--topic", "orders"], ["--at", "0"], ["--since", "-1h"], ["--limit", "1"]),
        *(["--reverse"], ["--follow"], ["--offset-at", "-1h"], ["--where", "a = 1"]),
        *(["--key", "k"], ["--count", "2"]),
    ],
    ids=lambda words: words[0],
)
def test_conditions_do_not_go_with_it(root: Path, options: list[str]) -> None:
    result = get(root, ["0"], *options)
    assert result.code == 2
    assert f"--addresses and {options[0]} cannot be combined" in result.stderr


def test_a_file_that_is_not_there(root: Path) -> None:
    result = run_here(["get", str(root), "--addresses", str(root / "none")])
    assert result.code == 5
    assert "no such file" in result.stderr


def test_raw_bodies(root: Path, known: list[Record]) -> None:
    result = get(root, ["0"], "--raw", "--format", "ndjson")
    assert json.loads(result.stdout)["raw"] is True
    packed = next(r for r in known if r.get("body_sha1_decompressed"))
    bounded = get(root, [str(packed["physical_offset"])], "--max-body", "1", "--format", "ndjson")
    assert "--max-body" in json.loads(bounded.stdout)["body_error"]


def test_answers_come_as_the_lines_do(root: Path, known: list[Record]) -> None:
    """Whoever asks one by one through pipes gets each answer before asking on."""
    command = [sys.executable, "-m", "mqstore", "get", str(root), "--addresses", "-"]
    with subprocess.Popen([*command, "--format", "ndjson"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin and running.stdout
        for record in known[:5]:
            running.stdin.write(f"{record['offset_msg_id']}\n".encode())
            running.stdin.flush()
            answer = json.loads(running.stdout.readline())
            assert answer["physical_offset"] == record["physical_offset"]
        running.stdin.close()
        assert running.stdout.read() == b""
        assert running.wait(30) == 0


def test_answers_of_put_are_addresses(root: Path, tmp_path: Path) -> None:
    """And so are the records of dump and get."""
    answers = [
        run_here(["put", str(root), "orders", f"number {n}", "--format", "ndjson"]).stdout.strip() for n in range(3)
    ]
    found = get(root, answers, "--format", "body")
    assert (found.code, found.stdout) == (0, "number 0number 1number 2")
    dumped = run_here(["dump", str(root), "--topic", "orders", "--format", "ndjson"]).stdout
    again = get(root, dumped.splitlines(), "--format", "ndjson")
    assert (again.code, again.stdout) == (0, dumped)
