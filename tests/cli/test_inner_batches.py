"""Messages inside of batch records at the shell: `get`, `dump`, `put` again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ..store.choices import each_of
from ..stores import messages as records_of
from ..stores import truth, unpack
from .datadriven import run_here

NAMES = ("5.1.4-batchcq", "5.3.3-batchcq")
NAME, KEY = "5.3.3-batchcq", "C0000202057B4E0E2F2A668728E90004"
AT, ID = 1215, "7F0000010000521200000000000004BF"
"""A record of two messages, and the second one's unique key."""
_SMALL = {
    "mappedFileSizeCommitLog": 262144,
    "mappedFileSizeConsumeQueue": 2000,
    "mapperFileSizeBatchConsumeQueue": 920,
    "maxHashSlotNum": 97,
    "maxIndexNum": 400,
}
SIZES = tuple(word for name, size in _SMALL.items() for word in ("--set", f"{name}={size}"))
Row = dict[str, Any]


name = each_of(NAMES)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return unpack(NAME, tmp_path)


def rows(*words: str | Path, code: int = 0) -> list[Row]:
    result = run_here([*map(str, words), "--format", "ndjson"])
    assert result.code == code, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def put(root: Path, source: Path, name: str) -> list[Row]:
    """What is written to a new store; the answers."""
    version = truth(name)["broker_version"].rpartition(".")[0]
    options = ["--as-broker", version, "--keep-times", "--store-host", "127.0.0.1:21010"]
    return rows("put", root, "--from", source, *options, *SIZES)


def files(root: Path) -> dict[str, bytes]:
    """Index files, which are named by the time, without their names."""
    return {
        str(path.parent if folder == "index" else path).removeprefix(str(root)): path.read_bytes()
        for folder in ("commitlog", "consumequeue", "batchconsumequeue", "index")
        for path in sorted((root / folder).rglob("*"))
        if path.is_file()
    }


def test_dump_and_put_make_the_same_store(name: str, tmp_path: Path) -> None:
    """Taken apart and joined again, each record has the bytes that `--raw` keeps."""
    root = unpack(name, tmp_path)
    stores: list[Path] = []
    for words in ((), ("--raw",)):
        lines = tmp_path / f"lines{len(stores)}"
        dumped = run_here(["dump", str(root), *words, "--format", "ndjson", "-o", str(lines)])
        assert dumped.code == 0, dumped.stderr
        stores.append(tmp_path / f"new{len(stores)}")
        answers = put(stores[-1], lines, name)
        assert len(answers) == len(list(records_of(name)))
    apart, whole = map(files, stores)
    assert apart == whole
    assert rows("dump", stores[0], "--raw") == rows("dump", stores[1], "--raw")


def test_some_of_a_batch_are_joined(root: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    some = rows("dump", root, "--where", "region = 'us'")
    lines.write_text("".join(json.dumps(row) + "\n" for row in some))
    put(tmp_path / "new", lines, NAME)
    found = rows("dump", tmp_path / "new")
    same = ("topic", "queue_id", "body", "properties", "flag", "unique_key", "born_timestamp")
    assert [{n: row.get(n) for n in same} for row in found] == [{n: row.get(n) for n in same} for row in some]
    sizes = [row["batch_size"] for row in found if "batch_size" in row]
    assert sizes and sizes != [row["batch_size"] for row in some if "batch_size" in row]
    assert run_here(["verify", str(tmp_path / "new"), *SIZES]).code == 0


def test_without_its_record_a_message_stays_alone(root: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    some = rows("get", root, "--at", str(AT))
    for row in some:
        del row["batch_record"]
        row["topic"] = "other"
    lines.write_text("".join(json.dumps(row) + "\n" for row in some))
    put(tmp_path / "new", lines, NAME)
    found = rows("dump", tmp_path / "new")
    assert [(row["sys_flag"], row["unique_key"], row["queue_offset"]) for row in found] == [
        (0, row["unique_key"], n) for n, row in enumerate(some)
    ]


@pytest.mark.parametrize("wrong", [{"inner_messages": 1}, {"inner_messages": [1]}, {"inner_messages": [{}]}])
def test_what_makes_no_sense(wrong: Row, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text(json.dumps({"topic": "T", "body": "x"} | wrong))
    said = run_here(["put", str(tmp_path / "new"), "--from", str(lines), *SIZES])
    assert said.code == 2 and "line 1" in said.stderr


# -- get ------------------------------------------------------------------------------------------


def test_an_id_of_either_kind(root: Path) -> None:
    offsets = [row["queue_offset"] for row in rows("get", root, "--message-id", ID)]
    assert offsets == [0, 1]
    for key in (KEY, KEY.lower()):
        result = run_here(["get", str(root), "--message-id", key, "--format", "ndjson"])
        (row,) = map(json.loads, result.stdout.splitlines())
        assert (row["queue_offset"], row["unique_key"], row["found_by"]) == (1, KEY, "scan")
        assert f"{KEY} is a unique key (the client's message id)" in result.stderr
    # one that has both forms and is neither
    result = run_here(["get", str(root), "--message-id", ID[:-1] + "E", "--utc", "-q"])
    assert result.code == 1
    for said in ("as an offset message id: no record begins here", "as a unique key: searched 80"):
        assert said in result.stderr


def test_raw_and_hex_show_the_record(root: Path) -> None:
    for words in (("--key", "key3"), ("--at", str(AT)), ("--message-id", KEY)):
        (row,) = rows("get", root, *words, "--raw", "--topic", "BatchTopic")[:1]
        assert (row["physical_offset"], row["raw"]) == (AT, True)
        assert "INNER_NUM" in row["properties"] and "inner_number" not in row
        shown = run_here(["get", str(root), *words, "--format", "hex", "-q"]).stdout
        assert shown.count(f"-- message at {AT}, 3677 bytes") == 1
    (row,) = rows("dump", root, "--at", str(AT), "--raw", "--count", "1")
    assert "INNER_NUM" in row["properties"]
    dumped = rows("dump", root, "--at", str(AT), "--count", "3")
    assert [row.get("inner_number") for row in dumped] == [0, 1, 0]
    body = run_here(["get", str(root), "--message-id", KEY, "--format", "body"]).stdout
    assert body == dumped[1]["body"]


def test_addresses(root: Path, tmp_path: Path) -> None:
    """The answers of `get` are addresses that lead back to them; a record's own lead to it."""
    every = rows("get", root, "--topic", "BatchTopic")
    lines = tmp_path / "lines"
    asked = every[::15]
    for words in (
        [json.dumps(row) for row in asked],
        [row["unique_key"] for row in asked],
        [f"{row['topic']}/{row['queue_id']}/{row['queue_offset']}" for row in asked],
    ):
        lines.write_text("\n".join(words))
        found = rows("get", root, "--addresses", lines)
        assert [{**row, "found_by": 0} for row in found] == [{**row, "found_by": 0} for row in asked]
    lines.write_text(f"{AT}\n{ID}\n{KEY}")
    assert [row.get("inner_number") for row in rows("get", root, "--addresses", lines)] == [*(None, None, 1)]
    whole = rows("get", root, "--addresses", lines, "--raw")
    assert [row["physical_offset"] for row in whole] == [AT] * 3
    assert not any("inner_number" in row for row in whole)


def test_follow(root: Path) -> None:
    """With --since those of before come first."""
    found = rows(*("get", root, "--follow", "--since", "1", "--topic", "BatchTopic"), "--limit", "7")
    assert [row["queue_offset"] for row in found] == [
        row["queue_offset"] for row in rows("get", root, "--topic", "BatchTopic", "--limit", "7")
    ]


def test_limit_counts_messages(root: Path) -> None:
    found = rows("get", root, "--topic", "BatchTopic", "--queue", "1", "--reverse", "--limit", "3")
    assert [row["queue_offset"] for row in found] == [70, 69, 68]
    found = rows("get", root, "--topic", "BatchTopic", "--queue", "1", "--count", "3")
    assert [row["queue_offset"] for row in found] == [0, 1, 2]
    found = rows("get", root, "--topic", "BatchTopic", "--queue", "1", "--offset", "1")
    assert [row["unique_key"] for row in found] == [KEY]
