"""Delay levels, timers and compression: what a producer asks for, as real brokers store it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mqstore.formats.message_properties import format_properties, parse
from mqstore.formats.sys_flag import SysFlag
from mqstore.store.broker.profiles import profile_of, writer_profile
from mqstore.store.broker.snapshot import QueueId
from mqstore.store.broker.system_topics import SCHEDULE_TOPIC, TIMER_TOPIC
from mqstore.store.broker.topics import read_json
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.errors import InvalidInput, LimitExceeded
from mqstore.store.log.message import unpack
from mqstore.store.put.new_message import NewMessage, compressed
from mqstore.store.put.producer import ProducerOptions, as_stored, delayed, timed
from mqstore.store.put.writer import StoreWriter, WriterOptions
from mqstore.store.search.store import StoreReader
from mqstore.store.start.config import config_start

from ...stores import messages, truth
from ..choices import stores_where

NOW_MS = 1_795_300_000_123
VERSIONS = ("4.3", "4.9", "5.1", "5.3", "5.4", "5.5", "5.5.1")
Record = dict[str, Any]


def original(record: Record, *made: str) -> NewMessage:
    """The message that a producer sent, from the record that the broker made of it."""
    properties = {k: v for k, v in record["properties"].items() if k not in made}
    return NewMessage(
        record["properties"]["REAL_TOPIC"].encode(),
        b"body",
        queue_id=int(record["properties"]["REAL_QID"]),
        properties=format_properties(properties),
    )


@pytest.mark.parametrize("name", stores_where(lambda t: "clean" in t["name"]))
def test_delay_levels_of_real_stores(name: str) -> None:
    profile = writer_profile(truth(name)["broker_version"])
    scheduled = [m for m in messages(name) if m["topic"] == SCHEDULE_TOPIC]
    for record in scheduled:
        level = int(record["properties"]["DELAY"])
        sent = original(record, "DELAY", "REAL_TOPIC", "REAL_QID")
        made = delayed(sent, level, 18, profile)
        assert (made.topic.decode(), made.queue_id) == (SCHEDULE_TOPIC, record["queue_id"])
        assert parse(made.properties) == record["properties"]


@pytest.mark.parametrize("name", stores_where(lambda t: "timer-clean" in t["name"]))
def test_timers_of_real_stores(name: str) -> None:
    """The time in TIMER_OUT_MS follows from the one that was asked for."""
    profile = writer_profile(truth(name)["broker_version"])
    checked = 0
    for record in messages(name):
        properties = record["properties"]
        if record["topic"] != TIMER_TOPIC or "TIMER_DELIVER_MS" not in properties:
            continue
        if "TIMER_ROLL_TIMES" in properties:
            continue
        sent = original(record, "TIMER_OUT_MS", "REAL_TOPIC", "REAL_QID")
        deliver_ms = int(properties["TIMER_DELIVER_MS"])
        made = timed(sent, deliver_ms, deliver_ms - 1, profile, max_delay_seconds=10**9)
        assert (made.topic.decode(), made.queue_id) == (TIMER_TOPIC, 0)
        assert parse(made.properties) == properties
        checked += 1
    assert checked


MESSAGE = NewMessage(b"orders", b"hello", queue_id=2, properties=format_properties({"KEYS": "k"}))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_level_above_the_highest(version: str) -> None:
    made = delayed(MESSAGE, 99, 18, writer_profile(version))
    assert made.queue_id == 17
    assert parse(made.properties) == {"KEYS": "k", "DELAY": "18", "REAL_TOPIC": "orders", "REAL_QID": "2"}


def test_what_cannot_be_delayed() -> None:
    profile = writer_profile("5.3")
    with pytest.raises(InvalidInput, match="begin with 1"):
        delayed(MESSAGE, 0, 18, profile)
    half = replace(MESSAGE, sys_flag=int(SysFlag.PREPARED))
    with pytest.raises(InvalidInput, match="half message"):
        delayed(half, 1, 18, profile)
    with pytest.raises(InvalidInput, match=r"4\.9 have no timers"):
        timed(MESSAGE, NOW_MS + 5000, NOW_MS, writer_profile("4.9"))
    with pytest.raises(LimitExceeded, match="timerMaxDelaySec 259200"):
        timed(MESSAGE, NOW_MS + 4 * 86_400_000, NOW_MS, profile)


@pytest.mark.parametrize(
    ("deliver_ms", "out_ms"), [(NOW_MS + 1, 1_795_300_000_000), (1_795_300_005_000, 1_795_300_004_000)]
)
def test_the_tick_of_a_timer(deliver_ms: int, out_ms: int) -> None:
    made = timed(MESSAGE, deliver_ms, NOW_MS, writer_profile("5.3"))
    assert parse(made.properties)["TIMER_OUT_MS"] == str(out_ms)


def test_a_time_that_is_past_goes_to_the_topic_at_once() -> None:
    made = timed(MESSAGE, NOW_MS - 1, NOW_MS, writer_profile("5.3"))
    assert (made.topic, made.queue_id) == (b"orders", 2)
    assert "TIMER_OUT_MS" not in parse(made.properties)


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
def test_compression(kind: str) -> None:
    message = replace(MESSAGE, body=b"x" * 5000)
    made = compressed(message, kind, writer_profile("5.3"))
    assert len(made.body) < 200
    body = unpack(made.body, made.sys_flag, 10_000)
    assert (body.data, body.compression) == (b"x" * 5000, kind)
    assert compressed(MESSAGE, kind, writer_profile("5.3")) is MESSAGE
    with pytest.raises(InvalidInput, match="compressed already"):
        compressed(made, kind, writer_profile("5.3"))


def test_compression_of_4() -> None:
    message = replace(MESSAGE, body=b"x" * 5000)
    assert compressed(message, "zlib", writer_profile("4.9")).sys_flag == int(SysFlag.COMPRESSED)
    with pytest.raises(InvalidInput, match="zlib only"):
        compressed(message, "zstd", writer_profile("4.9"))


@pytest.mark.parametrize(
    "asked", [ProducerOptions(delay_level=3), ProducerOptions(deliver_ms=NOW_MS + 60_000)], ids=["level", "time"]
)
def test_the_real_topic_is_made_known(asked: ProducerOptions, tmp_path: Path) -> None:
    """A broker delivers only to topics that it knows; the delay topic has a queue for each level."""
    root = tmp_path / "store"
    options = WriterOptions(as_broker="5.3")
    with StoreWriter.open(root, BrokerConfig(), options, clock=lambda: NOW_MS) as writer:
        made = as_stored(MESSAGE, asked, writer)
        stored = writer.append(made)
        assert writer.topics is not None
    assert writer.topics.queues("orders") == 4
    assert writer.topics.queues(SCHEDULE_TOPIC) == (18 if asked.delay_level else None)
    with StoreReader(root) as store:
        assert store.message_at(stored.physical_offset).properties["REAL_TOPIC"] == "orders"
        with store.queues.open(stored.topic, stored.queue_id) as queue:
            unit = queue.unit(0)
        assert unit is not None
        assert unit.tags_code == (NOW_MS + 10_000 if asked.delay_level else 0)


def test_delay_levels_that_begin_beside_the_files_of_a_broker_are_noted(tmp_path: Path) -> None:
    """Else the note counts as lost, and the levels as such that begin again; one that is lost is not made up."""
    note, others = (tmp_path / "config" / name for name in ("delayOffset.json", "consumerOffset.json"))

    def put(level: int | None) -> None:
        with StoreWriter.open(tmp_path, BrokerConfig(), WriterOptions(as_broker="5.3")) as writer:
            writer.append(as_stored(MESSAGE, ProducerOptions(delay_level=level), writer))

    put(None)
    others.write_text('{"offsetTable":{}}')
    put(3)
    put(4)
    assert read_json(note) == {"offsetTable": {3: 0}}
    with StoreReader(tmp_path) as store:
        ends = {QueueId(*queue[:2]): (0, 1) for queue in store.queues}
        assert not config_start(store.layout, profile_of("5.3"), ends).loses
    note.unlink()
    put(3)
    assert not note.exists()


def test_properties_ask_as_options_do(tmp_path: Path) -> None:
    asked = {"DELAY": "2"}, {"TIMER_DELAY_SEC": "60"}, {"TIMER_DELAY_MS": "60000"}
    with StoreWriter.open(tmp_path / "store", clock=lambda: NOW_MS) as writer:
        topics = [
            as_stored(replace(MESSAGE, properties=format_properties(p)), ProducerOptions(), writer).topic for p in asked
        ]
        assert topics == [SCHEDULE_TOPIC.encode(), TIMER_TOPIC.encode(), TIMER_TOPIC.encode()]
        both = replace(MESSAGE, properties=format_properties(asked[0]))
        with pytest.raises(InvalidInput, match="not both"):
            as_stored(both, ProducerOptions(deliver_ms=NOW_MS + 1), writer)
        for name, text in (("TIMER_DELAY_SEC", "soon"), ("DELAY", "x"), ("DELAY", "99999999999")):
            odd = replace(MESSAGE, properties=format_properties({name: text}))
            with pytest.raises(InvalidInput, match=f"{name} is not a number: {text}"):
                as_stored(odd, ProducerOptions(), writer)
        for text, level in (("+3", 3), ("03", 3), ("0", None), ("-1", None)):  # as Java reads them
            message = replace(MESSAGE, properties=format_properties({"DELAY": text}))
            queue = as_stored(message, ProducerOptions(), writer).queue_id
            assert queue == (MESSAGE.queue_id if level is None else level - 1)


def test_a_time_adds_what_a_broker_adds(tmp_path: Path) -> None:
    """HookUtils.handleScheduleMessage of 5.1.4 to 5.5.1: a delay stays one; DELAY below 1 asks for nothing."""
    topic, wheel = MESSAGE.topic, TIMER_TOPIC.encode()
    due, late = str(NOW_MS + 300_000), str(NOW_MS - 300_000)
    own = {"TIMER_OUT_MS": str((NOW_MS + 300_000) // 1000 * 1000), "REAL_TOPIC": "orders", "REAL_QID": "2"}
    given = ProducerOptions(deliver_ms=NOW_MS + 300_000)
    cases: list[tuple[dict[str, str], ProducerOptions, bytes, dict[str, str]]] = [
        ({"TIMER_DELAY_SEC": "300"}, ProducerOptions(), wheel, own),
        ({"TIMER_DELAY_MS": "300000"}, ProducerOptions(), wheel, own),
        ({"TIMER_DELIVER_MS": due}, ProducerOptions(), wheel, own),
        ({"TIMER_DELAY_SEC": "0"}, ProducerOptions(), topic, {}),
        ({"TIMER_DELIVER_MS": late}, ProducerOptions(), topic, {}),
        ({"DELAY": "0", "TIMER_DELAY_SEC": "300"}, ProducerOptions(), wheel, own),
        ({"DELAY": "-1"}, given, wheel, own | {"TIMER_DELIVER_MS": due}),
        ({"KEYS": "TIMER_DELIVER_MS"}, given, wheel, own | {"TIMER_DELIVER_MS": due}),
        ({"TIMER_DELAY_SEC": "300", "TIMER_DEL_UNIQKEY": "K"}, ProducerOptions(), wheel, own),
        ({"TIMER_DELAY_SEC": "300", "TIMER_OUT_MS": due}, ProducerOptions(), topic, {}),  # it has waited
    ]
    with StoreWriter.open(tmp_path / "store", clock=lambda: NOW_MS) as writer:
        for properties, asked, to, added in cases:
            made = as_stored(replace(MESSAGE, properties=format_properties(properties)), asked, writer)
            assert (made.topic, parse(made.properties)) == (to, properties | added)
        for name in ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_OUT_MS"):
            with pytest.raises(InvalidInput, match=f"--deliver-at or the property {name}, not both"):
                as_stored(replace(MESSAGE, properties=format_properties({name: due})), given, writer)
        cancels = {"TIMER_DELIVER_MS": late, "TIMER_DEL_UNIQKEY": "K"}
        with pytest.raises(InvalidInput, match="a broker refuses a late cancellation"):
            as_stored(replace(MESSAGE, properties=format_properties(cancels)), ProducerOptions(), writer)
