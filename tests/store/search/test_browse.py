"""Walking through a store: topics, queues and pages of messages, also where some cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.store.disk.file_queue import file_name
from mqstore.store.search import browse
from mqstore.store.search.browse import Browser
from mqstore.store.search.store import StoreReader

from ...failing_disk import fail_here
from ...stores import messages, truth, unpack

NAME = "5.3.3-clean"
BATCHES = "5.3.3-batchcq"


@pytest.fixture(params=[NAME, BATCHES])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreReader]:
    with StoreReader(unpack(request.param, tmp_path)) as found:
        yield found


def test_topics_hold_what_their_queues_hold(store: StoreReader) -> None:
    """Bytes are known once they are counted, and the group that is farthest behind tells how far that is."""
    queues = truth(store.layout.root.name)["queues"]
    some = next(iter(Browser(store, {}).queues))
    browser = Browser(store, {some: 5, (some[0], 99): 8}, {some[0]: 7})
    for usage in browser.topics():
        mine = {name: queue for name, queue in queues.items() if name.rpartition("/")[0] == usage.topic}
        ends = sum(queue["max_offset"] - queue["min_offset"] for queue in mine.values())
        assert (usage.messages, usage.size_bytes, usage.unread) == (ends, None, False)
        assert usage.behind == (7 if usage.topic == some[0] else None)
        for queue, of_queue in browser.queues_of(usage.topic):
            assert of_queue.behind == (5 if (queue.topic, queue.queue_id) == some else None)
            browser.count_bytes(queue)
    sizes = {
        usage.topic: sum(m["total_size"] for m in messages(store.layout.root.name) if m["topic"] == usage.topic)
        for usage in browser.topics()
    }
    assert {usage.topic: usage.size_bytes for usage in browser.topics()} == sizes


def test_pages_lie_behind_one_another(store: StoreReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browse, "PAGE", 7)
    browser = Browser(store, {})
    for queue in browser.queues.values():
        found, first = [], -100
        while page := browser.page(queue, first):
            assert len(page) <= 7
            found += page
            first = page[-1].queue_offset + 1
        assert [row.queue_offset for row in found] == list(range(queue.min_offset, queue.max_offset))
        assert all(row.message is not None and not row.problem for row in found)


@pytest.mark.parametrize("name", ["5.3.3-lmq", "4.9.7-lmq"])
def test_messages_have_the_numbers_of_their_units(name: str, tmp_path: Path) -> None:
    """Those of other topics, too, in LMQs and where 4.9 has copied them: their own are of another queue."""
    with StoreReader(unpack(name, tmp_path)) as store:
        browser = Browser(store, {})
        for queue in browser.queues.values():
            with store.queues.open(queue.topic, queue.queue_id) as opened:
                units = [opened.unit(number) for number in range(queue.min_offset, queue.max_offset)]
            wanted = [(unit.queue_offset, unit.physical_offset) for unit in units if unit is not None]
            page = browser.page(queue, queue.min_offset)
            assert [(row.queue_offset, row.message and row.message.position) for row in page] == wanted
            rows, stop = browser.having(queue, queue.min_offset + 3, "")
            found = [(row.queue_offset, row.message and row.message.position) for row in rows]
            assert (found, stop) == (wanted[3:], queue.max_offset)


def test_a_message_that_cannot_be_read_is_a_row_that_says_why(tmp_path: Path) -> None:
    root = unpack(NAME, tmp_path)
    hit = next(m for m in messages(NAME) if (m["topic"], m["queue_id"], m["queue_offset"]) == ("orders", 1, 2))
    with (root / "commitlog" / file_name(0)).open("r+b") as log:
        log.seek(hit["physical_offset"])
        log.write(bytes(8))
    with StoreReader(root) as store:
        browser = Browser(store, {})
        page = browser.page(browser.queues["orders", 1], 0)
    (lost,) = [row for row in page if row.message is None]
    assert lost.queue_offset == 2 and "orders/1" in lost.problem
    assert [row.queue_offset for row in page] == list(range(len(page)))


def test_units_that_cannot_be_read_are_not_counted(tmp_path: Path) -> None:
    with StoreReader(unpack(NAME, tmp_path)) as store:
        browser = Browser(store, {})
        (path, *_) = (store.layout.root / "consumequeue" / "orders" / "1").iterdir()
        fail_here(path, 40, 20)
        browser.count_bytes(browser.queues["orders", 1])
        for queue, usage in browser.queues_of("orders"):
            assert usage.unread is (queue.queue_id == 1)
        (orders,) = [usage for usage in browser.topics() if usage.topic == "orders"]
        assert orders.unread and orders.size_bytes is None
        assert not any(usage.unread for usage in browser.topics() if usage.topic != "orders")


def test_a_text_is_looked_for_in_properties_and_bodies(store: StoreReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any case of its letters, so many messages at once, up to a page."""
    browser = Browser(store, {})
    queue = max(browser.queues.values(), key=lambda each: each.max_offset - each.min_offset)
    every = [row.message for row in browser.page(queue, 0)]
    text = next(m.keys[0] for m in every if m is not None and m.keys).swapcase()
    wanted = [
        m.queue_offset
        for m in every
        if m is not None and text.lower() in f"{m.properties} {m.body().data.decode('utf-8', 'replace')}".lower()
    ]
    rows, stop = browser.having(queue, queue.min_offset, text)
    assert [row.queue_offset for row in rows] == wanted and stop == queue.max_offset
    assert browser.having(queue, queue.max_offset, text) == ([], queue.max_offset)
    assert browser.having(queue, queue.min_offset, "no such text") == ([], queue.max_offset)
    monkeypatch.setattr(browse, "PAGE", 1)
    rows, stop = browser.having(queue, queue.min_offset, text)
    assert ([row.queue_offset for row in rows], stop) == (wanted[:1], wanted[0] + 1)
    monkeypatch.setattr(browse, "_SEARCHED_MAX", 2)
    assert browser.having(queue, queue.min_offset, "no such text") == ([], queue.min_offset + 2)
