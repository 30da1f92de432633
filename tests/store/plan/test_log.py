"""A store without a log: a wrong path, an unmounted disk, or one that is gone for good."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import NotAStore, Refused
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.plan.plan import Plan
from mqstore.store.recover.recovery import Recovery, analyze, replan
from mqstore.store.session.apply import apply
from mqstore.store.session.undo import session_to_undo, undo

from ... import recovery_cases, stores
from ...cli.datadriven import run_here
from ...recovery_cases import CONFIG
from ..put.faults import CountingFiles, Killed, KilledFiles
from ..recover.recovered import content, started, units_of

pytestmark = pytest.mark.long

VERSION = "5.3.3"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store whose log directory is empty."""
    root = tmp_path / "store"
    shutil.copytree(recovery_cases.base("5.3.3-halt-1", tmp_path), root)
    for path in (root / "commitlog").iterdir():
        path.unlink()
    return root


def found(root: Path, policy: Policy = Policy.KEEP, *, force: bool = True) -> Recovery:
    layout = Layout.open(root, CONFIG)
    return analyze(layout, VERSION, options=RecoveryOptions(policy, force_empty_log=force))


def carried_out(root: Path, before: Recovery, files: Files | None = None) -> None:
    def again() -> Plan:
        return replan(Layout.open(root, CONFIG), VERSION, before.options)

    apply(Layout.open(root, CONFIG), before.plan, again, files or Files())


@pytest.mark.parametrize("policy", list(Policy))
def test_it_is_refused_unless_it_is_meant(root: Path, policy: Policy) -> None:
    refused = found(root, policy, force=False)
    assert refused.plan is None and isinstance(refused.refusal, Refused)
    assert "is the path wrong, or a disk not mounted?" in str(refused.refusal)
    assert refused.prediction.case.label == "no-commit-log"
    assert found(root, policy).plan is not None


def test_a_copy_of_the_log_is_not_passed_over(root: Path, tmp_path: Path) -> None:
    """It is to be copied; without a log nothing tells where it belongs, and --force-empty-log would lose all of it."""
    peer = recovery_cases.base("5.3.3-halt-1", tmp_path)
    named = [str(peer), str(peer / "commitlog")]
    for name in named:
        options = RecoveryOptions(Policy.KEEP, replica=name)
        refused = analyze(Layout.open(root, CONFIG), VERSION, options=options).refusal
        assert refused is not None and refused.hint is not None and "force" not in refused.hint
        assert refused.hint.endswith(f"cp -a {peer}/commitlog/. {root}/commitlog")
    (tmp_path / "empty" / "commitlog").mkdir(parents=True)
    with pytest.raises(NotAStore, match="no commit log to bring anything back from"):
        analyze(Layout.open(root, CONFIG), VERSION, options=options._replace(replica=str(tmp_path / "empty")))
    shutil.copytree(peer / "commitlog", root / "commitlog", dirs_exist_ok=True)
    assert analyze(Layout.open(root, CONFIG), VERSION, options=options).plan is not None


def test_a_full_index_tells_of_a_log_as_queues_do(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")
    refused = found(root, force=False)
    assert refused.plan is None and "no commit log, but a full index" in str(refused.refusal)
    carried_out(root, found(root))
    assert not any((root / "index").iterdir())


def test_what_it_costs_is_told(root: Path) -> None:
    """All messages that the queues name; nothing is told that is not known."""
    units = sum(
        any(path.read_bytes()[at : at + 12])
        for path in (root / "consumequeue").rglob("0000*")
        if path.is_file()
        for at in range(0, path.stat().st_size, 20)
    )
    recovery = found(root)
    assert recovery.plan is not None and recovery.plan.lost.messages == units > 100
    recovery.name_lost()
    rows = recovery.named["plan"]
    assert len(rows) == units and {row["known_from"] for row in rows} == {"queue_unit"}
    times = ("store_timestamp", "not_before", "not_after")
    assert all(row[name] is None for row in rows for name in times)


def test_all_of_it_is_put_away_and_comes_back(root: Path) -> None:
    (root / "rocksdbstore").mkdir()
    for name in ("CURRENT", "MANIFEST-000004", "000009.sst"):  # rows that name places in the log
        (root / "rocksdbstore" / name).write_bytes(b"rows")
    before = content(root)
    carried_out(root, found(root))
    data = ("commitlog/", "consumequeue/", "index/", "rocksdbstore/", "abort")
    assert not [name for name in content(root) if name.startswith(data) and name != "abort.bak"]
    after = found(root, force=False)
    assert after.nothing_to_do and not after.harmful
    for version in ("4.3", "4.9", "5.1", "5.3", "5.4", "5.5"):
        start = started(root, CONFIG, version)
        assert not start.refusal and not start.hangs and not start.log_end
    layout = Layout.open(root, CONFIG)
    undo(layout, session_to_undo(layout), Files())
    again = content(root)
    again.pop("lock", None)
    before.pop("lock", None)
    assert again == before


def test_without_the_directory_nobody_could_be_kept_out(root: Path) -> None:
    (root / "commitlog").rmdir()
    refused = found(root)
    assert refused.plan is None and "no commit log directory" in str(refused.refusal)
    again = f"mkdir -p {root}/commitlog && mqstore recover {root} --force-empty-log"
    for each in (refused.refusal, found(root, force=False).refusal):
        assert each is not None and again in each.hint and "--set maxIndexNum=200" in each.hint


def test_cut_off_anywhere(root: Path, tmp_path: Path) -> None:
    """Run again, it ends as if it had not been cut off; a copy for every fifteenth step."""
    counted = tmp_path / "counted"
    shutil.copytree(root, counted)
    files = CountingFiles()
    carried_out(counted, found(counted), files)
    ended = content(counted)
    for step in range(1, len(files.steps), 15):
        copy = tmp_path / f"copy{step}"
        shutil.copytree(root, copy)
        with pytest.raises(Killed):
            carried_out(copy, found(copy), KilledFiles(step))
        carried_out(copy, found(copy))
        assert content(copy) == ended, step
        shutil.rmtree(copy)


def test_a_short_file_without_any_record_gets_its_length(tmp_path: Path) -> None:
    """All that is left of a log: what stays must have the length that a broker asks for."""
    name = "5.3.3-timer-killed"
    root = stores.unpack(name, tmp_path)
    first, second = sorted((root / "commitlog").iterdir())[:2]
    first.write_bytes(bytes(16_910))
    shutil.rmtree(root / "consumequeue")
    config = BrokerConfig(stores.config(name, root))
    plan = analyze(Layout.open(root, config), options=RecoveryOptions(Policy.KEEP)).plan
    assert plan is not None
    of_log = [(edit.kind, edit.path) for edit in plan.edits if "commitlog" in edit.path]
    assert of_log == [("truncate", str(first)), ("remove", str(second))]


@pytest.mark.parametrize("more", [20, 8192])
def test_bytes_behind_the_end_of_the_last_file(more: int, tmp_path: Path) -> None:
    """They are cut off, and nothing is written behind the cut: the file has its length afterwards."""
    root = tmp_path / "store"
    shutil.copytree(recovery_cases.base("5.3.3-clean-1", tmp_path), root)
    last = max((root / "commitlog").iterdir())
    with last.open("ab") as file:
        file.write(b"Z" * more)
    before = found(root)
    assert before.plan is not None
    assert [edit.kind for edit in before.plan.edits if edit.path == str(last)] == ["truncate"]
    carried_out(root, before)
    assert found(root).nothing_to_do


def test_the_bytes_before_it_are_zeroed_as_well(tmp_path: Path) -> None:
    """A file that is too long, and not zero behind the end of the log."""
    root = tmp_path / "store"
    shutil.copytree(recovery_cases.base("5.3.3-clean-1", tmp_path), root)
    last = max((root / "commitlog").iterdir())
    last.write_bytes(last.read_bytes()[:-100] + b"Z" * 200)
    carried_out(root, found(root))
    assert last.read_bytes()[-100:] == bytes(100)
    assert found(root).nothing_to_do


@pytest.mark.parametrize("gone", [(0,), (0, 1), (2,)])
def test_empty_files_that_the_log_goes_on_behind(gone: tuple[int, ...], tmp_path: Path) -> None:
    """They have lost their messages: as many are told as of files of one byte, and each gets a tombstone."""
    told = []
    for length in (0, 1):
        root = tmp_path / f"store-{length}"
        shutil.copytree(recovery_cases.base("5.3.3-clean-1", tmp_path), root)
        files = sorted((root / "commitlog").iterdir())
        for number in gone:
            os.truncate(files[number], 0)
            os.truncate(files[number], length)
        before = found(root)
        assert before.plan is not None
        told.append(before.plan.lost_messages)
        carried_out(root, before)
        assert {path.stat().st_size for path in files} == {8192}
        assert found(root).nothing_to_do
        assert found(root).tombstones == told[-1]
    assert told[0] == told[1] > 0


@pytest.mark.parametrize("gone", ["TopicC/0", "TopicB/0", "."])
def test_old_records_behind_the_end_beside_a_queue_that_is_gone(gone: str, tmp_path: Path) -> None:
    """They are no new messages: the log has older ones at their queue offsets, and no unit names them."""
    base, root = recovery_cases.base("5.3.3-halt-1", tmp_path), tmp_path / "store"
    sizes = recovery_cases.CONFIG.words
    made = run_here(["damage", str(base), "--to", str(root), "--scenario", "dead-tail", "--seed", "0", "-q", *sizes])
    assert made.code == 0, made.stderr
    shutil.rmtree(root / "consumequeue" / gone)
    before = found(root)
    assert before.plan is not None and before.plan.log_end == found(base).prediction.log_end
    carried_out(root, before)
    assert found(root).nothing_to_do
    assert units_of(root, CONFIG) == units_of(base, CONFIG)


def test_what_compaction_has_kept_goes_with_the_log(tmp_path: Path) -> None:
    """It would hide what comes next: brokers count up from it."""
    root = stores.unpack("5.3.3-compaction", tmp_path)
    for path in (root / "commitlog").iterdir():
        path.unlink()
    before = content(root)
    config = BrokerConfig(stores.config("5.3.3-compaction", root))
    layout = Layout.open(root, config)
    recovery = analyze(layout, VERSION, options=RecoveryOptions(Policy.KEEP, force_empty_log=True))
    plan = recovery.plan
    assert plan is not None
    apply(layout, plan, lambda: plan, Files())
    assert not [
        name for name in content(root) if name.startswith(("compaction/compactionLog/", "compaction/compactionCq/"))
    ]
    undo(layout, session_to_undo(layout), Files())
    assert content(root) == before
