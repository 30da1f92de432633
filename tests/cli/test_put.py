"""`mqstore put` of one message: its answer, its body, transactions."""

from __future__ import annotations

import base64
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from mqstore.cli.record_types import schema_of

from .. import stores
from .datadriven import run_here
from .json_schema import errors
from .putting import mqstore


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
    lines.write_text(json.dumps({"topic": "T", "body": "x", "unique_key": "a\nb\x1b[31m"}) + "\n")
    said = run_here(["put", str(tmp_path / "store"), "--from", str(lines)]).stdout
    assert said.endswith("unique key a\\nb\\x1b[31m\n")
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
    assert (result.code, "cannot be combined" in result.stderr) == (2, True)


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


def test_no_such_half_message(tmp_path: Path) -> None:
    mqstore("put", tmp_path / "store", "T", "x")
    said = run_here(["put", str(tmp_path / "store"), "--transaction", "commit", "--half", "A"])
    assert (said.code, "no half message A" in said.stderr) == (1, True)


def test_the_command_that_a_refusal_names_has_configuration_and_version(tmp_path: Path) -> None:
    """As they were given: a broker.conf by its name, settings one by one."""
    root = stores.unpack("4.9.7-killed", tmp_path)
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=262144\n")
    given = ["--broker-config", str(conf), "--set", "brokerName=a b", "--set", "maxIndexNum=400"]
    result = run_here(["put", str(root), "orders", "x", "--as-broker", "4.9", *given])
    words = ["mqstore", "recover", str(root), "--broker-version", "4.9", *given]
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
