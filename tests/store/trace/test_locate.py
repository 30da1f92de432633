"""What is asked for, where its queue, its record or its bytes are gone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mqstore.store.search.store import StoreReader
from mqstore.store.trace.answer import By, DeliveryVerdict
from mqstore.store.trace.locate import TraceTarget
from mqstore.store.trace.trace import TraceQuestion, trace

from ...stores import messages, unpack
from .asked import asked, config, k1, one, put, verdict


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
    with StoreReader(root) as store:
        assert not asked(store, "orders/0/99")


def test_what_has_expired(tmp_path: Path) -> None:
    root = unpack("4.9.7-expired", tmp_path)
    start = min(int(path.name) for path in (root / "commitlog").iterdir())
    found = one(root, str(start - 100), by=By.POSITION)
    assert found.for_all is not None and found.for_all.verdict is DeliveryVerdict.GONE
    assert "expired" in found.for_all.reason
    with StoreReader(root) as store:
        [queue] = [q for q in store.queue_summaries if q.min_offset > 0][:1]
        gone = asked(store, f"{queue.topic}/{queue.queue_id}/{queue.min_offset - 1}", By.QUEUE)
        assert [each.for_all and each.for_all.verdict for each in gone] == [DeliveryVerdict.GONE]
        assert asked(store, f"{queue.topic}/{queue.queue_id}/{queue.max_offset}", By.QUEUE) == []


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
        assert found.for_all is not None and found.for_all.verdict is DeliveryVerdict.UNREADABLE, text
        assert found.next_commands == [f"mqstore recover {root}"]
        assert found.topic == message["topic"]
        assert {row.judgement.verdict for row in found.groups} <= {DeliveryVerdict.UNREADABLE}


def test_a_record_that_was_cut_off(root: Path) -> None:
    """It lies behind the end of the log: a newer one has its place."""
    with StoreReader(root) as store:
        last = store.message_at(store.near_the_end(store.queue_summaries)[0] or 0)
    [log] = (root / "commitlog").iterdir()
    data = log.read_bytes()[last.position : last.position + last.total_size]
    with log.open("r+b") as file:  # an older record, as a cut leaves it
        file.seek(last.position + last.total_size)
        file.write(data)
    found = one(root, str(last.position + last.total_size), by=By.POSITION, group="g")
    assert verdict(found, "g") is DeliveryVerdict.GONE


@pytest.mark.parametrize(("topic", "count"), [("orders", 1), ("ord*", 1), ("payments", 0)])
def test_of_one_topic_only(root: Path, topic: str, count: int) -> None:
    """By key and by place alike."""
    with StoreReader(root) as store:
        [place] = [one.position for one in asked(store, "k1")]
        for text, by in (("k1", By.KEY), (str(place), By.POSITION), (str(place), None)):
            question = TraceQuestion(TraceTarget(text, by, topic), 0)
            assert len(list(trace(store, question, lambda _: None))) == count
