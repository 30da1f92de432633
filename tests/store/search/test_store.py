"""Store: ends, queues, single messages and times, against the truth."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

import mqstore
from mqstore.store.errors import InvalidInput, NotAStore, NotFound
from mqstore.store.library import Store
from mqstore.store.put.new_message import NewMessage
from mqstore.store.queues.read import ConsumeQueues, QueueSummary

from ...stores import messages, truth
from ..choices import clean_where
from ..put.writing import NOW, TINY, put

CLEAN = clean_where(lambda t: "after_load" in t["load"])
# Queues of another kind: `log_search` answers for them.
PLAIN = clean_where(lambda t: "after_load" in t["load"] and "batchcq" not in t["name"].split("-"))
# The answers of a 4.x broker hang on the modification times of queue files. That of this store was
# asked before its archive, which keeps whole seconds, was made.
TIMES_LOST = {"4.9.7-dledger": {("TopicB", 1795212314255), ("TopicB", 1795212314256)}}


@pytest.mark.few(10)
@pytest.mark.parametrize("name", CLEAN)
def test_the_log_ends_where_the_broker_s_does(name: str, store: Callable[[str], Path]) -> None:
    with Store(store(name)) as opened:
        assert opened.log_end.position == truth(name)["load"]["after_load"]["max_phy_offset"]


@pytest.mark.few(10)
@pytest.mark.parametrize("name", PLAIN)
def test_queues_are_the_broker_s(name: str, store: Callable[[str], Path]) -> None:
    # An LMQ with "/" in its name has no directory that a start finds (spec 2.9, B12).
    expected = {
        key: (bounds["min_offset"], bounds["max_offset"])
        for key, bounds in truth(name)["queues"].items()
        if key.count("/") == 1
    }
    with Store(store(name)) as opened:
        found = opened.queue_summaries
        assert {f"{q.topic}/{q.queue_id}": (q.min_offset, q.max_offset) for q in found} == expected


@pytest.mark.few(10)
@pytest.mark.parametrize("name", PLAIN)
def test_times_lead_to_the_broker_s_offsets(name: str, store: Callable[[str], Path]) -> None:
    with Store(store(name)) as opened:
        for query in truth(name)["time_queries"]:
            if (query["topic"], query["timestamp"]) in TIMES_LOST.get(name, ()):
                continue
            found = opened.offset_at(query["topic"], query["queue_id"], query["timestamp"])
            assert found == query["offset"], query


@pytest.mark.parametrize("name", ["4.3.1-clean", "4.9.7-ipv6", "5.3.3-v2", "4.9.7-dledger"])
def test_every_message_by_position_id_and_queue(name: str, store: Callable[[str], Path]) -> None:
    with Store(store(name)) as opened:
        for known in messages(name):
            message = opened.message_at(known["physical_offset"])
            assert message.queue_offset == known["queue_offset"]
            assert message.properties == known["properties"]
            assert opened.message_by_id(message.message_id) == message
            assert opened.message_by_id(known["offset_msg_id"].lower()) == message
            if not known["sys_flag"] & 0x4:
                by_queue = opened.message(message.topic, message.queue_id, message.queue_offset)
                assert by_queue == message


def test_an_id_of_another_broker_is_not_found(store: Callable[[str], Path]) -> None:
    with Store(store("4.3.1-clean")) as opened:
        found = opened.message_at(0)
        other = f"{0x0A000001:08X}{found.message_id[8:]}"
        with pytest.raises(NotFound, match=found.message_id):
            opened.message_by_id(other)
        for wrong in ("", "xyz", found.message_id[1:], found.message_id + "00"):
            with pytest.raises(InvalidInput):
                opened.message_by_id(wrong)


def test_what_is_not_there_is_not_found(store: Callable[[str], Path]) -> None:
    with Store(store("4.3.1-clean")) as opened:
        for position in (1, 17, -1, 1 << 40, opened.log_end.position):
            with pytest.raises(NotFound):
                opened.message_at(position)
        for topic, queue_id, offset in (("orders", 0, 10**6), ("orders", 99, 0), ("none", 0, 0)):
            with pytest.raises(NotFound):
                opened.message(topic, queue_id, offset)


def test_units_behind_the_end_do_not_lead_there(store: Callable[[str], Path]) -> None:
    """A broker of 4.3.1 leaves units of records that it has cut off (spec 2.5, B21)."""
    name = "4.3.1-killed-restarted"
    end = truth(name)["load"]["after_load"]["max_phy_offset"]
    with Store(store(name)) as opened:
        assert opened.log_end.position == end
        assert all((q.end_position or 0) <= end for q in opened.queue_summaries)


def test_a_store_without_queues_has_an_end(store: Callable[[str], Path]) -> None:
    with Store(store("4.9.7-clean-no-queues")) as opened:
        assert opened.queue_summaries == []
        assert opened.log_end.position == truth("4.9.7-clean-no-queues")["log_end"]
        assert "no consume queues" in opened.queues_unread


def test_a_store_that_was_never_used(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    with Store(tmp_path) as opened:
        assert (opened.log_end.position, opened.queue_summaries) == (0, [])
        assert (opened.topics, opened.checkpoint, opened.index.files) == ([], None, [])
    with pytest.raises(NotAStore):
        Store(tmp_path / "commitlog")


def test_is_exported() -> None:
    assert mqstore.Store is Store


def grow(root: Path, count: int) -> None:
    """Append messages in files that hold 9 of them each."""
    put(root, [NewMessage(b"T", b"x" * 300)] * count, "5.3")


def told(opened: Store) -> tuple[int, int, int, int]:
    """How many messages the store has, as several ways tell."""
    (queue,) = opened.queue_summaries
    table = opened.to_arrow(["topic"], on_damage="raise").read_all()
    return (
        len(list(opened.messages(on_damage="raise"))),
        table.num_rows,
        queue.max_offset,
        opened.offset_at("T", 0, NOW + 1),
    )


def test_a_store_that_grows_has_one_end_until_it_is_closed(tmp_path: Path) -> None:
    grow(tmp_path, 3)
    opened = Store(tmp_path, TINY)
    assert told(opened) == (3, 3, 3, 3)
    for count, more in ((3, 2), (5, 20)):  # to the same file, and to others
        grow(tmp_path, more)
        end = opened.log_end.position
        assert told(opened) == (count,) * 4
        with pytest.raises(NotFound, match=f"has no message {count}: its unit points behind the end of the log, {end}"):
            opened.message("T", 0, count)
        opened.close()
        assert told(opened) == (count + more,) * 4
        assert opened.message("T", 0, count).position == end


def test_a_copy_finds_for_itself(tmp_path: Path) -> None:
    grow(tmp_path, 3)
    opened = Store(tmp_path, TINY)
    before = told(opened)
    grow(tmp_path, 2)
    assert told(pickle.loads(pickle.dumps(opened))) == (5,) * 4
    assert told(opened) == before == (3,) * 4


def test_a_file_that_begins_while_the_queues_are_read_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first unit behind the end names a record in a file that was not there when the log was listed."""
    large = NewMessage(b"T", bytes(1000), store_timestamp=NOW)
    put(tmp_path, [large] * 3)

    def rolled(queues: ConsumeQueues, log_start: int = 0) -> list[QueueSummary]:
        monkeypatch.undo()
        put(tmp_path, [large])
        return queues.summaries(log_start)

    monkeypatch.setattr(ConsumeQueues, "summaries", rolled)
    with Store(tmp_path, TINY) as opened:
        end = opened.log_end.position
        (queue,) = opened.queues
        with opened.queues.open(queue.topic, queue.queue_id) as units:
            unit = units.unit(3)
        assert end < 4096 and unit is not None and unit.physical_offset == 4096
        assert not opened.end_is_lost
    next(tmp_path.glob("commitlog/*4096")).write_bytes(bytes(4096))
    with Store(tmp_path, TINY) as opened:
        assert opened.end_is_lost
