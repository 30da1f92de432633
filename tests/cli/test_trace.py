"""`mqstore trace`: formats, exit codes, what it is asked with, stores of every kind."""

from __future__ import annotations

import csv
import io
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from mqstore.cli.record_types import schema_of
from mqstore.cli.trace import TraceKind
from mqstore.cli.trace_answer import CSV_COLUMNS
from mqstore.store.trace.answer import By

from .. import stores
from .datadriven import Result, run_here
from .held import held
from .json_schema import errors
from .test_proposed import check_line

pytestmark = pytest.mark.long

STORES = (
    *("4.9.7-clean", "4.9.7-killed-page", "5.3.3-timer-roll", "5.5.0-pop", "4.9.7-cqext"),
    *("5.3.3-compaction", "5.3.3-dledger", "5.3.3-batchcq", "5.3.3-rocksdb", "4.3.1-killed"),
)


def traced(root: Path, *options: str, code: int = 0) -> Result:
    """What the command says."""
    result = run_here(["trace", str(root), *options])
    assert result.code == code, result.stderr
    return result


def records(root: Path, *options: str) -> list[dict[str, Any]]:
    """What it prints, each as its schema says."""
    found = [json.loads(l) for l in traced(root, *options, "--format", "ndjson").stdout.splitlines()]
    for record in found:
        assert list(errors(schema_of("trace"), record)) == []
    return found


@pytest.mark.few(3)
@pytest.mark.parametrize("name", STORES)
def test_every_kind_of_store(name: str, tmp_path: Path) -> None:
    """Some messages of each, in every format; a wide text begins with the place."""
    root = stores.unpack(name, tmp_path)
    every = list(stores.messages(name))
    for message in every[:: len(every) // 4]:
        position = str(message.get("position", message["physical_offset"]))
        [record] = records(root, position, "--by", "position", "--next-start")
        assert record["position"] is not None
        assert record["next_start"]["fate"] in ("kept", "cut_off", "dispatched", "not_played")
        text = traced(root, position, "--utc").stdout
        assert text.startswith(f"message {record['topic']}")
        table = traced(root, position, "--format", "csv").stdout
        rows = list(csv.DictReader(io.StringIO(table)))
        told = [row for row in rows if row["row"] == "event"]
        assert len(told) == len(record["events"])
        assert len(rows) - len(told) == len(record["groups"])


def test_kinds_of_a_text() -> None:
    assert [*TraceKind] == [*By]


def test_fields(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-clean", tmp_path)
    said = traced(root, "key5", "--fields", "topic,queue_id,queue_offset").stdout
    assert said == "orders\t0\t0\n"
    said = traced(root, "key5", "--format", "csv", "--fields", "topic,queue_offset").stdout
    assert said == "topic,queue_offset\norders,0\n"
    assert run_here(["trace", str(root), "key5", "--fields", "nonsense"]).code == 2


def test_several_messages_with_one_key(tmp_path: Path) -> None:
    """Keys are not unique: each message is told, up to a limit."""
    root = tmp_path / "store"
    lines = [{"type": "message", "topic": "T", "body": str(n), "keys": ["k"]} for n in range(4)]
    source = tmp_path / "in.ndjson"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    sizes = ["--set", "mappedFileSizeCommitLog=16384", "--set", "maxIndexNum=100"]
    assert run_here(["put", str(root), "--from", str(source), *sizes]).code == 0
    assert len(records(root, "k")) == 4
    some = run_here(["trace", str(root), "k", "--limit", "3", "--format", "json"])
    assert len(json.loads(some.stdout)) == 3
    assert "--limit shows more" in some.stderr
    assert "--limit" not in run_here(["trace", str(root), "k", "-n", "3", "--quiet"]).stderr
    every = traced(root, "k", "--format", "json").stdout
    assert traced(root, "k", "--limit", str(10**30), "--format", "json").stdout == every


@pytest.mark.parametrize(
    ("shape", "answer"), [("json", "[]\n"), ("csv", ",".join(CSV_COLUMNS) + "\n"), ("ndjson", ""), ("text", "")]
)
def test_nothing_found_is_an_answer_too(tmp_path: Path, shape: str, answer: str) -> None:
    """Whoever parses it gets no message, as of `get`, and a file of an earlier answer does not stay."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    said = run_here(["trace", str(root), "nokey", "--format", shape])
    assert (said.code, said.stdout) == (1, answer)
    file = tmp_path / "answer"
    file.write_text("an earlier one")
    assert run_here(["trace", str(root), "nokey", "--format", shape, "--output", str(file)]).code == 1
    assert file.read_text() == answer


def test_a_number_that_is_a_key_and_a_position(tmp_path: Path) -> None:
    root = tmp_path / "store"
    for key in ("0", "x"):
        assert run_here(["put", str(root), "T", "b", "--keys", key]).code == 0
    [by_position] = records(root, "0")
    assert by_position["found_by"] == "position"
    [by_key] = records(root, "0", "--by", "key")
    assert (by_key["found_by"], by_key["keys"]) == ("key", ["0"])


def test_a_store_that_a_broker_runs_on(tmp_path: Path) -> None:
    """Whoever holds the lock: the queues are read, no start is played."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    (root / "abort").touch()
    [record] = records(root, "C000020269B54E0E2F2A667C88050109")
    assert record["next_start"]["fate"] == "kept"
    with held(root):
        said = traced(root, "C000020269B54E0E2F2A667C88050109", "--format", "ndjson")
        record = json.loads(said.stdout)
        assert record["next_start"]["fate"] == "running"
        assert record["for_all"]["verdict"] == "half_or_rolled_back"
        assert "scanning" not in said.stderr


def test_names_of_any_bytes(tmp_path: Path) -> None:
    """A group and a key that are no UTF-8 are questions like others."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    assert traced(root, "\udcff\udcfe", code=1).stdout == ""
    [record] = records(root, "key5", "--group", "\udcffg")
    assert record["groups"][0]["verdict"] == "unknown"
    text = traced(root, "key5", "--group", "\udcffg\x1b[2J").stdout
    assert "\x1b" not in text and "\\x1b" in text


def test_what_is_proposed_can_be_pasted(tmp_path: Path) -> None:
    """Each command that a trace names, of stores with every kind of trouble."""
    seen = set()
    for name, asked in (
        ("5.3.3-clean", ["C000020269B54E0E2F2A667C88050109", "late16", "key206"]),
        ("4.9.7-killed-page", ["364632"]),
        ("5.3.3-timer-roll", ["sec5", "hours-5"]),
        ("4.9.7-cqext", ["0", "1000"]),
    ):
        root = stores.unpack(name, tmp_path)
        for text in asked:
            said = run_here(["trace", str(root), text, "--format", "json"]).stdout
            for command in json.loads(said)["next_commands"] if said.startswith("{") else ():
                check_line(command, {})
                seen.add(command.split()[1])
    root = stores.unpack("5.3.3-clean", tmp_path / "moved")
    path = root / "config" / "consumerOffset.json"
    path.write_text(path.read_text().replace('"orders@group-a_tags":{0:23', '"orders@group-a_tags":{0:3'))
    [record] = records(root, "orders/0/9", "--group", "group-a_tags")
    assert record["groups"][0]["verdict"] == "offset_moved"
    [command] = record["next_commands"]
    result = run_here(shlex.split(command)[1:])
    assert "3 -> 9" in result.stdout, result
    assert {"inspect", "recover"} <= seen
