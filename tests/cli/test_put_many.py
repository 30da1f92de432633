"""`put --from`: many messages, answered in order; what is refused, left out, and cut off."""

from __future__ import annotations

import csv
import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from mqstore.cli.record_types import schema_of
from mqstore.store.broker.topics import Topics
from mqstore.store.put.new_message import COPIED

from .. import stores
from ..store.arrow.rows import table_of as rows_of_store
from ..store.put.writing import contents
from ..store.trace import asked as traces
from .datadriven import run_here
from .json_schema import errors
from .put_tables import messages, stored, table_of, write
from .putting import bodies, config_of, ended, fed, given, line, mqstore, process, rows

SIZES = {"mappedFileSizeCommitLog": 262144, "maxHashSlotNum": 1000, "maxIndexNum": 4000}  # the files are compared


@pytest.mark.parametrize("name", ["in.parquet", "in.ndjson", "in.csv"])
def test_resume_puts_what_is_missing(name: str, tmp_path: Path) -> None:
    found = messages(120)
    found[50] = found[20]  # twice in the input: twice in the store
    first = tmp_path / f"first-{name}"
    for path, part in ((first, found[:60]), (tmp_path / name, found)):
        if name == "in.parquet":
            write(table_of(part), path)
        elif name == "in.csv":
            with path.open("w", newline="") as out:
                writer = csv.DictWriter(out, found[0].keys())
                writer.writeheader()
                for row in part:
                    body = row["body"]
                    shown = f"'{body}" if body.startswith("=") else body
                    cells = {"properties": json.dumps(row["properties"]), "body": shown}
                    writer.writerow(row | cells)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in part))
    root = tmp_path / "new"
    mqstore("put", root, "--from", first)
    result = run_here(["put", str(root), "--from", str(tmp_path / name), "--resume", "--no-answers"])
    assert (result.code, result.stdout) == (0, "")
    assert "60 messages left out, because the store already has them" in result.stderr
    assert [row["body"] for row in stored(root)] == [row["body"] for row in found]
    again = mqstore("put", root, "--from", tmp_path / name, "--resume")
    assert again == [] and len(stored(root)) == len(found)


@pytest.mark.parametrize("form", ["ndjson", "parquet"])
def test_resume_of_a_store_with_transactions(form: str, tmp_path: Path) -> None:
    """Messages that brokers write for them have no unique key: each is there once, wherever the first run ended."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    found = [row for row in mqstore("dump", root) if row["type"] == "message"]
    lacking = [number for number, row in enumerate(found) if row["unique_key"] is None]
    assert lacking
    for name, count in (("first", lacking[0] + 1), ("all", len(found))):
        path = tmp_path / f"{name}.{form}"
        if form == "parquet":
            write(rows_of_store(root, body="plain").slice(0, count), path)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in found[:count]))
        words = ["put", str(tmp_path / "new"), "--from", str(path), "--keep-times", "--no-answers"]
        result = run_here([*words, "--resume"])
        assert result.code == 0, result.stderr
    assert f"{lacking[0] + 1} messages left out" in result.stderr
    assert [given(row) for row in stored(tmp_path / "new")] == [given(row) for row in found]
    again = run_here([*words, "--resume"])
    assert f"{len(found)} messages left out" in again.stderr


def test_resume_needs_unique_keys(tmp_path: Path) -> None:
    """Or times of birth."""
    found: list[dict[str, Any]] = [row | {"born_timestamp": None} for row in messages(5)]
    for number, key in ((1, {"properties": {}}), (2, {"properties": {}, "unique_key": None})):
        source = tmp_path / f"{number}.ndjson"
        source.write_text("".join(json.dumps(r) + "\n" for r in [*found[:3], found[3] | key]))
        result = run_here(["put", str(tmp_path / "new"), "--from", str(source), "--resume"])
        assert result.code == 2 and "line 4: no unique key" in result.stderr
    table = table_of(found).drop_columns(["properties"])
    source = write(table, tmp_path / "in.parquet")
    result = run_here(["put", str(tmp_path / "other"), "--from", str(source), "--resume"])
    assert result.code == 2 and "line 1: no unique key" in result.stderr
    assert not (tmp_path / "other").exists()


def test_resume_adds_the_topics_of_what_is_there(tmp_path: Path) -> None:
    """A killed run may have left messages without them; nothing else changes."""
    (tmp_path / "in").write_text("".join(line(n, queue_id=n, properties={"UNIQ_KEY": f"K{n}"}) for n in range(6)))
    root = tmp_path / "store"
    small = [f"--set={name}={size}" for name, size in SIZES.items()]
    for directory in (root, tmp_path / "whole"):
        mqstore("put", directory, "other", "x", *small)
    mqstore("put", root, "--from", tmp_path / "in", "--no-topic-config")
    mqstore("put", tmp_path / "whole", "--from", tmp_path / "in")
    before = contents(root)
    assert mqstore("put", root, "--from", tmp_path / "in", "--resume") == []
    changed = {name for name, data in contents(root).items() if before.get(name) != data} - {"lock"}
    assert changed == {"config/topics.json", "config/topics.json.bak"}
    assert Topics.read(root / "config").queues("T") == Topics.read(tmp_path / "whole" / "config").queues("T") == 6
    before = contents(root)
    assert mqstore("put", root, "--from", tmp_path / "in", "--resume") == []
    assert contents(root) == before


def test_topics_are_there_when_put_is_killed(tmp_path: Path) -> None:
    running, _ = fed(tmp_path, [line(0)])
    running.kill()
    ended(running)
    assert run_here(["recover", str(tmp_path), "--apply", "--yes"]).code == 0
    assert "T" in Topics.read(tmp_path / "config")


@pytest.mark.slow
def test_resume_after_kill_9_in_the_middle(tmp_path: Path) -> None:
    found = [row | {"store_timestamp": None} for row in messages(1200)]
    lines = [json.dumps(row) + "\n" for row in found]
    (tmp_path / "all.ndjson").write_text("".join(lines))
    root = tmp_path / "new"
    words = ("put", root, "--from", "-", "--flush", "sync", "--format", "ndjson")
    running = process(*words)
    assert running.stdin and running.stdout
    running.stdin.write("".join(lines[:700]).encode())
    running.stdin.flush()
    answered = [json.loads(running.stdout.readline()) for _ in range(300)]
    running.kill()
    running.communicate(timeout=60)
    assert run_here(["recover", str(root), "--apply", "--yes"]).code == 0
    kept = len(stored(root))
    assert kept >= len(answered)
    mqstore("put", root, "--from", tmp_path / "all.ndjson", "--resume")
    keys = [row["properties"]["UNIQ_KEY"] for row in stored(root)]
    assert keys == [row["properties"]["UNIQ_KEY"] for row in found]


@pytest.mark.parametrize(
    "name", ["4.3.1-clean", "4.9.7-clean", "5.1.4-clean", "5.3.3-v2", "5.5.0-ipv6", "5.3.3-propcrc"]
)
def test_a_round_trip_gives_the_same_messages(name: str, tmp_path: Path) -> None:
    root = stores.unpack(name, tmp_path)
    before = [row for row in mqstore("dump", root) if row["type"] == "message"]
    dumped = tmp_path / "dump"
    dumped.write_text("".join(json.dumps(row) + "\n" for row in before))
    again = tmp_path / "again"
    answers = mqstore("put", again, "--from", dumped, *config_of(name, root))
    after = [row for row in mqstore("dump", again) if row["type"] == "message"]
    for old, new, answer in zip(before, after, answers, strict=True):
        assert given(old) == given(new)
        assert answer["message_id"] == new["message_id"]
        assert list(errors(schema_of("stored"), answer)) == []


@pytest.mark.parametrize("name", ["4.3.1-clean", "4.9.7-clean", "5.1.4-clean", "5.5.0-ipv6"])
def test_a_raw_round_trip_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    root = stores.unpack(name, tmp_path)
    dumped = tmp_path / "dump"
    result = run_here(["dump", str(root), "--raw", "--format", "ndjson", "--output", str(dumped)])
    assert result.code == 0
    host = next(row["store_host"] for row in rows(dumped.read_text()) if row["type"] == "message")
    options = ["--keep-times", "--store-host", host, "--as-broker", name[:3]]
    words = ("put", str(tmp_path / "again"), "--from", str(dumped))
    result = run_here([*words, *options, *config_of(name, root)])
    assert result.code == 0, result.stderr
    assert ("left out" in result.stderr) == ('"blank"' in dumped.read_text())
    for part in ("commitlog", "consumequeue"):
        files = [
            {str(p.relative_to(d / part)): p.read_bytes() for p in (d / part).rglob("*0*") if p.is_file()}
            for d in (root, tmp_path / "again")
        ]
        assert files[0] == files[1]


def test_a_bad_line_ends_it_after_the_good_ones(tmp_path: Path) -> None:
    source = tmp_path / "in"
    for bad, said in (
        ("{", "line 3: "),
        ("[]", "line 3: not a JSON object"),
        (line(2, queue_id=-1), "line 3: queue_id"),
        (line(2, queue_id=1 << 31), "line 3: queue_id"),
        (line(2, born_host="nowhere"), "line 3: born_host"),
        (line(2, born_host="10.0.0.1:65536"), "line 3: born_host: not a port from 0 to 65535"),
        (line(2, topic="x" * 300), "line 3: topic of 300 bytes"),
        (line(2, topic="orders.v1"), "line 3: no broker accepts such a topic: 'orders.v1'"),
        ('{"topic":"ü","batch":[{"body":"x"}]}', "line 3: no broker accepts such a topic: 'ü'"),
        (line(2, properties={"a": 1}), "line 3: properties: a"),
        (line(2, properties={"": "x"}), "line 3: property"),
        (line(2, body="x" * 5_000_000), "line 3: a body of 5000000 bytes"),
        (line(2, body_base64="*"), "line 3: body_base64"),
        ('{"topic":"T","body":"\\ud800"}', "line 3: body"),
    ):
        root = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        source.write_text(line(0) + line(1) + bad.rstrip("\n") + "\n" + line(3))
        result = run_here(["put", str(root), "--from", str(source), "--format", "ndjson"])
        assert result.code in (2, 5) and said in result.stderr, result
        assert result.stderr.count("\n") == 1
        assert len(rows(result.stdout)) == 2
        assert bodies(root) == ["b0", "b1"]
        assert not (root / "abort").exists()


def test_a_bad_first_line_touches_nothing(tmp_path: Path) -> None:
    (tmp_path / "in").write_text(line(0, topic=7))
    result = run_here(["put", str(tmp_path / "new"), "--from", str(tmp_path / "in")])
    assert (result.code, "line 1: topic: not text" in result.stderr) == (2, True)
    assert not (tmp_path / "new").exists()


def test_empty_input_makes_no_store(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("\n \n")
    assert mqstore("put", tmp_path / "new", "--from", tmp_path / "in") == []
    assert not (tmp_path / "new").exists()


def test_stale_records_and_damage_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "in").write_text(
        line(0, type="message")
        + line(1, type="damage")
        + line(2, type="message", stale="dead_tail")
        + line(3, type="message", after_damage=True)
    )
    result = run_here(["put", str(tmp_path / "new"), "--from", str(tmp_path / "in")])
    assert result.code == 0
    assert "2 records left out" in result.stderr
    assert bodies(tmp_path / "new") == ["b0", "b3"]


@pytest.mark.parametrize("form", ["ndjson", "csv", "parquet", "avro", "import", "salvage"])
def test_tombstones_are_left_out(form: str, tmp_path: Path) -> None:
    """A copy does not make messages of them, and says so."""
    root, new, source = tmp_path / "store", tmp_path / "new", tmp_path / f"in.{form}"
    for _ in range(3):
        traces.put(root, "orders")
    traces.lost(root, 1)
    words: list[object] = ["put", new, "--from", source, "--no-answers"]
    if form in ("ndjson", "csv"):
        source.write_text(run_here(["dump", str(root), "--format", form]).stdout)
    elif form == "salvage":
        words = [form, root, "--to", new, "--layout", "compact"]
    else:
        export = tmp_path / "export"
        run_here(["export", str(root), "--to", str(export), "--format", "avro" if form == "avro" else "parquet"])
        [source] = export.glob("*.*")
        words = ["pipeline", form, source, "--to", new] if form == "import" else [*words[:3], source, *words[4:]]
    result = run_here([*map(str, words)])
    said = "1 tombstone left out: the messages in whose place recover wrote them are lost"
    assert said in (result.stdout if form == "salvage" else result.stderr)
    assert len(stored(new)) == 2


def test_behind_a_tombstone_messages_name_a_broker(tmp_path: Path) -> None:
    """It has port 0, which tells that no broker stored it."""
    for _ in range(3):
        traces.put(tmp_path / "store", "orders")
    traces.lost(tmp_path / "store", 2)
    traces.put(tmp_path / "store", "orders")
    assert [row["store_host"] for row in stored(tmp_path / "store")][2:] == ["127.0.0.1:0", "127.0.0.1:10911"]


def test_answers_come_while_it_waits_for_more(tmp_path: Path) -> None:
    running, answers = fed(tmp_path, [line(0), line(1)])
    assert [answer["queue_offset"] for answer in answers] == [0, 1]
    assert (tmp_path / "abort").exists()
    assert (ended(running), running.returncode) == ("", 0)
    assert not (tmp_path / "abort").exists()


def test_ctrl_c_leaves_a_clean_store(tmp_path: Path) -> None:
    running, _ = fed(tmp_path, [line(n) for n in range(5)])
    running.send_signal(signal.SIGINT)
    assert re.fullmatch(r"mqstore: interrupted(, putting: [^\n]+)?\n", ended(running))
    assert running.returncode == 130
    assert not (tmp_path / "abort").exists()
    assert bodies(tmp_path) == [f"b{n}" for n in range(5)]


def test_kill_9_leaves_a_store_to_recover(tmp_path: Path) -> None:
    running, answers = fed(tmp_path, [line(n) for n in range(50)])
    running.kill()
    ended(running)
    assert (tmp_path / "abort").read_text() == str(running.pid)
    result = run_here(["put", str(tmp_path), "T", "x"])
    assert (result.code, "mqstore recover" in result.stderr) == (3, True)
    assert run_here(["recover", str(tmp_path), "--apply", "--yes"]).code == 0
    for answer in answers[::9]:
        words = ("--message-id", answer["message_id"])
        assert mqstore("get", tmp_path, *words)[0]["unique_key"] == answer["unique_key"]
    mqstore("put", tmp_path, "T", "after")
    offsets = [row["queue_offset"] for row in mqstore("get", tmp_path, "--topic", "T")]
    assert offsets == list(range(51))


def test_a_reader_that_goes_ends_it_quietly(tmp_path: Path) -> None:
    running, _ = fed(tmp_path, [line(0)])
    assert running.stdin is not None and running.stdout is not None
    running.stdout.close()
    running.stdin.write("".join(line(n) for n in range(1, 3000)).encode())
    running.stdin.close()
    assert running.stderr is not None
    said = running.stderr.read()
    running.stderr.close()
    assert (running.wait(60), said) == (0, b"")
    assert not (tmp_path / "abort").exists()
    assert len(bodies(tmp_path)) >= 1


def test_batches_and_single_messages(tmp_path: Path) -> None:
    """Lines with `batch`: one answer for each record, in order; a second run knows them all."""
    lines = [
        {"topic": "T", "body": "first", "unique_key": "A"},
        {"topic": "T", "batch": [{"body": "b", "unique_key": f"B{n}"} for n in range(3)]},
        {"topic": "T", "body": "last", "unique_key": "C"},
    ]
    source = tmp_path / "lines"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    root = tmp_path / "store"
    answers = mqstore("put", root, "--from", source)
    assert [a["unique_key"] for a in answers] == ["A", "B0", "B1", "B2", "C"]
    assert [a["queue_offset"] for a in answers] == [0, 1, 2, 3, 4]
    assert bodies(root) == ["first", "b", "b", "b", "last"]
    again = run_here(["put", str(root), "--from", str(source), "--resume"])
    assert (again.code, again.stdout) == (0, "")
    assert "5 messages left out" in again.stderr


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"topic": "T", "batch": 3}', "batch: not a list of objects"),
        ('{"topic": "T", "batch": [3]}', "batch: not a list of objects"),
        ('{"topic": "T", "batch": []}', "1 to 32767 messages"),
        ('{"topic": "T", "body": "x", "batch": [{"body": "x"}]}', "its messages have bodies"),
        ('{"batch": [{"body": "x"}]}', "topic: missing"),
        ('{"topic": "T", "batch": [{"bodi": "x"}]}', "body: missing"),
        ('{"topic": "T", "batch": [{"topic": "U", "body": "x"}]}', "topic is the same for all messages"),
        ('{"batch": [{"topic": "T", "body": "x"}]}', 'put it beside "batch"'),
        ('{"topic": "T", "batch": [{"body": "x"}, {"queue_id": 2, "body": "x"}]}', "queue_id is the same for all"),
        ('{"topic": "T", "queue_id": 1, "batch": [{"queue_id": 0, "body": "x"}]}', "queue_id is the same for all"),
        ('{"topic": "T", "batch": [{"born_timestamp": 7, "body": "x"}]}', "born_timestamp is the same for all"),
        ('{"topic": "T", "batch": [{"born_host": "10.0.0.1:7", "body": "x"}]}', "born_host is the same for all"),
        ('{"topic": "T", "batch": [{"reconsume_times": 1, "body": "x"}]}', "reconsume_times is the same for all"),
        ('{"topic": "T", "batch": [{"body_compression": "zlib", "body": "x"}]}', "not compressed one by one"),
        ('{"topic": "T", "sys_flag": 4, "batch": [{"body": "x"}]}', "transaction"),
    ],
)
def test_bad_batches(row: str, message: str, tmp_path: Path) -> None:
    source = tmp_path / "lines"
    source.write_text('{"topic": "T", "body": "good"}\n' + row)
    said = run_here(["put", str(tmp_path / "store"), "--from", str(source)])
    assert said.code == 2
    assert "line 2: " in said.stderr
    assert message in said.stderr


_TIMED = {"TIMER_OUT_MS": "1795000000000", "REAL_TOPIC": "T", "REAL_QID": "0", "UNIQ_KEY": "k"}


@pytest.mark.parametrize("lacks", ["TIMER_OUT_MS", "REAL_TOPIC", "REAL_QID"])
@pytest.mark.parametrize("form", ["parquet", "ndjson", "batch"])
def test_the_topic_of_the_timer(form: str, lacks: str, tmp_path: Path) -> None:
    """A copy of what a broker stored there goes in; at what lacks a time or a place its timer would stop."""
    good = messages(1)[0] | {"topic": "rmq_sys_wheel_timer", "queue_id": 0, "sys_flag": 0, "properties": _TIMED}
    lacking = {name: value for name, value in _TIMED.items() if name != lacks}
    poison = good | {"properties": lacking | ({lacks: "9x"} if lacks == "TIMER_OUT_MS" else {})}
    source = tmp_path / f"in.{form}"
    if form == "parquet":
        write(table_of([good, poison]), source)
    else:
        own = {name: poison[name] for name in ("body", "properties")}
        last = poison if form == "ndjson" else {"topic": poison["topic"], "batch": [own]}
        source.write_text(json.dumps(good) + "\n" + json.dumps(last) + "\n")
    result = run_here(["put", str(tmp_path / "store"), "--from", str(source), "--as-broker", "5.3"])
    assert result.code == 2 and "line 2: this message has no " in result.stderr, result.stderr
    assert f"no valid {lacks}:" in result.stderr
    assert [row["properties"] for row in stored(tmp_path / "store")] == [_TIMED]


@pytest.mark.parametrize(
    ("version", "more", "said"),
    [
        ("4.9", {"DELAY": "abc"}, "DELAY 'abc' is not a 32-bit number: a broker that starts would end its log"),
        ("5.3", {"DELAY": "abc"}, "DELAY 'abc' is not a 32-bit number: a broker that starts would end its log"),
        ("4.9", {"REAL_QID": "9x"}, "no valid REAL_TOPIC and REAL_QID: brokers 4.9.3 to 4.9.8 deliver no later"),
        ("4.9", {"REAL_TOPIC": ""}, "no valid REAL_TOPIC and REAL_QID: brokers 4.9.3 to 4.9.8 deliver no later"),
        ("4.9", {"REAL_TOPIC": "", "REAL_QID": "", "LOST": "t"}, "no valid REAL_TOPIC and REAL_QID: brokers 4.9.3"),
        ("4.9", {"DELAY": "", "REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "LOST": "t"}, ""),
        ("4.3", {"REAL_TOPIC": "", "REAL_QID": "", "LOST": "t"}, ""),
        ("4.3", {"REAL_QID": ""}, ""),
        ("4.6", {"REAL_QID": ""}, ""),
        ("4.9.3", {"REAL_QID": ""}, "no valid REAL_TOPIC and REAL_QID: brokers 4.9.3 to 4.9.8 deliver no later"),
        ("5.3", {"REAL_QID": ""}, ""),
        ("5.3", {"INNER_NUM": "x", "INNER_BASE": "1"}, "INNER_NUM 'x' is not a 16-bit number"),
        ("4.9", {"INNER_NUM": "x", "INNER_BASE": "1"}, ""),
    ],
)
@pytest.mark.parametrize("form", ["parquet", "ndjson", "import"])
def test_what_a_broker_drops_or_stops_at(
    form: str, version: str, more: dict[str, str], said: str, tmp_path: Path
) -> None:
    """A start of a broker would cut the log at it, or a delay level of 4.9 stand still: only that broker's store."""
    good = messages(1)[0] | {"topic": "SCHEDULE_TOPIC_XXXX", "queue_id": 0, "sys_flag": 0, "born_host": None}
    properties = {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "0", "UNIQ_KEY": "k"}
    changed = {name: text for name, text in (properties | more).items() if text}
    rows = [good | {"properties": properties}, good | {"properties": changed}]
    source, new = tmp_path / f"in.{'ndjson' if form == 'ndjson' else 'parquet'}", tmp_path / "new"
    if form == "ndjson":
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        write(table_of(rows), source)
    words = ["put", new, "--from", source, "--no-answers"]
    if form == "import":
        words = ["pipeline", "import", source, "--to", new, "--format", "json"]
    result = run_here([*map(str, words), "--as-broker", version])
    assert said in result.stderr
    if not said:
        assert result.code == 0, result.stderr
    elif form == "import":
        assert result.code == 1 and "1 message is left out:\nmqstore: row 2: " in result.stderr, result.stderr
        assert "put" not in result.stderr, "its hint is for others"
        record = json.loads(result.stdout)
        assert record["refused"] == 1 and not [*errors(schema_of("import"), record)]
        assert [row["properties"] for row in stored(new)] == [properties]
    else:
        assert result.code == 2 and "line 2: " in result.stderr and "; leave the message out" in result.stderr


def _states(root: Path) -> dict[str, str]:
    """Of each transaction, by its unique key."""
    (found,) = mqstore("inspect", root, "--transactions")
    return {row["unique_key"]: row["state"] for row in found["transactions"]}


@pytest.mark.parametrize("form", ["ndjson", "parquet"])
@pytest.mark.parametrize("name", ["4.9.7-clean", "5.3.3-clean"])
def test_op_records_follow_their_half_messages(name: str, form: str, tmp_path: Path) -> None:
    """The first half messages do not come along: the others get their numbers. It is the same in two runs."""
    root = stores.unpack(name, tmp_path)
    table = rows_of_store(root, body="plain")
    found = [row for row in mqstore("dump", root) if row["type"] == "message"]
    halves = [number for number, row in enumerate(found) if row["topic"] == "RMQ_SYS_TRANS_HALF_TOPIC"]
    first, some = halves[1] + 1, halves[5] + 1
    for part, end in (("some", some), ("all", len(found))):
        path = tmp_path / f"{part}.{form}"
        if form == "parquet":
            write(table.slice(first, end - first), path)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in found[first:end]))
    sizes = config_of(name, root)
    result = run_here(["put", str(tmp_path / "new"), "--from", str(tmp_path / f"all.{form}"), *sizes])
    assert result.code == 0
    assert bool(re.search(r"\d op records? left out: the half messages that", result.stderr)) == (name < "5")
    before, after = _states(root), _states(tmp_path / "new")
    come = {row["unique_key"] for row in found[first:] if row["topic"] == "RMQ_SYS_TRANS_HALF_TOPIC"}
    assert after == {key: before[key] for key in come} and len(set(after.values())) > 1
    places = {found[number]["physical_offset"] for number in halves if number >= first}
    without = [row["unique_key"] for row in found[first:] if row["prepared_transaction_offset"] not in places | {0}]
    places = {row["physical_offset"] for row in stored(tmp_path / "new") if "_TRANS_HALF_" in row["topic"]}
    committed = [row for row in stored(tmp_path / "new") if row["prepared_transaction_offset"]]
    assert [row["unique_key"] for row in committed if row["prepared_transaction_offset"] not in places] == without
    assert len(committed) > len(without)
    for part in ("some", "all"):
        words = ["put", str(tmp_path / "resumed"), "--from", str(tmp_path / f"{part}.{form}"), "--no-answers", *sizes]
        assert run_here([*words, "--resume"]).code == 0
    assert [given(row) for row in stored(tmp_path / "resumed")] == [given(row) for row in stored(tmp_path / "new")]


@pytest.mark.parametrize("form", ["parquet", "ndjson"])
def test_op_records_of_several_stores_name_the_half_messages_of_their_own(form: str, tmp_path: Path) -> None:
    """Rows of two stores in the order of their times; the first half message of one of them does not come along."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    found = [row for row in mqstore("dump", root) if row["type"] == "message" and _of_transaction(row)]
    begin = [row["topic"] for row in found].index("RMQ_SYS_TRANS_HALF_TOPIC") + 1
    lines = []
    for number, row in enumerate(found):
        kept = {name: row.get(name, "") for name in (*messages(1)[0], "unique_key", *COPIED)}
        lines.append(kept | {"store": "a", "sys_flag": row["sys_flag"] & 12})
        if number >= begin:
            key = row["unique_key"] and "B" + row["unique_key"]
            properties = row["properties"] | ({"UNIQ_KEY": key} if key else {})
            lines.append(lines[-1] | {"store": "b", "unique_key": key, "properties": properties})
    source = tmp_path / f"in.{form}"
    if form == "parquet":
        write(table_of(lines), source)
    else:
        source.write_text("".join(json.dumps(row) + "\n" for row in lines))
    mqstore("put", tmp_path / "new", "--from", source, *config_of("5.3.3-clean", root))
    before = _states(root)
    wanted = before | {f"B{key}": state for key, state in before.items()}
    assert _states(tmp_path / "new") == wanted and len(set(wanted.values())) > 1


def test_rows_that_name_no_store_are_of_one(tmp_path: Path) -> None:
    """Half messages go in as columns, and what decides them row by row, since a body there has a wrong checksum."""
    import pyarrow as pa

    root = stores.unpack("5.3.3-clean", tmp_path)
    table = rows_of_store(root, body="plain")
    table = table.drop_columns([name for name in ("store",) if name in table.schema.names])
    table = table.slice(table["topic"].to_pylist().index("RMQ_SYS_TRANS_HALF_TOPIC") + 1)
    begin = table["topic"].to_pylist().index("RMQ_SYS_TRANS_OP_HALF_TOPIC")
    place = table.schema.get_field_index("body_crc_ok")
    sound = [*table["body_crc_ok"].to_pylist()[:-1], False]
    odd = table.set_column(place, "body_crc_ok", pa.array(sound, pa.bool_()))
    told = list[dict[str, str]]()
    for name, come in (("plain", table), ("odd", odd)):
        source = tmp_path / f"{name}.arrow"
        with pa.ipc.new_file(source, come.schema) as file:
            file.write_table(come.slice(0, begin).combine_chunks())
            file.write_table(come.slice(begin).combine_chunks())
        words = ["put", str(tmp_path / name), "--from", str(source), "--on-damage", "mark", "--no-answers"]
        assert run_here([*words, *config_of("5.3.3-clean", root)]).code == (name == "odd")
        told.append(_states(tmp_path / name))
    assert told[0] == told[1] and len(set(told[0].values())) > 1


@pytest.mark.parametrize("form", ["ndjson", "parquet"])
def test_what_pop_notes_of_messages_with_other_numbers_is_left_out(form: str, tmp_path: Path) -> None:
    """It is the same in two runs, of which the first one put all messages of that queue."""
    root = stores.unpack("5.3.3-pop", tmp_path)
    found = [row for row in mqstore("dump", root) if row["type"] == "message"]
    popped = [json.loads(row["body"]) if _names_popped(row) else None for row in found]
    gone = next(fields for fields in popped if fields is not None)
    queue = gone["t"], gone["q"]
    dropped = next(row for row in found if (row["topic"], row["queue_id"]) == queue)
    come = [number for number, row in enumerate(found) if row is not dropped]
    first = 1 + max(n for n, number in enumerate(come) if (found[number]["topic"], found[number]["queue_id"]) == queue)
    for part, numbers in (("some", come[:first]), ("all", come)):
        path = tmp_path / f"{part}.{form}"
        if form == "parquet":
            write(rows_of_store(root, body="plain").take(numbers), path)
        else:
            path.write_text("".join(json.dumps(found[number]) + "\n" for number in numbers))
    sizes = config_of("5.3.3-pop", root)
    result = run_here(["put", str(tmp_path / "new"), "--from", str(tmp_path / f"all.{form}"), *sizes])
    left = [
        row["body"] for row, fields in zip(found, popped, strict=True) if fields and (fields["t"], fields["q"]) != queue
    ]
    assert [row["body"] for row in stored(tmp_path / "new") if _names_popped(row)] == left
    assert f"{sum(map(bool, popped)) - len(left)} check points and acknowledgements of POP left out" in result.stderr
    for part in ("some", "all"):
        words = ["put", str(tmp_path / "resumed"), "--from", str(tmp_path / f"{part}.{form}"), "--no-answers", *sizes]
        assert run_here([*words, "--resume"]).code == 0
    assert [given(row) for row in stored(tmp_path / "resumed")] == [given(row) for row in stored(tmp_path / "new")]


def _of_transaction(row: dict[str, Any]) -> bool:
    return "TRANS_" in row["topic"] or row["prepared_transaction_offset"] > 0


def _names_popped(row: dict[str, Any]) -> bool:
    return row["tags"] in ("ck", "ack", "bAck")
