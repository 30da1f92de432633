"""`pipeline compact`: the last message of each key, against a plain loop over the messages."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from mqstore.cli.app import run
from mqstore.store.arrow import compact
from mqstore.store.arrow.append_rows import NewStore
from mqstore.store.arrow.compact import compact_stores
from mqstore.store.disk.layout import Layout
from mqstore.store.log.batch import messages, unwrapped
from mqstore.store.log.commit_log import Batch
from mqstore.store.log.message import Message
from mqstore.store.queues.references import commit_log_of

from ...stores import unpack

SIZES = {"mappedFileSizeCommitLog": "262144", "maxHashSlotNum": "1000", "maxIndexNum": "4000"}
WORDS = [word for name, value in SIZES.items() for word in ("--set", f"{name}={value}")]


def all_of(root: Path) -> list[Message]:
    log = commit_log_of(Layout.open(root))
    with log.queue:
        return [m for item in log.scan(crc=True) if isinstance(item, Batch) for m in messages(unwrapped(item))]


def wanted_of(found: list[Message]) -> tuple[set[str], list[Message]]:
    """Topics with keys, and what stays of them, by a plain loop."""
    keyed = [m for m in found if m.properties.get("KEYS", "").strip()]
    topics = {m.topic for m in keyed if not m.topic.startswith(("rmq_sys", "SCHEDULE", "%"))}
    latest: dict[tuple[str, int, str], Message] = {}
    for message in keyed:
        if message.topic in topics:
            latest[message.topic, message.queue_id, message.properties["KEYS"]] = message
    kept = sorted((m for m in latest.values() if m.stored_body), key=lambda m: m.physical_offset)
    assert kept and len(kept) < len(keyed), "there is something to compact"
    return topics, kept


@pytest.mark.parametrize("heads", [1, 50, 1 << 20])
def test_the_last_message_of_each_key_stays(heads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact, "_HEADS_MAX", heads)
    root, new = unpack("5.3.3-compaction", tmp_path), tmp_path / "new"
    found = all_of(root)
    topics, kept = wanted_of(found)
    told: list[int] = []
    how = NewStore(SIZES, "5.3", keep_times=True)
    manifest = compact_stores({str(root): ""}, sorted(topics), new, how, told.append)
    messages = sum(m.topic in topics for m in found)
    counts: dict[str, Any] = {"messages": messages, "kept": len(kept), "skipped": 0, "marked": 0, "refused": 0}
    counts |= {"named_refused": [], "times_replaced": 0, "left": "", "damage": []}
    assert manifest["stores"] == [{"store": str(root), "folder": "", **counts}]
    assert sum(told) == 2 * sum(path.stat().st_size for path in (root / "commitlog").iterdir())
    assert [(m.topic, m.queue_id, m.properties, m.stored_body, m.sys_flag) for m in all_of(new)] == [
        (m.topic, m.queue_id, m.properties, m.stored_body, m.sys_flag) for m in kept
    ]


def test_of_a_topic_that_was_made_again_the_last_in_the_log_stays(tmp_path: Path) -> None:
    """Its queue offsets begin at 0 again."""
    sent = [*(("T", f"old{n}") for n in range(5)), ("S", "new1"), ("S", "new2")]
    root = put_rows([{"topic": t, "queue_id": 0, "body": b, "properties": {"KEYS": "k"}} for t, b in sent], tmp_path)
    for message in all_of(root):
        with (root / "commitlog" / f"{0:020}").open("r+b") as log:
            log.seek(message.position + message.total_size - len(message.raw_properties) - len("T.."))
            log.write(b"T")
    assert [(m.topic, m.queue_offset) for m in all_of(root)] == [("T", n) for n in (*range(5), 0, 1)]
    assert kept_of(root, tmp_path) == (0, ["new2"])


@pytest.mark.parametrize("name", ["5.1.4-batchcq", "5.3.3-batchcq"])
def test_messages_of_batches_count_one_by_one(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each has KEYS of its own; one that stays is a record."""
    root, new = unpack(name, tmp_path), tmp_path / "new"
    found = [m for m in all_of(root) if m.topic == "BatchTopic"]
    keyed = [m for m in found if m.keys]
    assert len(keyed) == len({(m.queue_id, m.properties["KEYS"]) for m in keyed}) < len(found)
    assert run(["pipeline", "compact", str(root), "-t", "BatchTopic", "--to", str(new), *WORDS]) == 0
    assert f"{len(keyed)} of {len(found)} messages" in capsys.readouterr().out
    assert [(m.queue_id, m.properties, m.body().data, m.inner, m.sys_flag & 0xC0) for m in all_of(new)] == [
        (m.queue_id, m.properties, m.body().data, None, 0) for m in keyed
    ]
    assert run(["verify", str(new), *WORDS]) == 0


def batch(*messages: tuple[str, str], **others: Any) -> dict[str, Any]:
    """A record of a batch: keys and bodies."""
    rows = [{"topic": "T", "body": body, "properties": {"KEYS": key}, "unique_key": None} for key, body in messages]
    properties = {"UNIQ_KEY": "0A" * 16, "INNER_NUM": str(len(rows))}
    return {"topic": "T", "queue_id": 0, "sys_flag": 0xC0, "properties": properties, "inner_messages": rows, **others}


@pytest.mark.parametrize("packed", [{}, {"sys_flag": 0x2C1, "body_compression": "zstd"}])
def test_an_empty_body_in_a_batch_deletes_what_is_in_another(packed: dict[str, Any], tmp_path: Path) -> None:
    rows = [batch(("a", "1"), ("b", "2"), ("a", "3"), **packed), batch(("a", ""), ("c", "4"), **packed)]
    assert kept_of(put_rows(rows, tmp_path), tmp_path) == (0, ["2", "4"])


def test_a_batch_that_cannot_be_taken_apart_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = {"topic": "T", "queue_id": 0, "body": "none", "properties": {"INNER_NUM": "1"}, "sys_flag": 0xC0}
    root = put_rows([batch(("a", "1")), {**body, "unique_key": "0A" * 16}], tmp_path)
    assert kept_of(root, tmp_path) == (1, ["1"])
    told = capsys.readouterr()
    assert "1 of 1 message" in told.out and "its batch cannot be split into messages" in told.err


def put_rows(rows: list[dict[str, Any]], tmp_path: Path, as_broker: str = "") -> Path:
    tmp_path.mkdir(exist_ok=True)
    root, lines = tmp_path / "store", tmp_path / "lines"
    version = ["--as-broker", as_broker] if as_broker else []
    lines.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert run(["put", str(root), "--from", str(lines), "--output", os.devnull, *WORDS, *version]) == 0
    return root


def kept_of(root: Path, tmp_path: Path) -> tuple[int, list[str]]:
    """Exit code of `compact`, and the bodies that stay."""
    code = run(["pipeline", "compact", str(root), "-t", "T", "--to", str(tmp_path / "new"), *WORDS])
    return code, [m.stored_body.decode() for m in all_of(tmp_path / "new")]


def test_messages_at_which_a_broker_would_stop_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are counted and told, and the stores are made without them."""
    delay, real = "SCHEDULE_TOPIC_XXXX", {"REAL_TOPIC": "T", "REAL_QID": "0"}
    bad = [{"topic": delay, "body": f"bad {n}", "properties": {"DELAY": "1", "KEYS": f"{n}"}} for n in range(2)]
    good = {"topic": delay, "body": "good", "properties": {"DELAY": "1", "KEYS": "g", **real}}
    root = put_rows([{"topic": "T", "body": "first", "keys": "k"}, bad[0], good, bad[1]], tmp_path, "5.3")
    words = ["pipeline", "compact", str(root), *WORDS, "--as-broker", "4.9", "--format", "ndjson"]
    assert run([*words, "-t", "T", "-t", delay, "--to", str(tmp_path / "new")]) == 1
    told = capsys.readouterr()
    lines = told.err.splitlines()
    assert lines[0] == f"mqstore: {root}: 2 messages are left out:"
    assert [line.partition(", at ")[0] for line in lines[1:]] == [f"mqstore: {root}: row {n}" for n in (2, 4)]
    assert "no valid REAL_TOPIC and REAL_QID" in lines[1] and "put" not in told.err.split("row 2")[1]
    found = json.loads(told.out)
    assert (found["messages"], found["kept"], found["refused"]) == (4, 2, 2)
    assert [m.stored_body for m in all_of(tmp_path / "new")] == [b"first", b"good"]
    alone = tmp_path / "alone"
    root = put_rows(bad, tmp_path / "bad", "5.3")
    assert run(["pipeline", "compact", str(root), *WORDS, "--as-broker", "4.9", "-t", "*", "--to", str(alone)]) == 1
    assert "2 messages are left out" in capsys.readouterr().err


def test_of_many_messages_left_out_twenty_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"topic": "SCHEDULE_TOPIC_XXXX", "body": "x", "properties": {"DELAY": "1", "KEYS": f"{n}"}} for n in range(23)
    ]
    root = put_rows(rows, tmp_path, "5.3")
    words = ["pipeline", "compact", str(root), *WORDS, "--as-broker", "4.9", "-t", "SCHEDULE_TOPIC_XXXX"]
    assert run([*words, "--to", str(tmp_path / "new")]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [lines[0], lines[-1]] == [
        f"mqstore: {root}: {text}" for text in ("23 messages are left out:", "and 3 messages more")
    ]
    assert len(lines) == 22 and len(set(lines)) == 22


def test_corrupted_bodies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that stays and fails its checksum is told, and never a sound one of the new store."""
    root = unpack("5.3.3-compaction", tmp_path)
    topics, kept = wanted_of(all_of(root))
    victim = kept[-1]
    at = victim.position + victim.total_size - len(victim.raw_properties) - len(victim.raw_topic) - 4
    (file,) = [path for path in (root / "commitlog").iterdir() if int(path.name) == 0]
    with file.open("r+b") as log:
        log.seek(at)
        (byte,) = log.read(1)
        log.seek(at)
        log.write(bytes([byte ^ 1]))
    words = ["pipeline", "compact", str(root), *(word for t in topics for word in ("-t", t))]
    assert run([*words, *WORDS, "--to", str(tmp_path / "fail")]) == 1
    told = f"row {len(kept)}, at {victim.position} of {root}: the body failed its checksum"
    assert told in capsys.readouterr().err
    assert not (tmp_path / "fail").exists()
    for how, count in (("skip", len(kept) - 1), ("mark", len(kept))):
        new = tmp_path / how
        assert run([*words, *WORDS, "--to", str(new), "--on-damage", how]) == 1
        assert "failed" in capsys.readouterr().err
        found = [m.body_crc_ok for m in all_of(new)]
        assert (len(found), found.count(False)) == (count, how == "mark")
