"""What `mqstore put` does with a store that it writes to."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from .. import stores
from ..store.disk.test_lock import other_process
from .datadriven import run_here
from .putting import bodies, line, mqstore, process


def test_put_goes_on_at_the_end_of_the_queue(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-rocksdb", tmp_path)
    result = run_here(["put", str(root), "TopicA", "one more", "--queue", "0"])
    assert result.code == 0, result.stderr
    told = re.search(r"TopicA queue 0 offset (\d+)", result.stdout)
    assert told is not None, result.stdout
    place = ["--topic", "TopicA", "--queue", "0", "--offset", told[1]]
    assert "one more" in run_here(["get", str(root), *place]).stdout
    assert run_here(["verify", str(root)]).code == 0


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


def test_a_message_that_is_not_put_into_its_light_queues_is_told(tmp_path: Path) -> None:
    words = ["put", str(tmp_path), "T", "x", "--as-broker", "5.5", "--property", "__LITE_TOPIC=a"]
    options = ["--set", "enableLmq=true", "--set", "enableMultiDispatch=true"]
    assert run_here(words).stderr.endswith(f"it would be with {' '.join(options)}\n")
    assert run_here([*words, *options]).stderr == ""
    assert mqstore("get", tmp_path, "--topic", "%LMQ%$T$a", "--queue", "0", "--offset", "0")[0]["body"] == "x"


def test_a_committed_message_has_a_number_of_its_own_in_its_light_queue(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-lmq", tmp_path)
    named = ["--property", "INNER_MULTI_DISPATCH=%LMQ%a", "--property", "PGROUP=g", "--format", "ndjson"]
    [half] = mqstore("put", root, "mqtt", "x", "--transaction", "half", *named)
    mqstore("put", root, "--transaction", "commit", "--half", half["unique_key"])
    assert not re.search("Do not|Damaged|rror", run_here(["verify", str(root)]).stdout)


def test_no_option_puts_a_delayed_message_into_a_light_queue(tmp_path: Path) -> None:
    words = ["put", str(tmp_path), "T", "x", "--as-broker", "5.5", "--property", "__LITE_TOPIC=a"]
    assert run_here([*words, "--delay-level", "3"]).stderr == ""


@pytest.mark.parametrize("name", ["x/y", "x,y"])
def test_a_light_queue_that_cannot_be_is_refused(name: str, tmp_path: Path) -> None:
    words = ["put", str(tmp_path), "T", "x", "--as-broker", "5.5", "--property", f"__LITE_TOPIC={name}"]
    result = run_here(words)
    assert (result.code, f"__LITE_TOPIC: no LMQ has such a name: {name}" in result.stderr) == (2, True)


def test_what_fails_behind_the_answer_is_told_with_what_to_do(tmp_path: Path) -> None:
    """The message is in the log, and stays; no queue can name it yet."""
    mqstore("put", tmp_path, "T", "x")
    (tmp_path / "consumequeue" / "new").touch()
    result = run_here(["put", str(tmp_path), "new", "y", "--as-broker", "5.3"])
    assert (result.code, "new queue 0 offset 0" in result.stdout) == (5, True)
    assert result.stderr.endswith(f"then run: mqstore recover {tmp_path} --apply --broker-version 5.3\n")
    (tmp_path / "consumequeue" / "new").unlink()
    assert run_here(["recover", str(tmp_path), "--apply", "--yes"]).code == 0
    assert bodies(tmp_path) == ["x", "y"]


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


def test_a_disk_without_a_place_for_the_store(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for root in (tmp_path / "loop", Path(os.devnull), Path(os.devnull) / "x"):
        result = run_here(["put", str(root), "T", "x"])
        assert result.code == 5, result
        assert result.stderr.count("\n") == 1
