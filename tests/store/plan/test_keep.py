"""The policy "keep": whatever record is whole stays where it is, whatever lies around it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from mqstore.formats.consume_queue import UNIT_BYTES
from mqstore.formats.message import MAGIC_V1, MESSAGE, SMALLEST
from mqstore.formats.message_properties import CRC_ITEM_BYTES, crc_item, crc_ok, parse
from mqstore.formats.pop import REVIVE_TOPIC
from mqstore.formats.tombstone import FILLER_TOPIC, LOST_ITEM, lost_item
from mqstore.store.audit.queues import QueueAudit
from mqstore.store.broker.snapshot import QueueId
from mqstore.store.broker.system_topics import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import Refused
from mqstore.store.log.commit_log import Batch, CommitLog
from mqstore.store.plan.fill import SMALLEST_FILLER, encoded, fill, padded
from mqstore.store.plan.gaps import Forms, Gap, is_for_service
from mqstore.store.plan.lost_messages import LostUnits
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.plan.plan import Plan
from mqstore.store.plan.unreferenced import places
from mqstore.store.queues.edits import Hole
from mqstore.store.queues.references import commit_log_of
from mqstore.store.recover.recovery import Recovery, analyze, replan
from mqstore.store.session.apply import apply

from ... import recovery_cases
from ...recovery_cases import CONFIG, Case
from ...slices import pick
from ..recover.recovered import changes_of_starts, record_bytes, started, unharmed, units_of
from .narrow import narrow, overwrite

MADE_MS = 1_795_300_000_000
FILE_BYTES = CONFIG.get_int("mappedFileSizeCommitLog") or 0


def kept(root: Path, version: str) -> Plan:
    """Recover a store under the policy, twice: the second time nothing is left to do."""
    options = RecoveryOptions(Policy.KEEP, MADE_MS, (version.rpartition(".")[0],))

    def again() -> Plan:
        return replan(Layout.open(root, CONFIG), version, options)

    plan = again()
    apply(Layout.open(root, CONFIG), plan, again, Files())
    assert again().edits == ()
    return plan


def check(case: Case, work: Path) -> None:
    """Every message whose record was not touched is where it was; a start changes nothing."""
    name = f"{case['version']} {case['exit']} {case['seed']} {case['kind']}"
    base, root = recovery_cases.base(case["base"], work), recovery_cases.damaged(case, work)
    truth = {(str(q), o): u for q, units in units_of(base, CONFIG).items() for o, u in units.items()}
    whole = unharmed(base, root, CONFIG)
    try:
        plan = kept(root, case["version"])
    except Refused as error:
        assert "no commit log" in str(error), f"{name}: {error}"
        return
    after = {(str(q), o): u for q, units in units_of(root, CONFIG).items() for o, u in units.items()}
    for place in whole:
        position, size, _ = truth[place]
        assert place in after and after[place][:2] == (position, size), f"{name}: unit of {place}"
        same = record_bytes(base, FILE_BYTES, position, size)
        assert record_bytes(root, FILE_BYTES, position, size) == same, f"{name}: record of {place}"
    messages = {place for place, unit in truth.items() if unit[1] < 1 << 30}
    assert plan.lost.messages <= len(messages - whole), f"{name}: more lost than was touched"
    knowing = ("4.9", "5.1", "5.3", "5.4", "5.5")
    versions = ("4.3", *knowing) if case["version"].startswith("4.3") else knowing
    assert changes_of_starts(root, CONFIG, plan, versions) == [], name
    proved_for_rebuild(root, case["version"], {place: truth[place][0] for place in whole}, name)


def proved_for_rebuild(root: Path, version: str, positions: dict[tuple[str, int], int], name: str) -> None:
    """A broker that makes all queues from the log gives every message the place it had."""
    shutil.rmtree(root / "consumequeue")
    (root / "abort").touch()
    (root / "checkpoint").write_bytes(bytes(4096))
    start = started(root, CONFIG, version)
    queues = {str(queue): state for queue, state in start.queues.items()}
    assert not start.refusal and not start.hangs, name
    for (queue, offset), position in positions.items():
        found = queues[queue].lookup(np.array([offset], np.int64))["physical_offset"]
        assert found.tolist() == [position], f"{name}: {queue} at {offset} after a rebuild"


@pytest.mark.few(3)
@pytest.mark.parametrize("case", recovery_cases.cases()[::11], ids=lambda case: case["kind"])
def test_some_kinds_of_damage(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@pytest.mark.slow
def test_every_case(tmp_path: Path) -> None:
    for number, case in enumerate(pick(recovery_cases.all_cases(), "kept stores")):
        work = tmp_path / str(number)
        check(case, work)
        shutil.rmtree(work)


def test_what_is_lost_is_known_by_its_place(tmp_path: Path) -> None:
    """A tombstone stands at the place of the lost record: topic, queue, queue offset, size."""
    case = recovery_cases.case_of("body_crc_middle")
    base, root = recovery_cases.base(case["base"], tmp_path), recovery_cases.damaged(case, tmp_path)
    plan = kept(root, case["version"])
    (share,) = plan.lost
    unit = units_of(base, CONFIG)[share.queue][share.first_offset]
    batch = commit_log_of(Layout.open(root, CONFIG)).record(unit[0])
    columns = batch.columns
    assert columns.ragged("topic")[0].decode() == share.queue.topic
    assert int(columns.ints("queue_id")[0]) == share.queue.queue_id
    assert int(columns.ints("queue_offset")[0]) == share.first_offset
    assert int(columns.ints("total_size")[0]) == unit[1]
    assert parse(columns.ragged("properties")[0]) == {"LOST": "t"}
    assert batch.body_crc_ok is not None and batch.body_crc_ok.all()


def lost(*rows: tuple[int, int, str]) -> LostUnits:
    """Lost records (position, size, topic), each in a queue of its own at offset 7."""
    numbers = np.arange(len(rows), dtype=np.int64)
    return LostUnits(
        [QueueId(topic, 0) for _, _, topic in rows],
        np.array([row[0] for row in rows], np.int64),
        np.array([row[1] for row in rows], np.int64),
        numbers,
        np.full(len(rows), 7, np.int64),
        np.zeros(len(rows), np.int64),
    )


FORMS = Forms(MADE_MS, ("5.3",))
HOST = {"ip": b"\x7f\0\0\1", "port": 0}
ZEROS = ("body_crc", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag")
MORE_ZEROS = ("born_timestamp", "store_timestamp", "reconsume_times", "prepared_transaction_offset")
BARE_RECORD = {
    **dict.fromkeys((*ZEROS, *MORE_ZEROS), 0),
    **dict.fromkeys(("born_host", "store_host"), HOST),
    "magic_code": MAGIC_V1,
    "body": b"",
    "topic": b"t",
}


def test_a_gap_is_closed_without_a_byte_left() -> None:
    gap = Gap(1000, 3000, False, 5)
    closed = fill(gap, lost((1200, 300, "a"), (1500, 200, "b")), FORMS)
    assert closed.fillers == [(1000, 200), (1700, 1300)] and closed.blank is None
    pieces = sorted(encoded([closed], FORMS, {}))
    assert sum(len(data) for _, data in pieces) == 2000
    assert [position for position, _ in pieces] == [1000, 1200, 1700]


def test_a_rest_too_small_goes_to_the_tombstone_beside_it() -> None:
    gap = Gap(1000, 2000, False, 5)
    units = lost((1000 + SMALLEST, 300, "a"), (1400, 400, "b"), (1802, 190, "c"))
    closed = fill(gap, units, FORMS)
    assert closed.lost.position.tolist() == [1000, 1400, 1802]
    assert closed.lost.size.tolist() == [SMALLEST + 300 + (1400 - 1300 - SMALLEST), 402, 198]
    assert not closed.fillers and closed.blank is None
    assert sum(len(data) for _, data in encoded([closed], FORMS, {})) == gap.end - gap.begin
    to_end = fill(Gap(1000, 2000, True, 5), lost((1000, 995, "a")), FORMS)
    assert len(to_end.lost) == 0 and to_end.blank == (1000, 1000)


def test_a_gap_too_small_for_any_record() -> None:
    size = SMALLEST_FILLER - 1
    padded = fill(Gap(1000, 1000 + size, False, 5, 800), lost(), FORMS)
    assert padded.padding == size
    with pytest.raises(Refused, match="too few for one"):
        fill(Gap(1000, 1000 + size, False, 5), lost(), FORMS)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "kind",
    [
        "flip_topic_middle",
        "queue_id_middle",
        "queue_offset_middle",
        "physical_offset_middle",
        "sys_flag_rollback_middle",
        "topic_length_middle",
        "magic_middle",
    ],
)
def test_a_header_is_put_right(kind: str, tmp_path: Path) -> None:
    """A queue's unit tells topic, queue and offset: the record is byte for byte what it was."""
    case = recovery_cases.case_of(kind)
    base, root = recovery_cases.base(case["base"], tmp_path), recovery_cases.damaged(case, tmp_path)
    plan = kept(root, case["version"])
    assert not plan.lost.messages
    for path in sorted((base / "commitlog").iterdir()):
        if any(path.read_bytes()):  # but for a file made in advance
            assert (root / "commitlog" / path.name).read_bytes() == path.read_bytes(), path.name
    units = units_of(base, CONFIG).items()
    positions = {(str(q), o): u[0] for q, found in units for o, u in found.items()}
    proved_for_rebuild(root, case["version"], positions, kind)


@pytest.mark.few(3)
@pytest.mark.parametrize("tag", ["", "gone"])
@pytest.mark.parametrize("count", [1, 3])
def test_lost_messages_that_no_unit_names(count: int, tag: str, tmp_path: Path) -> None:
    """Their number is known from their neighbours: tombstones keep the queue as it is."""
    root = tmp_path / "store"
    shutil.copytree(recovery_cases.base("5.3.3-clean-1", tmp_path), root)
    units = units_of(root, CONFIG)
    queue = QueueId("TopicA", 0)
    middle = len(units[queue]) // 2
    for offset in range(middle, middle + count):
        position, size, _ = units[queue][offset]
        overwrite(root / "commitlog", FILE_BYTES, position, bytes(size))
        overwrite(root / "consumequeue/TopicA/0", 400, offset * UNIT_BYTES, bytes(UNIT_BYTES))
    options = RecoveryOptions(Policy.KEEP, MADE_MS, ("5.3",), tag)

    def again() -> Plan:
        return replan(Layout.open(root, CONFIG), "5.3.3", options)

    plan = again()
    apply(Layout.open(root, CONFIG), plan, again, Files())
    assert again().edits == ()
    assert plan.lost.messages == count
    after = units_of(root, CONFIG)
    lost = [after[queue].pop(offset) for offset in range(middle, middle + count)]
    for offset in range(middle, middle + count):
        units[queue].pop(offset)
    assert after == units
    found = commit_log_of(Layout.open(root, CONFIG)).records(np.array([unit[0] for unit in lost]))
    assert found.columns.ints("queue_offset").tolist() == list(range(middle, middle + count))
    marks = [parse(text) for text in found.columns.ragged("properties").tolist()]
    assert marks == [{"LOST": "t", **({"TAGS": tag} if tag else {})}] * count
    positions = {(str(q), o): u[0] for q, us in units.items() for o, u in us.items()}
    positions = {place: at for place, at in positions.items() if at < plan.log_end}
    proved_for_rebuild(root, "5.3.3", positions, "unnamed")


def test_a_shifted_queue_is_no_damage(tmp_path: Path) -> None:
    """Units that an earlier broker has moved by one stay, and so do the records."""
    root = tmp_path / "store"
    shutil.copytree(recovery_cases.base("5.3.3-clean-1", tmp_path), root)
    before = {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}
    path = root / "consumequeue/TopicA/0" / f"{0:020d}"
    units = path.read_bytes()
    path.write_bytes(units[:100] + units[120:] + bytes(20))
    later = sorted(path.parent.iterdir())[1:]
    for file in later:
        file.unlink()
    kept(root, "5.3.3")
    assert {p.name: p.read_bytes() for p in (root / "commitlog").iterdir()} == before


@pytest.mark.few(3)
@pytest.mark.parametrize(("base", "count"), [("4.3.1-halt-1", 90), ("5.5.0-clean-1", 90), ("5.5.0-clean-1", 1)])
@pytest.mark.parametrize("broken", [False, True])
def test_bytes_too_few_for_a_record(base: str, count: int, broken: bool, tmp_path: Path) -> None:
    """They become part of the record before: nothing is lost, or that record only."""
    root = tmp_path / "store"
    shutil.copytree(recovery_cases.base(base, tmp_path), root)
    queue, offset = narrow(root, CONFIG, count, lost=broken)
    before = units_of(root, CONFIG)
    position, size, tags_code = before[queue][offset]
    record = record_bytes(root, FILE_BYTES, position, size)
    plan = kept(root, base.partition("-")[0])
    assert plan.lost.messages == broken
    after = units_of(root, CONFIG)
    assert after[queue].pop(offset) == (position, size + count, 0 if broken else tags_code)
    before[queue].pop(offset)
    assert after == before
    log = commit_log_of(Layout.open(root, CONFIG))
    found = log.record(position)
    assert found.body_crc_ok is not None and found.body_crc_ok.all()
    properties = found.columns.ragged("properties")[0]
    assert parse(properties) == ({"LOST": "t"} if broken else parse(MESSAGE.parse(record).properties))
    assert changes_of_starts(root, CONFIG, plan, ("4.9", "5.1", "5.3", "5.4", "5.5")) == []


@pytest.mark.parametrize("append_crc", [False, True])
def test_padding_keeps_the_checksum_of_the_whole(append_crc: bool) -> None:
    text = b"KEYS\x01a\x02"
    bare = {**BARE_RECORD, "properties": text + bytes(CRC_ITEM_BYTES if append_crc else 0)}
    record = MESSAGE.build(bare)
    if append_crc:
        record = record[:-CRC_ITEM_BYTES] + crc_item(record[:-CRC_ITEM_BYTES])
    made = padded(record, 5)
    assert len(made) == len(record) + 5
    assert crc_ok(made) is (True if append_crc else None)
    assert parse(MESSAGE.parse(made).properties)["KEYS"] == "a"
    with pytest.raises(ValueError, match="no room"):
        padded(record, 1 << 15)


def test_large_fillers_are_split() -> None:
    size = (8 << 20) + 50
    closed = fill(Gap(0, size, False, 5), lost(), FORMS)
    assert sum(part for _, part in closed.fillers) == size
    assert all(SMALLEST_FILLER <= part <= 4 << 20 for _, part in closed.fillers)


def test_a_small_record_goes_without_the_tag(tmp_path: Path) -> None:
    """Its place in the queue counts for more: it is no filler."""
    forms = Forms(MADE_MS, ("5.3",), "gone")
    small = forms.smallest("topic")
    large = small + len(LOST_ITEM) + len(forms.of("topic").properties)
    units = lost((0, small, "topic"), (small, large, "topic"))
    closed = fill(Gap(0, small + large + 100, True, 5), units, forms)
    assert len(closed.lost) == 2
    data = b"".join(data for _, data in sorted(encoded([closed], forms, {})))
    (tmp_path / f"{0:020d}").write_bytes(data.ljust(small + large + 100, b"\0"))
    log = CommitLog.of_file(tmp_path / f"{0:020d}")
    batch = next(item for item in log.scan() if isinstance(item, Batch))
    texts = batch.columns.ragged("properties").tolist()
    assert [parse(text) for text in texts] == [{}, {"LOST": "t", "TAGS": "gone"}]


@pytest.mark.parametrize("generations", [("5.3",), ("4.3", "4.9"), ()])
def test_every_delayed_record_has_room_for_a_tombstone(generations: tuple[str, ...]) -> None:
    """A filler where a delay level has a unit would stop it for ever, from 4.9.3 to 4.9.8."""
    forms = Forms(MADE_MS, generations)
    waiting = b"REAL_TOPIC\x01t\x02DELAY\x011\x02REAL_QID\x010"
    topic = SCHEDULE_TOPIC.encode()
    smallest = len(MESSAGE.build({**BARE_RECORD, "topic": topic, "properties": waiting}))
    assert forms.smallest(SCHEDULE_TOPIC) <= smallest
    for size in range(smallest, forms.whole(SCHEDULE_TOPIC) + 1):
        (piece,) = encoded([fill(Gap(0, size, False, 5), lost((0, size, SCHEDULE_TOPIC)), forms)], forms, {})
        properties = parse(MESSAGE.parse(piece[1]).properties)
        assert properties["LOST"] == "t" and properties["REAL_QID"] == "0", size
        small = properties["REAL_TOPIC"] == FILLER_TOPIC.decode()
        assert small == (size < forms.whole(SCHEDULE_TOPIC)), size


def test_a_tombstone_for_the_revive_service_has_a_time() -> None:
    """That of 5.1 parses it before it looks at anything else, and stops at a record without."""
    topic = f"{REVIVE_TOPIC}cluster"
    size = FORMS.whole(topic)
    (piece,) = encoded([fill(Gap(0, size, False, 5), lost((0, size, topic)), FORMS)], FORMS, {})
    assert parse(MESSAGE.parse(piece[1]).properties) == {"LOST": "t", "TIMER_DELIVER_MS": "0"}
    assert is_for_service(topic.encode()) and not is_for_service(b"TopicA")


@pytest.mark.parametrize("append_crc", [False, True])
def test_sizes_are_exact_to_the_byte(append_crc: bool, tmp_path: Path) -> None:
    """With and without room for the mark; what CommitLog reads is whole, with its CRCs."""
    forms = Forms(MADE_MS, ("5.3",), "gone", append_crc)
    smallest = forms.smallest("topic")
    sizes = range(smallest, smallest + 3 * len(LOST_ITEM))
    rows, position = [], 0
    for size in sizes:
        rows.append((position, size, "topic"))
        position += size
    closed = fill(Gap(0, position + 100, True, 5), lost(*rows), forms)
    data = b"".join(data for _, data in sorted(encoded([closed], forms, {})))
    (tmp_path / f"{0:020d}").write_bytes(data.ljust(position + 100, b"\0"))
    log = CommitLog.of_file(tmp_path / f"{0:020d}")
    batch = next(item for item in log.scan() if isinstance(item, Batch))
    assert batch.columns.ints("total_size").tolist() == list(sizes)
    assert batch.body_crc_ok is not None and batch.body_crc_ok.all()
    for row, size in enumerate(sizes):
        found = parse(batch.columns.ragged("properties")[row])
        assert ("LOST" in found) == (size >= smallest + len(LOST_ITEM))
        tag = len(forms.of("topic").properties)
        assert ("TAGS" in found) == (size >= smallest + len(LOST_ITEM) + tag)
        begin = int(batch.position[row])
        assert crc_ok(data[begin : begin + size]) is (True if append_crc else None)


@pytest.mark.parametrize(
    ("topic", "generations", "expected"),
    [
        (SCHEDULE_TOPIC, ("4.3",), {}),
        (SCHEDULE_TOPIC, ("4.9", "5.1"), {"REAL_TOPIC": HALF_TOPIC, "REAL_QID": "0"}),
        (SCHEDULE_TOPIC, (), {"REAL_TOPIC": "OFFSET_MOVED_EVENT", "REAL_QID": "0"}),
        (SCHEDULE_TOPIC, ("4.3", "4.9"), {"REAL_TOPIC": "OFFSET_MOVED_EVENT", "REAL_QID": "0"}),
        (OP_TOPIC, ("5.3",), {"TAGS": "d"}),
        (HALF_TOPIC, ("5.3",), {}),
        (
            TIMER_TOPIC,
            ("5.3",),
            {
                "TIMER_OUT_MS": str(MADE_MS),
                "TIMER_DEL_UNIQKEY": "x",
                "REAL_TOPIC": "x",
                "REAL_QID": "0",
            },
        ),
    ],
)
def test_forms_of_system_topics(topic: str, generations: tuple[str, ...], expected: dict[str, str]) -> None:
    form = Forms(MADE_MS, generations, "ignored").of(topic)
    assert parse(form.properties) == expected
    assert form.born_timestamp == (1 if topic == HALF_TOPIC else None)


def test_the_mark_fills_any_room() -> None:
    for length in range(len(LOST_ITEM), 40):
        assert len(lost_item(length)) == length
    with pytest.raises(ValueError, match="no mark"):
        lost_item(len(LOST_ITEM) - 1)


@pytest.mark.parametrize(
    ("kind", "lost"),
    [("flip_bornHost_last_force", 1), ("flip_topic_last_force", 0), ("crc_zero_force", 1)],
)
def test_a_record_whose_own_checksum_is_wrong(kind: str, lost: int, tmp_path: Path) -> None:
    """A broker with forceVerifyPropCRC cuts there, however good the body is.

    The topic is known from the queue, and with it the checksum is right again.
    """
    case = recovery_cases.case_of(kind)
    root = recovery_cases.damaged(case, tmp_path)
    config = recovery_cases.config_of(case, root)

    def found() -> Recovery:
        return analyze(Layout.open(root, config), case["version"], policy=Policy.KEEP)

    before = found()
    assert before.plan is not None and before.prediction.lost.messages > 1
    assert before.plan.lost.messages == lost

    def again() -> Plan:
        return replan(Layout.open(root, config), case["version"], before.options)

    apply(Layout.open(root, config), before.plan, again, Files())
    after = found()
    assert after.nothing_to_do and not after.harmful
    assert after.tombstones == lost


def test_a_number_out_of_reach_makes_no_lost_messages() -> None:
    """A damaged queue offset is no hole of as many messages: there is no room for them in the log."""
    audit = SimpleNamespace(missing=lambda: [Hole(5, 1 << 60, 100, 5000), Hole(1, 3, 100, 5000)])
    queue = QueueId("T", 0)
    found = list(places(cast("Mapping[QueueId, QueueAudit]", {queue: audit})))
    assert [place.queue_offset for place in found] == [1, 2]
