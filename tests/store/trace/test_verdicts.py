"""Each verdict of the closed list, of stores that our writer made or real brokers left."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqstore.store.broker.system_topics import TIMER_TOPIC
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.errors import InvalidInput
from mqstore.store.inspect.pop import State, pop
from mqstore.store.queues.filter_bits import SQL92
from mqstore.store.search.store import Store
from mqstore.store.trace.answer import Fate, Kind, NextStart, Trace, Verdict
from mqstore.store.trace.groups import TAG, Subscription, given
from mqstore.store.trace.locate import Asked, By
from mqstore.store.trace.trace import Question, trace
from mqstore.store.trace.verdicts import AT_ONCE

from ... import tiered
from ...stores import messages, truth, unpack
from ..inspect.test_pop import cut
from .asked import asked, config, offsets, one, put, verdict, whole

HOUR_MS = 3_600_000
NEVER = NextStart(Fate.NO_START, "")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three messages in orders/0, the second one with the tag Aa and the key k1."""
    store = tmp_path_factory.mktemp("trace") / "store"
    put(store, "orders")
    put(store, "orders", "--tag", "Aa", "--keys", "k1", "--property", "price=5")
    put(store, "orders")
    return store


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """A copy of its own."""
    return Path(shutil.copytree(made, tmp_path / "store"))


def k1(root: Path, **more: Any) -> Trace:
    """The trace of the second message."""
    return one(root, "k1", **more)


def of_g(root: Path, **more: Any) -> tuple[Verdict, str]:
    """Verdict and reason for the group g."""
    judged = whole(k1(root, group="g", **more), "g").judgement
    return judged.verdict, judged.reason


@pytest.mark.parametrize(
    ("offset", "wanted", "reason"),
    [
        (
            0,
            Verdict.WAITING,
            "the group has 1 message to read before it, 3 messages behind the end",
        ),
        (1, Verdict.WAITING, "it is the next one that the group reads, 2 messages behind the end"),
        (2, Verdict.PASSED, "the group's offset is beyond it"),
        (3, Verdict.PASSED, "the group's offset is beyond it"),
        (
            4,
            Verdict.OFFSET_MOVED,
            "the group's offset 4 is ahead of the queue, which ends before 3",
        ),
    ],
)
def test_what_an_offset_says(root: Path, offset: int, wanted: Verdict, reason: str) -> None:
    offsets(root, g={"orders": {0: offset}})
    assert of_g(root) == (wanted, reason)


def test_no_offset_says_nothing(root: Path) -> None:
    assert of_g(root)[0] is Verdict.UNKNOWN
    offsets(root, g={"orders": {1: 7}}, h={"payments": {0: 1}})
    assert of_g(root)[0] is Verdict.UNKNOWN
    found = k1(root)
    assert [row.group for row in found.groups] == ["g"]
    assert found.other_groups == 1


def test_an_offset_that_was_set_back(root: Path) -> None:
    offsets(root, "consumerOffset.json.bak", g={"orders": {0: 3}})
    offsets(root, g={"orders": {0: 1}})
    wanted = "the offset was set back from 3 to 1: the group gets it once more"
    assert of_g(root) == (Verdict.OFFSET_MOVED, wanted)


def test_an_offset_that_went_over_more_than_can_be_read(root: Path) -> None:
    (root / "abort").touch()  # queues may be behind: an offset ahead of them proves nothing
    offsets(root, "consumerOffset.json.bak", g={"orders": {0: 1}})
    offsets(root, g={"orders": {0: 1 + AT_ONCE}})
    assert of_g(root)[0] is Verdict.PASSED
    facts = [fact.fact for fact in whole(k1(root, group="g"), "g").judgement.evidence]
    assert any("reading or not" in fact for fact in facts)
    offsets(root, g={"orders": {0: 2 + AT_ONCE}})
    found, reason = of_g(root)
    assert found is Verdict.PASSED and "perhaps jumped over" in reason
    assert "100,001 messages" in reason and not k1(root, group="g").groups[0].next_command


def test_an_offset_that_was_there_before_the_message(root: Path) -> None:
    offsets(root, g={"orders": {0: 2}})
    os.utime(root / "config" / "consumerOffset.json", (1, 1))
    row = whole(k1(root, group="g"), "g")  # one file's time may be that of anybody
    assert row.judgement.verdict is Verdict.PASSED and not row.next_command
    assert "perhaps jumped over" in row.judgement.reason
    assert any("1970-01-01T00:00:01" in each.fact for each in row.judgement.evidence)
    os.utime(root / "checkpoint", (100, 100))
    row = whole(k1(root, group="g"), "g")
    assert row.judgement.verdict is Verdict.OFFSET_MOVED and "--reset" in row.next_command
    assert "before the message was stored" in row.judgement.reason
    assert "checkpoint" in {each.where for each in row.judgement.evidence}


@pytest.mark.parametrize("gone", [True, False])
def test_a_place_in_a_queue_that_is_lost(root: Path, gone: bool) -> None:
    """The place is scanned for; what is no place may be a key."""
    put(root, "orders", "--keys", "orders/0/7")
    wanted = k1(root)
    queue = root / "consumequeue" / ("" if gone else "orders")
    shutil.rmtree(queue)
    config(root, "topics.json", {"topicConfigTable": {"orders": {"topicName": "orders"}}})
    found = one(root, "orders/0/1")
    assert (found.position, found.found_by) == (wanted.position, "queue")
    assert one(root, "orders/0/7").found_by == "key"
    with Store(root) as store:
        assert not asked(store, "orders/0/99")


def test_tables_that_cannot_be_read_are_noted(root: Path) -> None:
    for name in ("topics.json", "subscriptionGroup.json"):
        (root / "config" / name).write_bytes(b"\xde\xad")
    notes: list[str] = []
    with Store(root) as store:
        asked(store, "k1", notes=notes)
    for name in ("topics.json", "subscriptionGroup.json"):
        assert [text for text in notes if text.startswith(f"config/{name} cannot be read")]


@pytest.mark.parametrize(
    ("subscription", "wanted"),
    [
        (Subscription(TAG, "Aa || C", "--tags"), Verdict.WAITING),
        (Subscription(TAG, "*", "--tags"), Verdict.WAITING),
        (Subscription(TAG, "C", "--tags"), Verdict.FILTERED),
        (Subscription(TAG, "BB", "--tags"), Verdict.FILTERED),
        (Subscription(SQL92, "price > 4", "--sql"), Verdict.WAITING),
        (Subscription(SQL92, "price > 5", "--sql"), Verdict.FILTERED),
        (Subscription(SQL92, "region = 'eu'", "--sql"), Verdict.FILTERED),
    ],
)
def test_a_subscription(root: Path, subscription: Subscription, wanted: Verdict) -> None:
    offsets(root, g={"orders": {0: 0}})
    assert of_g(root, subscription=subscription)[0] is wanted


def test_a_tag_whose_hash_is_that_of_another(root: Path) -> None:
    """A broker lets it through: BB has the hash of Aa; a client does not."""
    offsets(root, g={"orders": {0: 3}})
    found = of_g(root, subscription=Subscription(TAG, "BB", "--tags"))
    assert found == (Verdict.FILTERED, "the client drops it: only the hash of its tag fits")


def test_a_subscription_that_config_knows(root: Path) -> None:
    offsets(root, g={"orders": {0: 3}})
    entry = {"groupName": "g", "subscriptionDataSet": [{"topic": "orders", "expression": "C"}]}
    config(root, "subscriptionGroup.json", {"subscriptionGroupTable": {"g": entry}})
    assert of_g(root)[0] is Verdict.FILTERED


def test_subscriptions_that_no_broker_takes() -> None:
    with pytest.raises(InvalidInput, match="not by both"):
        given("A", "a > 1")
    with pytest.raises(InvalidInput, match="--sql"):
        given(None, "a >")


def without_unit(root: Path) -> None:
    [path] = (root / "consumequeue" / "orders" / "0").iterdir()
    with path.open("r+b") as file:
        file.seek(20)
        file.write(bytes(20))


def elsewhere(root: Path) -> None:
    [path] = (root / "consumequeue" / "orders" / "0").iterdir()
    data = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(20)
        file.write(data[:20])


def behind(root: Path) -> None:
    [path] = (root / "consumequeue" / "orders" / "0").iterdir()
    with path.open("r+b") as file:
        file.seek(20)
        file.write(bytes(40))


def without_queue(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "orders")


@pytest.mark.parametrize("damage", [without_unit, elsewhere, behind, without_queue])
def test_no_unit_leads_to_it(root: Path, damage: Callable[[Path], None]) -> None:
    offsets(root, g={"orders": {0: 0}})
    damage(root)
    found = k1(root, group="g")
    assert verdict(found, "g") is Verdict.NOT_DISPATCHED
    assert found.for_all is not None and found.for_all.verdict is Verdict.NOT_DISPATCHED
    assert found.next_commands == [f"mqstore repair {root} --queue orders/0"]
    assert Kind.NOT_NAMED in {event.event for event in found.events}


def test_a_group_that_went_over_the_hole(root: Path) -> None:
    """Its offset is beyond: behind a hole it never got it, where the queue ends it may have."""
    offsets(root, g={"orders": {0: 3}})
    without_unit(root)
    assert of_g(root)[0] is Verdict.NOT_DISPATCHED
    behind(root)
    assert of_g(root)[0] is Verdict.PASSED


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
    assert of_g(root) == (Verdict.NOT_SERVED, reason)
    found = k1(root)
    assert found.for_all is not None and found.for_all.verdict is Verdict.NOT_SERVED


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
    assert of_g(root)[0] is Verdict.NOT_SERVED
    assert verdict(k1(root), "h") is Verdict.WAITING


def test_transactions_of_our_own(tmp_path: Path) -> None:
    """Open, committed, rolled back."""
    root = tmp_path / "store"
    half = ["--transaction", "half", "--property", "PGROUP=shop"]
    halves = [put(root, "orders", *half) for _ in range(3)]
    found = one(root, halves[0]["unique_key"])
    assert found.for_all is not None and "open" in found.for_all.reason
    for end, message in zip(("commit", "rollback"), halves[1:], strict=True):
        end_transaction(root, end, message["message_id"])
    committed = one(root, halves[1]["unique_key"])
    assert committed.for_all is None
    kinds = {event.event for event in committed.events}
    assert {Kind.HALF, Kind.COMMITTED, Kind.DECIDED} <= kinds
    rolled_back = one(root, halves[2]["unique_key"])
    assert rolled_back.for_all is not None
    assert rolled_back.for_all.verdict is Verdict.TRANSACTION
    assert "rolled back" in rolled_back.for_all.reason


def test_a_committed_record_that_cannot_be_read(tmp_path: Path) -> None:
    """It is not called rolled back: the index still knows the record of its topic."""
    root = tmp_path / "store"
    half = put(root, "orders", "--transaction", "half", "--property", "PGROUP=shop")
    put(root, "orders")
    end_transaction(root, "commit", half["message_id"])
    before = one(root, half["unique_key"])
    [log] = (root / "commitlog").iterdir()
    with log.open("r+b") as file:
        file.seek(before.position or 0)
        file.write(bytes(40))
    found = one(root, half["unique_key"])
    assert found.for_all is not None and found.for_all.verdict is Verdict.UNREADABLE


def end_transaction(root: Path, how: str, half: str) -> None:
    from ...cli.datadriven import run_here

    assert run_here(["put", str(root), "--transaction", how, "--half", half]).code == 0


@pytest.mark.parametrize("option", [("--delay-level", "17"), ("--deliver-at", "+1h")])
def test_what_is_not_due(option: tuple[str, str], tmp_path: Path) -> None:
    root = tmp_path / "store"
    answer = put(root, "orders", *option)
    found = one(root, answer["unique_key"])
    assert found.for_all is not None and found.for_all.verdict is Verdict.NOT_DUE
    due = found.for_all.until_timestamp
    assert due is not None
    assert abs(due - found.store_timestamp - HOUR_MS) < 2000  # type: ignore[operator]
    late = one(root, answer["unique_key"], now_ms=due + 1)
    assert late.for_all is not None and late.for_all.verdict is Verdict.NOT_DUE
    assert "it is due" in late.for_all.reason
    view = "--timers" if option[0] == "--deliver-at" else "--delays"
    assert found.next_commands == [f"mqstore inspect {root} {view}"]


def test_a_delay_that_the_broker_has_done_with(tmp_path: Path) -> None:
    """Delivered by its count, and not in the log: nobody knows."""
    root = tmp_path / "store"
    answer = put(root, "orders", "--delay-level", "3")
    config(root, "delayOffset.json", {"offsetTable": {"3": 1}})
    found = one(root, answer["unique_key"])
    assert found.for_all is not None and found.for_all.verdict is Verdict.UNKNOWN
    (root / "config" / "delayOffset.json").write_text("{")
    found = one(root, answer["unique_key"])
    assert found.for_all is not None and "cannot be read" in found.for_all.reason


def pending(name: str) -> str:
    """A timer message that waits for long."""
    known = {m["properties"].get("UNIQ_KEY") for m in messages(name) if m["topic"] != TIMER_TOPIC}
    every = [m for m in messages(name) if m["topic"] == TIMER_TOPIC]
    waits = [m for m in every if m["properties"]["UNIQ_KEY"] not in known]
    found: str = waits[0]["properties"]["UNIQ_KEY"]
    return found


def test_timers_that_never_fire(tmp_path: Path) -> None:
    """The wheel is lost (B33), or the timer log."""
    name = "5.3.3-timer-roll"
    root = unpack(name, tmp_path)
    key = pending(name)
    now_ms = max(m["store_timestamp"] for m in messages(name))
    before = one(root, key, now_ms=now_ms)
    assert before.for_all is not None and before.for_all.verdict is Verdict.NOT_DUE
    shutil.copytree(root / "timerlog", tmp_path / "kept")
    shutil.rmtree(root / "timerlog")
    lost = one(root, key, now_ms=now_ms)
    assert lost.for_all is not None and lost.for_all.verdict is Verdict.NEVER_FIRES
    assert lost.next_commands == [f"mqstore inspect {root} --timers"]


@pytest.mark.parametrize("name", ["5.3.3-pop"])
def test_what_consumers_have_by_pop(name: str, tmp_path: Path) -> None:
    """A broker that was killed: what is invisible, due, given back is what `inspect --pop` says."""
    root = unpack(name, tmp_path)
    ends = [message["physical_offset"] for message in messages(name)]
    cut(root, ends[len(ends) // 3])
    wanted = {
        State.INVISIBLE: Verdict.INVISIBLE,
        State.DUE: Verdict.INVISIBLE,
        State.RETURNED: Verdict.RETRY,
    }
    with Store(root) as store:
        rows = pop(store, 0, lambda _: None).rows
        now_ms = sorted(row.visible_timestamp for row in rows)[len(rows) // 2]
        rows = pop(store, now_ms, lambda _: None).rows
        by_state = {row.state: row for row in rows}
        assert {State.INVISIBLE, State.DUE} <= by_state.keys()
        for state, row in by_state.items():
            [found] = asked(store, str(row.position), By.POSITION, now_ms=now_ms, group=row.group)
            judged = whole(found, row.group).judgement
            assert judged.verdict is wanted[state], judged
            if judged.verdict is Verdict.INVISIBLE:
                assert judged.until_timestamp == row.visible_timestamp


def test_what_has_expired(tmp_path: Path) -> None:
    root = unpack("4.9.7-expired", tmp_path)
    start = min(int(path.name) for path in (root / "commitlog").iterdir())
    found = one(root, str(start - 100), by=By.POSITION)
    assert found.for_all is not None and found.for_all.verdict is Verdict.GONE
    assert "expired" in found.for_all.reason
    with Store(root) as store:
        [queue] = [q for q in store.queue_summaries if q.min_offset > 0][:1]
        gone = asked(store, f"{queue.topic}/{queue.queue_id}/{queue.min_offset - 1}", By.QUEUE)
        assert [each.for_all and each.for_all.verdict for each in gone] == [Verdict.GONE]
        assert asked(store, f"{queue.topic}/{queue.queue_id}/{queue.max_offset}", By.QUEUE) == []


def test_what_has_expired_and_was_given_back(tmp_path: Path) -> None:
    """The retries of a group are there, the message itself is not."""
    root = unpack("5.3.3-clean", tmp_path)
    (root / "commitlog" / f"{0:020d}").unlink()
    config(root, "subscriptionGroup.json", {"subscriptionGroupTable": {}})
    found = one(root, "key200")
    assert found.for_all is not None and found.for_all.verdict is Verdict.GONE
    assert found.topic == "orders"
    assert verdict(found, "group-a-retry") is Verdict.PASSED
    assert verdict(one(root, "key200", group="billing"), "billing") is Verdict.GONE


def test_what_is_damaged(tmp_path: Path) -> None:
    """By its position, by the unit that still names it, and by the key that the index has."""
    name = "4.9.7-killed-page"
    root = unpack(name, tmp_path)
    whole_before = {m["physical_offset"]: m for m in messages("4.9.7-killed")}
    lost = sorted(whole_before.keys() - {m["physical_offset"] for m in messages(name)})
    message = next(m for at in lost if not (m := whole_before[at])["topic"].startswith(("SCHEDULE", "RMQ", "%")))
    place = f"{message['topic']}/{message['queue_id']}/{message['queue_offset']}"
    for text, by in (
        (str(message["physical_offset"]), By.POSITION),
        (place, By.QUEUE),
        (message["properties"]["UNIQ_KEY"], By.UNIQUE_KEY),
    ):
        found = one(root, text, by=by)
        assert found.for_all is not None and found.for_all.verdict is Verdict.UNREADABLE, text
        assert found.next_commands == [f"mqstore recover {root}"]
        assert found.topic == message["topic"]
        assert {row.judgement.verdict for row in found.groups} <= {Verdict.UNREADABLE}


def test_a_record_that_was_cut_off(root: Path) -> None:
    """It lies behind the end of the log: a newer one has its place."""
    with Store(root) as store:
        last = store.message_at(store.near_the_end(store.queue_summaries)[0] or 0)
    [log] = (root / "commitlog").iterdir()
    data = log.read_bytes()[last.position : last.position + last.total_size]
    with log.open("r+b") as file:  # an older record, as a cut leaves it
        file.seek(last.position + last.total_size)
        file.write(data)
    found = one(root, str(last.position + last.total_size), by=By.POSITION, group="g")
    assert verdict(found, "g") is Verdict.GONE


def test_a_light_queue_is_a_queue_of_its_own(tmp_path: Path) -> None:
    root = unpack("5.3.3-lmq", tmp_path)
    light = next(m for m in messages("5.3.3-lmq") if "INNER_MULTI_DISPATCH" in m["properties"])
    names = light["properties"]["INNER_MULTI_DISPATCH"].split(",")
    numbers = light["properties"]["INNER_MULTI_QUEUE_OFFSET"].split(",")
    offsets(root, reader={names[0]: {0: int(numbers[0])}})
    found = one(root, str(light["physical_offset"]), by=By.POSITION)
    row = whole(found, "reader")
    assert (row.topic, row.queue_offset) == (names[0], int(numbers[0]))
    assert row.judgement.verdict is Verdict.WAITING
    named = {event.topic for event in found.events if event.event is Kind.NAMED}
    assert {names[0], light["topic"]} <= named


def test_of_every_group_only_evidence_counts(tmp_path: Path) -> None:
    """The list is closed, and every verdict but `unknown` has a fact beside it."""
    name = "5.5.0-clean"
    root = unpack(name, tmp_path)
    assert truth(name)["exit"] == "clean"
    with Store(root) as store:
        for message in list(messages(name))[::23]:
            for each in asked(store, str(message["physical_offset"]), By.POSITION):
                for row in each.groups:
                    assert row.judgement.verdict in Verdict
                    assert row.judgement.evidence, row


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
        with Store(root, BrokerConfig(options)) as store:
            [found] = asked(store, position, By.POSITION)
        [copy] = [event for event in found.events if event.event is Kind.TIERED]
        assert copy.path is not None and copy.path.endswith("COMMIT_LOG")


def test_what_a_start_does_with_a_hole(root: Path) -> None:
    """It is played where no consumer is led to the message: after a clean exit it fills none (B2)."""
    assert (k1(root).next_start or NEVER).fate is Fate.NOT_PLAYED
    without_unit(root)
    found = k1(root)
    assert found.next_start is not None
    assert found.next_start.fate is Fate.NOT_DISPATCHED
    assert found.next_commands == [f"mqstore repair {root} --queue orders/0"]


@pytest.mark.parametrize(("topic", "count"), [("orders", 1), ("ord*", 1), ("payments", 0)])
def test_of_one_topic_only(root: Path, topic: str, count: int) -> None:
    """By key and by place alike."""
    with Store(root) as store:
        [place] = [one.position for one in asked(store, "k1")]
        for text, by in (("k1", By.KEY), (str(place), By.POSITION), (str(place), None)):
            question = Question(Asked(text, by, topic), 0)
            assert len(list(trace(store, question, lambda _: None))) == count
