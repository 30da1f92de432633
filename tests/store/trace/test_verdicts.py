"""Each verdict of the closed list, of stores that our writer made or real brokers left."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mqstore.formats.message_properties import RETRY_PREFIX
from mqstore.store.broker.snapshot import QueueId
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.inspect.pop import PoppedMessage, PopState, pop, pop_records
from mqstore.store.search.store import StoreReader, silent
from mqstore.store.trace.answer import By, DeliveryVerdict, EventKind
from mqstore.store.trace.verdicts import AT_ONCE

from ... import tiered
from ...archives import extract
from ...cli.datadriven import run_here
from ...stores import messages, unpack
from ..inspect.test_pop import POP, RETRIES_LEFT_MS, cut
from .asked import asked, behind, config, k1, of_g, offsets, one, verdict, whole, without_unit


@pytest.mark.parametrize(
    ("offset", "wanted", "reason"),
    [
        (0, DeliveryVerdict.WAITING, "the group has 1 message to read before this one, 3 messages behind the end"),
        (1, DeliveryVerdict.WAITING, "the message is the next one that the group reads, 2 messages behind the end"),
        (2, DeliveryVerdict.PASSED, "the group's offset is past the message"),
        (3, DeliveryVerdict.PASSED, "the group's offset is past the message"),
        (4, DeliveryVerdict.OFFSET_MOVED, "the group's offset 4 is past the end of the queue, 3"),
    ],
)
def test_what_an_offset_says(root: Path, offset: int, wanted: DeliveryVerdict, reason: str) -> None:
    offsets(root, g={"orders": {0: offset}})
    assert of_g(root) == (wanted, reason)


def test_what_an_offset_says_of_pop_without_its_database(root: Path) -> None:
    """A consumer was given the message: kvStore would tell whether it has it still, and is missing."""
    offsets(root, g={"orders": {0: 2}})
    keeps = {"popConsumerKVServiceInit": "true"}
    assert of_g(root, config=keeps)[0] is DeliveryVerdict.PASSED
    mode = {"topic": "orders", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 0}
    config(root, "messageRequestMode.json", {"messageRequestModeMap": {"orders": {"g": mode}}})
    assert of_g(root)[0] is DeliveryVerdict.PASSED
    judged = whole(k1(root, group="g", config=keeps), "g").judgement
    assert judged.verdict is DeliveryVerdict.UNKNOWN
    assert judged.reason.startswith("a consumer got it (POP)")
    assert any(fact.fact.endswith("which is missing") for fact in judged.evidence)


def cut_last(database: Path) -> None:
    (log,) = database.glob("*.log")
    os.truncate(log, log.stat().st_size - 1)


def empty(database: Path) -> None:
    (log,) = database.glob("*.log")
    os.truncate(log, 0)


def zero(database: Path) -> None:
    (log,) = database.glob("*.log")
    log.write_bytes(bytes(99))


def lose(pattern: str, database: Path) -> None:
    next(database.glob(pattern)).unlink()


@pytest.mark.parametrize(
    ("damage", "fact"),
    [
        (partial(lose, "*.log"), "which is not whole: a write-ahead log of MANIFEST-"),
        (partial(lose, "MANIFEST-*"), "which is not whole: CURRENT names "),
        (cut_last, "is cut short at "),
        (empty, "which is empty"),
        (zero, "which is empty"),
    ],
)
def test_what_an_offset_says_of_pop_with_a_database_that_has_lost_something(
    damage: Callable[[Path], None], fact: str, root: Path, tmp_path: Path
) -> None:
    """What a consumer was given and has not acknowledged was perhaps in what is lost."""
    offsets(root, g={"orders": {0: 2}})
    mode = {"topic": "orders", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 0}
    config(root, "messageRequestMode.json", {"messageRequestModeMap": {"orders": {"g": mode}}})
    (unpack("5.5.0-rocksdb-killed", tmp_path / "other") / "config/consumerOffsets").rename(root / "kvStore")
    assert of_g(root)[0] is DeliveryVerdict.PASSED
    damage(root / "kvStore")
    judged = whole(k1(root, group="g"), "g").judgement
    assert judged.verdict is DeliveryVerdict.UNKNOWN
    assert any(fact in one.fact for one in judged.evidence)


@pytest.mark.parametrize("damage", [empty, zero])
def test_an_empty_database_of_pop_says_nothing_of_other_groups(
    damage: Callable[[Path], None], root: Path, tmp_path: Path
) -> None:
    """A broker with the option makes one that stays empty if nobody consumes by POP."""
    offsets(root, g={"orders": {0: 2}})
    (unpack("5.5.0-rocksdb-killed", tmp_path / "other") / "config/consumerOffsets").rename(root / "kvStore")
    damage(root / "kvStore")
    judged = whole(k1(root, group="g"), "g").judgement
    assert judged.verdict is DeliveryVerdict.PASSED
    assert not [fact for fact in judged.evidence if "POP" in fact.fact]
    assert not [fact for fact in whole(k1(root, group="h"), "h").judgement.evidence if "POP" in fact.fact]


def test_no_offset_says_nothing(root: Path) -> None:
    assert of_g(root)[0] is DeliveryVerdict.UNKNOWN
    offsets(root, g={"orders": {1: 7}}, h={"payments": {0: 1}})
    assert of_g(root)[0] is DeliveryVerdict.UNKNOWN
    found = k1(root)
    assert [row.group for row in found.groups] == ["g"]
    assert found.other_groups == 1


def test_an_offset_that_was_set_back(root: Path) -> None:
    offsets(root, "consumerOffset.json.bak", g={"orders": {0: 3}})
    offsets(root, g={"orders": {0: 1}})
    wanted = "the offset was set back from 3 to 1: the group gets the message again"
    assert of_g(root) == (DeliveryVerdict.OFFSET_MOVED, wanted)


def test_an_offset_that_went_over_more_than_can_be_read(root: Path) -> None:
    (root / "abort").touch()  # queues may be behind: an offset ahead of them proves nothing
    offsets(root, "consumerOffset.json.bak", g={"orders": {0: 1}})
    offsets(root, g={"orders": {0: 1 + AT_ONCE}})
    assert of_g(root)[0] is DeliveryVerdict.PASSED
    facts = [fact.fact for fact in whole(k1(root, group="g"), "g").judgement.evidence]
    assert any("between these two writes" in fact for fact in facts)
    offsets(root, g={"orders": {0: 2 + AT_ONCE}})
    found, reason = of_g(root)
    assert found is DeliveryVerdict.PASSED and "perhaps skipped" in reason
    assert "100,001 messages" in reason and not k1(root, group="g").groups[0].next_command


def test_an_offset_that_was_there_before_the_message(root: Path) -> None:
    offsets(root, g={"orders": {0: 2}})
    os.utime(root / "config" / "consumerOffset.json", (1, 1))
    row = whole(k1(root, group="g"), "g")  # one file's time may be that of anybody
    assert row.judgement.verdict is DeliveryVerdict.PASSED and not row.next_command
    assert "perhaps skipped" in row.judgement.reason
    assert any("1970-01-01T00:00:01" in each.fact for each in row.judgement.evidence)
    os.utime(root / "checkpoint", (100, 100))
    row = whole(k1(root, group="g"), "g")
    assert row.judgement.verdict is DeliveryVerdict.OFFSET_MOVED and "--reset" in row.next_command
    assert "before the message was stored" in row.judgement.reason
    assert "checkpoint" in {each.where for each in row.judgement.evidence}


def test_a_group_that_went_over_the_hole(root: Path) -> None:
    """Its offset is beyond: behind a hole it never got it, where the queue ends it may have."""
    offsets(root, g={"orders": {0: 3}})
    without_unit(root)
    assert of_g(root)[0] is DeliveryVerdict.NOT_DISPATCHED
    behind(root)
    assert of_g(root)[0] is DeliveryVerdict.PASSED


TOPIC: dict[str, Any] = {"topicName": "orders", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}


@pytest.mark.parametrize(
    ("name", "table", "reason"),
    [
        ("topics.json", {}, "the broker does not know the topic"),
        ("topics.json", {"orders": TOPIC | {"perm": 2}}, "nobody may read the topic"),
        ("topics.json", {"orders": TOPIC | {"readQueueNums": 0}}, "consumers do not see queue 0"),
    ],
)
def test_a_topic_that_is_not_served(root: Path, name: str, table: dict[str, Any], reason: str) -> None:
    offsets(root, g={"orders": {0: 0}})
    config(root, name, {"topicConfigTable": table})
    assert of_g(root) == (DeliveryVerdict.NOT_SERVED, reason)
    found = k1(root)
    assert found.for_all is not None and found.for_all.verdict is DeliveryVerdict.NOT_SERVED


def test_a_broker_that_nobody_may_read_from(root: Path) -> None:
    offsets(root, g={"orders": {0: 0}})
    for permission, expected in ((2, DeliveryVerdict.NOT_SERVED), (6, DeliveryVerdict.WAITING)):
        found = one(root, "k1", {"brokerPermission": str(permission)})
        assert whole(found, "g").judgement.verdict is expected
        assert not any("dump" in command for command in found.next_commands)


@pytest.mark.parametrize(
    "tables",
    [
        {"subscriptionGroupTable": {"g": {"groupName": "g", "consumeEnable": False}}},
        {"subscriptionGroupTable": {}, "forbiddenTable": {"g": {"orders": 1}}},
    ],
)
def test_a_group_that_is_not_served(root: Path, tables: dict[str, Any]) -> None:
    offsets(root, g={"orders": {0: 0}}, h={"orders": {0: 0}})
    config(root, "subscriptionGroup.json", tables)
    assert of_g(root)[0] is DeliveryVerdict.NOT_SERVED
    assert verdict(k1(root), "h") is DeliveryVerdict.WAITING


@pytest.mark.parametrize("name", ["5.3.3-pop"])
def test_what_consumers_have_by_pop(name: str, tmp_path: Path) -> None:
    """A broker that was killed: what is invisible, due, given back is what `inspect --pop` says."""
    root = unpack(name, tmp_path)
    ends = [message["physical_offset"] for message in messages(name)]
    cut(root, ends[len(ends) // 3])
    wanted = {
        PopState.INVISIBLE: DeliveryVerdict.INVISIBLE,
        PopState.DUE: DeliveryVerdict.INVISIBLE,
        PopState.RETURNED: DeliveryVerdict.RETRY,
    }
    with StoreReader(root) as store:
        rows = pop(store, 0, lambda _: None).rows
        now_ms = sorted(row.visible_timestamp for row in rows)[len(rows) // 2]
        rows = pop(store, now_ms, lambda _: None).rows
        by_state = {row.state: row for row in rows}
        assert {PopState.INVISIBLE, PopState.DUE} <= by_state.keys()
        for state, row in by_state.items():
            [found] = asked(store, str(row.position), By.POSITION, now_ms=now_ms, group=row.group)
            judged = whole(found, row.group).judgement
            assert judged.verdict is wanted[state], judged
            if judged.verdict is DeliveryVerdict.INVISIBLE:
                assert judged.until_timestamp == row.visible_timestamp
    with StoreReader(root, {"brokerClusterName": "other"}) as store:
        row = by_state[PopState.DUE]
        [found] = asked(store, str(row.position), By.POSITION, now_ms=now_ms, group=row.group)
    judged = whole(found, row.group).judgement
    assert (judged.verdict, judged.code, judged.until_timestamp) == (DeliveryVerdict.NEVER_DELIVERED, "I-190", None)


@pytest.mark.parametrize(("position", "group"), [(124, "g"), (372, "g_a")])
def test_a_retry_that_was_given_out_by_pop_is_not_consumed(position: int, group: str, tmp_path: Path) -> None:
    """The group's offset in its retry topic is past it; a real 5.5.1 writes it again, 30 s after its start."""
    extract(POP / "5.5.1-retries.tar.gz", tmp_path)
    with StoreReader(tmp_path) as store:
        [found] = asked(store, str(position), By.POSITION, now_ms=RETRIES_LEFT_MS, group=group)
    judged = whole(found, group).judgement
    assert judged.verdict is DeliveryVerdict.INVISIBLE, judged
    places = [event.topic for event in found.events if event.event is EventKind.POPPED and event.group == group]
    assert f"{RETRY_PREFIX}{group}+work" in places


def test_what_an_offset_says_of_pop_with_check_points_that_are_lost(tmp_path: Path) -> None:
    """Neither they nor what recover puts in their place tell what a consumer was given; others tell that the groups
    consume by POP. No client of gRPC has the broker write that to a file.
    """
    root, about = unpack("5.3.3-pop", tmp_path), QueueId("work", 0)
    place = {"topic": "work", "queue_id": 0, "queue_offset": 59}
    [message] = [m for m in messages("5.3.3-pop") if place.items() <= m.items()]
    (root / "config" / "messageRequestMode.json").unlink()
    lost = 0
    while True:
        with StoreReader(root) as store:
            rows = pop_records(store, silent, [PoppedMessage(*about, 59, message["physical_offset"])]).check_points
        if not rows:
            break
        for point in rows.values():
            path = max(path for path in (root / "commitlog").iterdir() if int(path.name) <= point.position)
            with path.open("r+b") as file:
                file.seek(point.position - int(path.name))
                file.write(bytes(100))
            lost += 1
    for recovered in (False, True):
        if recovered:
            assert run_here(["recover", str(root), "--apply", "--yes"]).stdout.startswith("Done")
        for group in ("pop_a", "pop_b"):
            judged = whole(one(root, str(message["physical_offset"]), by=By.POSITION, group=group), group).judgement
            assert judged.verdict is DeliveryVerdict.UNKNOWN
            assert any(fact.fact.startswith(f"{lost} records of the log") for fact in judged.evidence)


@pytest.mark.parametrize("below", [True, False])
def test_copies_in_a_tiered_store(below: bool, tmp_path: Path) -> None:
    """Below the store, or where the configuration says."""
    root = unpack("5.3.3-clean", tmp_path)
    segments = tiered.unpack("5.3.3", tmp_path)
    options = {"tieredStoreFilePath": str(segments)}
    if below:
        shutil.move(segments, root / "tieredStore")
        options = {}
    for message in list(tiered.truth("5.3.3").values())[:70:9]:
        position = str(message["physical_offset"])
        with StoreReader(root, BrokerConfig(options)) as store:
            [found] = asked(store, position, By.POSITION)
        [copy] = [event for event in found.events if event.event is EventKind.TIERED]
        assert copy.path is not None and copy.path.endswith("COMMIT_LOG")
