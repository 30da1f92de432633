"""The policy "keep": whatever record is whole stays where it is, whatever lies around it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mqstore.formats.consume_queue import UNIT_BYTES
from mqstore.formats.message import MESSAGE
from mqstore.formats.message_properties import parse
from mqstore.store.broker.snapshot import QueueId, in_java_order
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.file_queue import file_name
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import Refused
from mqstore.store.plan.close import units_behind
from mqstore.store.plan.lost_messages import LostUnits
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.plan.plan import Plan
from mqstore.store.queues.references import commit_log_of
from mqstore.store.recover.recovery import analyze, replan
from mqstore.store.session.apply import apply

from ... import recovery_cases, stores
from ...mixed_store import MORE, mixed_store
from ...recovery_cases import CONFIG, Case
from ...slices import pick
from ..recover.recovered import changes_of_starts, record_bytes, started, unharmed, units_of
from .narrow import narrow, overwrite
from .tombstones import MADE_MS

pytestmark = pytest.mark.long

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


def test_a_tombstone_has_its_mark_where_the_gap_has_room(tmp_path: Path) -> None:
    """190 bytes are too few for one with a mark and a record that fills the rest: it takes all of them."""
    root = tmp_path / "store"
    shutil.copytree(recovery_cases.base("5.3.3-clean-1", tmp_path), root)
    position, size, _ = units_of(root, CONFIG)[QueueId("TopicA", 0)][29]
    assert size == 190
    overwrite(root / "commitlog", FILE_BYTES, position, bytes(size))
    overwrite(root / "consumequeue/TopicA/0", 400, 29 * UNIT_BYTES, bytes(UNIT_BYTES))
    plan = kept(root, "5.3.3")
    assert plan.lost.messages == 1
    found = commit_log_of(Layout.open(root, CONFIG)).record(position).columns
    assert found.ints("total_size").tolist() == [size]
    assert parse(found.ragged("properties")[0]) == {"LOST": "t"}


@pytest.mark.parametrize(("field", "value"), [("queue_id", 3), ("topic", None)])
def test_a_header_that_is_put_right_invents_no_lost_messages(field: str, value: int | None, tmp_path: Path) -> None:
    """Its wrong queue seemed to lack all offsets before that of the record: in the bytes of a lost file."""
    base, root = recovery_cases.base("5.1.4-clean-1", tmp_path), tmp_path / "store"
    shutil.copytree(base, root)
    (root / "commitlog" / file_name(49152)).unlink()
    expected = replan(Layout.open(root, CONFIG), "5.1.4", RecoveryOptions(Policy.KEEP)).lost_messages
    position, size, _ = units_of(root, CONFIG)[QueueId("TopicB", 2)][21]
    start = position // FILE_BYTES * FILE_BYTES
    with (root / "commitlog" / file_name(start)).open("r+b") as file:
        file.seek(position - start)
        record = MESSAGE.parse(file.read(size))
        file.seek(position - start)
        file.write(MESSAGE.build({**record, field: b"XopicB" if value is None else value}))
    plan = kept(root, "5.1.4")
    assert (plan.lost_messages, plan.restored) == (expected, 1)
    assert {row.queue for row in plan.queues} == set(units_of(base, CONFIG))


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


_FIRST = "00000000000000000000"


def _with_two_first_files(root: Path, *, broker_reads: str) -> tuple[Layout, Path, Path]:
    """A log whose first file is torn in directory a, and lies in b as well: that one is whole. broker_reads: the
    directory that a broker looks into first.
    """
    for number in range(100):
        names = [str(root / f"{letter}{number}") for letter in "ab"]
        if in_java_order(names)[0].startswith(str(root / broker_reads)):
            break
    first, second = map(Path, names)
    first.mkdir()
    (root / "d2" / "commitlog").rename(second)
    whole = root / "d1" / "commitlog" / _FIRST
    shutil.copy(whole, second)
    (first / _FIRST).write_bytes(whole.read_bytes()[:5000] + bytes(262_144 - 5000))
    config = BrokerConfig({"storePathCommitLog": f"{first},{second},{root / 'd3' / 'commitlog'}"})
    return Layout.open(root, config), first / _FIRST, second / _FIRST


@pytest.mark.parametrize("broker_reads", ["a", "b"])
def test_no_tombstone_stands_for_what_a_second_file_of_the_name_has(broker_reads: str, tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-multipath-killed", tmp_path)
    layout, torn, whole = _with_two_first_files(root, broker_reads=broker_reads)
    found = analyze(layout, "5.3.3", options=RecoveryOptions(Policy.KEEP))
    assert f"records are lost in this one and whole in {whole}: {torn}" in str(found.refusal)
    assert any(f"read from {torn}, not from {whole}: look at both" in note for note in found.notes)
    aside = tmp_path / "aside"
    aside.mkdir()
    whole.rename(aside / _FIRST)
    plan = replan(layout, "5.3.3", RecoveryOptions(Policy.KEEP, replica=str(aside)))
    assert plan.lost.messages == 0


@pytest.mark.parametrize("broker_reads", ["a", "b"])
def test_tombstones_go_into_the_file_that_was_read(broker_reads: str, tmp_path: Path) -> None:
    """The other one has no more than it: it stays as it is."""
    root = stores.unpack("5.3.3-multipath-killed", tmp_path)
    layout, torn, other = _with_two_first_files(root, broker_reads=broker_reads)
    shutil.copy(torn, other)
    plan = replan(layout, "5.3.3", RecoveryOptions(Policy.KEEP))
    touched = {edit.path for edit in plan.edits}
    assert plan.lost.messages > 500 and str(torn) in touched and str(other) not in touched


@pytest.mark.parametrize(("role", "looks"), [("SLAVE", 0), ("ASYNC_MASTER", 1)])
def test_units_behind_the_log_of_a_slave_are_read_once(
    role: str, looks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master sends their records again, so that they are counted, but never looked for as lost ones."""
    root, asked = stores.unpack("5.3.3-ha-slave", tmp_path), list[int]()
    with (root / "commitlog" / file_name(0)).open("r+b") as file:
        file.seek(86598)
        file.write(bytes(486))

    def noted(size: int, end: int, files_end: int, look: Callable[..., LostUnits]) -> LostUnits:
        asked.append(end)
        return units_behind(size, end, files_end, look)

    monkeypatch.setattr("mqstore.store.plan.close.units_behind", noted)
    options = RecoveryOptions(Policy.KEEP, MADE_MS, ("5.3",))
    plan = replan(Layout.open(root, BrokerConfig({"brokerRole": role})), "5.3", options)
    assert len(asked) == looks
    assert sum(share.messages for share in plan.lost) == 1


def test_a_dledger_log_that_continues_the_log_is_missed(tmp_path: Path) -> None:
    """Units name its first entries. A start on the older log alone would number these messages again."""
    root = mixed_store(tmp_path)
    shutil.rmtree(root / "dledger-n0")
    found = analyze(Layout.open(root), "5.3.3", options=RecoveryOptions(Policy.KEEP))
    assert found.plan is None and found.refusal is not None
    assert "queues name the first record of a DLedger log" in str(found.refusal)
    assert found.refusal.path == str(root / "dledger-*")
    assert found.harmful
    given_up = analyze(Layout.open(root), "5.3.3", options=RecoveryOptions(Policy.BROKER))
    assert given_up.plan is not None and given_up.plan.lost.messages == MORE
