"""Carrying a plan out: what stays, what is journalled, and being cut off at any point."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import SESSION_JOURNAL, Files, has_log_changed_by_session, sessions
from mqstore.store.disk.layout import BARRIER_PREFIX, JOURNAL, Layout
from mqstore.store.disk.lock import StoreLock
from mqstore.store.errors import Denied, InUse, NoSpace, Refused, StoreError
from mqstore.store.recover.recovery import analyze
from mqstore.store.search.store import StoreReader
from mqstore.store.session.apply import alone, apply
from mqstore.store.session.journal import Journal, SessionState, barriers, barriers_left, left_over, unfinished
from mqstore.store.verify.context import Scope
from mqstore.store.verify.run import verify

from ... import stores
from ...recovery_cases import CONFIG
from ...slices import pick, rng
from ..put.faults import CountingFiles, FailingFiles, Killed, KilledFiles, PowerLossFiles
from ..recover.recovered import VERSION, changes_of_starts, content, planned, recover, times

pytestmark = pytest.mark.long


def test_times_and_modes_stay(root: Path) -> None:
    for number, path in enumerate(sorted((root / "commitlog").iterdir())):
        os.utime(path, ns=(10**18, 10**18 + number))
        path.chmod(0o640)
    before = times(root)
    plan, _ = recover(root, CONFIG, VERSION)
    after = times(root)
    assert {edit.kind for edit in plan.edits} >= {"write", "create", "move", "remove", "rebuild"}
    assert {name: after[name] for name in after if name in before} == {
        name: before[name] for name in after if name in before
    }


def test_the_journal_holds_what_was_there(root: Path, tmp_path: Path) -> None:
    before = tmp_path / "before"
    shutil.copytree(root, before)
    _, applied = recover(root, CONFIG, VERSION)
    journal = Journal.load(root, root / ".mqstore" / applied.session)
    assert journal.state is SessionState.APPLIED
    for step in journal.steps:
        folder, old = journal.folder_of(step), before / step.path
        if step.kind == "write":
            data = old.read_bytes()[step.offset : step.offset + step.length]
            assert (folder / step.name("old")).read_bytes() == data
            assert step.old_sha256 == hashlib.sha256(data).hexdigest()
        elif (folder / step.name("moved")).is_file():
            assert (folder / step.name("moved")).read_bytes() == old.read_bytes()
        if step.before is not None:
            assert step.before.size == old.stat().st_size


def test_killed_before_the_barrier_goes(root: Path, tmp_path: Path) -> None:
    """All is done, but no broker would load: that is something to do."""
    total = _steps_of(root, tmp_path)
    with pytest.raises(Killed):
        recover(root, CONFIG, VERSION, KilledFiles(total - 2))
    layout = Layout.open(root, CONFIG)
    assert unfinished(layout.root, layout.journal) is None
    found = analyze(layout, VERSION)
    assert not found.nothing_to_do and any("start barrier" in note for note in found.notes)
    apply(layout, found.plan, lambda: planned(root, CONFIG, VERSION), Files())
    assert analyze(layout, VERSION).nothing_to_do


def test_what_was_lost_is_known_however_late_it_was_cut_off(tmp_path: Path) -> None:
    """Once the log is mended no new plan has the loss: the journal has, also where only the barrier is left."""
    root, work = stores.unpack("5.3.3-killed-page", tmp_path), tmp_path / "work"
    config, counting = BrokerConfig(stores.config("5.3.3-killed-page", root)), CountingFiles()
    shutil.copytree(root, work)
    config = config.with_set([f"storePathCommitLog={work / 'commitlog'}"])
    plan, applied = recover(work, config, VERSION, counting)
    assert applied.lost == plan.lost_messages > 0
    last = len(counting.steps) - 1
    for at in (last - 18, last - 8, last - 1):
        shutil.rmtree(work)
        shutil.copytree(root, work)
        with pytest.raises(Killed):
            recover(work, config, VERSION, KilledFiles(at))
        found = analyze(Layout.open(work, config), VERSION)
        ended = apply(found.layout, found.plan, partial(planned, work, config, VERSION), Files())
        assert (ended.lost, found.layout.abort.exists()) == (applied.lost, False), at


def test_nothing_is_deleted(root: Path) -> None:
    before = set(content(root).values())
    _, applied = recover(root, CONFIG, VERSION)
    folder = root / ".mqstore" / applied.session
    moved = {hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.glob("*.moved")}
    overwritten = len(list(folder.glob("*.old")))
    assert len(before - set(content(root).values()) - moved) <= overwritten


def test_twice_is_once(root: Path) -> None:
    recover(root, CONFIG, VERSION)
    once = content(root)
    assert not planned(root, CONFIG, VERSION).edits
    recover(root, CONFIG, VERSION)
    assert content(root) == once


def _steps_of(root: Path, work: Path) -> int:
    copy = work / "counted"
    shutil.copytree(root, copy)
    counting = CountingFiles()
    recover(copy, CONFIG, VERSION, counting)
    return len(counting.steps)


def _cut_and_go_on(root: Path, work: Path, files: Files) -> None:
    """Cut a recovery off, run it again, and compare with one that was not cut off."""
    whole, copy = work / "whole", work / "cut"
    if not whole.exists():
        shutil.copytree(root, whole)
        recover(whole, CONFIG, VERSION)
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(root, copy)
    with pytest.raises((Killed, StoreError)):
        recover(copy, CONFIG, VERSION, files)
    if isinstance(files, PowerLossFiles):
        files.lose()
    layout = Layout.open(copy, CONFIG)
    half_done = unfinished(layout.root, layout.journal) is not None
    assert not half_done or barriers(layout), "a broker could start on a half-repaired store"
    recover_again(copy)
    assert content(copy) == content(whole)
    assert not barriers(layout)
    assert not (copy / "abort").exists()


def recover_again(root: Path) -> None:
    """Go on, whether the journal was sealed or not."""
    layout = Layout.open(root, CONFIG)
    apply(layout, None, lambda: planned(root, CONFIG, VERSION), Files())


@pytest.mark.few(1)
@pytest.mark.parametrize("part", range(2))
def test_cut_off_at_some_changes(root: Path, tmp_path: Path, part: int) -> None:
    total = _steps_of(root, tmp_path)
    for count in range(part * 5, total, 23):
        _cut_and_go_on(root, tmp_path, KilledFiles(count))


@pytest.mark.slow
def test_cut_off_at_every_change(root: Path, tmp_path: Path) -> None:
    for count in pick(range(_steps_of(root, tmp_path)), "steps with a kill", 20):
        _cut_and_go_on(root, tmp_path, KilledFiles(count))


def test_a_power_loss_at_some_changes(root: Path, tmp_path: Path) -> None:
    total = _steps_of(root, tmp_path)
    for count in range(3, total, 37):
        _cut_and_go_on(root, tmp_path, PowerLossFiles(count))


@pytest.mark.slow
def test_a_power_loss_at_every_change(root: Path, tmp_path: Path) -> None:
    for count in pick(range(_steps_of(root, tmp_path)), "steps with a power loss", 20):
        _cut_and_go_on(root, tmp_path, PowerLossFiles(count))


@pytest.mark.few(1)
@pytest.mark.parametrize("part", range(2))
def test_a_change_that_fails(root: Path, tmp_path: Path, part: int) -> None:
    total = _steps_of(root, tmp_path)
    for at in range(part * 7, total, 37):
        _cut_and_go_on(root, tmp_path, FailingFiles(at, errno.ENOSPC))


def test_a_failure_before_the_journal_leaves_the_store_as_it_was(root: Path, tmp_path: Path) -> None:
    before = content(root)
    with pytest.raises(NoSpace):
        recover(root, CONFIG, VERSION, FailingFiles(20, errno.ENOSPC))
    layout = Layout.open(root, CONFIG)
    assert unfinished(layout.root, layout.journal) is None
    after = content(root)
    after.pop("lock", None)
    before.pop("lock", None)
    assert after == before


class Forbidden(Files):
    """Another user's store: a file in it is not ours to write."""

    def __init__(self, name: str) -> None:
        self.name = name

    def step(self, change: str, path: Path, size_bytes: int = 0) -> None:
        if change == "open" and path.name == self.name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def check_nothing_was_begun(root: Path, files: Files, place: str) -> None:
    """Refused before the first change: a half-done recovery could not be undone either."""
    before = content(root)
    with pytest.raises(Denied, match=place):
        recover(root, CONFIG, VERSION, files)
    layout = Layout.open(root, CONFIG)
    assert unfinished(layout.root, layout.journal) is None
    assert not barriers(layout)
    assert {name: row for name, row in content(root).items() if name != "lock"} == {
        name: row for name, row in before.items() if name != "lock"
    }


@pytest.mark.parametrize("name", ["checkpoint", f"{8192 * 4:020d}"])
def test_a_file_that_may_not_be_written(root: Path, name: str) -> None:
    check_nothing_was_begun(root, Forbidden(name), name)


def test_a_directory_that_may_not_be_written(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = root / "index"
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path) != index)
    check_nothing_was_begun(root, Files(), str(index))


def test_a_lock_held_by_another(root: Path) -> None:
    before = content(root)
    plan = planned(root, CONFIG, VERSION)
    layout = Layout.open(root, CONFIG)
    with StoreLock.take(layout.lock, Files()), pytest.raises(InUse):
        apply(layout, plan, lambda: plan, Files())
    after = content(root)
    after.pop("lock", None)
    before.pop("lock", None)
    assert after == before


def test_one_that_gives_up_waiting_leaves_the_barrier_of_the_other(root: Path) -> None:
    layout = Layout.open(root, CONFIG)
    with alone(layout, Files(), 0):
        there = barriers(layout)
        with pytest.raises(InUse), alone(layout, Files(), 0.01):
            raise AssertionError("two at a time")
        assert barriers(layout) == there != []
    assert not barriers(layout)


def test_one_that_waited_has_a_barrier(root: Path) -> None:
    """Whoever had the lock before takes all barriers away when it is done."""
    layout = Layout.open(root, CONFIG)
    found: list[list[Path]] = []

    def wait() -> None:
        with alone(layout, Files(), 60):
            found.append(barriers(layout))

    second = threading.Thread(target=wait)
    with alone(layout, Files(), 0):
        second.start()
        while len(barriers(layout)) < 2:
            assert second.is_alive()
            time.sleep(0.001)
    second.join()
    assert found[0]
    assert not barriers(layout)


def test_a_barrier_of_whoever_works_is_none_that_was_left(root: Path) -> None:
    """One who has just ended his change, and looks at it, must not take it for a damage. One that waits has no lock."""
    layout = Layout.open(root, CONFIG)
    with alone(layout, Files(), 0):
        own = barriers(layout)
        assert own and barriers_left(layout) == [] and left_over(layout) is None
        assert not {"I-005", "I-185"} & codes_of(root)
        other = own[0].with_name(f"{BARRIER_PREFIX}1-ab")
        other.write_bytes(own[0].read_bytes())
        assert barriers_left(layout) == [other] and left_over(layout) is not None
        assert {"I-005", "I-185"} <= codes_of(root)


def codes_of(root: Path) -> set[str]:
    with StoreReader(root) as store:
        return {finding.code for finding in verify(store, Scope()).findings}


def test_no_barrier_of_a_wrong_size_is_left(root: Path) -> None:
    """A full disk: a barrier that no broker refuses to load would do harm by itself."""
    layout = Layout.open(root, CONFIG)
    for step in (0, 1):
        with pytest.raises(StoreError), alone(layout, FailingFiles(step, errno.ENOSPC), 0):
            raise AssertionError("not alone")
        assert not barriers(layout)


def test_a_store_that_changed_since_the_plan(root: Path) -> None:
    plan = planned(root, CONFIG, VERSION)
    (root / "abort").unlink()
    layout = Layout.open(root, CONFIG)
    before = content(root)
    with pytest.raises(Refused, match="changed since"):
        apply(layout, plan, lambda: planned(root, CONFIG, VERSION), Files())
    after = content(root)
    assert {k: v for k, v in after.items() if k != "lock"} == {k: v for k, v in before.items() if k != "lock"}
    assert not list(sessions(layout.journal))


@pytest.mark.parametrize("size", [-1, 1 << 60])
def test_no_length_in_a_journal_is_trusted(size: int, root: Path) -> None:
    folder = root / JOURNAL / "20260101T000000.000000Z"
    folder.mkdir(parents=True)
    removed = {"path": "commitlog/00000000000000000000", "kind": "remove", "offset": 0, "length": 0}
    step = {**removed, "before": {"size": size}, "old_sha256": "0"}
    (folder / SESSION_JOURNAL).write_text(json.dumps({"steps": [step]}))
    assert has_log_changed_by_session(Layout.open(root, CONFIG))


def test_what_is_no_session_stays(root: Path) -> None:
    """Folders beside sessions are somebody's own, whatever they are called; what a session left half written goes."""
    layout = Layout.open(root, CONFIG)
    own = [layout.journal / name / "tree" for name in ("before", f"rebuild-{'0' * 32}", "20261129T161627.000001Z")]
    for folder in own[:-1]:
        folder.mkdir(parents=True)
    assert not has_log_changed_by_session(layout)
    own[-1].mkdir(parents=True)
    half = layout.journal / "20261129T161627.000002Z"
    (half / "damaged").mkdir(parents=True)
    for name in ("000000.old", "journal.json", "sealed.new", "journal-is-in"):
        (half / name).write_bytes(b"")
    recover(root, CONFIG, VERSION)
    assert all(folder.exists() for folder in own)
    assert not half.exists()


def test_starts_of_all_versions_change_nothing(root: Path) -> None:
    plan, _ = recover(root, CONFIG, VERSION)
    knowing_ipv6 = ("4.9", "5.1", "5.3", "5.4", "5.5")
    assert not changes_of_starts(root, CONFIG, plan, knowing_ipv6)


def test_a_log_on_another_file_system(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Files are renamed inside their own file system: it gets a session folder, too."""
    other = tmp_path_factory.mktemp("on-disk")
    shutil.move(root / "commitlog", other / "commitlog")
    config = CONFIG.with_set([f"storePathCommitLog={other / 'commitlog'}"])
    plan, applied = recover(root, config, VERSION)
    assert not planned(root, config, VERSION).edits
    moved = [e for e in plan.edits if e.kind == "move" and e.path.startswith(str(other))]
    assert moved
    devices = {other.stat().st_dev, root.stat().st_dev}
    folders = {(base / ".mqstore" / applied.session) for base in (other, root)}
    assert len([folder for folder in folders if folder.is_dir()]) == len(devices)


def test_a_log_directory_that_no_broker_has_made_yet(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The third place of a log, outside of the store: the next file that falls to it makes it."""
    none = tmp_path_factory.mktemp("on-disk") / "commitlog"
    config = CONFIG.with_set([f"storePathCommitLog={root / 'commitlog'},{none}"])
    _, applied = recover(root, config, VERSION)
    layout = Layout.open(root, config)
    assert applied.session and not barriers(layout) and not none.exists()
    assert not planned(root, config, VERSION).edits


def test_the_journal_is_enough_to_take_it_all_back(root: Path) -> None:
    """Every step undone in reverse order gives the store of before: bytes, times, modes."""
    before, before_times = content(root), times(root)
    _, applied = recover(root, CONFIG, VERSION)
    journal = Journal.load(root, root / ".mqstore" / applied.session)
    for step in reversed(journal.steps):
        path, folder = journal.path_of(step), journal.folder_of(step)
        if step.kind == "write":
            with path.open("r+b") as file:
                file.seek(step.offset)
                file.write((folder / step.name("old")).read_bytes())
        elif step.kind == "create":
            path.unlink()
        if (folder / step.name("moved")).exists():
            (folder / step.name("moved")).rename(path)
        if step.before is not None:
            os.utime(path, ns=(step.before.accessed_ns, step.before.modified_ns))
    for directory in reversed(journal.directories):
        (root / directory).rmdir()
    after = content(root)
    assert {name: after[name] for name in after if name != "lock"} == {
        name: before[name] for name in before if name != "lock"
    }
    assert times(root) == before_times


def test_a_half_done_recovery_without_its_barrier(root: Path, tmp_path: Path) -> None:
    """Somebody let a broker start on it: what the journal says may be overtaken."""
    total = _steps_of(root, tmp_path)
    with pytest.raises(Killed):
        recover(root, CONFIG, VERSION, KilledFiles(total - 12))
    layout = Layout.open(root, CONFIG)
    assert unfinished(layout.root, layout.journal) is not None
    for path in barriers(layout):
        path.unlink()
    before = content(root)
    for _ in range(2):
        with pytest.raises(Refused, match="barrier is gone"):
            apply(layout, None, lambda: planned(root, CONFIG, VERSION), Files())
    after = content(root)
    assert {name: after[name] for name in before} == before


@pytest.mark.slow
def test_a_process_that_is_killed(root: Path, tmp_path: Path) -> None:
    """kill -9 at any moment, again and again, until the command comes to its end."""
    whole = tmp_path / "whole"
    shutil.copytree(root, whole)
    recover(whole, CONFIG, VERSION)
    sizes = [f"--set={name}={value}" for name, value in CONFIG.items()]
    command = ["recover", str(root), "--apply", "--yes", "--policy", "broker", *sizes]
    command += ["--broker-version", VERSION]
    chance = rng("killed recoveries")
    for attempt in range(40):
        process = subprocess.Popen(
            [sys.executable, "-m", "mqstore", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            process.wait(chance.uniform(0.2, 1.0) + 0.15 * attempt)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.returncode in (0, 1):
            break
    assert process.returncode in (0, 1)
    assert content(root) == content(whole)
    assert not barriers(Layout.open(root, CONFIG))


def test_queues_behind_a_link_to_another_file_system(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("on-disk")
    shutil.move(root / "consumequeue", other / "queues")
    (root / "consumequeue").symlink_to(other / "queues")
    plan, _ = recover(root, CONFIG, VERSION)
    assert plan.touches("consumequeue")
    assert not planned(root, CONFIG, VERSION).edits
