"""What verify says of stores of the damage corpus once they are repaired, and what it says besides."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.checkpoint import read_timer_check
from mqstore.store.disk.file_queue import file_name
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.findings.catalogue import catalogue
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.recover import recovery
from mqstore.store.recover.recovery import replan
from mqstore.store.repair.parts import Choice, RepairPart
from mqstore.store.repair.recheck import unrepairable_texts, with_open_repairs
from mqstore.store.repair.repair import analyze
from mqstore.store.search.store import StoreReader
from mqstore.store.session.apply import apply
from mqstore.store.verify.run import verify
from mqstore.store.verify.verdict import Status

from ... import recovery_cases, stores
from ...recovery_cases import Case, all_feature_cases, case_of, config_of, feature_cases
from .mended import find_unrepairable
from .test_repair import NOW_MS

pytestmark = pytest.mark.long


def repaired(case: Case, work: Path) -> Layout:
    """The damaged store of a case, with all of its plan carried out."""
    root = recovery_cases.damaged(case, work)
    layout = Layout.open(root, config_of(case, root))
    plan = analyze(layout, Choice(), case["version"], NOW_MS).plan
    apply(layout, None, lambda: plan, Files(), command="repair")
    return layout


def test_what_a_verify_has_read_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all that is wrong is configuration, the plan of the repairs goes by what is in order in the log."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    for file in (root / "config").glob("topics.json*"):
        file.unlink()
    with StoreReader(root) as store:
        found = verify(store)
        expected = with_open_repairs(replace(found, verified=None), store.layout)
        monkeypatch.setattr(recovery, "_verified", lambda *_: pytest.fail("the log is read again"))
        assert with_open_repairs(found, store.layout) == expected
    assert found.status is Status.DAMAGED and found.recovered and not expected.recovered


def test_what_no_repair_mends_is_named(tmp_path: Path) -> None:
    """Without wheel and timercheck a broker reads all again: nothing is lost, some comes twice."""
    case = case_of("wheel_and_check_missing")
    (found,) = find_unrepairable(repaired(case, tmp_path), case["version"])
    assert (found.code, found.path, found.findings) == ("I-131", "config/timercheck", 1)
    assert "not known" in found.why and "delivered twice" in found.now


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", ["check_missing", "check_empty", "check_short", "check_zero"])
def test_a_timercheck_that_is_lost_is_made_from_the_timer_log(kind: str, tmp_path: Path) -> None:
    case = case_of(kind)
    layout = repaired(case, tmp_path)
    assert not find_unrepairable(layout, case["version"])
    name = "config/timercheck"
    whole = read_timer_check(recovery_cases.base(case["base"], tmp_path) / name)
    made = read_timer_check(layout.root / name)
    assert whole is not None and made is not None
    assert 0 < made.last_timer_queue_offset <= whole.last_timer_queue_offset
    assert 0 < made.last_read_time_ms <= whole.last_read_time_ms


@pytest.mark.parametrize("read_ms", [342_000_000_001, 1000, 1 << 62])
def test_a_time_that_no_timer_has_come_to_may_be_any(read_ms: int, tmp_path: Path) -> None:
    """No tick, before all that a start goes back to, or still to come: it is not rounded, but taken from what has been
    delivered, as where timercheck is lost.
    """
    name = "5.3.3-timer-clean"
    root = stores.unpack(name, tmp_path)
    path = root / "config/timercheck"
    whole = read_timer_check(path)
    assert whole is not None
    path.write_bytes(whole._replace(last_read_time_ms=read_ms).to_bytes())
    layout = Layout.open(root, BrokerConfig(stores.config(name, root)))
    plan = analyze(layout, Choice(), "5.3", NOW_MS).plan
    apply(layout, None, lambda: plan, Files(), command="repair")
    made = read_timer_check(path)
    assert made is not None and made.last_timer_queue_offset == whole.last_timer_queue_offset
    assert whole.last_read_time_ms - 60_000 < made.last_read_time_ms <= whole.last_read_time_ms


def test_texts_of_what_no_repair_mends() -> None:
    texts = unrepairable_texts()
    assert set(texts) - {"OTHER"} <= set(catalogue())
    for row in texts.values():
        assert {"why", "now"} <= set(row) <= {"why", "now", "command", "does"}
        assert ("does" in row) == ("command" in row)
        assert "{" not in row["now"] and "mqstore " not in row["now"]


@pytest.mark.parametrize("code", ["I-070", "I-114", "I-117"])
def test_a_message_without_a_unit_may_be_of_any_queue(code: str) -> None:
    """LMQs are one cause of several, a shifted queue is another."""
    texts = unrepairable_texts()[code]
    assert "shifted the queue" in texts["why"] and "like an LMQ" in texts["why"]
    assert "LMQ" in texts["now"] and "--queue" in texts["command"]


@pytest.mark.few(1)
@pytest.mark.parametrize("lost", [b"INNER_MULTI_DISPATCH", b"copy_topic,", b"%LMQ%a,copy_topic"])
def test_a_queue_that_its_record_does_not_name_has_its_reason(lost: bytes, tmp_path: Path) -> None:
    """No checksum tells that a name is wrong: consumers get the message as they did."""
    name = "4.9.7-lmq"
    root = stores.unpack(name, tmp_path)
    log = root / "commitlog" / file_name(0)
    data = log.read_bytes()
    at = data.index(lost, data.index(b"%LMQ%a,copy_topic,") - len(b"INNER_MULTI_DISPATCH="))
    log.write_bytes(data[:at] + b"X" + data[at + 1 :])
    config = BrokerConfig().with_set(stores.config_set(name, root))
    layout = Layout.open(root, config)
    plan = analyze(layout, Choice(), None, NOW_MS).plan
    apply(layout, None, lambda: plan, Files(), command="repair")
    told = {row.code: row for row in find_unrepairable(layout, "4.9")}
    assert "I-063" in told and set(told) <= set(unrepairable_texts())
    assert told["I-063"].command.startswith("mqstore dump ") and told["I-063"].why


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["zero_first_page_first", "expired_file_gap"])
def test_fillers_at_the_begin_of_a_log_have_a_time(kind: str, tmp_path: Path) -> None:
    """That of the first record that is left: a broker passes over a file that begins with none."""
    case = case_of(kind)
    assert not find_unrepairable(repaired(case, tmp_path), case["version"])


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("feature", "kind"),
    [
        ("cqext", "cq_ahead"),
        ("cqext", "ext_size_zero"),
        ("cqext", "ext_zero_last"),
        ("timer", "entry_tick_last"),
        ("timer", "log_short_last"),
        ("timer", "log_short_middle"),
        ("timer", "log_zero_first"),
        pytest.param("timer", "wheel_and_log_missing", marks=pytest.mark.slow),
    ],
)
def test_one_run_is_enough(feature: str, kind: str, tmp_path: Path) -> None:
    """What a repair finds inside of files is planned on what it makes of them."""
    found = (c for c in feature_cases() if c["base"].startswith(feature) and c["kind"] == kind)
    case = next(found)
    layout = repaired(case, tmp_path)
    again = analyze(layout, Choice(), case["version"], NOW_MS)
    assert not [edit.to_json() for edit in again.plan.edits]


def test_entries_of_a_file_that_was_cut_are_made_again(tmp_path: Path) -> None:
    """No BLANK takes their place: the timer delivers each message."""
    case = next(c for c in feature_cases() if c["kind"] == "log_short_middle")
    layout = repaired(case, tmp_path)
    assert not find_unrepairable(layout, case["version"])
    wanted = recovery_cases.base(case["base"], tmp_path) / "timerlog"
    for path in wanted.iterdir():
        assert (layout.timer_log / path.name).read_bytes() == path.read_bytes(), path.name


def test_a_first_timer_file_that_nothing_tells_of_goes(tmp_path: Path) -> None:
    """The log begins with the next file, as behind expiry, and no start cuts it there."""
    case = next(c for c in all_feature_cases() if c["kind"] == "log_zero_first")
    layout = repaired(case, tmp_path)
    names = sorted(path.name for path in layout.timer_log.iterdir())
    assert names[0] == file_name(case["config"]["mappedFileSizeTimerLog"])
    assert {found.code for found in find_unrepairable(layout, case["version"])} <= {"I-133"}


def test_a_first_timer_file_stays_until_the_queue_is_mended(tmp_path: Path) -> None:
    """Messages of the queue may tell of its entries: a repair of the timer alone moves nothing."""
    case = next(c for c in all_feature_cases() if c["kind"] == "log_zero_first")
    root = recovery_cases.damaged(case, tmp_path)
    shutil.rmtree(root / "consumequeue" / "rmq_sys_wheel_timer")
    layout = Layout.open(root, config_of(case, root))
    plan = analyze(layout, Choice(frozenset({RepairPart.TIMER})), case["version"], NOW_MS).plan
    assert "move" not in {edit.kind for edit in plan.edits}


@pytest.mark.parametrize(
    ("kind", "told"), [("last_offset_py_other", "up to 5"), ("log_torn_last", ""), ("log_zero_last", "")]
)
def test_what_is_delivered_once_more_is_told(kind: str, told: str, tmp_path: Path) -> None:
    """Messages that were due as they were read have no entry: they are read again with the others."""
    case = next(c for c in feature_cases() if c["base"].startswith("timer") and c["kind"] == kind)
    root = recovery_cases.damaged(case, tmp_path)
    plan = analyze(Layout.open(root, config_of(case, root)), Choice(), case["version"], NOW_MS).plan
    (edit,) = [edit for edit in plan.edits if Path(edit.path).name == "timercheck"]
    again = f"{told} messages are delivered again"
    assert edit.reason.endswith(again) if told else "again" not in edit.reason


def test_the_name_of_a_checksum_that_is_right_is_put_back(tmp_path: Path) -> None:
    """A broker that demands the checksum would cut off the log there."""
    case = next(c for c in feature_cases() if c["kind"] == "flip_crcName_last_force")
    layout = repaired(case, tmp_path)
    wanted = recovery_cases.base(case["base"], tmp_path) / "commitlog"
    for path in layout.root.joinpath("commitlog").iterdir():
        assert path.read_bytes() == (wanted / path.name).read_bytes(), path.name


@pytest.mark.parametrize("policy", ["repair", "recover"])
def test_light_queues_stay_where_the_option_is_off(policy: str, tmp_path: Path) -> None:
    """A broker leaves those that are there, and consumers read them."""
    case = next(c for c in feature_cases() if c["kind"] == "lmq_off")
    root = recovery_cases.damaged(case, tmp_path)
    layout = Layout.open(root, config_of(case, root))
    if policy == "repair":
        plan = analyze(layout, Choice(), case["version"], NOW_MS).plan
    else:
        plan = replan(layout, case["version"], RecoveryOptions(Policy.KEEP, NOW_MS, (case["version"],)))
    assert not [edit.to_json() for edit in plan.edits if "%LMQ%" in edit.path]
