"""`mqstore put`: answers, round trips with `dump`, many at once, what happens when it is ended."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mqstore.cli.record_types import schema_of
from mqstore.formats.message import SysFlag
from mqstore.formats.message_properties import CRC32

from .. import stores
from ..store.disk.test_lock import other_process
from .datadriven import run_here
from .json_schema import errors

Row = dict[str, Any]
MADE_ANEW = {
    *("physical_offset", "queue_offset", "message_id", "store_timestamp", "store_host", "body_crc"),
    *("total_size", "magic_code"),
}
"""What a message gets from the store it is put into."""


def rows(text: str) -> list[Row]:
    return [json.loads(line) for line in text.splitlines()]


def mqstore(*words: str | Path, code: int = 0) -> list[Row]:
    """Run a command here; its NDJSON."""
    result = run_here([*map(str, words), "--format", "ndjson"])
    assert result.code == code, result.stderr
    return rows(result.stdout)


def process(*words: str | Path, stdin: int | None = subprocess.PIPE) -> subprocess.Popen[bytes]:
    """The command as a process of its own."""
    command = [sys.executable, "-m", "mqstore", *map(str, words)]
    return subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def config_of(name: str, root: Path) -> list[str]:
    """Sizes of a store, as options for one that is rebuilt."""
    return [word for setting in stores.config_set(name, root) if "Path" not in setting for word in ("--set", setting)]


def given(row: Row) -> Row:
    """What the producer gave: without what belongs to the store or to the place in its log."""
    kept = {name: value for name, value in row.items() if name not in MADE_ANEW}
    kept["sys_flag"] &= ~SysFlag.STORE_V6
    kept["properties"] = {k: v for k, v in row["properties"].items() if k != CRC32}
    kept["properties_raw"] = row.get("properties_raw", "").partition(CRC32)[0]
    return kept


def line(number: int, **fields: Any) -> str:
    return json.dumps({"topic": "T", "body": f"b{number}"} | fields) + "\n"


def bodies(root: Path) -> list[str]:
    return [row["body"] for row in mqstore("dump", root) if row["type"] == "message"]


def test_one_message_and_its_answer(tmp_path: Path) -> None:
    words = ["--queue", "2", "--tag", "a", "--keys", "k1 k2", "--property", "x=1", "--property"]
    [answer] = mqstore("put", tmp_path, "orders", "hello", *words, "y=a=b")
    assert list(errors(schema_of("stored"), answer)) == []
    [message] = mqstore("dump", tmp_path)
    assert {name: answer[name] for name in answer if name != "type"} == {
        name: message[name] for name in answer if name != "type"
    }
    key = answer["unique_key"]
    expected = {"x": "1", "y": "a=b", "KEYS": "k1 k2", "TAGS": "a", "UNIQ_KEY": key}
    assert message["properties"] == expected
    assert (message["queue_id"], message["body"]) == (2, "hello")
    assert message["store_host"] == "127.0.0.1:10911"
    assert len(answer["unique_key"]) == 32
    assert mqstore("get", tmp_path, "--topic", "orders", "--key", "k2")[0]["body"] == "hello"
    said = run_here(["put", str(tmp_path), "orders", "again"]).stdout
    assert said.startswith("orders queue 0 offset 0: ")


def test_an_answer_is_one_harmless_line(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text(json.dumps({"topic": "a\nb\x1b[31m", "body": "x"}) + "\n")
    said = run_here(["put", str(tmp_path / "store"), "--from", str(lines)]).stdout
    assert said.startswith("a\\nb\\x1b[31m queue 0 offset 0: ")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("topic", ["a\nb\x1b[31m", "a/b", "..", "a b", "x" * 128, "订单", "a.b"])
def test_topics_that_no_client_sends_to(topic: str, tmp_path: Path) -> None:
    said = run_here(["put", str(tmp_path / "store"), topic, "x"])
    assert said.code in (2, 5) and said.stdout == ""
    assert len(said.stderr.splitlines()) == 1 and "\x1b" not in said.stderr
    assert not (tmp_path / "store").exists()


def test_where_a_body_comes_from(tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(bytes(range(256)))
    root = tmp_path / "store"
    mqstore("put", root, "T", "--body-file", tmp_path / "body")
    done = subprocess.run([sys.executable, "-m", "mqstore", "put", str(root), "T"], input=b"from stdin", check=True)
    assert done.returncode == 0
    first, second = mqstore("dump", root)
    assert base64.b64decode(first["body_base64"]) == bytes(range(256))
    assert second["body"] == "from stdin"
    result = run_here(["put", str(root), "T", "x", "--body-file", str(tmp_path / "body")])
    assert (result.code, "two bodies" in result.stderr) == (2, True)


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
        (line(2, born_host="10.0.0.1:65536"), "line 3: born_host: no port from 0 to 65535"),
        (line(2, topic="x" * 300), "line 3: topic of 300 bytes"),
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


def test_a_topic_with_too_few_queues_is_told(tmp_path: Path) -> None:
    """A producer is refused, a copy is taken."""
    mqstore("put", tmp_path, "T", "x")
    result = run_here(["put", str(tmp_path), "T", "x", "--queue", "4"])
    assert (result.code, "T has 4 queues" in result.stderr) == (2, True)
    mqstore("put", tmp_path, "T", "x", "--queue", "3")
    (tmp_path / "copy").write_text(line(1, queue_id=7))
    result = run_here(["put", str(tmp_path), "--from", str(tmp_path / "copy")])
    assert (result.code, "T has 4 queues" in result.stderr) == (0, True)
    mqstore("put", tmp_path, "T", "x", "--queue", "7", "--no-topic-config")
    mqstore("put", tmp_path, "other", "x", "--no-topic-config")
    assert "other" not in (tmp_path / "config" / "topics.json").read_text()


def test_in_use(tmp_path: Path) -> None:
    mqstore("put", tmp_path, "T", "x")
    with other_process(tmp_path / "lock") as pid:
        result = run_here(["put", str(tmp_path), "T", "y", "--wait", "0.05"])
    assert (result.code, f"process {pid}" in result.stderr) == (4, True)
    assert bodies(tmp_path) == ["x"]


@pytest.mark.slow
def test_many_take_turns(tmp_path: Path) -> None:
    root = tmp_path / "store"
    running = [process("put", root, "T", f"{n}", "--wait", "60", stdin=None) for n in range(6)]
    for one in running:
        _, said = one.communicate(timeout=120)
        assert one.returncode == 0, said
    found = [row for row in mqstore("dump", root) if row["type"] == "message"]
    assert sorted(row["body"] for row in found) == [f"{n}" for n in range(6)]
    assert [row["queue_offset"] for row in found] == list(range(6))
    assert not (root / "abort").exists()


def fed(root: Path, lines: Sequence[str]) -> tuple[subprocess.Popen[bytes], list[Row]]:
    """A `put --from -` that has answered these lines and waits for more."""
    words = ("put", root, "--from", "-", "--flush", "sync", "--format", "ndjson")
    running = process(*words)
    assert running.stdin is not None and running.stdout is not None
    running.stdin.write("".join(lines).encode())
    running.stdin.flush()
    return running, [json.loads(running.stdout.readline()) for _ in lines]


def ended(running: subprocess.Popen[bytes]) -> str:
    """Wait for the end of a process; what it said on stderr."""
    _, said = running.communicate(timeout=60)
    return said.decode()


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


def test_a_disk_without_a_place_for_the_store(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for root in (tmp_path / "loop", Path(os.devnull), Path(os.devnull) / "x"):
        result = run_here(["put", str(root), "T", "x"])
        assert result.code == 5, result
        assert result.stderr.count("\n") == 1


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
        ('{"topic": "T", "batch": [{"topic": "U", "body": "x"}]}', "go to one topic"),
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


def test_a_transaction_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    root = tmp_path / "store"
    begin: tuple[str | Path, ...] = ("put", root, "orders", "x", "--transaction", "half")
    for key in ("A", "B", "C"):
        mqstore(*begin, "--property", f"UNIQ_KEY={key}", "--property", "PGROUP=g")
    real, op = mqstore("put", root, "--transaction", "commit", "--half", "A")
    assert (real["topic"], real["unique_key"], op["queue_offset"]) == ("orders", "A", 0)
    (op,) = mqstore("put", root, "--transaction", "rollback", "--half", "B")
    assert (op["topic"], op["queue_offset"]) == ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 1)
    (found,) = mqstore("inspect", root, "--transactions")
    states = {row["unique_key"]: row["state"] for row in found["transactions"]}
    assert states == {"A": "committed", "B": "rolled_back", "C": "open"}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--transaction", "commit"], 2, "together with --half"),
        (["--half", "A"], 2, "together with --half"),
        (["--transaction", "commit", "--half", "A", "--tag", "x"], 2, "decided as it is"),
        (["T", "x", "--half", "A"], 2, "decided as it is"),
        (["T", "x", "--transaction", "half", "--delay-level", "1"], 2, "cannot be delayed"),
        (["--from", "-", "--transaction", "half"], 2, "not from the command line"),
        (["--transaction", "rollback", "--half", "A"], 5, "no such directory"),
    ],
)
def test_transactions_without_sense(words: list[str], code: int, message: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    said = run_here(["put", str(root), *words])
    assert message in said.stderr
    assert said.code == code, said.stderr
    assert not (root / "commitlog").exists()


def test_no_such_half_message(tmp_path: Path) -> None:
    mqstore("put", tmp_path / "store", "T", "x")
    said = run_here(["put", str(tmp_path / "store"), "--transaction", "commit", "--half", "A"])
    assert (said.code, "no half message A" in said.stderr) == (1, True)


def test_the_command_that_a_refusal_names_has_the_configuration(tmp_path: Path) -> None:
    """As it was given: a broker.conf by its name, settings one by one."""
    root = stores.unpack("4.9.7-killed", tmp_path)
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=262144\n")
    given = ["--broker-config", str(conf), "--set", "brokerName=a b", "--set", "maxIndexNum=400"]
    result = run_here(["put", str(root), "orders", "x", *given])
    words = ["mqstore", "recover", str(root), *given]
    assert (result.code, f"run: {shlex.join(words)}" in result.stderr) == (3, True)


def test_one_message_needs_no_heavy_imports(tmp_path: Path) -> None:
    """Into a store with files of the usual sizes, which nothing has to be learned from."""
    code = (
        "import sys; from mqstore.cli.app import run; run(sys.argv[1:]); "
        "heavy = {'numpy', 'rich', 'lz4', 'zstandard', 'rocksdict', 'mqstore.store.findings.catalogue'}; "
        "print(heavy & set(sys.modules))"
    )
    # sparse files, most of them without a byte
    done = subprocess.run(
        [sys.executable, "-c", code, "put", str(tmp_path / "store"), "orders", "hello"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        timeout=60,
    )
    assert done.stdout.splitlines()[-1] == "set()"
