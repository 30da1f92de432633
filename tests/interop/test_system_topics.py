"""Recovered system topics in the hands of whole brokers: their services go on to the end.

A service that reads a system topic can stop for ever at a record that it does not understand. One
record of each topic is broken here, the store recovered, a broker started, stopped and started
again: every other message is delivered once and in time, and progress is at the end.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqstore.formats import pop
from mqstore.formats.tombstone import LOST
from mqstore.store.broker.system_topics import SCHEDULE_TOPIC, TIMER_TOPIC
from mqstore.store.broker.topics import loads
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.checkpoint import read_timer_check
from mqstore.store.search.store import StoreReader

from .brokers import ALL_VERSIONS, NAME, PATIENCE_SECONDS, VERSIONS_OF_5, Broker
from .served import Row, as_broker, mqstore, put, rows, settings
from .test_brokers import LEVEL_MS, SIZES, assert_on_time, broker, message, sent

pytestmark = [pytest.mark.interop, pytest.mark.slow]

of_all = pytest.mark.parametrize("version", ALL_VERSIONS)
of_5 = pytest.mark.parametrize("version", VERSIONS_OF_5)

OFTEN = {"transactionCheckInterval": 1_000, "transactionTimeOut": 1_000}
HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
#: What a service does once more after its last message, and what it writes now and then.
QUIET_SECONDS = 4


def garbage(record: bytearray) -> None:
    """Noise behind the first third, which has the positions."""
    kept = len(record) // 3
    record[kept:] = bytes(byte ^ 0x5A for byte in record[kept:])


def zeros(record: bytearray) -> None:
    """Nothing of it reached the disk."""
    record[:] = bytes(len(record))


#: Long enough for a recovery to come before.
WAITS_MS = (25_000, 30_000)
_NO_BLANKS = str.maketrans("", "", " \t\r\n")


def parked(topic: str, queue_id: int, body: str, **properties: str) -> Row:
    """A message of `orders` as a broker stores it where it waits."""
    real_place = {"REAL_TOPIC": "orders", "REAL_QID": "1"}
    return message(topic, body, real_place | properties, queue_id)


Corrupt = Callable[[bytearray], None]
spoilt = pytest.mark.parametrize("spoil", [garbage, zeros])


def recovered(root: Path, spoil: Corrupt, *lost: Row) -> None:
    """Kill the store, break records of it, recover it."""
    for row in lost:
        path = min((root / "commitlog").iterdir())
        data = bytearray(path.read_bytes())
        place = slice(row["physical_offset"], row["physical_offset"] + row["total_size"])
        record = data[place]
        spoil(record)
        data[place] = record
        path.write_bytes(data)
    (root / "abort").touch()
    options = ["--apply", "--yes", "--format", "json", *settings(SIZES)]
    plan = json.loads(mqstore("recover", root, *options, codes=(0, 1)))
    assert plan["summary"]["lost_by_plan"] <= len(lost)


def delivered(root: Path) -> Counter[str]:
    """Bodies that consumers of `orders` can get, without tombstones."""
    got = rows(mqstore("get", root, "--topic", "orders", "--format", "ndjson", *settings(SIZES)))
    return Counter(row["body"] for row in got if row["type"] == "message" and LOST not in row["properties"])


def ends(root: Path, topic: str) -> dict[int, int]:
    """Queue → max offset of a topic's queues."""
    with StoreReader(root, BrokerConfig({k: str(v) for k, v in SIZES.items()})) as store:
        return {q.queue_id: q.max_offset for q in store.queue_summaries if q.topic == topic}


def restarted(version: str, root: Path, **settings: Any) -> None:
    """A second life of the broker, long enough for what it would do once more."""
    with broker(version, root, SIZES, **settings) as running:
        time.sleep(QUIET_SECONDS)
        running.stop()


def real(got: list[Row]) -> list[Row]:
    """Without tombstones and what was there at once."""
    return [m for m in got if LOST not in m["properties"] and m["body"] != "at once"]


def until(running: Broker, count: int) -> list[Row]:
    """What consumers got: as soon as there are so many real messages, or the time is over."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        got = real(running.received(0))
        if len(got) >= count or time.monotonic() > deadline:
            return got
        time.sleep(0.2)


@of_all
@spoilt
def test_delay_levels_go_on(version: str, spoil: Corrupt, tmp_path: Path) -> None:
    root, now = tmp_path / "store", int(time.time() * 1000)
    put(root, [message("orders", "at once")], SIZES, *as_broker(version))
    due: dict[str, int] = {}
    lost = []
    for level, wait in LEVEL_MS.items():
        bodies = [f"level {level}, {number}" for number in range(4)]
        lines = [parked(SCHEDULE_TOPIC, level - 1, body, DELAY=str(level)) for body in bodies]
        stored = put(root, lines, SIZES, *as_broker(version))
        lost.append(stored[1])
        due |= {body: now + wait for body in bodies if body != bodies[1]}
    recovered(root, spoil, *lost)
    with broker(version, root, SIZES) as running:
        running.consume({"orders": "*"})
        assert_on_time(until(running, len(due)), due, running.started_ms)
        running.stop()
    restarted(version, root)
    assert delivered(root) == Counter([*due, "at once"])
    offsets = (root / "config" / "delayOffset.json").read_text()
    table = {int(level): int(offset) for level, offset in re.findall(r"(\d+):(\d+)", offsets)}
    for queue_id, end in ends(root, SCHEDULE_TOPIC).items():
        assert table[queue_id + 1] == end


@of_5
@spoilt
def test_timer_goes_on(version: str, spoil: Corrupt, tmp_path: Path) -> None:
    root, now = tmp_path / "store", int(time.time()) * 1000
    put(root, [message("orders", "at once")], SIZES, *as_broker(version))
    due: dict[str, int] = {}
    lost = []
    for wait in WAITS_MS:
        bodies = [f"after {wait} ms, {number}" for number in range(3)]
        out_ms = str(now + wait)
        lines = [parked(TIMER_TOPIC, 0, body, TIMER_OUT_MS=out_ms) for body in bodies]
        stored = put(root, lines, SIZES, *as_broker(version))
        lost.append(stored[1])
        due |= {body: now + wait for body in bodies if body != bodies[1]}
    recovered(root, spoil, *lost)
    with broker(version, root, SIZES) as running:
        running.consume({"orders": "*"})
        assert_on_time(until(running, len(due)), due, running.started_ms)
        running.stop()
    restarted(version, root)
    assert delivered(root) == Counter([*due, "at once"])
    check = read_timer_check(root / "config" / "timercheck")
    assert check is not None
    assert check.last_timer_queue_offset == ends(root, TIMER_TOPIC)[0]


@of_all
@spoilt
@pytest.mark.parametrize("topic", [HALF, OP])
def test_transactions_go_on(version: str, spoil: Corrupt, topic: str, tmp_path: Path) -> None:
    """The record of a transaction is lost: the half message, or what says that it has ended."""
    root = tmp_path / "store"
    put(root, [message("orders", "at once")], SIZES, *as_broker(version))
    halves = {
        body: sent(root, body, version, "--transaction", "half", "--property", "PGROUP=payers")
        for body in ("committed", "rolled back", "open", "lost")
    }
    ended = [("commit", "committed"), ("rollback", "rolled back")]
    for how, body in ended:
        key = f"key-of-{body}".replace(" ", "-")
        mqstore("put", root, "--transaction", how, "--half", key, *settings(SIZES))
    recovered(root, spoil, halves["lost"] if topic == HALF else _op_of(root, 0))
    answers = {"open": "COMMIT_MESSAGE", "lost": "COMMIT_MESSAGE", "rolled back": "ROLLBACK_MESSAGE"}
    wanted = {"at once", "committed", "open"} | ({"lost"} if topic == OP else set())
    with broker(version, root, SIZES, **OFTEN) as running:
        running.consume({"orders": "*"})
        running.decide("payers", "orders", answers)
        got = until(running, len(wanted) - 1)
        assert {row["body"] for row in got} == wanted - {"at once"}
        time.sleep(QUIET_SECONDS)
        asked = {row["body"] for row in running.checked(0)}
        assert asked <= wanted - {"at once", "committed"}, "asked for what has ended"
        running.stop()
    restarted(version, root, **OFTEN)
    found = delivered(root)
    assert found.keys() == wanted
    # a broker notes answers in batches: what it asks for again is committed again
    assert found["committed"] == found["at once"] == 1, "delivered twice"
    offsets = (root / "config" / "consumerOffset.json").read_text()
    for system in (HALF, OP):
        done = re.search(rf'"{system}@CID_RMQ_SYS_TRANS":\{{0:(\d+)', offsets.translate(_NO_BLANKS))
        assert done and int(done[1]) == ends(root, system)[0], system


def _op_of(root: Path, offset: int) -> Row:
    """The record of an operation."""
    words = ("--topic", OP, "--queue", "0", "--offset", str(offset), "--format", "ndjson")
    got = rows(mqstore("get", root, *words, *settings(SIZES)))
    return next(row for row in got if row["type"] == "message" and row["queue_offset"] == offset)


@of_all
@spoilt
def test_retries_go_on(version: str, spoil: Corrupt, tmp_path: Path) -> None:
    root = tmp_path / "store"
    lines = [message("orders", "at once")]
    lines += [message("%RETRY%mqstore-interop", f"again {n}", {"RETRY_TOPIC": "orders"}) for n in range(6)]
    stored = put(root, lines, SIZES, *as_broker(version))
    recovered(root, spoil, stored[3])
    wanted = {f"again {n}" for n in range(6) if n != 2}
    with broker(version, root, SIZES) as running:
        running.consume({"orders": "*"})
        got = until(running, len(wanted))
        time.sleep(QUIET_SECONDS)
        assert Counter(row["body"] for row in real(running.received(0))) == Counter(wanted), got
        running.stop()


REVIVE, POPPERS = pop.REVIVE_TOPIC + NAME, "poppers"
REVIVE_QUEUE = 3
_INVISIBLE_MS = 1_000


def revive_line(tag: str, number: int, pop_ms: int) -> Row:
    """What a broker notes of message `number` of `orders`, which was given to a consumer."""
    place: Row = {"t": "orders", "c": POPPERS, "q": 1, "so": number, "pt": pop_ms, "bn": NAME}
    own: dict[str, Row] = {
        pop.CHECK_POINT_TAG: {"it": _INVISIBLE_MS, "n": 1, "bm": 0, "d": []},
        pop.ACK_TAG: {"ao": number},
    }
    properties = {
        "TAGS": tag,
        "UNIQ_KEY": f"orders@1@{number}@{POPPERS}@{pop_ms}@{NAME}@{tag}",
        "TIMER_DELIVER_MS": str(pop_ms + _INVISIBLE_MS),  # the service's clock
    }
    return message(REVIVE, json.dumps(place | own[tag]), properties, REVIVE_QUEUE)


def came_back(root: Path) -> Counter[str]:
    """Bodies of the messages that the broker gives to the group again."""
    topic, _ = pop.retry_topics("orders", POPPERS)
    with StoreReader(root, BrokerConfig({k: str(v) for k, v in SIZES.items()})) as store:
        if topic not in {queue.topic for queue in store.queue_summaries}:
            return Counter()
    got = rows(mqstore("get", root, "--topic", topic, "--format", "ndjson", *settings(SIZES)))
    return Counter(row["body"] for row in got if row["type"] == "message")


def revived(version: str, root: Path, count: int) -> Counter[str]:
    """Let a broker bring messages back: so many, and what it would bring too many."""
    with broker(version, root, SIZES) as running:
        deadline = time.monotonic() + 60
        while came_back(root).total() < count and time.monotonic() < deadline:
            time.sleep(0.5)
        time.sleep(QUIET_SECONDS)
        running.stop()
    return came_back(root)


@of_5
@spoilt
@pytest.mark.parametrize("tag", [pop.CHECK_POINT_TAG, pop.ACK_TAG])
def test_pop_goes_on(version: str, spoil: Corrupt, tag: str, tmp_path: Path) -> None:
    """Popped and not acknowledged: comes back. A lost check point forgets its message, a lost
    acknowledgement is none.
    """
    root, bodies = tmp_path / "store", [f"popped {number}" for number in range(7)]
    put(root, [message("orders", body, {}, 1) for body in bodies], SIZES, *as_broker(version))
    given_ms = int(time.time() * 1000)  # no check point is older than its message
    noted = [
        *(revive_line(pop.CHECK_POINT_TAG, number, given_ms) for number in range(6)),
        *(revive_line(pop.ACK_TAG, number, given_ms) for number in (4, 5)),
    ]
    stored = put(root, noted, SIZES, *as_broker(version))
    recovered(root, spoil, stored[2 if tag == pop.CHECK_POINT_TAG else 6])
    numbers = {0, 1, 3} if tag == pop.CHECK_POINT_TAG else {0, 1, 2, 3, 4}
    wanted = Counter(bodies[number] for number in numbers)
    assert revived(version, root, wanted.total()) == wanted
    put(root, [revive_line(pop.CHECK_POINT_TAG, 6, given_ms)], SIZES)
    wanted[bodies[6]] = 1
    assert revived(version, root, wanted.total()) == wanted


@of_5
def test_the_position_in_a_revive_queue_is_that_of_the_last_record_read(version: str, tmp_path: Path) -> None:
    """A broker goes on with the next one, and in the end it has the newest (`steps_to_next`)."""
    root, bodies = tmp_path / "store", [f"popped {number}" for number in range(4)]
    put(root, [message("orders", body, {}, 1) for body in bodies], SIZES, *as_broker(version))
    given_ms = int(time.time() * 1000)
    put(root, [revive_line(pop.CHECK_POINT_TAG, number, given_ms) for number in range(4)], SIZES)
    path, key = root / "config" / "consumerOffset.json", f"{REVIVE}@{pop.REVIVE_GROUP}"
    path.write_text(json.dumps({"offsetTable": {key: {str(REVIVE_QUEUE): 1}}}))
    assert revived(version, root, 2) == Counter(bodies[2:])
    assert loads(path.read_text())["offsetTable"][key][REVIVE_QUEUE] == 3 == ends(root, REVIVE)[REVIVE_QUEUE] - 1
