"""Segments of tiered stores that the real classes wrote: every message, unit and item; damage."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.consume_queue import UNIT_BYTES
from mqstore.formats.tiered_index import HEADER, HEADER_BYTES, ITEM, MAGIC_SEALED, SLOT
from mqstore.store.inspect.recognise import recognise
from mqstore.store.log.batch import messages
from mqstore.store.log.commit_log import Batch, CommitLog
from mqstore.store.log.message import Message
from mqstore.store.queues.read import ConsumeQueue
from mqstore.store.settings.read import read_config_file
from mqstore.store.tiered.segments import items, open_segments, read_index, segment_name, segment_start

from ... import tiered

Truth = dict[tuple[int, int], dict[str, Any]]


@pytest.fixture(params=tiered.VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


def log_messages(path: Path) -> list[Message]:
    """Everything in segments; nothing else may lie there."""
    found: list[Message] = []
    log = CommitLog(open_segments(path))
    for item in log.scan():
        assert isinstance(item, Batch), item
        assert item.body_crc_ok is not None and item.body_crc_ok.all()
        found += messages(item)
    log.queue.close()
    return found


def check_logs_and_queues(root: Path, known: Truth) -> None:
    """Every message is there once; its unit leads to it."""
    for queue_id in sorted({queue_id for queue_id, _ in known}):
        found = log_messages(tiered.queue_path(root, queue_id, "COMMIT_LOG"))
        wanted = {offset: m for (number, offset), m in known.items() if number == queue_id}
        assert [m.queue_offset for m in found] == sorted(wanted)
        assert all(tiered.same(m, wanted[m.queue_offset]) for m in found)
        assert all(m.position == m.physical_offset for m in found)
        files = open_segments(tiered.queue_path(root, queue_id, "CONSUME_QUEUE"))
        with ConsumeQueue(tiered.TOPIC, queue_id, files) as queue:
            ends = queue.summary()
            units = np.concatenate([part for _, part in queue.units(0, ends.max_offset)])
        assert files.start == found[0].queue_offset * UNIT_BYTES
        assert units["physical_offset"].tolist() == [m.position for m in found]
        assert units["size"].tolist() == [m.total_size for m in found]


def check_index(root: Path, known: Truth) -> None:
    """Each item is of a message; each key is there as far as the segments hold what was put."""
    places = {}
    for queue_id in sorted({queue_id for queue_id, _ in known}):
        for message in log_messages(tiered.queue_path(root, queue_id, "COMMIT_LOG")):
            places[queue_id, message.position] = known[queue_id, message.queue_offset]
    counted = there = 0
    with open_segments(root / tiered.INDEX) as files:
        for file in files.files:
            index = read_index(files, file)
            assert index.problem == ""
            counted += index.header["item_count"]
            for part in items(files, index):
                assert part.linked.all()
                there += len(part.number)
                names = part.items.dtype.names or ()
                for row in part.items.tolist():
                    item = dict(zip(names, row, strict=True))
                    put = places[item["queue_id"], item["offset"]]
                    assert item["hash_code"] in tiered.hashes(put)
                    assert item["size"] == put["total_size"]
                    seconds = (put["store_timestamp"] - index.header["begin_timestamp"]) / 1000
                    assert abs(item["time_diff"] - seconds) <= 1
    assert counted == sum(len(tiered.hashes(m)) for m in known.values())
    assert 0.8 * counted < there <= counted


def test_logs_and_queues(version: str, tmp_path: Path) -> None:
    check_logs_and_queues(tiered.unpack(version, tmp_path), tiered.truth(version))


def test_index(version: str, tmp_path: Path) -> None:
    check_index(tiered.unpack(version, tmp_path), tiered.truth(version))


def test_segments_are_those_of_the_metadata(version: str, tmp_path: Path) -> None:
    """Positions and sizes; no gaps."""
    root = tiered.unpack(version, tmp_path)
    told = tiered.metadata(root)
    tables = {"commitLogFileSegmentTable": "COMMIT_LOG", "consumeQueueFileSegmentTable": "CONSUME_QUEUE"}
    for table, kind in tables.items():
        assert len(told[table]) == 4
        for path, segments in told[table].items():
            queue_id = int(path.rpartition("/")[2])
            with open_segments(tiered.queue_path(root, queue_id, kind)) as files:
                there = {file.start: file.size for file in files.files}
                assert files.gaps == []
            assert there == {s["baseOffset"]: s["size"] for s in segments.values()}


def test_metadata_has_nothing_unknown(version: str, tmp_path: Path) -> None:
    """Of what the real classes write; the topic's number counts in the index."""
    path = tiered.unpack(version, tmp_path) / "config" / "tieredStoreMetadata.json"
    assert recognise(path).kind == "tiered-store-metadata"
    found = list(read_config_file(path, "tiered-store-metadata").records())
    assert not any("more" in record or "problem" in record for record in found)
    others = [record["name"] for record in found if record["type"] == "config_value"]
    assert others == ["topicSerialNumber"]
    types = {r["table"]: r["segment_type"] for r in found if r["type"] == "tiered_segment"}
    assert sorted(types.values()) == [0, 1, 2]
    assert [r["topic"] for r in found if r["type"] == "tiered_topic"] == [tiered.TOPIC]


@pytest.mark.parametrize(
    ("place", "kind"),
    [("COMMIT_LOG", "tiered-commit-log"), ("CONSUME_QUEUE", "tiered-consume-queue"), ("INDEX", "tiered-index")],
)
def test_recognised(place: str, kind: str, tmp_path: Path) -> None:
    """By place and name; a copy of a segment by its content."""
    root = tiered.unpack("5.3.3", tmp_path)
    path = root / tiered.INDEX if place == "INDEX" else tiered.queue_path(root, 1, place)
    found = recognise(path)
    assert found.kind == kind
    assert found.queue == (("rmq_sys_INDEX", 0) if place == "INDEX" else (tiered.TOPIC, 1))
    segment = min(path.iterdir(), key=lambda one: one.name[8:])
    assert recognise(segment).kind == kind
    copy = tmp_path / "copy"
    shutil.copy(segment, copy)
    assert recognise(copy).kind == kind.replace("tiered-", "", place != "INDEX")


@given(st.integers(0, 2**63 - 1))
def test_names(start: int) -> None:
    name = segment_name(start)
    assert segment_start(name) == start
    assert segment_start(name[1:]) is None
    assert segment_start(f"{int(name[0], 16) ^ 1:x}{name[1:]}") is None


def made(slots: list[tuple[int, int]], count: int, rest: bytes, magic: int = MAGIC_SEALED) -> bytes:
    """A segment of the index."""
    header = {"magic": magic, "begin_timestamp": 1, "end_timestamp": 2, "slot_count": 1}
    table = b"".join(SLOT.build({"position": at, "length": size}) for at, size in slots)
    return HEADER.build(header | {"item_count": count}) + table + rest


ONE = {"topic_id": 0, "queue_id": 0, "offset": 7, "size": 100, "time_diff": 0}
BEGIN = HEADER_BYTES + 2 * SLOT.sizeof()


@pytest.mark.parametrize(
    ("data", "problem", "linked"),
    [
        (made([(BEGIN, 28), (BEGIN + 28, 0)], 1, ITEM.build({"hash_code": 2, **ONE})), "", [True]),
        (made([(BEGIN, 28), (BEGIN + 28, 0)], 1, ITEM.build({"hash_code": 3, **ONE})), "", [False]),
        (made([(BEGIN, 0), (BEGIN, 0)], 9, b""), "", []),
        (made([(BEGIN + 1, 0), (BEGIN, 0)], 0, b""), "cannot begin at byte", []),
        (made([(1 << 30, 0), (BEGIN, 0)], 0, b""), "cannot begin at byte", []),
        (made([(HEADER_BYTES, 0)], 0, b""), "cannot begin at byte", []),
        (made([(-8, 0)], 0, b""), "cannot begin at byte", []),
        (made([(BEGIN, 0), (BEGIN, 0)], 1, b"x" * 27), "cannot begin at byte", []),
        (made([(BEGIN, 0), (BEGIN, 0)], 0, b"", magic=1), "not a sealed index", []),
        (b"", "not a sealed index", []),
    ],
)
def test_damaged_index(data: bytes, problem: str, linked: list[bool], tmp_path: Path) -> None:
    path = tmp_path / segment_name(0)
    path.write_bytes(data)
    with open_segments(path) as files:
        index = read_index(files, files.files[0])
        assert problem in index.problem and bool(problem) == bool(index.problem)
        assert [ok for part in items(files, index) for ok in part.linked.tolist()] == linked


@given(st.binary(max_size=200), st.integers(0, 200))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int) -> None:
    """Over a good segment: nothing is raised, no item is made up."""
    good = made([(BEGIN, 28), (BEGIN + 28, 28)], 2, ITEM.build({"hash_code": 2, **ONE}) * 2)
    path = tmp_path_factory.mktemp("index") / segment_name(0)
    path.write_bytes(good[:at] + noise + good[at + len(noise) :])
    with open_segments(path) as files:
        index = read_index(files, files.files[0])
        assert sum(len(part.number) for part in items(files, index)) <= len(good + noise) // 28
