"""Taking a recovery back: every byte, time and name, from any half-way state."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path

import pytest

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Edit, Files
from mqstore.store.disk.layout import Layout
from mqstore.store.disk.lock import StoreLock
from mqstore.store.errors import InUse, NotFound, Refused, StoreError, Unreadable
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.plan.plan import Plan
from mqstore.store.recover.recovery import analyze, replan
from mqstore.store.session.apply import apply
from mqstore.store.session.journal import Journal, SessionState, barriers, unfinished
from mqstore.store.session.undo import Undone, journal_to_purge, list_sessions, purge, session_to_undo, undo

from ... import recovery_cases, stores
from ...recovery_cases import CONFIG, Case
from ...slices import SEED, pick
from ..put.faults import CountingFiles, FailingFiles, Killed, KilledFiles, PowerLossFiles
from ..recover.recovered import VERSION, planned, recover

pytestmark = pytest.mark.long

Everything = dict[str, tuple[int, int, int, bytes]]


def everything(root: Path) -> Everything:
    """Mode, size, time and bytes of every file but sessions, by name; directories, too."""
    found: Everything = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if name.startswith(".mqstore"):
            continue
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            found[name + "/"] = (status.st_mode, 0, 0, b"")
        else:
            found[name] = (status.st_mode, status.st_size, status.st_mtime_ns, path.read_bytes())
    return found


def contents(root: Path) -> dict[str, bytes]:
    """The bytes of every file, by name."""
    return contents_of(everything(root))


def contents_of(found: Everything) -> dict[str, bytes]:
    """Without mode, size and time."""
    return {name: row[3] for name, row in found.items()}


def take_back(root: Path, files: Files | None = None, *, force: bool = False) -> Undone:
    """Undo the newest session."""
    layout = Layout.open(root, CONFIG)
    return undo(layout, session_to_undo(layout), files or Files(), force=force)


def test_everything_is_as_before(root: Path) -> None:
    before = everything(root)
    _, applied = recover(root, CONFIG, VERSION)
    assert everything(root) != before
    done = take_back(root)
    assert everything(root) == before
    assert (done.session, done.steps, done.resumed) == (applied.session, applied.steps, False)
    assert not barriers(Layout.open(root, CONFIG))
    with pytest.raises(NotFound, match="nothing to undo"):
        take_back(root)


@pytest.mark.parametrize("content", [None, b"", b"lock", b"of another tool"])
def test_the_lock_is_as_before(content: bytes | None, root: Path) -> None:
    """Away where there was none: nothing is left but the session, and not that after a purge."""
    lock = root / "lock"
    lock.unlink(missing_ok=True)
    if content is not None:
        lock.write_bytes(content)
        os.utime(lock, ns=(1_000_000_000, 2_000_000_000))
    before = everything(root)
    recover(root, CONFIG, VERSION)
    assert lock.read_bytes() == b"lock"
    take_back(root)
    assert everything(root) == before
    layout = Layout.open(root, CONFIG)
    for session in list_sessions(layout):
        purge(layout, journal_to_purge(layout, session.name), Files())
    assert not (root / ".mqstore").exists()


def test_of_two_sessions_the_first_made_the_lock(root: Path) -> None:
    """Taking the second one back leaves it."""
    (root / "lock").unlink(missing_ok=True)
    before = everything(root)
    recover(root, CONFIG, VERSION)
    between = everything(root)
    (root / "abort").write_bytes(b"")
    os.utime(root / "abort", ns=(0, 0))
    recover(root, CONFIG, VERSION)
    take_back(root)
    (root / "abort").unlink()
    assert everything(root) == between
    take_back(root)
    assert everything(root) == before


@pytest.mark.parametrize("at", range(2, 8))
def test_a_recovery_that_did_not_begin_leaves_no_lock(root: Path, at: int) -> None:
    """The disk said no before the journal was sealed."""
    (root / "lock").unlink(missing_ok=True)
    before = everything(root)
    files = FailingFiles(at, errno.EIO)
    with pytest.raises(StoreError):
        recover(root, CONFIG, VERSION, files)
    assert everything(root) == before


def test_a_lock_of_which_a_full_disk_has_not_one_byte_locks_as_well(root: Path) -> None:
    (root / "lock").unlink(missing_ok=True)
    before = everything(root)
    files = CountingFiles()
    recover(root, CONFIG, VERSION, files)
    take_back(root)
    at = files.steps.index(("write", "lock"))
    recover(root, CONFIG, VERSION, FailingFiles(at, errno.ENOSPC))
    take_back(root)
    assert everything(root) == before


def test_a_journal_that_does_not_know_the_lock(root: Path) -> None:
    """Of an older mqstore: what is there stays."""
    (root / "lock").unlink(missing_ok=True)
    recover(root, CONFIG, VERSION)
    layout = Layout.open(root, CONFIG)
    journal = session_to_undo(layout)
    assert journal is not None
    journal.lock = None
    undo(layout, journal, Files())
    assert (root / "lock").read_bytes() == b"lock"


def test_recovered_and_taken_back_again(root: Path) -> None:
    before = everything(root)
    recover(root, CONFIG, VERSION)
    recovered = everything(root)
    take_back(root)
    recover(root, CONFIG, VERSION)
    names = {name for name in recovered if not name.startswith("index/")}  # named by the clock
    assert {n: everything(root)[n][3] for n in names} == {n: recovered[n][3] for n in names}
    take_back(root)
    assert everything(root) == before


def check_case(case: Case, work: Path, policy: Policy) -> None:
    """Recover a damaged store, look whether anything is left to do, take it back, compare."""
    root = recovery_cases.damaged(case, work)
    config = recovery_cases.config_of(case, root)
    label = f"{case['base']} {case['kind']} {policy}"
    before = everything(root)
    found = analyze(Layout.open(root, config), case["version"], options=RecoveryOptions(policy))
    if found.plan is None or not found.plan.edits:
        assert everything(root) == before, label
        return

    def again() -> Plan:
        return replan(Layout.open(root, config), found.main_version, found.options)

    apply(Layout.open(root, config), found.plan, again, Files())
    assert not again().edits, label
    layout = Layout.open(root, config)
    undo(layout, session_to_undo(layout), Files())
    assert everything(root) == before, label
    shutil.rmtree(root)


POLICIES = pytest.mark.parametrize("policy", list(Policy))


@pytest.mark.few(9)
@POLICIES
@pytest.mark.parametrize("case", recovery_cases.cases()[::12], ids=lambda c: c["kind"])
def test_some_kinds_of_damage(case: Case, policy: Policy, tmp_path: Path) -> None:
    check_case(case, tmp_path, policy)


def feature(case: Case) -> str:
    """Of the store that a case damages."""
    return str(case["base"].split("-")[0])


FEATURE_CASES = sorted(recovery_cases.feature_cases(), key=lambda case: (feature(case), case["kind"]))


@pytest.mark.few(4)
@POLICIES
@pytest.mark.parametrize("case", FEATURE_CASES[::48], ids=lambda c: f"{feature(c)}-{c['kind']}")
def test_some_kinds_of_damage_to_features(case: Case, policy: Policy, tmp_path: Path) -> None:
    """Timers, batch queues, consumequeue_ext and the others."""
    check_case(case, tmp_path, policy)


def test_a_log_directory_that_was_made(tmp_path: Path) -> None:
    """It goes again, though the undo itself puts a barrier beside the log."""
    root = stores.unpack("5.3.3-multipath-killed", tmp_path)
    names = ("d0", "d1/commitlog", "d2/commitlog")
    config = BrokerConfig({"storePathCommitLog": ",".join(f"{root}/{name}" for name in names)})
    before = everything(root)
    found = analyze(Layout.open(root, config), "5.3.3")
    apply(Layout.open(root, config), found.plan, lambda: replan(Layout.open(root, config), "5.3.3"), Files())
    layout = Layout.open(root, config)
    undo(layout, session_to_undo(layout), Files())
    assert everything(root) == before


@pytest.mark.slow
@POLICIES
def test_every_case(tmp_path: Path, policy: Policy) -> None:
    for number, case in enumerate(pick(recovery_cases.all_cases(), "undone recoveries")):
        check_case(case, tmp_path / str(number), policy)


@pytest.mark.slow
@POLICIES
def test_every_feature_case(tmp_path: Path, policy: Policy) -> None:
    for number, case in enumerate(pick(recovery_cases.all_feature_cases(), "undone features")):
        check_case(case, tmp_path / str(number), policy)


def cut_off(root: Path, work: Path, files: Files) -> Path:
    """A copy whose undo was cut off by `files`, then run again."""
    copy = work / "cut"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(root, copy)
    try:
        take_back(copy, files)
    except (Killed, StoreError):
        if isinstance(files, PowerLossFiles):
            files.lose()
        layout = Layout.open(copy, CONFIG)
        half_way = unfinished(layout.root, layout.journal)
        assert half_way is None or barriers(layout), "a broker could start on a half-way store"
        if session_state(copy) is not SessionState.UNDONE or barriers(layout):
            take_back(copy)
    return copy


def newest(layout: Layout) -> Journal:
    """The newest session."""
    journal = session_to_undo(layout)
    assert journal is not None
    return journal


def session_state(root: Path) -> SessionState:
    """Of the only session."""
    (session,) = list_sessions(Layout.open(root, CONFIG))
    return session.state


def undo_steps(root: Path, work: Path) -> int:
    """How many steps an undo of the session takes."""
    counting = CountingFiles()
    copy = work / "counted"
    shutil.copytree(root, copy)
    take_back(copy, counting)
    return len(counting.steps)


def faults_at(step: int) -> list[Files]:
    """Every way to be cut off at a step."""
    return [
        KilledFiles(step, SEED),
        PowerLossFiles(step, SEED),
        FailingFiles(step, errno.ENOSPC),
        FailingFiles(step, errno.EIO),
    ]


def check_cut_off(root: Path, work: Path, steps: range) -> None:
    """An undo that was cut off ends as one that was not."""
    before = everything(root)
    recover(root, CONFIG, VERSION)
    total = undo_steps(root, work)
    for step in range(steps.start, total, steps.step):
        for files in faults_at(step):
            copy = cut_off(root, work, files)
            where = f"{type(files).__name__} at step {step} of {total}, seed {SEED}"
            if isinstance(files, PowerLossFiles):  # its `lose` rewrites files
                assert contents(copy) == contents_of(before), where
            else:
                assert everything(copy) == before, where
            layout = Layout.open(copy, CONFIG)
            assert not barriers(layout), where


def test_cut_off_at_some_steps(root: Path, tmp_path: Path) -> None:
    check_cut_off(root, tmp_path, range(0, 1, 17))


@pytest.mark.slow
@pytest.mark.parametrize("part", pick(list(range(10)), "undo cut off at each step"))
def test_cut_off_at_each_step(root: Path, tmp_path: Path, part: int) -> None:
    check_cut_off(root, tmp_path, range(part, part + 1, 10))


class Flushed(CountingFiles):
    """Notes the directories that are flushed."""

    def __init__(self) -> None:
        super().__init__()
        self.directories = set[Path]()

    def arrived(self, number: int, change: str, path: Path) -> None:
        if change == "sync_directory":
            self.directories.add(path)


def test_one_that_goes_on_flushes_what_was_moved_before(root: Path, tmp_path: Path) -> None:
    """A power loss after the undo finds no file where it was before: not even one that a kill left unflushed."""
    recover(root, CONFIG, VERSION)
    counting = CountingFiles()
    shutil.copytree(root, tmp_path / "counted")
    take_back(tmp_path / "counted", counting)
    changes = [change for change, _ in counting.steps]
    for step in (n for n, change in enumerate(changes) if change == "rename"):
        copy = tmp_path / "copy"
        shutil.copytree(root, copy)
        with pytest.raises(Killed):
            take_back(copy, KilledFiles(step + 1))
        if session_state(copy) is SessionState.UNDONE:
            break  # all of it was flushed
        journal, flushed = newest(Layout.open(copy, CONFIG)), Flushed()
        take_back(copy, flushed)
        moved = [journal.path_of(each).parent for each in journal.steps if not each.in_place]
        above = [(copy / name).parent for name in journal.directories]
        assert {place for place in (*moved, *above) if place.is_dir()} <= flushed.directories
        shutil.rmtree(copy)
    assert changes.count("rename") > 10 and copy.exists()


def half_recovered(root: Path, files: Files) -> None:
    """Cut a recovery off."""
    with pytest.raises((Killed, StoreError)):
        recover(root, CONFIG, VERSION, files)


@pytest.mark.few(1)
@pytest.mark.parametrize("part", range(3))
def test_a_recovery_that_was_cut_off(root: Path, tmp_path: Path, part: int) -> None:
    """Taken back from any half-way state, as well as carried through."""
    before, counting = everything(root), CountingFiles()
    whole = tmp_path / "whole"
    shutil.copytree(root, whole)
    recover(whole, CONFIG, VERSION, counting)
    sealed = next(n for n, (_, name) in enumerate(counting.steps) if name == "sealed.new")
    for step in range(sealed + part, len(counting.steps) - 2, 9):
        copy = tmp_path / "copy"
        shutil.copytree(root, copy)
        half_recovered(copy, KilledFiles(step, SEED))
        take_back(copy)
        assert everything(copy) == before, f"step {step}: {counting.steps[step]}"
        shutil.rmtree(copy)


def test_a_store_that_changed_since(root: Path) -> None:
    before = everything(root)
    recover(root, CONFIG, VERSION)
    (root / "config").mkdir(exist_ok=True)
    (root / "abort").write_text("")
    recovered = everything(root)
    with pytest.raises(Refused, match=r"changed since .*: abort: .*; --force"):
        take_back(root)
    assert everything(root) == recovered
    assert not barriers(Layout.open(root, CONFIG))
    take_back(root, force=True)
    assert everything(root)["abort"] == before["abort"]


class WholeSeconds(Files):
    """A file system that keeps no fractions of seconds."""

    def set_times(self, path: Path, accessed_ns: int, modified_ns: int) -> None:
        super().set_times(path, accessed_ns // 10**9 * 10**9, modified_ns // 10**9 * 10**9)


@pytest.mark.parametrize("files", [Files(), WholeSeconds()])
def test_a_copy_of_the_store_with_other_times(files: Files, root: Path, tmp_path: Path) -> None:
    """Moved files get their old times back; those that were changed in place count as written to since."""
    before = everything(root)
    _, applied = recover(root, CONFIG, VERSION)
    assert applied.session and list((root / ".mqstore").rglob("*.moved"))
    copy = shutil.copytree(root, tmp_path / "copy", copy_function=shutil.copy)
    with pytest.raises(Refused, match="changed since"):
        take_back(copy, files)
    take_back(copy, files, force=True)
    assert contents(copy) == contents_of(before)
    steps = Journal.load(copy, copy / ".mqstore" / applied.session).steps
    for name in before.keys() & ({step.path for step in steps} - {step.path for step in steps if step.in_place}):
        assert (copy / name).stat().st_mtime_ns // 10**9 == before[name][2] // 10**9, name
    assert not barriers(Layout.open(copy, CONFIG))


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("made", [False, True])
def test_a_rocksdb_that_was_written_to_since(made: bool, merged: bool, root: Path) -> None:
    """It goes as a whole, and what came since is kept; what lacks a table would not open."""
    folder = root / "consumequeue"

    def write(manifest: int, *names: str) -> None:
        (folder / "CURRENT").write_text(f"MANIFEST-{manifest:06}\n")
        for name in (f"MANIFEST-{manifest:06}", *names):
            (folder / name).write_text(name)

    kept = {} if made else {"000003.sst": b"untouched", "OPTIONS-000004": b""}
    for name, data in kept.items():
        (folder / name).write_bytes(data)
    if not made:
        write(1, "000002.log")
    before = everything(root)
    gone = [] if made else ["CURRENT", "MANIFEST-000001", "000002.log"]
    new = {"000008.sst": b"8", "MANIFEST-000007": b"7", "CURRENT": b"MANIFEST-000007\n"}
    plan = Plan(
        "keep",
        0,
        0,
        [Edit("move", str(folder / name), "") for name in gone]
        + [Edit("create", str(folder / name), "", (), 0, len(d), None, ((0, d),)) for name, d in new.items()],
    )
    apply(Layout.open(root, CONFIG), plan, lambda: plan, Files())
    for name in ("000008.sst", "MANIFEST-000007", "OPTIONS-000004", *(["000003.sst"] if merged else [])):
        (folder / name).unlink(missing_ok=True)
    write(12, "000013.sst", "000014.log", "OPTIONS-000011")
    written = everything(root)
    with pytest.raises(Refused, match="changed since"):
        take_back(root)
    if merged and not made:
        with pytest.raises(Refused, match=r"cannot be restored: this table is gone: .*000003\.sst"):
            take_back(root, force=True)
        assert everything(root) == written
        return
    take_back(root, force=True)
    after = everything(root)
    assert {n: row for n, row in before.items() if "OPTIONS" not in n} == after
    later = sorted(path.name.partition(".")[2] for path in (root / ".mqstore").glob("*/*.later"))
    assert {f"{name}.later" for name in ("000013.sst", "000014.log", "MANIFEST-000012", "OPTIONS-000011")} <= set(later)


@pytest.mark.parametrize("part", ["commitlog", "consumequeue", "checkpoint"])
def test_any_file_that_changed(root: Path, part: str) -> None:
    recover(root, CONFIG, VERSION)
    path = root / part
    if path.is_dir():
        path = next(p for p in sorted(path.rglob("*")) if p.is_file())
    with path.open("r+b") as file:
        file.write(b"x")
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    with pytest.raises(Refused, match="changed since"):
        take_back(root)


def test_what_the_session_kept_is_damaged(root: Path) -> None:
    recover(root, CONFIG, VERSION)
    recovered = everything(root)
    kept = next(iter(sorted((root / ".mqstore").glob("*/*.old"))))
    kept.write_bytes(b"")
    with pytest.raises(Unreadable, match=f"kept is damaged.*{kept.name}"):
        take_back(root)
    assert everything(root) == recovered
    assert session_state(root) is SessionState.APPLIED


def test_a_file_that_the_session_moved_is_gone(root: Path) -> None:
    """Nothing may be put back before it is clear that everything can be."""
    recover(root, CONFIG, VERSION)
    recovered = everything(root)
    kept = next(iter(sorted((root / ".mqstore").glob("*/*.moved"))))
    kept.unlink()
    with pytest.raises(Unreadable, match=f"kept is .*: .*{kept.name}"):
        take_back(root)
    assert everything(root) == recovered
    assert session_state(root) is SessionState.APPLIED
    assert not barriers(Layout.open(root, CONFIG))


def test_a_file_that_was_changed_in_place_is_gone(root: Path) -> None:
    recover(root, CONFIG, VERSION)
    journal = newest(Layout.open(root, CONFIG))
    step = next(step for step in journal.steps if step.in_place)
    journal.path_of(step).unlink()
    recovered = everything(root)
    with pytest.raises(Refused, match=f"is gone: {journal.path_of(step)}"):
        take_back(root, force=True)
    assert everything(root) == recovered
    assert session_state(root) is SessionState.APPLIED


def test_a_file_that_was_changed_and_then_moved(root: Path) -> None:
    """As earlier versions did with a queue that was copied under another topic."""
    before, layout = everything(root), Layout.open(root, CONFIG)
    path = str(next(layout.consume_queue.glob("*/*/*")))
    edits = [Edit("write", path, "wrong", (), 0, 20), Edit("move", path, "wrong", ())]
    plan = Plan(Policy.KEEP, 0, 0, edits)
    apply(layout, plan, lambda: plan, Files())
    take_back(root)
    assert everything(root) == before


def test_a_damaged_journal(root: Path) -> None:
    recover(root, CONFIG, VERSION)
    journal = next((root / ".mqstore").glob("*/journal.json"))
    journal.write_bytes(journal.read_bytes().replace(b"write", b"wrong", 1))
    with pytest.raises(Unreadable, match="journal is damaged"):
        take_back(root)
    assert session_state(root) is SessionState.DAMAGED


def test_other_sessions_are_listed_beside_a_damaged_one(root: Path) -> None:
    recover(root, CONFIG, VERSION)
    (root / "abort").write_text("")
    second = recover(root, CONFIG, VERSION)[1].session
    next((root / ".mqstore").glob("*/journal.json")).unlink()
    listed = list(list_sessions(Layout.open(root, CONFIG)))
    assert [one.state for one in listed].count(SessionState.DAMAGED) == 1
    assert second in [one.name for one in listed] and len(listed) == 2
    assert all(one.kept_bytes > 0 for one in listed)


def test_a_store_in_use(root: Path) -> None:
    recover(root, CONFIG, VERSION)
    recovered, layout = everything(root), Layout.open(root, CONFIG)
    with StoreLock.take(layout.lock, Files()), pytest.raises(InUse):
        take_back(root)
    assert everything(root) == recovered
    assert not barriers(layout)


def test_no_recovery_over_a_half_done_undo(root: Path, tmp_path: Path) -> None:
    before = everything(root)
    recover(root, CONFIG, VERSION)
    total = undo_steps(root, tmp_path)
    with pytest.raises(Killed):
        take_back(root, KilledFiles(total - 8))
    layout = Layout.open(root, CONFIG)
    assert session_state(root) is SessionState.UNDO_INTERRUPTED
    with pytest.raises(Refused, match="run: mqstore undo"):
        apply(layout, None, lambda: planned(root, CONFIG, VERSION), Files())
    assert take_back(root).resumed
    assert everything(root) == before


def test_only_the_newest(root: Path) -> None:
    first = recover(root, CONFIG, VERSION)[1].session
    (root / "abort").write_text("")
    second = recover(root, CONFIG, VERSION)[1].session
    layout = Layout.open(root, CONFIG)
    assert [session.name for session in list_sessions(layout)] == [first, second]
    with pytest.raises(Refused, match=f"{second} came later"):
        undo(layout, session_to_undo(layout, first), Files())
    with pytest.raises(NotFound, match="no such session"):
        session_to_undo(layout, "gone")
