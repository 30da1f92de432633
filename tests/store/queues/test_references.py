"""What the queues of a store name, asked for many holes: the units themselves are the judge."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from mqstore.formats.consume_queue import UNIT_BYTES
from mqstore.formats.derive import offset_of
from mqstore.formats.message import MESSAGE
from mqstore.store.broker.snapshot import QueueId
from mqstore.store.broker.system_topics import SCHEDULE_TOPIC
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.file_queue import MappedFileQueue, file_name
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout, queue_directories
from mqstore.store.findings.catalogue import Severity
from mqstore.store.log.commit_log import Batch, CommitLog
from mqstore.store.put.new_message import NewMessage
from mqstore.store.put.producer import ProducerOptions, as_stored
from mqstore.store.put.writer import StoreWriter, WriterOptions
from mqstore.store.queues import references
from mqstore.store.queues.batches import BatchConsumeQueue
from mqstore.store.queues.read import ConsumeQueue, ConsumeQueues
from mqstore.store.queues.references import QueueBegins, QueueReferences
from mqstore.store.queues.rocksdb import RocksDb, RocksdbConsumeQueues
from mqstore.store.queues.rocksdb_write import UnitSpool, build
from mqstore.store.recover.recovery import analyze, replan
from mqstore.store.search.store import StoreReader
from mqstore.store.session.apply import apply
from mqstore.store.start.queue_stores import queue_begins
from mqstore.store.verify.context import Scope
from mqstore.store.verify.run import verify

from ...archives import extract
from ...stores import config, unpack

_QUEUES = ("5.3.3-clean", "5.5.0-killed", "5.3.3-batchcq")


def _layout(name: str, work: Path) -> Layout:
    root = unpack(name, work)
    return Layout.open(root, BrokerConfig(config(name, root)))


def _units(layout: Layout) -> list[tuple[int, int]]:
    """Position and size of what units name."""
    found: list[tuple[int, int]] = []
    queues = ConsumeQueues(layout)
    for directory in queues:
        with queues.open(directory.topic, directory.queue_id) as queue:
            for _, units in queue.units(0, queue.summary().max_offset):
                found += zip(units["physical_offset"].tolist(), units["size"].tolist(), strict=True)
    for directory in queue_directories(layout.batch_consume_queue):
        with MappedFileQueue.open(directory.path) as files:
            batches = BatchConsumeQueue(directory.topic, directory.queue_id, files)
            each = [batches.unit(number) for number in range(batches.first, batches.stop)]
            found += [(unit.physical_offset, unit.size) for unit in each if unit is not None]
    return found


@pytest.mark.few(2)
@pytest.mark.parametrize("region", [1000, 50_000, 1 << 26])
@pytest.mark.parametrize("name", _QUEUES)
def test_every_record_is_named_and_nothing_else(
    name: str, region: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(references, "REGION_BYTES", region)
    monkeypatch.setattr("mqstore.store.log.commit_log._UNSORTED_MAX", 64)
    monkeypatch.setattr("mqstore.store.queues.units.WINDOW_UNITS", 5)
    layout = _layout(name, tmp_path)
    asked, units = QueueReferences(layout), _units(layout)
    Random(name).shuffle(units)
    for position, size in units[:400]:
        assert asked.names(position, position + size)
        assert asked.names(position, position + 10 * size)
        assert not asked.names(position, position + size - 1)
        assert not asked.names(position + 1, position + 10 * size)


def test_many_holes_open_a_queue_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, read = Counter[str](), Counter[str]()
    layout = _layout("5.3.3-clean", tmp_path)
    open_queue, units_of = ConsumeQueue.open, ConsumeQueue.units

    def counting(*arguments: object) -> ConsumeQueue:
        opened[f"{arguments[1]}/{arguments[2]}"] += 1
        return open_queue(*arguments)  # type: ignore[arg-type]

    def reading(self: ConsumeQueue, *place: int, reverse: bool = False) -> object:
        read[f"{self.topic}/{self.queue_id}"] += 1
        return units_of(self, *place, reverse=reverse)

    monkeypatch.setattr(ConsumeQueue, "open", counting)
    monkeypatch.setattr(ConsumeQueue, "units", reading)
    asked = QueueReferences(layout)
    for position in np.arange(0, 200_000, 77).tolist():
        asked.names(position, position + 500)
    assert len(opened) > 10
    assert max(opened.values()) == max(read.values()) == 1


def test_without_units_nothing_is_denied(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert QueueReferences(Layout.open(tmp_path)).names(0, 1000)


MADE_AGAIN = Path(__file__).parents[2] / "made_again"
"""Of real brokers: TT got six messages, and was deleted while the broker ran; then it got three again. U has five, of
before that and after. *-rocksdb-killed: "gone" was deleted with five and four messages, got three again, and its broker
5.3.3 was killed: before the RocksDB was flushed once more; later: between the two it had been stopped and started."""
LATER_MS = 1_795_939_200_000


def _made_again(name: str, work: Path) -> Path:
    extract(MADE_AGAIN / f"{name}.tar.gz", work / name)
    return work / name


def _wrong(root: Path | Layout) -> list[str]:
    with StoreReader(root) as store:
        found = verify(store, Scope(), now_ms=LATER_MS).findings
        return [f"{f.severity.name} {f.code} {f.message}" for f in found if f.severity > Severity.INFO]


@pytest.mark.parametrize("name", ["4.9.7", "5.3.3", "5.5.1-rocksdb"])
def test_what_a_deleted_topic_had_is_no_damage_of_the_one_that_was_made_again(name: str, tmp_path: Path) -> None:
    root = _made_again(name, tmp_path)
    (told,) = _wrong(root)  # of the two queues
    assert told.startswith("WARNING I-031 ")
    assert told.endswith(
        ": the queue was deleted and created again, or lost before a start; 3 messages before it have no unit"
    )
    found = analyze(Layout.open(root))
    assert found.nothing_to_do and found.messages == found.prediction.readable == 8
    assert any("6 messages in no queue (TT: 6)" in note for note in found.notes)


def _without(*names: str) -> Callable[[Path], None]:
    def harm(queues: Path) -> None:
        for name in names:
            shutil.rmtree(queues / name)

    return harm


def _zeroed(queue: str) -> Callable[[Path], None]:
    def harm(queues: Path) -> None:
        with (queues / queue / f"{0:020}").open("r+b") as file:
            file.write(bytes(UNIT_BYTES))

    return harm


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize(
    "harm", [_without("TT/0"), _without("TT/1"), _without("TT"), _zeroed("TT/0"), _zeroed("TT/1"), _without("U")]
)
def test_a_plan_makes_queues_as_they_were_since(harm: Callable[[Path], None], killed: bool, tmp_path: Path) -> None:
    """What the topic had before it was deleted gets no unit; a start that finds a queue gone makes that anew of it."""
    root = _made_again("5.3.3", tmp_path)
    before = _units(Layout.open(root))
    harm(root / "consumequeue")
    if killed:
        (root / "abort").touch()
    found = analyze(Layout.open(root))
    assert found.plan is not None
    apply(Layout.open(root), found.plan, lambda: replan(Layout.open(root), found.prediction.broker_version), Files())
    assert _units(Layout.open(root)) == before


@pytest.mark.parametrize(("name", "kept"), [("killed", [616, 918, 1220, 1524]), ("killed-later", [])])
def test_units_that_a_killed_broker_had_in_memory_are_those_of_the_new_topic(
    name: str, kept: list[int], tmp_path: Path
) -> None:
    """As a real start of 5.3.3 serves them: the deletion had not come to the disk either, or long before."""
    root = _made_again(f"5.3.3-rocksdb-{name}", tmp_path)

    def opened() -> Layout:
        return Layout.open(root, BrokerConfig({"storeType": "defaultRocksDB"}))

    by_chance = "ERROR I-182 a broker 5.3 may leave 3 messages unread"
    assert all(text.startswith(("WARNING I-031 ", by_chance)) for text in _wrong(opened()))
    found = analyze(opened())
    # a start serves gone/1 of the deleted topic in both cases
    assert found.plan is not None and (found.messages, found.predictions[-1].readable) == (9 + len(kept), 13)
    # fewer than 256 records lie between both: a batch may have them all (B46)
    assert [(each.hidden, len(each.race) > 0) for each in found.predictions] == [(3, True), (0, True)]
    apply(opened(), found.plan, lambda: replan(opened(), found.prediction.broker_version), Files())
    (told,) = _wrong(opened())
    assert "gone/0 0, not 5: the queue was deleted and created again" in told
    assert analyze(opened()).nothing_to_do
    with closing(RocksdbConsumeQueues(opened())) as queues:
        units = {q.queue_id: queues.open(*q[:2]).units(0, 9) for q in queues.of_topic("gone")}
        named = {n: [p for _, each in found for p in each["physical_offset"].tolist()] for n, found in units.items()}
    assert named == {0: [2144, 2297, 2450]} | ({1: kept} if kept else {})


def test_a_topic_that_was_made_again_twice_without_a_unit_begins_with_the_last(tmp_path: Path) -> None:
    """And the log is not read for one that a broker does not know any more."""
    _put(tmp_path, *"UAA")
    _lose(tmp_path, "A")
    _put(tmp_path, "A")
    _put(tmp_path, *"AA", queue_id=1)
    _lose(tmp_path, "A")
    _put(tmp_path, *"AA", queue_id=1)
    shutil.rmtree(tmp_path / "consumequeue" / "A")
    layout = Layout.open(tmp_path)
    again = QueueBegins(layout, {})
    begins = [again("A", number, 0) for number in (0, 1, 2)]
    with StoreReader(layout) as store:
        last = [item for item in store.log.scan() if isinstance(item, Batch)][-1].take(slice(-2, None))
    assert last.columns.ints("queue_offset").tolist() == [0, 1] and begins == [last.position[0]] * 3
    assert again.left == {QueueId("A", 0): 3, QueueId("A", 1): 2}
    assert QueueBegins(layout, {}, {"U": 1})("A", 0, 0) == 0


def test_where_no_other_topic_has_its_queues_all_may_be_lost(tmp_path: Path) -> None:
    """And those that are there made by a start, which begins with number 0."""
    root = _made_again("5.3.3", tmp_path)
    shutil.rmtree(root / "consumequeue" / "U")
    missing = [text for text in _wrong(root) if " I-070 " in text]
    assert any("TT/0" in text for text in missing) and any("TT/1" in text for text in missing)


def _put(root: Path, *topics: str, level: int | None = None, queue_id: int = 0) -> None:
    with StoreWriter.open(root, BrokerConfig(), WriterOptions(as_broker="5.3")) as writer:
        for topic in topics:
            message = NewMessage(topic.encode(), b"body", queue_id=queue_id)
            writer.append(as_stored(message, ProducerOptions(delay_level=level), writer))


def _lose(root: Path, *topics: str) -> None:
    """Their queues, as a broker does not see it: they are unknown, so that put begins them with 0 again."""
    path = root / "config" / "topics.json"
    text = path.read_text()
    for topic in topics:
        shutil.rmtree(root / "consumequeue" / topic)
        text = text.replace(f'"{topic}"', f'"{topic}0"')
    path.write_text(text)


def test_a_topic_of_which_a_queue_goes_on_was_not_made_again(tmp_path: Path) -> None:
    """One of its queues was lost, and begins again; the other is gone now, and comes back whole."""
    _put(tmp_path, "U")
    _put(tmp_path, *"AAA", queue_id=1)
    _put(tmp_path, *"AA")
    kept = tmp_path / "consumequeue" / "A" / "1"
    kept.rename(tmp_path / "1")
    _lose(tmp_path, "A")
    _put(tmp_path, *"AA")
    (tmp_path / "1").rename(kept)
    _put(tmp_path, *"AA", queue_id=1)
    _put(tmp_path, "A")
    units = min(kept.iterdir()).read_bytes()
    shutil.rmtree(kept)
    begins = QueueBegins(Layout.open(tmp_path), {})
    assert [begins("A", number, 0) for number in (0, 1)] == [0, 0]
    found = analyze(Layout.open(tmp_path))
    assert found.plan is not None
    apply(
        Layout.open(tmp_path),
        found.plan,
        lambda: replan(Layout.open(tmp_path), found.prediction.broker_version),
        Files(),
    )
    assert min(kept.iterdir()).read_bytes() == units
    shutil.rmtree(kept.parent)
    begins = QueueBegins(Layout.open(tmp_path), {})
    assert [begins("A", number, 0) for number in (0, 1)] == [0, 0]


def test_a_queue_that_a_topic_made_again_has_not_used_was_deleted_with_it(tmp_path: Path) -> None:
    """However late it got its messages: they had come before any of the others began again."""
    _put(tmp_path, *"UA")
    _put(tmp_path, *"AA", queue_id=1)
    _lose(tmp_path, "A")
    _put(tmp_path, *"UAA")
    (told,) = _wrong(tmp_path)
    assert told.startswith("WARNING I-031 ") and "created again" in told
    assert analyze(Layout.open(tmp_path)).nothing_to_do
    _put(tmp_path, *"AA", queue_id=2)
    shutil.rmtree(tmp_path / "consumequeue" / "A" / "2")
    assert any(text.startswith("ERROR I-070 ") and "A/2" in text for text in _wrong(tmp_path))


@pytest.mark.parametrize(
    ("oldest", "write", "read", "later", "is_lost"),
    [
        ("U", 1, 1, "", False),
        ("A", 1, 1, "", False),
        ("U", 2, 2, "", True),
        ("U", 1, 1, "A", True),
        ("U", 1, 2, "", True),
    ],
)
def test_queues_that_a_start_has_made_of_a_deleted_topic_are_none_of_the_new_one(
    oldest: str, write: int, read: int, later: str, is_lost: bool, tmp_path: Path
) -> None:
    """4.9.7 and 5.5.1, after a kill. If it has as many queues, also only to be read, or these go on, the first may have
    been lost alone.
    """
    _put(tmp_path, oldest, queue_id=1)
    _put(tmp_path, "U")
    _put(tmp_path, *"AAA", queue_id=1)
    _put(tmp_path, *"AAU")
    (tmp_path / "consumequeue" / "A" / "1").rename(tmp_path / "1")
    _lose(tmp_path, "A")
    _put(tmp_path, *"AAU")
    (tmp_path / "1").rename(tmp_path / "consumequeue" / "A" / "1")
    _put(tmp_path, *later, queue_id=1)
    path = tmp_path / "config" / "topics.json"
    content = json.loads(path.read_text())
    content["topicConfigTable"]["A"] |= {"writeQueueNums": write, "readQueueNums": read}
    path.write_text(json.dumps(content))
    assert any(text.startswith("ERROR I-070 A/0 unit 0 ") for text in _wrong(tmp_path)) == is_lost
    notes = analyze(Layout.open(tmp_path), "5.3").notes
    assert any(note.startswith("2 messages in no queue (A: 2)") for note in notes) != is_lost


@pytest.mark.parametrize(("later", "messages", "again"), [("U", 2, 4), ("UAU", 4, 2)])
def test_what_a_start_brings_back_of_a_deleted_topic_can_be_read(
    later: str, messages: int, again: int, tmp_path: Path
) -> None:
    """After a kill: all queues of a topic that is gone, those without a new message of one that was made again."""
    _put(tmp_path, *"UAA")
    _put(tmp_path, *"AA", queue_id=1)
    _lose(tmp_path, "A")
    _put(tmp_path, *later)
    (tmp_path / "abort").touch()
    found = analyze(Layout.open(tmp_path), "5.3")
    assert (found.messages, found.prediction.readable) == (messages, messages + again)
    assert any(f"deleted topics again, with {again} messages (A: {again})" in note for note in found.notes)


@pytest.mark.parametrize(("later", "begins_again"), [("AUA", "A"), ("WAUAW", "A"), ("A", ""), ("WAW", "")])
def test_without_any_queue_one_that_goes_on_in_the_log_tells(later: str, begins_again: str, tmp_path: Path) -> None:
    """It is older than what the topic had before, and has messages behind its begin; else all may have been lost."""
    _put(tmp_path, *"UAAU")
    _lose(tmp_path, "A")
    _put(tmp_path, *later)
    _put(tmp_path, *("A" * later.count("A")))
    before = _units(Layout.open(tmp_path))
    shutil.rmtree(tmp_path / "consumequeue")
    begins = QueueBegins(Layout.open(tmp_path), {})
    assert "".join(topic for topic in "UAW" if begins(topic, 0, 0)) == begins_again
    found = analyze(Layout.open(tmp_path))
    assert found.plan is not None
    version = found.prediction.broker_version
    apply(Layout.open(tmp_path), found.plan, lambda: replan(Layout.open(tmp_path), version), Files())
    assert (_units(Layout.open(tmp_path)) == before) == bool(begins_again)
    assert bool(_wrong(tmp_path)[1:]) != bool(begins_again)


def test_in_a_rocksdb_without_a_unit_topics_begin_again_whether_or_not_another_goes_on(tmp_path: Path) -> None:
    """As a start of 5.5.1 puts units of later records over those of earlier ones: a plan does so, too."""
    _put(tmp_path, *"UAA")
    _lose(tmp_path, "A")
    _put(tmp_path, *"AAA")
    (_, *wanted) = sorted(_units(Layout.open(tmp_path)))
    shutil.rmtree(tmp_path / "consumequeue")
    build(tmp_path / "consumequeue", UnitSpool(), 0)
    (tmp_path / "abort").touch()

    def opened() -> Layout:
        return Layout.open(tmp_path, BrokerConfig({"storeType": "defaultRocksDB"}))

    found = analyze(opened(), "5.5.1")
    assert found.plan is not None and (found.messages, found.predictions[-1].readable) == (4, 4)
    assert any(note.startswith("2 messages in no queue (A: 2)") for note in found.notes)
    apply(opened(), found.plan, lambda: replan(opened(), "5.5.1"), Files())
    with closing(RocksdbConsumeQueues(opened())) as queues:
        units = [unit for _, each in queues.open("A", 0).units(0, 9) for unit in each[["physical_offset", "size"]]]
    assert [tuple(unit.tolist()) for unit in units] == wanted


def test_topics_of_the_broker_itself_cannot_be_deleted(tmp_path: Path) -> None:
    """Their queues are lost where they begin with 0 again: what waited is never delivered."""
    _put(tmp_path, "U")
    _put(tmp_path, "U", "U", level=18)
    _put(tmp_path, "U")
    _lose(tmp_path, SCHEDULE_TOPIC)
    _put(tmp_path, "U", level=18)
    wrong = _wrong(tmp_path)
    assert any(text.startswith(f"ERROR I-070 {SCHEDULE_TOPIC}/17 ") for text in wrong)
    assert any("would leave 2 messages unread" in text for text in wrong)
    assert not any("created again" in text for text in wrong)


@pytest.mark.parametrize("all_lost", [False, True])
def test_the_log_is_read_once_for_all_topics(all_lost: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all queues were lost the first to begin again is no older topic for the others."""
    _put(tmp_path, *"UAABBU")
    _lose(tmp_path, *"AB")
    _put(tmp_path, *"AB")
    if all_lost:
        _lose(tmp_path, "U")
    scans, scan = Counter[str](), CommitLog.scan

    def counting(self: CommitLog, *place: int, **options: bool) -> object:
        scans["log"] += 1
        return scan(self, *place, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(CommitLog, "scan", counting)
    begins = QueueBegins(Layout.open(tmp_path), {})
    assert [begins(topic, 0, 0) > 0 for topic in "UAB"] == [False, not all_lost, not all_lost]
    assert scans["log"] == 1


def test_all_who_ask_about_a_store_read_the_log_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks, the simulated start and the plan; and in front of nothing there is none."""
    layout = Layout.open(_made_again("5.3.3", tmp_path))
    assert queue_begins(layout).left == {}
    asked, begun = Counter[str](), references._LogBegins.__init__

    def counting(*arguments: Any) -> None:
        asked["log"] += 1
        begun(*arguments)

    monkeypatch.setattr(references._LogBegins, "__init__", counting)
    with StoreReader(layout) as store:
        verify(store, Scope(), now_ms=LATER_MS, jobs=1)
    assert any("(TT: 6)" in note for note in analyze(layout, jobs=1).notes)
    assert asked["log"] == 1
    assert queue_begins(layout).left == {QueueId("TT", 0): 3, QueueId("TT", 1): 3}


def test_the_database_of_queues_is_closed_behind_each_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And opened for all queues at once."""
    layout = Layout.open(_made_again("5.5.1-rocksdb", tmp_path))
    opened, open_database = list[RocksDb](), RocksDb.open

    def opening(*arguments: Any) -> RocksDb:
        opened.append(open_database(*arguments))
        return opened[-1]

    monkeypatch.setattr(RocksDb, "open", opening)
    begins = QueueBegins(layout, {})
    firsts = [begins.first(QueueId(topic, number)) for topic in ("TT", "U", "none") for number in (0, 1)]
    assert firsts[:2] == [begins("TT", number, 0) for number in (0, 1)] and firsts[4:] == [None, None]
    assert 1 <= len(opened) <= 2 and not any(database._finalizer.alive for database in opened)


@pytest.mark.parametrize("follows", [True, False])
def test_one_number_0_alone_is_damage(follows: bool, tmp_path: Path) -> None:
    """No checksum covers it: a queue that begins again goes on with 1."""
    root = unpack("5.3.3-clean", tmp_path)
    with StoreReader(root) as store:
        log_bytes = store.log_files.files[0].size
        records = [batch for batch in store.log.scan() if isinstance(batch, Batch)]
        mine = [
            int(batch.position[row])
            for batch in records
            for row in range(len(batch))
            if batch.columns["topic"][row] == b"logs" and batch.columns.ints("queue_id")[row] == 0
        ]
    shutil.rmtree(root / "consumequeue" / "logs")
    number = len(mine) // 2
    for at, position in enumerate(mine[number:] if follows else mine[number : number + 1]):
        with (root / "commitlog" / file_name(position - position % log_bytes)).open("r+b") as log:
            log.seek(position % log_bytes + offset_of(MESSAGE, "queue_offset"))
            log.write(at.to_bytes(8, "big"))
    begins = queue_begins(Layout.open(root))
    assert (begins("logs", 0, mine[0]) > mine[0]) is follows
