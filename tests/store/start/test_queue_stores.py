"""What random damage showed of starts with queues in a RocksDB (tests/interop/test_database_prediction.py), one by
one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from mqstore.formats.consume_queue import UNIT_BYTES
from mqstore.formats.message import SysFlag
from mqstore.formats.rocksdb_consume_queue import BOUNDS, CHECKPOINT, MAX, UNITS, bound_key
from mqstore.store.broker.profiles import profile_of
from mqstore.store.broker.snapshot import QueueId, Snapshot
from mqstore.store.disk.files import Edit, Files
from mqstore.store.disk.layout import Layout
from mqstore.store.findings.catalogue import Severity
from mqstore.store.put.new_message import NewMessage
from mqstore.store.put.writer import StoreWriter, WriterOptions
from mqstore.store.queues.rocksdb import RocksDb, RocksdbConsumeQueues
from mqstore.store.queues.rocksdb_write import Changes
from mqstore.store.recover.recovery import analyze, replan
from mqstore.store.repair import repair
from mqstore.store.repair.parts import RepairPart, chosen
from mqstore.store.search.store import StoreReader
from mqstore.store.session.apply import apply
from mqstore.store.start.log import switches_of
from mqstore.store.start.outcome import Outcome
from mqstore.store.start.simulate import all_outcomes
from mqstore.store.verify.context import Scope
from mqstore.store.verify.run import verify
from tests.archives import extract
from tests.database_mishaps import ROW, put

from ...rocks_cases import case_of, damaged
from ..real_log import records_of

pytestmark = pytest.mark.long

NOW_MS = 1_795_400_000_000
ROCKS, HYBRID, SAME = "5.5.1-rocks-clean-1", "5.5.1-hybrid-clean-1", "5.5.1-same-clean-1"
KILLED = "5.5.1-rocks-halt-1"
SLASH = "%LMQ%c/d"


def opened(name: str, work: Path, kind: str = "none", **more: str) -> Layout:
    root, config = damaged(case_of(f"{name}/{kind}"), work)
    return Layout.open(root, config.with_set([f"{key}={value}" for key, value in more.items()]))


def again(layout: Layout) -> Layout:
    return Layout.open(layout.root, layout.broker_config)


def changed(layout: Layout, changes: Changes) -> Layout:
    assert layout.queue_database is not None
    put(layout.queue_database, changes)
    return again(layout)


def starts(layout: Layout, version: str = "5.5.1") -> list[Outcome]:
    snapshot = Snapshot.of(layout)
    return [*all_outcomes(snapshot, profile_of(version), switches_of(snapshot))]


def refused(layout: Layout, version: str = "5.5.1") -> str:
    refusal = starts(layout, version)[0].refusal
    assert refusal is not None
    return refusal.case


@pytest.mark.parametrize("row", [b"", b"\0" * 3])
def test_a_row_too_short_to_say_how_far_the_log_was_dispatched(row: bytes, tmp_path: Path) -> None:
    assert refused(changed(opened(ROCKS, tmp_path), {BOUNDS: {ROW: row}})) == "queue-database-row"


def test_a_max_row_that_is_too_long_counts_once_it_is_asked_for(tmp_path: Path) -> None:
    long = bound_key(b"TopicA", 0, MAX)
    layout = changed(opened(ROCKS, tmp_path), {BOUNDS: {long: bytes(17)}})
    assert starts(layout)[0].read_queues[QueueId("TopicA", 0)].max_offset == 1


@pytest.mark.parametrize("version", ["5.4.0", "5.5.1"])
def test_an_accelerated_recovery_that_begins_behind_its_file(version: str, tmp_path: Path) -> None:
    layout = opened(KILLED, tmp_path, "ckpt_beyond", enableAcceleratedRecovery="true")
    assert refused(layout, version) == "queue-database-row"


@pytest.mark.parametrize(("version", "passes"), [("5.4.0", True), ("5.5.1", False)])
def test_an_accelerated_recovery_after_a_clean_stop(version: str, passes: bool, tmp_path: Path) -> None:
    """5.4 begins at the position dispatched, as after a crash, and meets no damage before it; 5.5 does."""
    layout = opened(ROCKS, tmp_path, enableAcceleratedRecovery="true")
    records = records_of(layout)
    end = max(record.physical_offset + record.total_size for record in records)
    newest = max((layout.root / "commitlog").iterdir())
    second = min(r.physical_offset for r in records if r.physical_offset > int(newest.name))
    with newest.open("r+b") as file:
        file.seek(second - int(newest.name))
        file.write(bytes(8))
    assert (starts(again(layout), version)[0].log_end >= end) is passes


def test_units_are_held_against_the_log_as_the_recovery_leaves_it(tmp_path: Path) -> None:
    """A file with an odd name comes last, ends the log, and is the first once the others are cut off."""
    layout = opened(KILLED, tmp_path)
    first = min((layout.root / "commitlog").iterdir())
    first.rename(first.with_name("1"))
    (outcome, *_) = starts(again(layout), "5.4.0")
    assert outcome.log_start == 1
    ends = [(queue.min_offset, queue.max_offset) for queue in outcome.read_queues.values()]
    assert {low for low, _ in ends} == {0, 1}, "of all units only that of the record at 0 is gone"
    assert sum(low for low, _ in ends) == 1 < max(high for _, high in ends)


def test_5_4_finds_no_file_of_a_light_queue_where_a_database_is_read(tmp_path: Path) -> None:
    """Only where a message of one is dispatched again (B44)."""
    more = {"combineCQPreferCQType": "defaultrocksdb"}  # brokers ignore the case
    assert refused(opened(SAME, tmp_path, "abort_toggled", **more), "5.4.0") == "queue-database-light"
    assert starts(opened(SAME, tmp_path, **more), "5.4.0")[0].refusal is None


@pytest.mark.parametrize(("name", "light"), [(KILLED, "true"), ("5.5.1-hybrid-halt-1", "true"), (KILLED, "false")])
def test_a_number_that_is_none_keeps_the_thread_busy_for_ever(name: str, light: str, tmp_path: Path) -> None:
    """Without enableLmq it is who waits for LMQs that cannot be told (enableMultiDispatch)."""
    layout = opened(name, tmp_path, enableLmq=light)
    path = max((layout.root / "commitlog").iterdir(), key=lambda p: b"%LMQ%" in p.read_bytes())
    data, text = path.read_bytes(), b"INNER_MULTI_QUEUE_OFFSET\x01"
    at = data.rindex(text) + len(text)
    path.write_bytes(data[:at] + b"x" + data[at + 1 :])
    (outcome, *_) = starts(again(layout))
    assert outcome.refusal is None
    assert "NumberFormatException" in outcome.hangs


def test_what_a_clean_start_dispatches_races_as_well(tmp_path: Path) -> None:
    """B42: with what it holds against the queues in files."""
    outcomes = starts(opened(HYBRID, tmp_path, "ckpt_low_and_tail_missing"))
    rows = [outcome.database.rows for outcome in outcomes if outcome.database is not None]
    assert len(rows) == 2 and rows[0] != rows[1]


def test_a_selective_database_has_what_messages_of_its_topics_name(tmp_path: Path) -> None:
    """Whatever the LMQs are named; what other messages name is nowhere."""
    layout = opened(HYBRID, tmp_path, "both_missing", rocksdbCQSelectiveDoubleWriteEnable="true")
    table = {"TopicA": {"topicName": "TopicA", "attributes": {"message.type": "LITE"}}}
    layout.config.mkdir(exist_ok=True)
    text = json.dumps({"topicConfigTable": table})
    (layout.config / "topics.json").write_text(text, encoding="utf-8")
    layout.abort.touch()
    layout.checkpoint.write_bytes(bytes(4096))  # all of the log is dispatched
    database = starts(again(layout))[0].database
    assert database is not None
    lite = [record for record in records_of(layout) if record.topic == b"TopicA"]
    assert {queue.topic for queue in database.queues} == {"TopicA", "%LMQ%a", "%LMQ%b"}
    assert database.row == max(record.physical_offset + record.total_size for record in lite)
    light = database.view(QueueId("%LMQ%a", 0))
    there = light.units_at(np.arange(light.max_offset, dtype=np.int64))
    places = {record.physical_offset for record in lite}
    assert set(there["physical_offset"][there["size"] > 0].tolist()) <= places


def appended(layout: Layout, *messages: NewMessage) -> Layout:
    options = WriterOptions(as_broker="5.5.1", wait_seconds=0, topic_config=False)
    with StoreWriter.open(layout.root, layout.broker_config, options) as store:
        for message in messages:
            store.append(message)
    return again(layout)


def edits(layout: Layout) -> list[Edit]:
    """Of a recovery."""
    plan = analyze(layout, "5.5.1").plan
    assert plan is not None
    return list(plan.edits)


def repaired(layout: Layout) -> repair.Repair:
    return repair.analyze(layout, chosen([RepairPart.QUEUE], ()), "5.5.1", NOW_MS)


def test_a_broker_does_not_count_half_messages_as_dispatched(tmp_path: Path) -> None:
    """They get no unit: a row that ends before those at the end of the log is in order, and a start leaves it."""
    layout = opened(ROCKS, tmp_path)
    end = max(record.physical_offset + record.total_size for record in records_of(layout))
    half = NewMessage(b"TopicA", b"half", sys_flag=SysFlag.PREPARED, store_timestamp=NOW_MS)
    layout = appended(layout, half, half)
    layout = changed(layout, {BOUNDS: {ROW: CHECKPOINT.build({"physical_offset": end})}})
    assert not edits(layout)
    assert repaired(layout).nothing_to_do
    layout = changed(layout, {BOUNDS: {ROW: CHECKPOINT.build({"physical_offset": end - 1})}})
    database = starts(layout)[0].database
    assert database is not None and database.row == end - 1
    assert edits(layout)


def units(layout: Layout) -> Mapping[bytes, bytes]:
    assert layout.queue_database is not None
    with RocksDb.open(layout.queue_database) as database:
        return dict(database.items(UNITS))


@pytest.mark.parametrize("name", [ROCKS, HYBRID])
def test_a_light_queue_in_a_database_may_have_a_slash_in_its_name(name: str, tmp_path: Path) -> None:
    """No file could be named so; a RocksDB has it, and keeps it when it is built anew."""
    layout = opened(name, tmp_path)
    named = f"INNER_MULTI_DISPATCH\1{SLASH}\2".encode()
    message = NewMessage(b"TopicA", b"b", properties=named, store_timestamp=NOW_MS)
    layout = appended(layout, message, message)
    before = units(layout)
    queues = RocksdbConsumeQueues(layout)
    assert [queue.queue_id for queue in queues.of_topic(SLASH)] == [0]
    queues.close()
    found = analyze(layout, "5.5.1")
    assert not edits(layout)
    assert found.prediction.readable == found.messages == len(before)
    assert layout.queue_database is not None
    for table in layout.queue_database.glob("*.sst"):
        table.unlink()
    mend = repaired(again(layout))
    redo = partial(repair.replan, again(layout), mend.request)
    apply(again(layout), mend.plan, redo, Files())
    assert units(again(layout)) == before


LIGHT = Path(__file__).parents[2] / "light_queues"
"""Of a real 5.5.1: %LMQ%$par$c0 and c1 got three messages each, went as their TTL was over, and c1 got two again."""
LATER_MS = 1_795_903_200_000


def expired(kind: str, work: Path) -> Path:
    root = work / kind
    extract(LIGHT / f"5.5.1-{kind}.tar.gz", root)
    return root


def wrong_with(root: Path) -> set[str]:
    with StoreReader(root) as store:
        return {f.code for f in verify(store, Scope(), now_ms=LATER_MS).findings if f.severity > Severity.INFO}


def missing(root: Path) -> list[str]:
    with StoreReader(root) as store:
        return [f.message for f in verify(store, Scope(), now_ms=LATER_MS).findings if f.code == "I-070"]


@pytest.mark.parametrize("kind", ["files", "rocksdb"])
def test_light_queues_whose_ttl_is_over_are_no_damage(kind: str, tmp_path: Path) -> None:
    root = expired(kind, tmp_path)
    assert not wrong_with(root)
    found = analyze(Layout.open(root))
    assert found.plan is not None and not found.plan.edits and found.messages == 14
    topics = root / "config" / "topics.json"
    topics.write_text(topics.read_text().replace('"lite.topic.expiration":"1"', '"lite.topic.expiration":"-1"'))
    if kind == "files":  # else the topics are in a RocksDB
        assert "I-070" in wrong_with(root)


def test_a_unit_that_a_light_queue_has_lost_is_missing(tmp_path: Path) -> None:
    root = expired("files", tmp_path)
    path = root / "consumequeue" / "%LMQ%$par$c1" / "0" / ("0" * 20)
    with path.open("r+b") as file:
        file.seek(UNIT_BYTES)
        file.write(bytes(UNIT_BYTES))
    assert "I-070" in wrong_with(root)


@pytest.mark.parametrize("units", [1, 2])
def test_a_light_queue_whose_front_is_damaged_gets_its_own_units(units: int, tmp_path: Path) -> None:
    """Not those of the messages that it had before its TTL was over."""
    root = expired("files", tmp_path)
    path = root / "consumequeue" / "%LMQ%$par$c1" / "0" / ("0" * 20)
    before = path.read_bytes()
    path.write_bytes(bytes(units * UNIT_BYTES) + before[units * UNIT_BYTES :])
    plan = analyze(Layout.open(root)).plan
    assert plan is not None
    apply(Layout.open(root), plan, lambda: replan(Layout.open(root), "5.5.1"), Files())
    assert path.read_bytes() == before


def test_a_light_queue_is_no_longer_there_only_where_its_ttl_can_be_over(tmp_path: Path) -> None:
    root = expired("files", tmp_path)
    topics, queue = root / "config" / "topics.json", root / "consumequeue" / "%LMQ%$par$c1"
    shutil.rmtree(queue)
    (told,) = missing(root)  # the three that it had before its TTL was over are not lost
    assert told.startswith("the queue %LMQ%$par$c1/0 is missing: the log has 2 messages of it")
    topics.write_text(topics.read_text().replace('"lite.topic.expiration":"1"', '"lite.topic.expiration":"1000000"'))
    assert len(missing(root)) == 2  # c0, too: its three messages are 76 s old


def test_a_light_queue_that_begins_with_another_number_than_0_has_lost_its_beginning(tmp_path: Path) -> None:
    root = expired("files", tmp_path)
    path = root / "consumequeue" / "%LMQ%$par$c1" / "0" / ("0" * 20)
    size = path.stat().st_size
    path.rename(path.with_name(f"{size:020}"))
    assert "I-070" in wrong_with(root)
