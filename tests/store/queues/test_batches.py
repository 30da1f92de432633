"""Batch consume queues: what real brokers answer from them, and damaged ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mqstore.formats.batch_consume_queue import UNIT, UNIT_BYTES
from mqstore.store.broker.load_rules import LoadedFile
from mqstore.store.broker.profiles import profile_of
from mqstore.store.broker.snapshot import QueueId, list_entries
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.file_queue import MappedFileQueue
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import NotFound
from mqstore.store.inspect.description import describe
from mqstore.store.offsets.lag import queue_ends
from mqstore.store.put.new_message import NewMessage
from mqstore.store.put.writer import StoreWriter, WriterOptions
from mqstore.store.queues.batches import BatchConsumeQueue, BatchQueueState
from mqstore.store.search.find import find, offset_at
from mqstore.store.search.queue_search import batch_queues, open_batch_queue
from mqstore.store.search.selection import Selection
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.verdict import Status

from ...stores import messages, truth, unpack
from ...verdict import apply_recovery, said_of
from ..choices import each_of, stores_where
from ..put.writing import NOW, TINY, writer

WITH_BATCHES = stores_where(lambda t: "batchcq" in t["name"])
TOPIC = "BatchTopic"


name = each_of(WITH_BATCHES)


@pytest.fixture
def store(name: str, tmp_path: Path) -> StoreReader:
    return StoreReader(unpack(name, tmp_path))


def test_ends(name: str, store: StoreReader) -> None:
    known = truth(name)["queues"]
    for queue in batch_queues(store, TOPIC):
        with open_batch_queue(store, TOPIC, queue.queue_id) as opened:
            ends = opened.summary()
        told = known[f"{TOPIC}/{queue.queue_id}"]
        assert (ends.min_offset, ends.max_offset) == (told["min_offset"], told["max_offset"])


def test_pulls(name: str, store: StoreReader) -> None:
    """From any offset, also one inside a batch: the records that a broker answers."""
    asked = 0
    for query in truth(name)["get_queries"]:
        if query["topic"] != TOPIC or not query["physical_offsets"]:
            continue
        selection = Selection(topic=TOPIC, queue_id=query["queue_id"], whole=True)
        count = query["next"] - query["offset"]
        found = [each.message for each in find(store, selection, offset=query["offset"], count=count)]
        assert [m.physical_offset for m in found] == query["physical_offsets"]
        assert [m.queue_offset for m in found] == query["queue_offsets"]
        asked += 1
    assert asked > 3


def test_times(name: str, store: StoreReader) -> None:
    for query in truth(name)["time_queries"]:
        told = offset_at(store, query["topic"], query["queue_id"], query["timestamp"])
        assert told == query["offset"], query


def test_all_of_a_topic_in_the_order_of_the_log(name: str, store: StoreReader) -> None:
    known = [m["physical_offset"] for m in messages(name) if m["topic"] == TOPIC]
    selection = Selection(topic=TOPIC, whole=True)
    found = [each.message.physical_offset for each in find(store, selection)]
    assert found == known
    backwards = find(store, selection, reverse=True)
    assert [each.message.physical_offset for each in backwards] == known[::-1]


def test_what_is_not_there(store: StoreReader) -> None:
    with pytest.raises(NotFound, match="has no message 100000; it has 0 to"):
        list(find(store, Selection(topic=TOPIC, queue_id=0), offset=100_000, count=1))
    with pytest.raises(NotFound, match="has no queue 77"):
        list(find(store, Selection(topic=TOPIC, queue_id=77)))


def made(folder: Path, units: list[tuple[int, int, int, int]], size: int = 8) -> BatchConsumeQueue:
    """A queue of (position, store time, base offset, messages); files of `size` units."""
    folder.mkdir()
    data = b"".join(
        UNIT.build(
            {
                "physical_offset": position,
                "size": 100,
                "tags_code": 0,
                "store_time": time,
                "msg_base_offset": base,
                "batch_size": count,
                "compacted_offset": -1,
                "reserved": 0,
            }
        )
        for position, time, base, count in units
    )
    for start in range(0, max(1, len(data)), size * UNIT_BYTES):
        part = data[start : start + size * UNIT_BYTES].ljust(size * UNIT_BYTES, b"\0")
        (folder / f"{start:020d}").write_bytes(part)
    return BatchConsumeQueue("T", 0, MappedFileQueue.open(folder))


def test_every_offset_over_several_files(tmp_path: Path) -> None:
    sizes = [1 + n % 5 for n in range(30)]
    bases = np.cumsum([0, *sizes])[:-1].tolist()
    rows = [(1000 * n, 10 * n, base, size) for n, (base, size) in enumerate(zip(bases, sizes, strict=True))]
    with made(tmp_path / "queue", rows) as queue:
        for number, (base, size) in enumerate(zip(bases, sizes, strict=True)):
            for offset in range(base, base + size):
                unit = queue.find(offset)
                assert unit is not None and unit.number == number
        assert queue.find(sum(sizes)) is None and queue.find(-1) is None
        for number in range(30):
            assert queue.offset_at(10 * number) == bases[number]
            in_front = bool(number) and number % 8 == 0  # between two files: the last batch of the first one
            assert queue.offset_at(10 * number - 5) == bases[number - in_front]
        assert queue.offset_at(10_000) == bases[-1]
        assert [first for first, _ in queue.units(3, 20)] == [3, 8, 16]


def test_of_equal_times_the_file_decides(tmp_path: Path) -> None:
    """As 5.1.4, 5.3.3 and 5.5.1 answered for these units."""
    rows = [(300 * n, 1000 * (n // 3), 2 * n, 2) for n in range(30)]
    with made(tmp_path / "queue", rows, size=10) as queue:
        found = [queue.offset_at(1000 * number) for number in range(10)]
        assert found == [0, 6, 12, 20, 24, 30, 40, 42, 48, 58]
        assert queue.offset_at(3500) == 24 and queue.offset_at(-1) == 0


@pytest.mark.parametrize("lost", range(0, 30, 3))
def test_what_has_expired_or_is_behind_the_log_does_not_count(lost: int, tmp_path: Path) -> None:
    rows = [(100 * n, 10 * n, 2 * n, 2) for n in range(30)]
    with made(tmp_path / "queue", rows) as queue:
        behind = queue.summary(100 * lost)
        assert (behind.min_offset, behind.max_offset) == (2 * lost, 60)
        assert [queue.offset_at(10 * n, 100 * lost) for n in range(30)] == [2 * max(lost, n) for n in range(30)]
        front = queue.summary(0, 100 * lost)
        assert (front.min_offset, front.max_offset, front.end_position) == (0, 2 * lost, 100 * lost if lost else None)
        assert queue.offset_at(10**6, 0, 100 * lost) == (2 * (lost - 1) if lost else 0)
        assert queue.summary(10**6)[2:4] == (60, 60)


def test_a_queue_whose_front_has_expired_begins_with_the_log_for_all(tmp_path: Path) -> None:
    """What each asks: 5.1.4, 5.3.3 and 5.5.1 begin there, too."""
    (tmp_path / "batchconsumequeue" / "B" / "0").mkdir(parents=True)
    topics = {"B": {"attributes": {"queue.type": "BatchCQ"}}}
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    with writer(tmp_path, "5.3") as out:
        for number in range(60):
            out.append(NewMessage(b"B", b"x" * 300, store_timestamp=NOW + number))
    log = sorted((tmp_path / "commitlog").iterdir())
    log[0].unlink()
    with StoreReader(tmp_path, TINY) as store:
        first = next(store.good_records()).columns.ints("queue_offset")[0]
        assert first > 3
        assert [summary[2:4] for summary in store.batch_summaries] == [(first, 60)]
        assert queue_ends(store)["B", 0].min_offset == first
        assert offset_at(store, "B", 0, NOW) == first and offset_at(store, "B", 0, NOW + 40) == 40
        notes: list[str] = []
        found = list(find(store, Selection(topic="B"), note=notes.append))
        assert (len(found), notes) == (60 - first, [])
        with pytest.raises(NotFound, match=f"has no message 3; it has {first} to 59"):
            list(find(store, Selection(topic="B", queue_id=0), offset=3, count=1))
    (summary,) = describe(Layout.open(tmp_path, TINY)).queues
    assert (summary.min_offset, summary.max_offset) == (first, 60)


def test_a_file_of_zeros_behind_a_full_one_hides_the_queue(tmp_path: Path) -> None:
    """Where queues reach the end of the log, each start of 5.1.4, 5.3.3 and 5.5.1 counts its first unit: min and max
    are 0, no pull gives any of the messages, and the next one gets offset 0 (**M**).
    """
    config = BrokerConfig({**dict(TINY.items()), "mapperFileSizeBatchConsumeQueue": str(10 * UNIT_BYTES)})
    (tmp_path / "config").mkdir()
    topics = {"B": {"attributes": {"queue.type": "BatchCQ"}}}
    (tmp_path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    with StoreWriter.open(tmp_path, config, WriterOptions("5.3")) as out:
        for number in range(11):
            out.append(NewMessage(b"T" if number == 10 else b"B", b"x", store_timestamp=NOW + number))
    assert said_of(tmp_path, config).status is Status.CLEAN
    next_file = tmp_path / "batchconsumequeue" / "B" / "0" / f"{10 * UNIT_BYTES:020}"
    next_file.write_bytes(bytes(10 * UNIT_BYTES))
    said = said_of(tmp_path, config)
    assert said.found is not None
    assert [(each.queue, each.messages) for each in said.found.prediction.invisible] == [(QueueId("B", 0), 10)]
    (told,) = [each for each in said.verdict.findings if each.code == "I-073"]
    assert told.path == str(next_file) and "counts its first unit, and the queue begins again at 0" in told.message
    assert apply_recovery(said, config)
    assert said_of(tmp_path, config).status is Status.CLEAN and not next_file.exists()


def test_units_that_name_nothing_are_passed_over(tmp_path: Path) -> None:
    rows = [(0, 1, 0, 2), (-1, 0, 0, 0), (200, 3, 2, 3), (300, 4, 5, 1)]
    with made(tmp_path / "queue", rows) as queue:
        assert queue.stop == 4
        ends = queue.summary()
        assert (ends.min_offset, ends.max_offset) == (0, 6)
        found = queue.find(3)
        assert found is not None and found.physical_offset == 200
        assert queue.unit(1) is None


def test_an_empty_queue(tmp_path: Path) -> None:
    with made(tmp_path / "queue", []) as queue:
        assert queue.summary().max_offset == 0
        assert queue.find(0) is None and queue.offset_at(5) == 0


@pytest.mark.parametrize("name", ["00000000000000000000", "1"])
def test_a_broker_takes_what_ends_at_the_write_position_for_the_last_unit(name: str, tmp_path: Path) -> None:
    """Parts of two units where the number of the file is no multiple of its size, as 5.1.4 does."""
    size = 10 * UNIT_BYTES
    fields = {"size": 50, "tags_code": 0, "store_time": 1, "compacted_offset": 0, "reserved": 0}
    units = [{"physical_offset": 100 * k, "msg_base_offset": 4 * k, "batch_size": 4, **fields} for k in range(1, 4)]
    content = b"".join(map(UNIT.build, units)).ljust(size, b"\0")
    (tmp_path / name).write_bytes(content)
    queue = BatchQueueState(profile_of("5.1").queues, size)
    queue.load([LoadedFile(int(name), size, *list_entries(tmp_path))])
    queue.recover()
    end = queue.files[-1].wrote
    assert end == 3 * UNIT_BYTES + int(name)
    last = UNIT.parse(content[end - UNIT_BYTES : end])
    assert queue.max_offset == last.msg_base_offset + last.batch_size
    assert (queue.max_offset == 16) == (int(name) == 0)


def test_units_of_a_file_that_starts_between_units(tmp_path: Path) -> None:
    """They are counted alike from both sides."""
    with made(tmp_path / "0", [(100, 5, 0, 2), (200, 6, 2, 2)], size=2) as whole:
        data = Path(whole.files.files[0].path).read_bytes()
    folder = tmp_path / "1"
    folder.mkdir()
    (folder / f"{UNIT_BYTES + 6:020d}").write_bytes(bytes(UNIT_BYTES - 6) + data)
    with BatchConsumeQueue("T", 0, MappedFileQueue.open(folder)) as queue:
        assert queue.first == 2 and queue.stop == 4
        assert [unit.msg_base_offset for n in range(queue.first, queue.stop) if (unit := queue.unit(n))] == [0, 2]
