"""`recover --apply` ends sound: what `verify` finds besides the start is mended by the same plan."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.formats.consume_queue import UNIT_BYTES
from mqstore.formats.index_file import HEADER_BYTES
from mqstore.formats.timer_check import FILE as TIMER_CHECK
from mqstore.store.broker.topics import dumps, loads
from mqstore.store.damage.scenario import drill
from mqstore.store.damage.scenarios import scenario_of
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.checkpoint import TimerCheck
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.findings.catalogue import Severity
from mqstore.store.findings.findings import Finding
from mqstore.store.offsets.positions import positions_of
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.plan.plan import Plan
from mqstore.store.recover.broker_bugs import TimerLoss
from mqstore.store.recover.recovery import Recovery, analyze
from mqstore.store.recover.recovery import replan as replan_recovery
from mqstore.store.repair.parts import Choice, RepairPart, chosen
from mqstore.store.repair.recheck import unrepairable_texts
from mqstore.store.repair.repair import Request, replan, replan_with_parts, widened
from mqstore.store.search.selection import queue_of
from mqstore.store.search.store import StoreReader
from mqstore.store.session.apply import apply
from mqstore.store.session.undo import session_to_undo, undo
from mqstore.store.verify.context import Scope
from mqstore.store.verify.judged import verified_before, with_start
from mqstore.store.verify.run import verify

from ... import recovery_cases, stores
from ...recovery_cases import config_of
from ..queues.test_rocksdb_copy import NEW
from ..session.test_undo import everything
from .mended import find_unrepairable
from .test_repair import examined

pytestmark = pytest.mark.long


def errors_of(root: Path, config: BrokerConfig, version: str | None, worst: Severity = Severity.ERROR) -> list[Finding]:
    """What `verify` calls an error, or less than that."""
    with StoreReader(root, config) as store:
        found = verify(store, Scope(broker_version=version)).findings
    return [finding for finding in found if finding.severity >= worst]


def looked_at(root: Path, config: BrokerConfig, version: str | None, *, force: bool = False) -> Recovery:
    """The store as `recover` sees it. force: its log is gone for good."""
    options = RecoveryOptions(Policy.KEEP, force_empty_log=force)
    found = analyze(Layout.open(root, config), version, options=options)
    return widened(found, errors_of(root, config, version, Severity.INFO))


def recovered(
    root: Path,
    config: BrokerConfig,
    version: str | None = None,
    between: Callable[[], None] = lambda: None,
    *,
    force: bool = False,
) -> Recovery:
    """Recover a store and take it back: nothing is left in between, and all is as it was behind it.

    between: called when it is recovered. force: its log is gone for good. Returns what was planned.
    """
    before = everything(root)
    found = looked_at(root, config, version, force=force)
    assert found.plan is not None and not found.nothing_to_do
    layout = Layout.open(root, config)

    def again() -> Plan:
        return replan_with_parts(Layout.open(root, config), found.main_version, found.options)

    session = apply(layout, found.plan, again, Files()).session
    left = {f"{finding.code} {finding.message}" for finding in errors_of(root, config, version)}
    assert left == set()
    assert looked_at(root, config, version).nothing_to_do
    between()
    undo(layout, session_to_undo(layout, session), Files())
    assert everything(root) == before
    return found


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name",
    [
        *("4.9.7-clean", "5.3.3-compaction", "5.5.0-timer-killed"),
        *("5.5.1-rocksdb", "5.5.1-config-single", "5.5.1-config-v2", "5.5.1-combine-finished"),
    ],
)
def test_positions_begin_at_0_with_an_empty_log(name: str, tmp_path: Path) -> None:
    """Of groups, delay levels and compaction, in files or in a RocksDB: what is stored next is not passed over."""
    root = stores.unpack(name, tmp_path)
    for path in (root / "commitlog").iterdir():
        path.unlink()
    config = BrokerConfig(stores.config(name, root))

    def nothing_is_left() -> None:
        assert errors_of(root, config, None, Severity.WARNING) == []
        rows = positions_of(Layout.open(root, config), name[:5]).rows
        assert {row.next_offset for row in rows} <= {0}

    recovered(root, config, between=nothing_is_left, force=True)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["5.3.3-killed-torn", "4.9.7-killed-page"])
def test_records_that_have_lost_properties(name: str, tmp_path: Path) -> None:
    """Units and index items told of tags and keys that the records have no more."""
    root = stores.unpack(name, tmp_path)
    found = recovered(root, BrokerConfig(stores.config(name, root)))
    assert found.plan is not None and found.plan.cut


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "kind",
    [
        "checkpoint_future",
        "checkpoint_empty",
        "flip_properties_middle",
        "torn_properties",
        "ext_missing",
        "address_other",
        "wheel_slot_both_beyond",
        "prev_self",
    ],
)
def test_what_no_start_looks_at(kind: str, tmp_path: Path) -> None:
    case = recovery_cases.case_of(kind)
    root = recovery_cases.damaged(case, tmp_path)
    recovered(root, config_of(case, root), case["version"])


@pytest.mark.few(1)
@pytest.mark.parametrize("abort", [False, True])
@pytest.mark.parametrize(
    ("name", "again"), [("5.3.3-timer-killed", 1), ("5.5.0-timer-killed", 0), ("5.1.4-timer-killed", 1)]
)
def test_timed_messages_are_not_delivered_twice(name: str, again: int, abort: bool, tmp_path: Path) -> None:
    """What the timer has filed since it wrote down how far it was is not filed again (B34). What it has delivered since
    then comes again.
    """
    root = stores.unpack(name, tmp_path)
    config = BrokerConfig(stores.config(name, root))
    if not abort:
        (root / "abort").unlink()
    found = looked_at(root, config, None)
    before = found.prediction.timers
    assert before is not None and before.fired_twice

    def anew() -> Plan:
        return replan_with_parts(Layout.open(root, config), found.main_version, found.options)

    apply(Layout.open(root, config), found.plan, anew, Files())
    left = looked_at(root, config, None)
    assert left.nothing_to_do and left.prediction.timers == TimerLoss(pending=before.pending, fired_twice=again)


def test_a_clock_set_back_where_nobody_has_used_the_timer(tmp_path: Path) -> None:
    """Nothing is lost by a start, but what is sent then does not fire: the plan mends it, as it does a loss."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    ahead_ms = int(time.time()) * 1000 + 864_000_000
    (root / "config" / TIMER_CHECK).write_bytes(TimerCheck(ahead_ms).to_bytes())
    found = recovered(root, BrokerConfig(stores.config("5.3.3-clean", root)))
    assert found.plan is not None and [Path(edit.path).name for edit in found.plan.edits] == [TIMER_CHECK]
    assert found.prediction.timers is not None and not found.prediction.unfired


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["5.1.4-lmq-poison", "5.5.0-lmq-poison"])
def test_no_recovery_meets_a_poison_record_again(name: str, tmp_path: Path) -> None:
    """B11: the names that no broker can dispatch to are gone, also for the start after a crash."""
    root = stores.unpack(name, tmp_path)
    config = BrokerConfig(stores.config(name, root))

    def crashed() -> None:
        copy = tmp_path / "copy"
        shutil.copytree(root, copy)
        (copy / "abort").touch()
        found = analyze(Layout.open(copy, config))
        assert found.crashed and not found.harmful

    assert not recovered(root, config, between=crashed).prediction.starts


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["poison_last_toggled", "poison_last_behind"])
def test_numbers_that_a_light_queue_proves(kind: str, tmp_path: Path) -> None:
    """A unit names the record, or its neighbours leave one place."""
    case = recovery_cases.case_of(kind)
    root = recovery_cases.damaged(case, tmp_path)
    base = recovery_cases.base(case["base"], tmp_path)
    config = config_of(case, root)

    def mended() -> None:
        assert [(root / "commitlog" / path.name).read_bytes() for path in files] == [
            path.read_bytes() for path in files
        ]

    files = sorted(path for path in (base / "commitlog").iterdir() if any(path.read_bytes()))
    recovered(root, config, case["version"], between=mended)


def test_tombstones_at_the_begin_of_a_log_have_a_time(tmp_path: Path) -> None:
    """Its first file is one BLANK: nothing stands before them that tells one."""
    case = recovery_cases.case_of("file_blank_first")
    root = recovery_cases.damaged(case, tmp_path)
    found = recovered(root, config_of(case, root), case["version"])
    assert found.plan is not None and found.plan.lost.messages


def test_an_empty_directory_is_no_light_queue(tmp_path: Path) -> None:
    """What is left of an LMQ of another number than 0 once its files are moved away."""
    case = recovery_cases.case_of("extra_queue_id")
    root = recovery_cases.damaged(case, tmp_path)
    recovered(root, config_of(case, root), case["version"])


def _dead_tail(work: Path) -> Path:
    """A store with old records behind its log end, whose queue offsets other messages have."""
    root = work / "store"
    with StoreReader(recovery_cases.base("5.3.3-clean-1", work), recovery_cases.CONFIG) as store:
        drill(store, root, scenario_of("dead-tail"), 1, Files())
    return root


def test_old_records_behind_the_log_end_whose_offsets_are_taken(tmp_path: Path) -> None:
    """They get no units behind those of the queues: the log ends before them."""
    root = _dead_tail(tmp_path)
    found = recovered(root, recovery_cases.CONFIG, "5.3.3")
    assert found.plan is not None and not found.plan.lost.messages
    assert not found.plan.completed and found.plan.stale and found.prediction.invisible.messages


def test_a_tail_that_a_queue_names_stays(tmp_path: Path) -> None:
    """A broker has started, and consumers know its messages."""
    root = _dead_tail(tmp_path)
    layout = Layout.open(root, recovery_cases.CONFIG)
    plan = replan_recovery(layout, "5.3.3", RecoveryOptions(Policy.BROKER))
    apply(layout, plan, lambda: plan, Files())
    kept = replan_recovery(Layout.open(root, recovery_cases.CONFIG), "5.3.3", RecoveryOptions(Policy.KEEP))
    assert kept.log_end == plan.log_end
    assert {edit.codes for edit in kept.edits if "commitlog" in edit.path} == {("I-020",)}


@pytest.mark.few(1)
@pytest.mark.parametrize("order", [(1, 0), (2, 0, 1)])
def test_units_in_another_order(order: tuple[int, ...], tmp_path: Path) -> None:
    """No broker shifts a queue so: the last units are those of the records again."""
    root = tmp_path / "store"
    shutil.copytree(recovery_cases.base("5.3.3-clean-1", tmp_path), root)
    path = max((root / "consumequeue/TopicA/0").iterdir())
    data = path.read_bytes()
    end = -(-len(data.rstrip(b"\0")) // UNIT_BYTES) * UNIT_BYTES
    begin = end - len(order) * UNIT_BYTES
    units = [data[at : at + UNIT_BYTES] for at in range(begin, end, UNIT_BYTES)]
    path.write_bytes(data[:begin] + b"".join(units[k] for k in order) + data[end:])

    def mended() -> None:
        assert path.read_bytes() == data

    recovered(root, recovery_cases.CONFIG, "5.3.3", between=mended)


def test_a_shifted_queue_is_told_with_the_command_that_renumbers_it(tmp_path: Path) -> None:
    """Consumers know its numbers: a recovery keeps them, and every error that stays has its reason."""
    root = tmp_path / "store"
    with StoreReader(recovery_cases.base("5.3.3-clean-1", tmp_path), recovery_cases.CONFIG) as store:
        drill(store, root, scenario_of("queue-order"), 0, Files())
    layout = Layout.open(root, recovery_cases.CONFIG)
    found = looked_at(root, recovery_cases.CONFIG, "5.3.3")
    assert found.plan is not None and found.plan.shifted
    (queue,) = found.plan.shifted
    stays = find_unrepairable(layout, "5.3.3")
    assert {"I-064", "I-070", "I-075"} <= {row.code for row in stays} <= set(unrepairable_texts())
    command = f"mqstore repair {root} --queue {queue} --apply"
    assert all(row.command.startswith(command) for row in stays)
    request = Request(chosen((), (queue_of(str(queue)),)), "5.3.3", 0)
    apply(layout, None, lambda: replan(layout, request), Files(), command="repair")
    assert errors_of(root, recovery_cases.CONFIG, "5.3.3") == []


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["4.9.7-clean", "5.3.3-clean"])
def test_queues_in_the_directory_of_the_other_type(name: str, tmp_path: Path) -> None:
    """They are rebuilt where they belong. A broker of 4.9 never looks into the other directory."""
    root = stores.unpack(name, tmp_path)
    config = BrokerConfig(stores.config(name, root))
    other = root / "batchconsumequeue" / "orders"
    other.parent.mkdir()
    (root / "consumequeue" / "orders").rename(other)

    def warned() -> None:
        with StoreReader(root, config) as store:
            found = [f for f in verify(store, Scope()).findings if f.code == "I-083"]
        assert [f.severity for f in found] == [Severity.WARNING] * name.startswith("4")

    recovered(root, config, between=warned)


def test_a_record_for_a_service_that_lost_its_properties(tmp_path: Path) -> None:
    """Its header is right: it is a lost message, and the timer's entries that name it are no damage."""
    source = stores.unpack("5.5.0-timer-clean", tmp_path / "source")
    root = tmp_path / "store"
    with StoreReader(source, BrokerConfig(stores.config("5.5.0-timer-clean", source))) as store:
        drill(store, root, scenario_of("zero-page"), 0, Files())
    found = recovered(root, BrokerConfig(stores.config("5.5.0-timer-clean", root)))
    assert found.plan is not None and 3828 in {
        int(position) for fill in found.plan.fills for position in fill.lost.position
    }


def test_a_sound_store_is_not_looked_at_twice(tmp_path: Path) -> None:
    case = recovery_cases.case_of("none")
    root = recovery_cases.damaged(case, tmp_path)
    found = looked_at(root, config_of(case, root), case["version"])
    assert not found.options.parts and found.nothing_to_do


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", ["checkpoint_future", "wheel_slot_both_beyond"])
def test_what_is_mended_without_the_log_is_added_to_the_plan(kind: str, tmp_path: Path) -> None:
    case = recovery_cases.case_of(kind)
    root = recovery_cases.damaged(case, tmp_path)
    _added_to_the_plan(root, config_of(case, root), case["version"])


def test_configuration_is_mended_without_the_log(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-clean", tmp_path)
    shutil.rmtree(root / "config")
    _added_to_the_plan(root, BrokerConfig(stores.config("5.3.3-clean", root)), "5.3.3")


@pytest.mark.parametrize(
    ("name", "place"), [("5.3.3-rocksdb", "config/consumerOffsets"), ("5.5.1-rocks-trans-open", "rocksdbstore")]
)
@pytest.mark.parametrize("content", ["", "MANIFEST-000001\n"])
def test_current_names_the_manifest_of_the_tables_again(name: str, place: str, content: str, tmp_path: Path) -> None:
    """It was lost; or a start that failed for want of it has named the MANIFEST of an empty database."""
    root = stores.unpack(name, tmp_path)
    current, config = root / place / "CURRENT", BrokerConfig(stores.config(name, root))
    before = current.read_bytes()
    current.unlink()
    if content:
        current.write_text(content)
        current.with_name(content.strip()).write_bytes(NEW)
    assert {f.code for f in errors_of(root, config, None)} & {"I-014", "I-155"}

    def named_again() -> None:
        assert current.read_bytes() == before

    recovered(root, config, between=named_again)


def _added_to_the_plan(root: Path, config: BrokerConfig, version: str) -> None:
    """The log is not read again, and the edits are those of a plan of all parts."""
    found = looked_at(root, config, version)
    assert found.plan is not None and found.options.parts and not found.options.exact
    every = found.options._replace(exact=True, parts=tuple(RepairPart))
    whole = replan_with_parts(Layout.open(root, config), found.main_version, every)
    assert found.plan.edits and found.plan.edits == whole.edits
    recovered(root, config, version)


def test_a_warning_in_a_part_that_needs_the_log_is_mended_with_an_error_elsewhere(tmp_path: Path) -> None:
    """The configuration is gone, and one byte in a slot of the index is another one."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    shutil.rmtree(root / "config")
    index = max((root / "index").iterdir())
    data = bytearray(index.read_bytes())
    data[HEADER_BYTES + 2] ^= 0x40
    index.write_bytes(data)
    config = BrokerConfig(stores.config("5.3.3-clean", root))
    found = looked_at(root, config, "5.3.3")
    assert found.plan is not None and found.options.exact
    assert any(edit.path.startswith(str(root / "index")) for edit in found.plan.edits)


@pytest.mark.parametrize(("gone", "in_use"), [("logs", False), ("later", True)])
def test_what_may_be_deleted_comes_back_only_where_it_is_asked_for(gone: str, in_use: bool, tmp_path: Path) -> None:
    """Or where the newest message is of a topic without an entry; not because something else is damaged."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    path = root / "config" / "topics.json"
    content = loads(path.read_text())
    del content["topicConfigTable"][gone]
    content["topicConfigTable"]["orders"] |= {"readQueueNums": 1, "writeQueueNums": 1}
    path.write_text(dumps(content))
    (root / "consumequeue" / "orders" / "1" / f"{0:020}").write_bytes(bytes(2000))
    found = looked_at(root, BrokerConfig({}), None)
    assert found.plan is not None and found.options.exact
    choices = (Choice(), chosen([RepairPart.CONFIG], ()))
    plans = [found.plan, *(examined(root, BrokerConfig({}), choice).plan for choice in choices)]
    reasons = [[edit.reason for edit in plan.edits if edit.path == str(path)] for plan in plans]
    reason = f"orders: readQueueNums 1 -> 4; {gone}: it has queues but no entry"
    assert reasons == [[reason] * in_use, [reason] * in_use, [reason]]
    assert any(note.endswith("--config --apply` (I-150)") for note in found.notes) != in_use


@pytest.mark.few(12)
@pytest.mark.parametrize("kind", sorted({case["kind"] for case in recovery_cases.cases()}))
def test_one_look_gives_both_plans(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is told is the same, edit for edit, as where each plan is made for itself."""
    monkeypatch.setattr("time.time", lambda: 1.8e9)
    case = recovery_cases.case_of(kind)
    root = recovery_cases.damaged(case, tmp_path)
    layout, version = Layout.open(root, config_of(case, root)), case["version"]

    def looked(*, exact: bool) -> Recovery:
        others, proved = verified_before(layout, version)
        found = analyze(layout, version, options=RecoveryOptions(Policy.KEEP), proved=proved, exact=exact)
        return widened(found, with_start(others, found).findings)

    one, two = looked(exact=True), looked(exact=False)
    assert one.to_json() == two.to_json() and one.options == two.options
    edits = [found.plan.edits if found.plan else None for found in (one, two)]
    assert edits[0] == edits[1]
