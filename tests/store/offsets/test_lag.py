"""Lags of groups: against the truth of real stores, and out of range in every way."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mqstore.cli.offsets_text import lag_text
from mqstore.formats.pop import REVIVE_GROUP
from mqstore.store.broker.topics import dumps, loads
from mqstore.store.offsets.lag import Lag, LagQuery, LagState, lags_of, measure, most_behind, offsets_of, queue_ends
from mqstore.store.offsets.positions import KnownGroups, Position
from mqstore.store.queues.read import QueueSummary
from mqstore.store.search.find import find
from mqstore.store.search.selection import Selection
from mqstore.store.search.store import StoreReader

from ... import stores

OF_ALL_KINDS = ("5.3.3-clean", "5.3.3-rocksdb", "5.5.0-pop", "5.1.4-batchcq", "4.9.7-cqext")


def consumer(offset: int, *, backup: int | None = None, table: str = "offset") -> Position:
    return Position(table, "g", "T", 0, offset, "consumerOffset.json", backup)


def held_against(position: Position, low: int, high: int) -> Lag:
    """One position against a queue of low … high."""
    (found,) = lags_of([position], {("T", 0): QueueSummary("T", 0, low, high)})
    return found


@pytest.mark.parametrize(
    ("offset", "low", "high", "state", "messages", "expired", "goes_on"),
    [
        (5, 0, 5, LagState.CURRENT, 0, 0, 5),
        (3, 0, 5, LagState.BEHIND, 2, 0, 3),
        (3, 3, 5, LagState.BEHIND, 2, 0, 3),
        (1, 3, 5, LagState.EXPIRED, 4, 2, 3),
        (1, 5, 5, LagState.EXPIRED, 4, 4, 5),
        (9, 3, 5, LagState.AHEAD, -4, 0, 5),
        (9, 0, 5, LagState.AHEAD, -4, 0, 5),
        (9, 0, 0, LagState.AHEAD, -9, 0, 0),
    ],
)
def test_states(offset: int, low: int, high: int, state: LagState, messages: int, expired: int, goes_on: int) -> None:
    lag = held_against(consumer(offset), low, high)
    assert (lag.state, lag.messages, lag.expired) == (state, messages, expired)
    assert lag.goes_on("5.3")[0] == goes_on
    assert bool(lag.goes_on("5.3")[1]) == (state in (LagState.AHEAD, LagState.EXPIRED))


@pytest.mark.parametrize(
    ("offset", "low", "high", "state", "messages", "expired", "goes_on"),
    [
        (4, 0, 5, LagState.CURRENT, 0, 0, 5),
        (2, 0, 5, LagState.BEHIND, 2, 0, 3),
        (-1, 0, 5, LagState.BEHIND, 5, 0, 0),
        (-1, 0, 0, LagState.CURRENT, 0, 0, 0),
        (1, 3, 5, LagState.EXPIRED, 3, 1, 3),
        (5, 0, 5, LagState.AHEAD, -1, 0, 6),
    ],
)
def test_the_revive_group_notes_the_last_record_that_it_has_read(
    offset: int, low: int, high: int, state: LagState, messages: int, expired: int, goes_on: int
) -> None:
    lag = held_against(consumer(offset)._replace(group=REVIVE_GROUP), low, high)
    assert (lag.state, lag.messages, lag.expired) == (state, messages, expired)
    assert (lag.offset, lag.goes_on("5.3")[0]) == (offset, goes_on)


def test_a_broker_of_4_3_sends_a_group_that_is_ahead_to_the_start() -> None:
    """Of a queue that begins at 0; later ones send it to the end. Seen in their byte code."""
    assert held_against(consumer(9), 0, 5).goes_on("4.3")[0] == 0
    assert held_against(consumer(9), 3, 5).goes_on("4.3")[0] == 5
    assert held_against(consumer(9), 0, 5).goes_on("4.9")[0] == 5


def test_a_delay_level_is_brought_inside() -> None:
    for offset, inside in ((9, 5), (1, 3)):
        assert held_against(consumer(offset, table="delay"), 3, 5).goes_on("5.3")[0] == inside


def test_lower_than_in_the_backup() -> None:
    assert held_against(consumer(3, backup=4), 0, 5).moved_back == 1
    assert held_against(consumer(4, backup=3), 0, 5).moved_back == 0


def test_what_has_no_position() -> None:
    """Queues of a topic that the group consumes, and groups that never committed; not the system's own."""
    ends = {("T", number): QueueSummary("T", number, 2, 5) for number in (0, 1)}
    groups = KnownGroups(frozenset({"silent", "TOOLS_CONSUMER"}), {("g", "T"): "POP"})
    found = list(lags_of([consumer(5)], ends, groups))
    assert [(lag.position.group, lag.position.queue_id, lag.state) for lag in found] == [
        ("g", 0, LagState.CURRENT),
        ("g", 1, LagState.NO_POSITION),
        ("silent", -1, LagState.NO_POSITION),
    ]
    assert [lag.subscribed for lag in found] == [False, False, True]
    assert [lag.mode for lag in found] == ["pop", "pop", ""]
    assert [lag.messages for lag in found] == [0, 3, None]
    assert found[1].goes_on("5.3")[0] is None and "ConsumeFromWhere" in found[1].goes_on("5.3")[1]


@pytest.mark.parametrize("name", OF_ALL_KINDS)
def test_bytes_and_age_are_those_of_the_records(name: str, tmp_path: Path) -> None:
    """From every offset of every queue, held against the messages one by one."""
    with StoreReader(stores.unpack(name, tmp_path)) as store:
        ends = queue_ends(store)
        asked = [
            Position("offset", "g", topic, queue_id, offset, "")
            for (topic, queue_id), queue in ends.items()
            for offset in range(queue.min_offset, queue.max_offset + 1)
        ]
        lags = list(lags_of(asked, ends))
        measure(store, lags)
        truth: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
        for found in find(store, Selection()):
            message = found.message
            row = message.queue_offset, message.total_size, message.store_timestamp
            truth.setdefault((message.topic, message.queue_id), []).append(row)
        for lag in lags:
            one = lag.position
            batches = store.has_batch_queues(one.topic)  # a record of which is several messages
            if batches or (one.topic, one.queue_id) not in truth:
                continue
            left = [r for r in truth[one.topic, one.queue_id] if r[0] >= one.offset]
            if lag.unread is not None:
                assert lag.unread.size_bytes == sum(size for _, size, _ in left)
                assert lag.unread.oldest_ms == min(left)[2]
            else:
                assert lag.messages == 0
        assert sum(lag.unread is not None for lag in lags) > 20


def write_offsets(root: Path, change: Any) -> None:
    """Change the table of offsets in place, as a broker writes it."""
    path = root / "config" / "consumerOffset.json"
    content = loads(path.read_text())
    change(content["offsetTable"])
    path.write_text(dumps(content))


def test_a_store_as_records(tmp_path: Path) -> None:
    """Ahead, unknown to the table of groups, lower than in the .bak: said of each queue and in sums."""
    root = stores.unpack("5.3.3-clean", tmp_path)

    def change(table: Any) -> None:
        table["orders@group-a_tags"][0] = 99
        table["orders@group-a_tags"][1] = 20
        table["orders@stranger"] = {3: 7}

    write_offsets(root, change)
    with StoreReader(root) as store:
        rows = offsets_of(store, "s", LagQuery(1795300000000, "queue", topic="orders")).rows
        sums = offsets_of(store, "s", LagQuery(1795300000000, "topic", topic="orders")).rows
    found = {(row["group"], row["queue_id"]): row for row in rows}
    assert found["group-a_tags", 0]["state"] == "ahead"
    assert found["group-a_tags", 0]["next_offset"] == 23
    assert found["group-a_tags", 1]["moved_back"] == 5
    assert found["group-a_tags", 1]["lag"] == 5
    assert found["stranger", 3]["subscribed"] is False
    assert [found["stranger", number]["state"] for number in range(3)] == ["no_position"] * 3
    (mine,) = [row for row in sums if row["group"] == "group-a_tags"]
    assert (mine["lag"], mine["states"]) == (5, {"ahead": 1, "behind": 1, "current": 2})


def test_how_far_some_group_is_behind_is_what_the_records_say(tmp_path: Path) -> None:
    """In a queue, also where a group has no position; in a topic the sum over its queues."""
    root = stores.unpack("5.3.3-clean", tmp_path)

    def change(table: Any) -> None:
        table["orders@group-a_tags"] = dict.fromkeys(range(4), 3)
        table["orders@stranger"] = {3: 1}

    write_offsets(root, change)
    with StoreReader(root) as store:
        queues, topics = most_behind(store)
        ends = {queue_id: end.max_offset for (topic, queue_id), end in queue_ends(store).items() if topic == "orders"}
        assert {number: queues["orders", number] for number in ends} == {**ends, 3: ends[3] - 1}
        assert topics["orders"] == sum(ends.values()) - 3 * len(ends)
        for by, told in (("queue", queues), ("topic", topics)):
            wanted: dict[Any, int] = {}
            for row in offsets_of(store, "s", LagQuery(0, by, quick=True)).rows:
                key = (row["topic"], row["queue_id"]) if by == "queue" else row["topic"]
                wanted[key] = max(wanted.get(key, 0), row["lag"] or 0)
            behind = {key: lag for key, lag in wanted.items() if lag}
            assert {key: lag for key, lag in told.items() if lag} == behind


def test_names_that_are_no_utf_8(tmp_path: Path) -> None:
    """They are told as they are kept, and can be printed."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    path = root / "config" / "consumerOffset.json"
    path.write_bytes(path.read_bytes().replace(b"orders@group-a_tags", b"or\xffders@gr\xfeoup"))
    with StoreReader(root) as store:
        found = offsets_of(store, "s", LagQuery(0, "topic", group="gr*oup"))
    (row,) = found.rows
    assert "ders" in row["topic"]
    assert json.dumps(row)


def test_without_queues_nothing_is_out_of_range(tmp_path: Path) -> None:
    """It is not known, and said so once."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    shutil.rmtree(root / "consumequeue")
    with StoreReader(root) as store:
        found = offsets_of(store, "s", LagQuery(0, "queue"))
    assert {row["state"] for row in found.rows if row["table"]} == {"unknown"}
    assert not any(row["next"] for row in found.rows if row["table"])
    assert any("the ends of queues are not known" in note for note in found.notes)


def test_a_topic_without_messages_is_no_loss(tmp_path: Path) -> None:
    """A group that is at 0 of a queue that is not there; one that is farther had something."""
    for offset, state in ((0, LagState.CURRENT), (7, LagState.NO_QUEUE)):
        (lag,) = lags_of([consumer(offset)], {})
        assert (lag.state, lag.goes_on("5.3")[0]) == (state, 0)


def test_what_no_queue_tells_is_no_sum(tmp_path: Path) -> None:
    """Where a queue ends is not known: neither is how much a group has before it."""
    with StoreReader(stores.unpack("5.5.0-rocksdb-killed", tmp_path)) as store:
        (row, *_) = offsets_of(store, "s", LagQuery(1795300000000, "group")).rows
    assert row["states"] == {"unknown": row["queues"]}
    assert (row["lag"], row["lag_bytes"]) == (None, None)


def test_a_record_without_a_unit_makes_no_group_unknown(tmp_path: Path) -> None:
    """Such a record tells where its queue ends; a queue that never had a message has none there either."""
    root = stores.unpack("4.9.7-killed", tmp_path)

    def change(table: Any) -> None:
        table["%RETRY%silent@silent"] = {0: 0}
        table["T%a|b_c-D@silent"] = {0: 80, 1: table["T%a|b_c-D@group-a_tags"][1]}

    write_offsets(root, change)
    with StoreReader(root) as store:
        (row,) = offsets_of(store, "s", LagQuery(0, "group", group="silent")).rows
        queue = queue_ends(store)["T%a|b_c-D", 0]
        found = offsets_of(store, "s", LagQuery(0, "queue", group="silent", topic="T*"))
    assert queue.max_offset == 83  # and the log has message 83
    assert found.rows[0]["max_offset"] == 84
    assert row["lag"] == sum(one["lag"] for one in found.rows) > 0
    assert "unknown" not in row["states"]
    assert found.notes == ["the queues are behind the log, from 385137 on: bytes and ages leave out the messages there"]


def test_queues_that_are_known_add_up(tmp_path: Path) -> None:
    """Beside one whose end is not known."""
    root = stores.unpack("4.9.7-killed", tmp_path)

    def change(table: Any) -> None:
        table["%LMQ%new@silent"] = {0: 7}
        table["orders@silent"] = {0: 1}

    write_offsets(root, change)
    with StoreReader(root) as store:
        (row,) = offsets_of(store, "s", LagQuery(0, "group", group="silent")).rows
        (alone,) = offsets_of(store, "s", LagQuery(0, "group", group="silent", topic="%LMQ%new")).rows
    assert row["lag"] > 0 and row["states"]["unknown"] == 1
    assert "1 UNKNOWN, not counted" in lag_text(row, True, with_store=False)
    assert alone["lag"] is None


def test_a_delay_level_that_is_not_in_its_file_begins_at_the_start(tmp_path: Path) -> None:
    """Brokers of 4.9 note a level when they first deliver of it."""
    root = stores.unpack("5.3.3-killed", tmp_path)
    path = root / "config" / "delayOffset.json"
    content = loads(path.read_text())
    with StoreReader(root) as store:
        (before,) = [row for row in offsets_of(store, "s", LagQuery(0, "group")).rows if row["group"] is None]
    passed = content["offsetTable"].pop(3)
    path.write_text(dumps(content))
    with StoreReader(root) as store:
        (after,) = [row for row in offsets_of(store, "s", LagQuery(0, "group")).rows if row["group"] is None]
        (row,) = [row for row in offsets_of(store, "s", LagQuery(0, "queue")).rows if row["state"] == "no_position"]
    assert (after["lag"], after["queues"]) == (before["lag"] + passed, before["queues"])
    assert after["states"]["no_position"] == 1 and after["lag_bytes"] > before["lag_bytes"]
    assert (row["group"], row["queue_id"], row["table"], row["offset"]) == (None, 2, "delay", None)
    assert (row["next_offset"], row["next"]) == (0, "begins at the queue's start")
