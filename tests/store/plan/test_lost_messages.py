"""Every lost message is named: by its record, by queue units, by the index, by its neighbours."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mqstore.formats.consume_queue import UNIT, UNIT_BYTES
from mqstore.formats.hashing import index_hash
from mqstore.formats.message import MESSAGE
from mqstore.formats.message_properties import KEYS, UNIQ_KEY
from mqstore.formats.message_properties import parse as parse_properties
from mqstore.store.audit.messages import Messages
from mqstore.store.audit.verified import QueueRange, VerifiedRun
from mqstore.store.broker.snapshot import QueueId, Snapshot
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.file_queue import file_name
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.log.commit_log import Batch
from mqstore.store.plan.lost_messages import MOST, LostMessages
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.put.new_message import NewMessage
from mqstore.store.put.writer import StoreWriter
from mqstore.store.queues.references import commit_log_of
from mqstore.store.queues.units import UNIT_DTYPE
from mqstore.store.recover.recovery import Recovery, analyze, replan
from mqstore.store.session.apply import apply
from mqstore.store.session.undo import session_to_undo, undo

from ... import recovery_cases, stores
from ..made_log import MadeLog
from ..recover.recovered import content, units_of
from ..verify.mutations.edit import set_field
from .narrow import overwrite

STORE = "5.3.3-killed"
PAGE, PAGE_BYTES = 61440, 4096
LOG_FILE_BYTES = 8192
"""Of the stores of recovery_cases."""
QUEUE_OFFSET_AT = 20
"""Bytes of a record before its queue offset."""
IN_BLANK = 244170
"""A place in the BLANK that closes the first log file of 5.3.3-clean."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    found = stores.unpack(STORE, tmp_path)
    (found / "timerwheel").unlink(missing_ok=True)
    return found


def config_of(root: Path) -> BrokerConfig:
    return BrokerConfig().with_set(stores.config_set(STORE, root))


def truth(root: Path) -> dict[int, dict[str, Any]]:
    """What the records of the whole store say, by position."""
    found: dict[int, dict[str, Any]] = {}
    for item in commit_log_of(Layout.open(root, config_of(root))).scan():
        if isinstance(item, Batch):
            for i, position in enumerate(item.position.tolist()):
                columns = item.columns
                found[position] = {
                    "topic": columns.ragged("topic")[i].decode(),
                    "time": int(columns.ints("store_timestamp")[i]),
                    "properties": parse_properties(columns.ragged("properties")[i]),
                }
    return found


def damage(root: Path, offset: int, data: bytes) -> None:
    with (root / "commitlog" / file_name(0)).open("r+b") as file:
        file.seek(offset)
        file.write(data)


def examined(root: Path, policy: Policy = Policy.KEEP) -> Recovery:
    found = analyze(Layout.open(root, config_of(root)), "5.3", options=RecoveryOptions(policy))
    found.name_lost()
    return found


def test_a_lost_page_message_by_message(root: Path) -> None:
    before, units = truth(root), units_of(root, config_of(root))
    damage(root, PAGE, bytes(PAGE_BYTES))
    whole = truth(root)  # a record that ends in the page has lost its properties only
    found = examined(root)
    rows = found.named["plan"]
    named = {
        (str(queue), offset): unit
        for queue, many in units.items()
        for offset, unit in many.items()
        if unit[0] in before and unit[0] not in whole
    }
    assert {(f"{r['topic']}/{r['queue_id']}", r["queue_offset"]) for r in rows} == named.keys()
    assert found.plan is not None and found.plan.lost.messages == len(rows) > 3
    hashed = 0
    for row in rows:
        record = before[row["position"]]
        unit = named[f"{row['topic']}/{row['queue_id']}", row["queue_offset"]]
        assert (row["position"], row["size"], row["tags_code"]) == unit
        assert row["not_before"] <= record["time"] <= row["not_after"]
        keys = [*record["properties"].get(KEYS, "").split()]
        keys += [key for key in (record["properties"].get(UNIQ_KEY),) if key]
        hashes = {index_hash(row["topic"], key) for key in keys}
        assert set(row["key_hashes"]) <= hashes
        hashed += len(row["key_hashes"])
    assert hashed > 3


def test_a_spoilt_number_before_a_gap_gives_nothing_up_behind_it(root: Path) -> None:
    """Behind a lost record that a unit names the log is no older one, whatever a record before it says: one
    flipped bit in its queue offset, and all that followed counted as given up by a start before.
    """
    found = truth(root)
    positions = sorted(found)
    queues = [found[position]["topic"] for position in positions]
    number = next(n for n in range(30, 90) if queues[n] in queues[n + 4 : n + 8])
    damage(root, positions[number] + QUEUE_OFFSET_AT, b"\0\0\1")
    lost = positions[number + 3]
    damage(root, lost, bytes(positions[number + 4] - lost))
    assert units_of(root, config_of(root))
    recovery = examined(root)
    assert recovery.dead == 0
    assert recovery.plan is not None and recovery.plan.log_end > positions[-1]
    assert {row["position"] for row in recovery.named["plan"]} == {lost}


def test_a_broken_body_leaves_the_rest(root: Path) -> None:
    """Topic, keys and id are in the record still."""
    position, record = next(
        (position, row)
        for position, row in truth(root).items()
        if row["properties"].get(KEYS) and 2000 < position < 100_000
    )
    log = commit_log_of(Layout.open(root, config_of(root)))
    batch = log.record(position)
    at = position + int(batch.columns.ragged("body").start[0])
    damage(root, at, bytes([batch.columns.ragged("body")[0][0] ^ 1]))
    (row,) = examined(root).named["plan"]
    assert row["known_from"] == "torn_record" and row["position"] == position
    assert row["keys"] == record["properties"][KEYS].split()
    assert row["unique_key"] == record["properties"].get(UNIQ_KEY)


@pytest.mark.few(1)
@pytest.mark.parametrize("policy", list(Policy))
def test_what_a_start_loses_is_whole(root: Path, policy: Policy) -> None:
    before = truth(root)
    damage(root, PAGE, bytes(PAGE_BYTES))
    (root / "checkpoint").unlink()  # the recovery begins with the first file
    found = examined(root, policy)
    rows = found.named["prediction"]
    assert len(rows) == found.prediction.lost.messages > 100
    for row in rows:
        record = before[row["position"]]
        assert row["known_from"] == "record" and row["store_timestamp"] == record["time"]
        assert row["unique_key"] == record["properties"].get(UNIQ_KEY)
    if policy is Policy.BROKER:
        assert len(found.named["plan"]) == len(rows)


def test_without_queues_the_index_still_tells(root: Path) -> None:
    before = truth(root)
    damage(root, PAGE, bytes(PAGE_BYTES))
    shutil.rmtree(root / "consumequeue")
    rows = [row for row in examined(root).named["plan"] if row["known_from"] == "index"]
    assert rows
    for row in rows:
        record = before[row["position"]]
        assert row["topic"] is None and row["key_hashes"]
        assert row["not_before"] <= record["time"] <= row["not_after"]


@pytest.mark.parametrize("checkpoint", [True, False])
def test_without_queues_a_start_that_is_followed_loses_no_fewer(root: Path, checkpoint: bool) -> None:
    """No unit names the damaged records; those around them do, also where the log ends before the damage."""
    before = truth(root)
    damage(root, PAGE, bytes(PAGE_BYTES))
    shutil.rmtree(root / "consumequeue")
    if not checkpoint:
        (root / "checkpoint").unlink()  # the recovery begins with the first file
    kept, followed = (examined(root, policy).plan for policy in (Policy.KEEP, Policy.BROKER))
    assert kept is not None and followed is not None and kept.lost_messages > 5
    behind = [at for at in before if at >= max(followed.log_end, PAGE + PAGE_BYTES)]
    assert followed.lost_messages == kept.lost_messages + (len(behind) if followed.log_end < kept.log_end else 0)
    assert bool(behind) != checkpoint


def test_a_message_that_only_its_neighbours_tell(root: Path) -> None:
    """Neither unit nor record: the offsets before and behind it in its queue leave room for it."""
    damage(root, PAGE, bytes(PAGE_BYTES))
    rows = [r for r in examined(root).named["plan"] if r["known_from"] == "queue_unit"]
    row = rows[len(rows) // 2]
    config = config_of(root)
    size = config.get_int("mappedFileSizeConsumeQueue") or 0
    at = row["queue_offset"] * UNIT_BYTES
    path = root / "consumequeue" / row["topic"] / str(row["queue_id"])
    with (path / file_name(at // size * size)).open("r+b") as file:
        file.seek(at % size)
        file.write(bytes(UNIT_BYTES))
    again = examined(root).named["plan"]
    place = (row["topic"], row["queue_id"], row["queue_offset"])
    found = [r for r in again if (r["topic"], r["queue_id"], r["queue_offset"]) == place]
    assert [r["known_from"] for r in found] == ["neighbours"]


def test_damaged_bytes_are_kept_by_position(root: Path) -> None:
    """Apply keeps each damaged range as a file; undo leaves the store as it was."""
    damage(root, PAGE, b"\xa5" * PAGE_BYTES)
    before = content(root)
    found = examined(root)
    assert found.plan is not None
    layout = Layout.open(root, config_of(root))
    log = (root / "commitlog" / file_name(0)).read_bytes()
    applied = apply(layout, found.plan, lambda: replan(layout, "5.3", found.options), Files())
    folder = layout.journal / applied.session / "damaged"
    ranges = found.to_json()["plan"]["damaged"]
    assert any(r["position"] + r["size"] > PAGE for r in ranges)
    for r in ranges:
        kept = (folder / file_name(r["position"])).read_bytes()
        assert kept == log[r["position"] : r["position"] + r["size"]]
    undo(layout, session_to_undo(layout), Files())
    assert content(root) == before


def test_a_bounded_number_is_named(tmp_path: Path) -> None:
    """Those that come first in the log, in whatever order they were met."""
    lost = LostMessages()
    count, parts = MOST // 2 + 1, (3, 1, 4, 0, 2, 5)
    numbers, flags = np.arange(count, dtype=np.int64), np.ones(count, np.bool_)
    many = Messages(QueueId("a", 0), numbers, numbers, numbers, numbers, numbers, flags, ~flags)
    for part in parts:
        lost.add(many.replace(position=many.position + part * count))
    assert lost.count == len(parts) * count
    log = commit_log_of(Layout.of(tmp_path))
    kept = np.sort(np.concatenate([part.position for part in lost.messages(log, MOST)]))
    assert MOST <= len(kept) < 2 * MOST + count
    assert kept[:MOST].tolist() == list(range(MOST))


def test_of_a_run_those_are_named_that_count(tmp_path: Path) -> None:
    """A topic that was deleted fills the log up to the first message that is lost."""
    log = MadeLog(1 << 16)
    places = [log.append(b"x", topic=topic, queue_offset=k) for topic in (b"gone", b"a") for k in range(30)]
    queue = QueueId("a", 0)
    messages = QueueRange(0, 30, places[30], places[-1], log.end - places[-1])
    path, recent = str(tmp_path / file_name(0)), np.array(places[-1:], np.int64)
    run = VerifiedRun(path, places[0], log.end, recent, 0, False, True, None, "", 0, {queue: messages}, {}, [])
    lost = LostMessages()
    lost.add_run(run, run.queues)
    found = list(lost.messages(log.log(tmp_path), 5))
    assert [(part.queue, part.offset.tolist()) for part in found] == [(queue, [0, 1, 2, 3, 4])]


def test_units_of_another_store_name_no_lost_messages(tmp_path: Path) -> None:
    """The log is sound: a queue of another store is made anew from it, and nothing of the log changes."""
    root, other = stores.unpack("5.3.3-clean", tmp_path / "own"), stores.unpack(STORE, tmp_path / "other")
    (root / "timerwheel").unlink()
    place = Path("consumequeue/SCHEDULE_TOPIC_XXXX/2")  # six of its units lie in the BLANK of this log
    own = (root / place / file_name(0)).read_bytes()
    shutil.rmtree(root / place)
    shutil.copytree(other / place, root / place)
    config = BrokerConfig().with_set(stores.config_set("5.3.3-clean", root))
    for policy in Policy:
        found = analyze(Layout.open(root, config), "5.3", options=RecoveryOptions(policy))
        assert found.plan is not None and found.plan.lost.messages == 0
        assert not found.plan.touches("commitlog")
    layout = Layout.open(root, config)
    apply(layout, found.plan, lambda: replan(layout, "5.3", found.options), Files())
    assert (root / place / file_name(0)).read_bytes() == own


def test_units_of_a_queue_that_took_the_place_of_another(tmp_path: Path) -> None:
    """They prove no header, and what is free behind them names no message: the first of the log, at position 0."""
    root = tmp_path / "store"
    shutil.copytree(recovery_cases.base("5.3.3-clean-1", tmp_path), root)
    queues = root / "consumequeue/TopicB"
    for name, other in (("0", "aside"), ("1", "0"), ("aside", "1")):
        (queues / name).rename(queues / other)
    position = int(np.fromfile(queues / "0" / file_name(0), UNIT_DTYPE)["physical_offset"][5])
    number = position // LOG_FILE_BYTES * LOG_FILE_BYTES
    set_field(root / "commitlog" / file_name(number), position - number, MESSAGE, "body_length", (1 << 31) - 1)
    layout = Layout.open(root, recovery_cases.CONFIG)
    plan = analyze(layout, "5.3", options=RecoveryOptions(Policy.KEEP)).plan
    assert plan is not None
    assert (plan.lost_messages, plan.restored) == (1, 0)
    rows = {row.queue: row.max_offset for row in plan.queues if row.queue.topic == "TopicB"}
    assert rows == {QueueId("TopicB", 0): 8, QueueId("TopicB", 1): 10, QueueId("TopicB", 2): 22}


def test_a_unit_in_a_blank_is_of_no_lost_message_where_the_log_has_that_one(tmp_path: Path) -> None:
    """One unit of a queue names a place in the BLANK: its number, or no message of that queue, tells."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    (root / "timerwheel").unlink()
    config = BrokerConfig().with_set(stores.config_set("5.3.3-clean", root))
    size = Snapshot.of(Layout.open(root, config)).queue_file_bytes
    unit = UNIT.build({"physical_offset": IN_BLANK, "size": 291, "tags_code": 0})
    overwrite(root / "consumequeue/orders/0", size, 5 * UNIT_BYTES, unit)
    fresh = root / "consumequeue/fresh/0"
    fresh.mkdir(parents=True)
    (fresh / file_name(0)).write_bytes(unit.ljust(size, b"\0"))
    plan = analyze(Layout.open(root, config), "5.3", options=RecoveryOptions(Policy.KEEP)).plan
    assert plan is not None and plan.lost.messages == 0 and not plan.touches("commitlog")
    assert plan.completed == 1


def test_a_flipped_bit_makes_no_queue_that_of_another_store(tmp_path: Path) -> None:
    """The unit of the only other message names another place: that of the lost one tells its place and size all the
    same.
    """
    config = BrokerConfig({"mappedFileSizeCommitLog": "65536"})
    with StoreWriter.open(tmp_path, config) as store:
        stored = [store.append(NewMessage(topic, bytes(100))) for topic in (b"o", b"o", b"t", b"o", b"t", b"o")]
    lost = stored[2]
    log = tmp_path / "commitlog" / file_name(0)
    damaged = bytearray(log.read_bytes())
    damaged[lost.physical_offset : lost.physical_offset + lost.total_size] = b"\x5a" * lost.total_size
    log.write_bytes(damaged)
    queue = next((tmp_path / "consumequeue" / "t" / "0").iterdir())
    units = bytearray(queue.read_bytes())
    units[UNIT_BYTES + 7] ^= 0x40
    queue.write_bytes(units)
    plan = analyze(Layout.open(tmp_path, config), "5.3", options=RecoveryOptions(Policy.KEEP)).plan
    assert plan is not None
    (share,) = plan.lost.shares.values()
    assert (share.messages, share.bytes) == (1, lost.total_size)


@pytest.mark.parametrize("policy", list(Policy))
def test_a_tombstone_that_is_damaged_is_no_further_loss(policy: Policy, tmp_path: Path) -> None:
    """Its message was lost before; what a cut gives up are the messages behind it."""
    config = BrokerConfig({"mappedFileSizeCommitLog": "65536"})
    with StoreWriter.open(tmp_path, config) as store:
        stored = [store.append(NewMessage(b"o", bytes(100))) for _ in range(10)]
    layout, body = Layout.open(tmp_path, config), stored[5].physical_offset + 100

    def damaged(policy: Policy) -> Recovery:
        log = tmp_path / "commitlog" / file_name(0)
        data = bytearray(log.read_bytes())
        data[body] ^= 0xFF
        log.write_bytes(data)
        return analyze(layout, "5.3", options=RecoveryOptions(policy))

    first = damaged(Policy.KEEP)
    assert first.plan is not None and first.plan.lost_messages == 1
    apply(layout, first.plan, lambda: replan(layout, "5.3", first.options), Files())
    found = damaged(policy)
    assert found.plan is not None and found.prediction.lost.messages == 4
    assert found.plan.lost_messages == (0 if policy is Policy.KEEP else 4)
