"""Compaction logs: what real brokers answer from them, each record as it was sent, and damage."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from mqstore.formats.sparse_consume_queue import END, UNIT, UNIT_BYTES
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.file_queue import MappedFileQueue
from mqstore.store.errors import NotFound
from mqstore.store.log.batch import messages
from mqstore.store.log.commit_log import Batch, ExtentKind
from mqstore.store.log.message import Message
from mqstore.store.queues.batches import SparseRange, SparseUnits, sparse_units, summary_of
from mqstore.store.queues.units import is_valid
from mqstore.store.search.find import find
from mqstore.store.search.queue_search import compaction_queues, is_usual, open_log
from mqstore.store.search.selection import Selection, TimeRange
from mqstore.store.search.store import StoreReader

from ... import stores
from ..choices import each_of, stores_where

WITH_COMPACTION = stores_where(lambda t: "-compaction" in t["name"])
TOPIC = "state"
SAME = (
    *("total_size", "queue_id", "queue_offset", "flag", "sys_flag", "born_timestamp", "body_crc"),
    *("store_timestamp", "reconsume_times", "prepared_transaction_offset"),
)
"""Fields that compaction copies; the truth has them under the same names."""


name = each_of(WITH_COMPACTION)


@pytest.fixture
def store(name: str, tmp_path: Path) -> Iterator[StoreReader]:
    with StoreReader(stores.unpack(name, tmp_path)) as found:
        yield found


def ask(store: StoreReader, queue_id: int | None, **more: Any) -> list[Message]:
    """The messages of one queue, or of all of the topic."""
    selection = Selection(topic=TOPIC, queue_id=queue_id)
    return [each.message for each in find(store, selection, **more)]


def test_pulls(name: str, store: StoreReader) -> None:
    """From any offset: what a broker answers, positions in the compaction log included."""
    asked = 0
    for query in stores.truth(name)["get_queries"]:
        if query["topic"] != TOPIC:
            continue
        asked += 1
        if query["physical_offsets"]:
            found = ask(store, query["queue_id"], offset=query["offset"], count=query["max"])
            assert [m.physical_offset for m in found] == query["physical_offsets"]
            assert [m.queue_offset for m in found] == query["queue_offsets"]
        else:
            assert query["status"] == "OFFSET_OVERFLOW_ONE"
            with pytest.raises(NotFound, match="at or behind"):
                ask(store, query["queue_id"], offset=query["offset"], count=1)
    assert asked == 6


def test_ends(name: str, store: StoreReader) -> None:
    """As a pull tells them."""
    for query in stores.truth(name)["get_queries"]:
        for queue in compaction_queues(store, query["topic"]):
            if queue.queue_id == query["queue_id"]:
                with MappedFileQueue.open(queue.path) as files:
                    ends = summary_of(files)
                told = (query["min_offset"], query["max_offset"])
                assert (ends.min_offset, ends.max_offset) == told
                assert ends.damaged_bytes == 0


def test_every_record_is_one_that_was_sent(name: str, store: StoreReader) -> None:
    """All its fields, the position alone is another; the last one of each key is there."""
    known = {(m["queue_id"], m["queue_offset"]): m for m in stores.messages(name) if is_own(m)}
    seen = set[tuple[int, int]]()
    last: dict[tuple[int, str], int] = {}
    for found in ask(store, None):
        truth = known[found.queue_id, found.queue_offset]
        assert (found.topic, found.position) == (TOPIC, found.physical_offset)
        for field in SAME:
            assert getattr(found, field) == truth[field], field
        assert hashlib.sha1(found.stored_body).hexdigest() == truth["body_sha1"]
        assert found.properties == truth["properties"]
        seen.add((found.queue_id, found.queue_offset))
    for (queue_id, offset), truth in sorted(known.items()):
        if truth["properties"].get("KEYS", "").strip():
            last[queue_id, truth["properties"]["KEYS"]] = offset
    kept = {(queue_id, offset) for (queue_id, _), offset in last.items()}
    empty = {place for place, m in known.items() if not m["body_length"]}
    assert kept - empty <= seen


def is_own(message: dict[str, Any]) -> bool:
    """Of the compaction topic."""
    return bool(message["topic"] == TOPIC)


def test_units_and_records_agree(name: str, store: StoreReader) -> None:
    """Each record of the log has its unit, and what lies between is what compaction leaves."""
    for queue in compaction_queues(store, TOPIC):
        log = open_log(store.layout, TOPIC, queue.queue_id)
        places = []
        for item in log.scan():
            if isinstance(item, Batch):
                places += [(m.physical_offset, m.total_size, m.queue_offset) for m in messages(item)]
            elif item.kind not in (ExtentKind.BLANK, ExtentKind.ZEROS):
                assert is_usual(log, item)
        units = []
        with MappedFileQueue.open(queue.path) as files:
            for part in sparse_units(files):
                assert isinstance(part, SparseUnits)
                rows = part.units[is_valid(part.units)]
                names = ("physical_offset", "size", "msg_base_offset")
                units += list(zip(*(rows[each].tolist() for each in names), strict=True))
        assert units == places
        log.queue.close()


def test_backwards_and_with_a_condition(name: str, store: StoreReader) -> None:
    forwards = ask(store, None)
    backwards = find(store, Selection(topic=TOPIC), reverse=True)
    assert [each.message for each in backwards] == forwards[::-1]
    tag = next(m.tags for m in forwards if m.tags)
    wanted = [each.message for each in find(store, Selection(topic=TOPIC, tag=tag))]
    assert wanted == [m for m in forwards if m.tags == tag] != []


def test_where_a_broker_does_not_look(tmp_path: Path) -> None:
    """With compaction switched off, or for another topic policy, the consume queue answers."""
    root = stores.unpack("5.3.3-compaction", tmp_path)
    with StoreReader(root, BrokerConfig({"enableCompaction": "false"})) as store:
        plain = ask(store, 0, offset=0, count=3)
        assert [m.queue_offset for m in plain] == [0, 1, 2]
    topics = root / "config" / "topics.json"
    topics.write_text(topics.read_text().replace("COMPACTION", "DELETE"))
    with StoreReader(root) as store:
        said: list[str] = []
        assert ask(store, 0, offset=0, count=3, note=said.append) == plain
        assert "no longer a compaction topic" in said[0]
    for name in ("topics.json", "topics.json.bak"):
        (root / "config" / name).unlink()
    with StoreReader(root) as store:
        assert [m.queue_offset for m in ask(store, 0, offset=0, count=2)] == [216, 217]


def test_what_is_not_there(store: StoreReader) -> None:
    with pytest.raises(NotFound, match="has no queue 77"):
        ask(store, 77)
    with pytest.raises(NotFound, match=r"at or behind 100000"):
        ask(store, 0, offset=100_000, count=1)


def test_damage(tmp_path: Path) -> None:
    """Units that name nothing are left out and told; the others answer."""
    root = stores.unpack("5.3.3-compaction", tmp_path)
    path = root / "compaction" / "compactionCq" / TOPIC / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[UNIT_BYTES : 2 * UNIT_BYTES] = bytes(UNIT_BYTES)
    wild = UNIT.build({**END, "physical_offset": 1 << 40, "size": 1 << 30, "batch_size": 1})
    data[2 * UNIT_BYTES : 3 * UNIT_BYTES] = wild
    path.write_bytes(data + b"xyz")
    with MappedFileQueue.open(path.parent) as files:
        ranges = [part for part in sparse_units(files) if isinstance(part, SparseRange)]
        assert (ranges[0].position, ranges[0].size) == (UNIT_BYTES, UNIT_BYTES)
        assert (ranges[1].position, ranges[1].size) == (len(data), 3)
    said: list[str] = []
    with StoreReader(root) as store:
        found = ask(store, 0, offset=0, count=3, note=said.append)
    assert [m.queue_offset for m in found] == [216, 224]
    assert any("1 unit " in line for line in said)
    assert any("bytes of" in line for line in said)


@pytest.mark.parametrize(("offset", "count", "units"), [(None, None, 12), (0, None, 12), (266, 1, 0)])
def test_records_without_units_are_told(offset: int | None, count: int | None, units: int, tmp_path: Path) -> None:
    """A queue file that was not written: a broker serves none of its records."""
    root = stores.unpack("5.3.3-compaction", tmp_path)
    path = max((root / "compaction" / "compactionCq" / TOPIC / "0").iterdir())
    path.write_bytes(bytes(path.stat().st_size))
    said: list[str] = []
    with StoreReader(root) as store, nullcontext() if units else pytest.raises(NotFound):
        assert len(ask(store, 0, offset=offset, count=count, note=said.append)) == units
    assert said == ["10 records of compaction queue state/0 have no unit: left out"]


def test_a_record_without_unit_is_told_of_where_it_is_asked_for(tmp_path: Path) -> None:
    """The next one is given for it; what the selection leaves out is not told of."""
    root = stores.unpack("5.3.3-compaction", tmp_path)
    path = root / "compaction" / "compactionCq" / TOPIC / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    units = [UNIT.parse(data[at : at + UNIT_BYTES]) for at in range(0, len(data), UNIT_BYTES)]
    row = next(row for row, unit in enumerate(units) if unit["msg_base_offset"] == 224)
    begin, end = row * UNIT_BYTES, (row + 1) * UNIT_BYTES
    data[begin:end] = data[end : end + UNIT_BYTES]
    path.write_bytes(data)
    text = ["1 record of compaction queue state/0 has no unit: left out"]
    with StoreReader(root) as store:
        for more, told in (
            ({"offset": 224, "count": 1}, text),
            ({"offset": 216, "count": 1}, []),
            ({"offset": 225, "count": 1}, []),
            ({}, text),
            ({"selection": Selection(TOPIC, 0, tag="nix")}, []),
            ({"selection": Selection(TOPIC, 0, times=TimeRange(until_ms=1))}, []),
        ):
            said: list[str] = []
            asked: dict[str, Any] = {"selection": Selection(TOPIC, 0), **more}
            list(find(store, **asked, note=said.append))
            assert said == told, more


def test_a_log_that_is_gone(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-compaction", tmp_path)
    for path in (root / "compaction" / "compactionLog" / TOPIC / "0").iterdir():
        path.unlink()
    said: list[str] = []
    with StoreReader(root) as store:
        assert ask(store, 0, note=said.append) == []
    assert "point at no record" in said[0]
