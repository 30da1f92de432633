"""A real broker, started on what `put` wrote, delivers each message to real clients at its time.

`put` fires nothing: what it was given waits in the store until there is a broker.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mqstore.store.broker.system_topics import parse_levels
from mqstore.store.errors import InvalidInput

from .brokers import VERSIONS, Broker, missing
from .served import Row, as_broker, mqstore, put, rows, settings

pytestmark = pytest.mark.interop

SIZES = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2000,
    "mappedFileSizeTimerLog": 1 << 20,
}
#: The levels that a broker has unless told otherwise: 1 s, 5 s, 10 s.
LEVEL_MS = {1: 1_000, 2: 5_000, 3: 10_000}
TIMER_TICK_MS = 1_000
TIMES_MS = (9_000, 12_000, 12_000, 15_000, 20_000)
#: A slow machine may deliver late, but what is delivered so late was forgotten.
LATE_MS = 15_000


@contextmanager
def broker(version: str, root: Path, config: Row, **settings: Any) -> Iterator[Broker]:
    """A broker that is killed at the end; skips where there is none."""
    if why_not := missing(version):
        pytest.skip(f"no broker {version} here: {why_not}")
    with Broker(version, root, config, settings) as running:
        yield running


def message(topic: str, body: str, properties: Row | None = None, queue_id: int = 0) -> Row:
    """A line of `put --from -`; the unique key tells who it is when it comes out."""
    kept = {"UNIQ_KEY": f"key-of-{body}".replace(" ", "-")} | (properties or {})
    return {"type": "message", "topic": topic, "queue_id": queue_id, "body": body, "properties": kept}


def sent(root: Path, body: str, version: str, *options: str) -> Row:
    """One message as `put` makes it of what a producer asks for; the answer."""
    common = ["--property", f"UNIQ_KEY=key-of-{body}".replace(" ", "-"), "--queue", "1"]
    words = ["put", str(root), "orders", body, *common, *options, "--format", "ndjson"]
    return rows(mqstore(*words, *settings(SIZES), *as_broker(version)))[0]


def visible(root: Path) -> list[str]:
    """Bodies that a consumer of `orders` can get."""
    got = mqstore("get", root, "--topic", "orders", "--format", "ndjson", *settings(SIZES))
    return [row["body"] for row in rows(got) if row["type"] == "message"]


def assert_on_time(got: list[Row], due_ms: dict[str, int], started_ms: int) -> None:
    """Each once, none before its time, none forgotten."""
    assert sorted(row["body"] for row in got) == sorted(due_ms)
    for row in got:
        due = due_ms[row["body"]]
        assert row["store_timestamp"] >= due, f"{row['body']}: {due - row['store_timestamp']} early"
        late = row["store_timestamp"] - max(due, started_ms)
        assert late < LATE_MS, f"{row['body']}: {late} ms late"
        assert row["topic"] == "orders" and row["queue_id"] == 1
        assert row["properties"]["UNIQ_KEY"] == f"key-of-{row['body']}".replace(" ", "-")


@pytest.mark.slow
@pytest.mark.parametrize("version", [VERSIONS[0], *(pytest.param(v, marks=pytest.mark.slow) for v in VERSIONS[1:])])
def test_delay_levels_come_at_their_time(version: str, tmp_path: Path) -> None:
    root, now = tmp_path / "store", int(time.time() * 1000)
    put(root, [message("orders", "at once")], SIZES, *as_broker(version))
    for level in LEVEL_MS:
        assert sent(root, f"level {level}", version, "--delay-level", str(level))["topic"] != "orders"
    assert visible(root) == ["at once"]
    with broker(version, root, SIZES) as running:
        running.consume({"orders": "*"})
        got = running.received(len(LEVEL_MS) + 1)
        due = {f"level {level}": now + wait for level, wait in LEVEL_MS.items()}
        assert_on_time([m for m in got if m["body"] != "at once"], due, running.started_ms)


@pytest.mark.slow
@pytest.mark.parametrize("levels", ["", "1s  5s", "1s 5x"])
@pytest.mark.parametrize("version", VERSIONS)
def test_delay_levels_with_which_no_broker_starts(version: str, levels: str, tmp_path: Path) -> None:
    config = SIZES | {"messageDelayLevel": levels}
    with pytest.raises(RuntimeError, match="does not load the store"), broker(version, tmp_path / "store", config):
        pass
    with pytest.raises(InvalidInput):
        parse_levels(levels)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_timer_messages_come_at_their_time(version: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    now = int(time.time()) * 1000
    due = {f"after {n}: {wait} ms": now + wait for n, wait in enumerate(TIMES_MS)}
    put(root, [message("orders", "at once")], SIZES, *as_broker(version))
    for body, out in due.items():
        # a broker takes a time that is a whole tick for the tick before
        deliver_ms = str(out + TIMER_TICK_MS)
        assert sent(root, body, version, "--deliver-at", deliver_ms)["topic"] != "orders"
    assert visible(root) == ["at once"]
    with broker(version, root, SIZES) as running:
        running.consume({"orders": "*"})
        got = running.received(len(due) + 1)
        assert_on_time([m for m in got if m["body"] != "at once"], due, running.started_ms)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_half_messages_are_asked_for(version: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    put(root, [message("orders", "at once")], SIZES, *as_broker(version))
    for body in ("kept", "dropped"):
        half = ("--transaction", "half", "--property", "PGROUP=payers")
        assert sent(root, body, version, *half)["topic"] == "RMQ_SYS_TRANS_HALF_TOPIC"
    assert visible(root) == ["at once"]
    often = {"transactionCheckInterval": 1_000, "transactionTimeOut": 1_000}
    answers = {"kept": "COMMIT_MESSAGE", "dropped": "ROLLBACK_MESSAGE"}
    with broker(version, root, SIZES, **often) as running:
        running.consume({"orders": "*"})
        running.decide("payers", "orders", answers)
        got = running.received(2)
        asked = {row["body"]: row["properties"] for row in running.checked(2)}
        assert asked.keys() == answers.keys()
        kept = next(row for row in got if row["body"] == "kept")
        assert (kept["topic"], kept["queue_id"]) == ("orders", 1)
        # asked each second, but answers are noted in batches of three: it may be asked again
        bodies = {row["body"] for row in running.received(9, seconds=3)}
        assert bodies == {"at once", "kept"}, "rolled back, but delivered"


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_consumers_select_by_sql(version: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    lines = [message("orders", f"m{n}", {"TAGS": f"t{n % 3}", "price": str(n)}, n % 4) for n in range(30)]
    put(root, lines, SIZES, *as_broker(version))
    with broker(version, root, SIZES) as running:
        running.consume({"orders": "price BETWEEN 7 AND 12 AND TAGS <> 't0'"}, sql=True)
        wanted = {f"m{n}" for n in range(7, 13) if n % 3}
        got = running.received(len(wanted))
        assert {row["body"] for row in got} == wanted
        assert running.produce([{"topic": "orders", "body": "sent"}]) == ["SEND_OK"]
