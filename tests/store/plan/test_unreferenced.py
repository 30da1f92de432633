"""Op records of transactions that are lost: what they said is proven by the committed messages."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from mqstore.formats import message_properties as names
from mqstore.formats.consume_queue import UNIT_BYTES
from mqstore.store.audit.queues import QueueAudit
from mqstore.store.broker.snapshot import QueueId
from mqstore.store.broker.system_topics import HALF_TOPIC, OP_TOPIC
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.log.message import Message
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.plan.plan import Plan
from mqstore.store.plan.unreferenced import LostMessagePlace, places, with_light_queues
from mqstore.store.put.new_message import NewMessage
from mqstore.store.put.producer import ProducerOptions, as_stored, committed, decided, open_half
from mqstore.store.put.writer import StoreWriter
from mqstore.store.queues.edits import QueueHole
from mqstore.store.recover.recovery import replan
from mqstore.store.search.store import StoreReader, hold_still
from mqstore.store.session.apply import apply
from tests.cli.datadriven import run_here

from ... import recovery_cases, stores
from ..put.test_producer_transaction import HOST, log_of
from ..put.writing import NOW, TINY, writer
from ..recover.recovered import units_of
from .narrow import overwrite
from .tombstones import FORMS, lost

LOG_FILE, QUEUE_FILE = 4096, 200
HALVES = ("A", "B", "C", "D")
DECIDED = ("A", "B", "C")


def made(root: Path, version: str) -> list[Message]:
    """Four half messages, three of them committed. Returns the op records."""
    with writer(root, version) as store:
        for key in HALVES:
            text = names.format_properties({"UNIQ_KEY": key, "PGROUP": "g"})
            message = NewMessage(b"orders", b"body " * 30, queue_id=0, properties=text)
            store.append(as_stored(message, ProducerOptions(half=True), store))
    for key in DECIDED:
        with writer(root, version) as store:
            half = open_half(store.layout, key)
            store.append(committed(half, store.profile))
            store.append(decided(half, store.profile, HOST, NOW))
    return [message for message in log_of(root, TINY) if message.topic == OP_TOPIC]


def lose(root: Path, op: Message, *, unit: bool) -> None:
    """Noise in the place of a record; unit: its unit is gone, too."""
    overwrite(root / "commitlog", LOG_FILE, op.position, b"\xa5" * op.total_size)
    if unit:
        queue = root / "consumequeue" / OP_TOPIC / "0"
        overwrite(queue, QUEUE_FILE, op.queue_offset * UNIT_BYTES, bytes(UNIT_BYTES))


def kept(root: Path, version: str, config: BrokerConfig = TINY) -> Plan:
    options = RecoveryOptions(Policy.KEEP, NOW, (version,))

    def again() -> Plan:
        return replan(Layout.open(root, config), version, options)

    plan = again()
    apply(Layout.open(root, config), plan, again, Files())
    assert again().edits == ()
    return plan


def named(root: Path) -> list[int]:
    """Queue offsets of half messages that op records name, as a broker reads them."""
    bodies = [m.stored_body.decode() for m in log_of(root, TINY) if m.topic == OP_TOPIC]
    return sorted(int(text) for body in bodies for text in body.split(",") if text)


@pytest.mark.few(1)
@pytest.mark.parametrize("version", ["4.3", "4.9", "5.5"])
@pytest.mark.parametrize("unit", [False, True])
def test_what_a_lost_op_record_said(version: str, unit: bool, tmp_path: Path) -> None:
    """No committed message comes a second time: every decided half is named."""
    ops = made(tmp_path, version)
    halves = [m.queue_offset for m in log_of(tmp_path, TINY) if m.topic == HALF_TOPIC]
    assert named(tmp_path) == halves[: len(DECIDED)]
    lose(tmp_path, ops[1], unit=unit)
    assert kept(tmp_path, version).lost.messages == 1
    assert named(tmp_path) == halves[: len(DECIDED)]
    found = [m for m in log_of(tmp_path, TINY) if m.topic == OP_TOPIC]
    assert [m.queue_offset for m in found] == [m.queue_offset for m in ops]
    assert found[1].properties["TAGS"] == "d" and found[1].properties["LOST"]


def test_what_nothing_proves_is_asked_again(tmp_path: Path) -> None:
    """The committed message is gone, too: then the op record may not name its half."""
    ops = made(tmp_path, "5.3")
    final = next(m for m in log_of(tmp_path, TINY) if m.topic == "orders" and m.unique_key == "B")
    lose(tmp_path, ops[1], unit=False)
    overwrite(tmp_path / "commitlog", LOG_FILE, final.position, b"\xa5" * final.total_size)
    assert kept(tmp_path, "5.3").lost.messages == 2
    assert named(tmp_path) == [-1, 0, 2]


def test_several_lost_op_records(tmp_path: Path) -> None:
    """Two op records lost side by side, one of them without its unit."""
    ops = made(tmp_path, "5.5")
    lose(tmp_path, ops[0], unit=True)
    lose(tmp_path, ops[1], unit=False)
    assert kept(tmp_path, "5.5").lost.messages == 2
    assert [offset for offset in named(tmp_path) if offset >= 0] == [0, 1, 2]


def test_a_number_out_of_reach_makes_no_lost_messages() -> None:
    """A damaged queue offset is no hole of as many messages: there is no room for them in the log."""
    audit = SimpleNamespace(missing=lambda: [QueueHole(5, 1 << 60, 100, 5000), QueueHole(1, 3, 100, 5000)])
    queue = QueueId("T", 0)
    found = list(places(cast("Mapping[QueueId, QueueAudit]", {queue: audit})))
    assert [place.queue_offset for place in found] == [1, 2]


def without_three(root: Path, *, shifted: bool) -> int:
    """Zeros in place of three records and their units. shifted: the unit behind them takes the first one's place.
    Returns how many messages the plan loses.
    """
    with writer(root, "5.3") as store:
        for _ in range(7):
            store.append(NewMessage(b"orders", b"x", queue_id=0, born_timestamp=NOW))
    for message in log_of(root, TINY)[3:6]:
        overwrite(root / "commitlog", LOG_FILE, message.position, bytes(message.total_size))
    path = root / "consumequeue/orders/0" / f"{0:020d}"
    units, gone = path.read_bytes(), bytes(3 * UNIT_BYTES)
    ends = units[: len(gone)], units[2 * len(gone) :]
    path.write_bytes(b"".join((*ends, gone) if shifted else (ends[0], gone, ends[1])))
    return kept(root, "5.3").lost_messages


def test_what_a_renumbered_record_skips_is_not_lost(tmp_path: Path) -> None:
    """The disk was full: a broker gave the first record behind the zeros the unit of the first lost one."""
    assert without_three(tmp_path, shifted=True) == 0
    assert [m.queue_offset for m in log_of(tmp_path, TINY) if m.topic == "orders"] == [0, 1, 2, 3]


def test_messages_for_whose_tombstones_there_is_no_room_are_lost(tmp_path: Path) -> None:
    assert without_three(tmp_path, shifted=False) == 3
    assert len([m for m in log_of(tmp_path, TINY) if m.topic == "orders"]) < 7


def light(name: str, tmp_path: Path) -> tuple[Path, BrokerConfig]:
    """A real store with LMQs, and its configuration."""
    root = stores.unpack(name, tmp_path)
    return root, BrokerConfig().with_set(stores.config_set(name, root))


def test_a_record_that_only_light_queues_name_is_of_the_queue_that_lacks_it(tmp_path: Path) -> None:
    """The queue of seven lost messages is gone: each gets its number back at the place that LMQs name."""
    root, config = light("5.3.3-lmq", tmp_path)
    queue, before = QueueId("mqtt", 1), units_of(root, config)
    shutil.rmtree(root / "consumequeue/mqtt/1")
    overwrite(root / "commitlog", 256 << 10, 2 * 4096, bytes(3 * 4096))
    plan = kept(root, "5.3", config)
    places = {offset: unit[0] for offset, unit in before[queue].items()}
    assert {offset: unit[0] for offset, unit in units_of(root, config)[queue].items()} == places
    own = {(m.topic, m.queue_id, m.queue_offset) for m in log_of(root, config)}
    assert {("mqtt", 1, offset) for offset in before[queue]} <= own
    assert not any(topic.startswith("%LMQ%") for topic, _, _ in own)
    assert plan.lost.by_topic()["mqtt"] == 23


def positions_of(root: Path, config: BrokerConfig) -> dict[QueueId, dict[int, int]]:
    """By queue and queue offset, the position that the unit names."""
    return {queue: {n: unit[0] for n, unit in units.items()} for queue, units in units_of(root, config).items()}


@pytest.mark.parametrize("name", ["4.9.7-lmq", "5.3.3-lmq"])
def test_a_tombstone_names_the_further_queues_of_its_record(name: str, tmp_path: Path) -> None:
    """Queues that are made anew of the log have it at the same places as before."""
    root, config = light(name, tmp_path)
    overwrite(root / "commitlog", 256 << 10, 2 * 4096, bytes(3 * 4096))
    kept(root, name[:3], config)
    before = positions_of(root, config)
    assert any({"LOST", names.INNER_MULTI_DISPATCH} <= m.properties.keys() for m in log_of(root, config))
    shutil.rmtree(root / "consumequeue")
    kept(root, name[:3], config)
    assert positions_of(root, config) == before


@pytest.mark.parametrize("name", ["4.9.7-lmq", "5.3.3-lmq"])
def test_light_queues_without_units_get_the_tombstones(name: str, tmp_path: Path) -> None:
    """Each offset that an LMQ lacks is that of a tombstone, also where a record was in several: no unit is repeated."""
    root, config = light(name, tmp_path)
    before = positions_of(root, config)
    overwrite(root / "commitlog", 256 << 10, 2 * 4096, bytes(3 * 4096))
    shutil.rmtree(root / "consumequeue")
    kept(root, name[:3], config)
    tombstones = {m.position for m in log_of(root, config) if "LOST" in m.properties}
    light_after = {
        queue: units for queue, units in positions_of(root, config).items() if queue.topic.startswith("%LMQ%")
    }
    assert light_after
    for queue, units in light_after.items():
        assert units.keys() == before[queue].keys()
        assert len(set(units.values())) == len(units)
        moved = {at for number, at in units.items() if at != before[queue][number]}
        assert moved <= tombstones


def test_a_hole_without_room_for_names_takes_none_from_others(tmp_path: Path) -> None:
    """Of a hole of small records, and of one whose records were in LMQs: all of these name them."""
    root, size = tmp_path / "store", 1 << 16
    options = {"enableLmq": "true", "enableMultiDispatch": "true", "mappedFileSizeCommitLog": str(size)}
    config = BrokerConfig(dict(TINY.items()) | options)
    light = {"topic": "mqtt", "body": "x" * 200, "properties": {names.INNER_MULTI_DISPATCH: "%LMQ%a,%LMQ%b"}}
    rows = [{"queue_id": 0, **({"topic": "t", "body": ""} if 40 <= n < 80 else light)} for n in range(120)]
    source = tmp_path / "rows.ndjson"
    source.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    settings = [f"--set={name}={value}" for name, value in config.items()]
    done = run_here(["put", str(root), "--from", str(source), "--as-broker", "5.3", "--quiet", *settings])
    assert done.code == 0, done
    there, before = log_of(root, config), positions_of(root, config)
    for first, last in ((60, 63), (90, 110)):
        begin = there[first].position
        overwrite(root / "commitlog", size, begin, bytes(there[last].position - begin))
    shutil.rmtree(root / "consumequeue")
    kept(root, "5.3", config)
    after = positions_of(root, config)
    assert {queue: list(units) for queue, units in after.items()} == {q: list(units) for q, units in before.items()}
    for queue in (QueueId("%LMQ%a", 0), QueueId("%LMQ%b", 0)):
        assert len(set(after[queue].values())) == len(after[queue])


def test_a_record_of_a_lite_topic_is_in_one_light_queue() -> None:
    """Where it could be in any of two queues, the one that ends first gets it; records of other topics get no name."""
    records = lost((100, 400, "chat"), (500, 400, "chat"), (900, 400, "other"), (1300, 400, "-"))
    rooms = [QueueId(f"%LMQ%$chat${name}", 0) for name in "abc"]
    free = [
        LostMessagePlace(rooms[0], 3, 0, 5000),
        LostMessagePlace(rooms[1], 8, 0, 600),
        LostMessagePlace(rooms[2], 5, 2000, 5000),
    ]
    topics = dict.fromkeys(rooms, "chat")
    found = with_light_queues(records, {}, free, topics, FORMS)
    assert found == {100: {b"%LMQ%$chat$b": 8}, 500: {b"%LMQ%$chat$a": 3}}
    assert with_light_queues(records, found, free, topics, FORMS) == found
    plain = [place._replace(queue=QueueId(f"%LMQ%{place.queue_offset}", 0)) for place in free]
    both = with_light_queues(records, found, plain, {}, FORMS)
    assert {b"%LMQ%3", b"%LMQ%8"} < {name for names in both.values() for name in names}
    assert 1300 not in with_light_queues(records, {}, plain[2:], {}, FORMS)


@pytest.mark.parametrize("name", ["4.9.7-lmq", "5.3.3-lmq"])
def test_lost_messages_of_light_queues_without_units_are_counted(name: str, tmp_path: Path) -> None:
    """Their queues are gone: the offsets before and behind tell how many, as their units would."""
    root, config = light(name, tmp_path)
    overwrite(root / "commitlog", 256 << 10, 2 * 4096, bytes(3 * 4096))
    options = RecoveryOptions(Policy.KEEP, NOW, (name[:3],))
    plans = [replan(Layout.open(root, config), name[:3], options)]
    shutil.rmtree(root / "consumequeue")
    plans.append(replan(Layout.open(root, config), name[:3], options))
    by_units, by_offsets = (
        {topic: count for topic, count in plan.lost.by_topic().items() if topic.startswith("%LMQ%")} for plan in plans
    )
    assert by_offsets and by_offsets == by_units


def test_where_no_queue_lacks_it_a_filler_stands_for_it(tmp_path: Path) -> None:
    """Behind the last message nothing tells how many others a queue had: LMQs are lost messages alone."""
    root, config = light("5.3.3-lmq", tmp_path)
    for topic in ("mqtt", "plain"):
        shutil.rmtree(root / "consumequeue" / topic)
    overwrite(root / "commitlog", 256 << 10, 40_000, bytes((256 << 10) - 40_000))
    lost = kept(root, "5.3", config).lost.by_topic()
    assert lost and all(topic.startswith("%LMQ%") for topic in lost)
    names_of = {m.topic for m in log_of(root, config) if m.position > 40_000}
    assert names_of == {"-"}


def test_a_further_queue_is_no_records_own(tmp_path: Path) -> None:
    """A 4.9 broker writes further units to queues of any name: those of `copy_topic` name messages of `mqtt`."""
    root, config = light("4.9.7-lmq", tmp_path)
    before = {(m.topic, m.queue_id, m.queue_offset) for m in log_of(root, config)}
    overwrite(root / "commitlog", 256 << 10, 32_359, bytes((256 << 10) - 32_359))
    kept(root, "4.9", config)
    after = {(m.topic, m.queue_id, m.queue_offset) for m in log_of(root, config)}
    assert {row for row in before if row[0] in ("mqtt", "plain")} <= after
    assert not any(topic == "copy_topic" for topic, _, _ in after)


def test_what_the_index_alone_tells_is_lost(tmp_path: Path) -> None:
    """Eleven messages of which neither units nor offsets beside theirs tell: the count is that of their places."""
    root, config = light("5.3.3-expired", tmp_path)
    shutil.rmtree(root / "consumequeue")
    overwrite(root / "commitlog", 64 << 10, 192 << 10, bytes(4096))
    plan = kept(root, "5.3", config)
    assert (plan.lost.messages, plan.lost_messages) == (0, 11)


@pytest.mark.parametrize(("name", "count"), [("5.3.3-clean", 4), ("4.9.7-killed-bit-restarted", 0)])
def test_index_items_behind_the_end_of_the_log(name: str, count: int, tmp_path: Path) -> None:
    """They tell of lost messages where these are newer than the log; else an earlier start has cut these off."""
    root, config = light(name, tmp_path)
    shutil.rmtree(root / "consumequeue")
    if count:
        overwrite(root / "commitlog", 256 << 10, (256 << 10) + 145_071, bytes((256 << 10) - 145_071))
    plan = kept(root, name[:3], config)
    assert (plan.lost_messages - plan.lost.messages, plan.touches("index")) == (count, True)


def test_what_a_broker_stores_meanwhile_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its index items are read behind the end that the log had."""
    root, config = light("5.3.3-clean", tmp_path)
    layout = Layout.open(root, config)
    with monkeypatch.context() as patch:
        patch.setattr("mqstore.store.disk.lock.holder", lambda _: 1)
        hold_still(layout)
    with StoreReader(root, config) as reader:
        newest = reader.log_end.store_timestamp
    assert newest is not None
    keys = names.format_properties({"KEYS": "k"})
    with StoreWriter.open(root, config) as store:
        for number in range(5):
            store.append(NewMessage(b"TopicA", b"later", properties=keys, store_timestamp=newest + 5000 * (number + 1)))
    (root / "abort").touch()
    assert layout.log_stop is not None
    assert replan(layout, "5.3", RecoveryOptions(Policy.KEEP, NOW, ("5.3",))).lost_messages == 0


@pytest.mark.parametrize("queue", ["TopicA/0", "TopicB/2"])
def test_a_last_log_file_and_a_queue_that_are_gone(queue: str, tmp_path: Path) -> None:
    """Units of other queues name some of its eight messages, index items the rest."""
    root = tmp_path / "store"
    shutil.copytree(recovery_cases.base("5.3.3-clean-1", tmp_path), root)
    max((root / "commitlog").iterdir()).unlink()
    shutil.rmtree(root / "consumequeue" / queue)
    plan = kept(root, "5.3", recovery_cases.CONFIG)
    assert plan.lost_messages == 8 > plan.lost.messages


def test_a_message_with_a_tombstone_somewhere_is_counted_once(tmp_path: Path) -> None:
    """Neither of two queues that are under each other's names tells where its lost messages lay in two lost files."""
    root = tmp_path / "store"
    shutil.copytree(recovery_cases.base("5.3.3-clean-1", tmp_path), root)
    for path in sorted((root / "commitlog").iterdir())[4:6]:
        path.unlink()
    queues = root / "consumequeue/TopicA"
    for name, other in (("0", "aside"), ("1", "0"), ("aside", "1")):
        (queues / name).rename(queues / other)
    plan = kept(root, "5.3", recovery_cases.CONFIG)
    assert (plan.lost_messages, plan.lost.messages) == (42, 42)


def test_queues_that_lack_nothing_name_every_message(tmp_path: Path) -> None:
    """A half message is in the index and in no queue: it is no lost message."""
    case = recovery_cases.case_of("zero_page_first", "5.3.3")
    root = recovery_cases.damaged(case, tmp_path)
    plan = kept(root, "5.3", recovery_cases.CONFIG)
    assert (plan.lost_messages, plan.lost.messages) == (11, 11)
