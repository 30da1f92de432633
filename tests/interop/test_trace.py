"""Why a group has not got a message: real brokers and clients play the causes, `mqstore trace` names them."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from .brokers import VERSIONS, Broker
from .served import Row, as_broker, mqstore, put, rows, settings
from .test_brokers import SIZES, broker, message, sent

pytestmark = [pytest.mark.interop, pytest.mark.slow]

QUIET = {"flushConsumerOffsetInterval": 3_600_000}
"""Offsets are written when a test says so, and at a stop."""
AFTER = tuple(f"after-{number}" for number in range(16))
"""Some for each queue: where nobody has consumed a group has no offset."""
FIRST = ("plain", "tagged", "dear", "refused", "last")


def first_messages(root: Path, version: str) -> None:
    """What producers have sent before there is a broker, and what waits."""
    properties: dict[str, Row] = {"tagged": {"TAGS": "A", "price": "1"}, "dear": {"TAGS": "B", "price": "100"}}
    lines = [message("orders", body, properties.get(body)) for body in FIRST]
    lines += [message("closed", "behind a door"), message("narrow", "too far", queue_id=3)]
    lines.append(message("popped", "held"))
    put(root, lines, SIZES, *as_broker(version))
    sent(root, "later", version, "--delay-level", "18")
    sent(root, "timed", version, "--deliver-at", str((int(time.time()) + 3600) * 1000))
    for body in ("open", "rolled back"):
        sent(root, body, version, "--transaction", "half", "--property", "PGROUP=payers")
    rollback = ("--transaction", "rollback", "--half", "key-of-rolled-back")
    mqstore("put", root, *rollback, *settings(SIZES))


def traced(root: Path, body: str, *options: str) -> Row:
    """The trace of a message, by its unique key."""
    key = f"key-of-{body}".replace(" ", "-")
    said = mqstore("trace", root, key, "--format", "ndjson", *options, *settings(SIZES))
    [found] = rows(said)
    return found


def verdict(root: Path, body: str, group: str, *options: str) -> str:
    """The verdict on a group."""
    [found] = traced(root, body, "--group", group, *options)["groups"]
    text: str = found["verdict"]
    return text


def got(running: Broker, **counts: int) -> None:
    """Wait until each group has got so many messages."""
    deadline = time.monotonic() + 90
    while True:
        received = [row["group"] for row in running.received(sum(counts.values()), seconds=5)]
        if all(received.count(group) >= count for group, count in counts.items()):
            return
        assert time.monotonic() < deadline, f"{counts} wanted, received {received}"


def play(running: Broker) -> None:
    """Groups that read all, some, give back, stand still; then closed doors and an offset ahead."""
    everything = {"orders": "*"}
    running.consume(everything, group="reader")
    running.consume({"orders": "A"}, group="tags")
    running.consume({"orders": "price > 50"}, sql=True, group="sql")
    running.consume(everything, group="refuser", refuse=["refused"])
    running.consume(everything, group="once", refuse=["refused"], retries=0)
    running.consume(everything, group="shut")
    got(running, reader=5, tags=1, sql=1, refuser=5, once=5, shut=5)
    time.sleep(2)  # what was given back is on its way
    for group in ("reader", "tags", "sql", "refuser", "once", "shut"):
        running.leave(group)
    after = [{"topic": "orders", "body": body, "properties": {"UNIQ_KEY": f"key-of-{body}"}} for body in AFTER]
    assert {*running.produce(after)} == {"SEND_OK"}
    running.serve(group="shut", enabled=False)
    running.serve(topic="closed", perm=2)
    running.serve(topic="narrow", queues=1)
    running.commit("ahead", "orders", 0, 1000)


@pytest.mark.parametrize("version", VERSIONS)
def test_causes_that_a_broker_played(version: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    first_messages(root, version)
    with broker(version, root, SIZES, **QUIET) as running:
        play(running)
        live = traced(root, "plain", "--group", "reader")
        assert live["next_start"]["fate"] == "running"
        running.stop()
    assert verdict(root, "plain", "reader") == "delivered_and_passed"
    after = next(body for body in AFTER if traced(root, body)["queue_id"] == 0)
    elsewhere = next(body for body in AFTER if traced(root, body)["queue_id"] == 1)
    assert verdict(root, after, "reader") == "waiting"
    assert verdict(root, elsewhere, "reader") == "unknown"
    assert verdict(root, "plain", "nobody") == "unknown"
    assert verdict(root, "plain", "tags", "--tags", "A") == "filtered"
    assert verdict(root, "tagged", "tags", "--tags", "A") == "delivered_and_passed"
    assert verdict(root, "tagged", "sql") == "filtered"
    assert verdict(root, "dear", "sql") == "delivered_and_passed"
    assert verdict(root, "refused", "refuser") == "in_retry_or_dlq"
    assert "dead letter" in traced(root, "refused", "--group", "once")["groups"][0]["reason"]
    assert verdict(root, after, "shut") == "not_served"
    assert verdict(root, "behind a door", "reader") == "not_served"
    assert verdict(root, "too far", "reader") == "not_served"
    assert verdict(root, "plain", "ahead") == "offset_moved"
    for body, wanted in {
        "later": "not_yet_due",
        "timed": "not_yet_due",
        "open": "half_or_rolled_back",
        "rolled back": "half_or_rolled_back",
    }.items():
        assert traced(root, body)["for_all"]["verdict"] == wanted, body
    check_a_lost_queue(version, root, after)


def check_a_lost_queue(version: str, root: Path, body: str) -> None:
    """A queue that was deleted is not made again by a start (B2)."""
    shutil.rmtree(root / "consumequeue" / "orders" / "0")
    with broker(version, root, SIZES) as running:
        running.stop()
    assert verdict(root, body, "reader") == "not_dispatched"


@pytest.mark.parametrize("version", VERSIONS)
def test_an_offset_that_was_set_back(version: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    first_messages(root, version)
    with broker(version, root, SIZES, **QUIET) as running:
        running.commit("reader", "orders", 0, 4)
        running.commit("reader", "orders", 0, 1)
        running.kill()
    assert verdict(root, "dear", "reader") == "offset_moved"
    assert verdict(root, "plain", "reader") == "delivered_and_passed"
    assert verdict(root, "last", "reader") == "waiting"
    assert traced(root, "last")["next_start"]["fate"] == "kept"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kept", [False, True], ids=["check points", "kvStore"])
def test_what_a_consumer_holds_by_pop(version: str, kept: bool, tmp_path: Path) -> None:
    """By records of the revive topic, or by a database, whose last rows are in its write-ahead log alone."""
    root = tmp_path / "store"
    first_messages(root, version)
    mode = {"topic": "popped", "consumerGroup": "popper", "mode": "POP", "popShareQueueNum": 0}
    modes = {"messageRequestModeMap": {"popped": {"popper": mode}}}
    (root / "config" / "messageRequestMode.json").write_text(json.dumps(modes))
    names = ("popConsumerKVServiceInit", "popConsumerKVServiceEnable")
    with broker(version, root, SIZES, **QUIET, **dict.fromkeys(names, str(kept).lower())) as running:
        running.consume({"popped": "*"}, group="popper", pop=True, hold=True)
        got(running, popper=1)
        if not kept:
            running.stop()
    found = traced(root, "held", "--group", "popper")["groups"][0]
    assert found["verdict"] == "pop_invisible"
    assert kept == ("kvStore" in {fact["where"] for fact in found["evidence"]})
    until = found["until_timestamp"]
    late = traced(root, "held", "--group", "popper", "--now", str(until + 1))["groups"][0]
    assert late["verdict"] == "pop_invisible" and "no consumer acknowledged" in late["reason"]
