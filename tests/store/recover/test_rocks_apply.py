"""Stores with queues in RocksDB, recovered: everything of the log can be read, nothing is left to do, all of it goes
back.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from mqstore.formats.rocksdb_consume_queue import BOUNDS, UNITS
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import StoreError
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.plan.plan import Plan
from mqstore.store.queues.rocksdb import RocksDb
from mqstore.store.recover.recovery import analyze, replan
from mqstore.store.session.apply import apply
from mqstore.store.session.journal import barriers, unfinished
from mqstore.store.session.undo import session_to_undo, undo
from mqstore.store.verify.verdict import Status

from ...rocks_cases import Case, all_bases, all_cases, case_of, damaged, served_by_itself
from ...slices import pick
from ...verdict import said_of
from ..put.faults import CountingFiles, FailingFiles, Killed, KilledFiles, PowerLossFiles
from ..session.test_undo import contents, everything

pytestmark = pytest.mark.long

FAST = (
    *("rocks-clean-1/db_missing", "rocks-halt-1/none", "rocks-clean-1/cq_beyond_ckpt"),
    *("rocks-halt-1/flip_body_late", "rocks-clean-1/db_sst_flip", "hybrid-clean-1/db_missing"),
    *("hybrid-clean-1/file_cq_zero_middle", "same-clean-1/db_manifest_half"),
    "rocks-halt-1/file_missing_middle",
)
BY_OPTIONS = {"other_path", "separate_path", "as_hybrid_separate", "no_lmq_in_rocks"}
"""Refused whatever the files are."""
NO_LOG = "files_missing_all"
"""There is nothing to bring queues in line with."""
ELSEWHERE = {"store_db_missing", "store_db_current_missing", "store_db_manifest_half", "checkpoint_zero"}
"""What is wrong is no queue."""


def recovered(case: Case, work: Path, policy: Policy) -> list[str]:
    """What is wrong with a recovery of a case."""
    root, config = damaged(case, work)
    before = everything(root)
    found = analyze(Layout.open(root, config), case["version"], options=RecoveryOptions(policy))
    if case["kind"] in BY_OPTIONS | {NO_LOG}:
        return []
    if found.plan is None:
        return [f"no plan: {found.refusal}"]
    wrong: list[str] = []
    if found.plan.edits:
        layout = Layout.open(root, config)
        apply(layout, found.plan, lambda: replan(layout, found.main_version, found.options), Files())
    again = analyze(Layout.open(root, config), case["version"], options=RecoveryOptions(policy))
    worst, plan = again.prediction, again.plan
    if plan is None or plan.edits:
        wrong.append(f"left to do: {plan and [(e.kind, e.path, e.reason) for e in plan.edits]}")
    if not worst.starts:
        wrong.append(f"does not start: {worst.reason}")
    kept = again.messages
    # where a broker's own recovery leaves a hole, it stays, and the message before it waits (B41)
    hole = policy is Policy.BROKER and case["kind"] == "file_missing_middle"
    if worst.readable != kept and not (hole and served_by_itself(worst) == case["readable"]):
        hidden = {share.queue: share.messages for share in worst.invisible}
        wrong.append(f"{worst.readable} of {kept} can be read, {hidden}")
    said = said_of(root, config, case["version"])
    if said.status is Status.DAMAGED and case["kind"] not in ELSEWHERE and policy is Policy.KEEP:
        wrong.append(f"verify: {[(f.code, f.message) for f in said.verdict.findings][:3]}")
    if found.plan.edits:
        layout = Layout.open(root, config)
        undo(layout, session_to_undo(layout), Files())
    if everything(root) != before:
        wrong.append("undo left something")
    shutil.rmtree(root)
    return wrong


@pytest.mark.few(8)
@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("name", FAST)
def test_some_recoveries(name: str, policy: Policy, tmp_path: Path) -> None:
    assert recovered(case_of(f"5.5.1-{name}"), tmp_path, policy) == []


@pytest.mark.slow
@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("base", all_bases())
def test_all_recoveries(base: str, policy: Policy, tmp_path: Path) -> None:
    mine = [case for case in all_cases() if case["base"] == base]
    chosen = pick(mine, f"recoveries, rocks {base} {policy}")
    failed = {c["case"]: found for c in chosen if (found := recovered(c, tmp_path, policy))}
    assert not failed


CUT_OFF = ("rocks-halt-1/flip_body_late", "hybrid-clean-1/db_missing", "same-clean-1/db_manifest_half")


def entries(layout: Layout) -> dict[str, list[tuple[bytes, bytes]]]:
    """All that is in the database of queues."""
    place = layout.queue_database
    assert place is not None
    with RocksDb.open(place) as database:
        return {family: list(database.items(family)) for family in (UNITS, BOUNDS)}


def cut_off(case: Case, work: Path, files: Files | None) -> tuple[Path, BrokerConfig, int]:
    """A damaged store whose recovery was cut off by `files`, and carried on; None: by nothing. The steps it took."""
    root, config = damaged(case, work)
    before = contents(root)
    found = analyze(Layout.open(root, config), case["version"], options=RecoveryOptions(Policy.KEEP))
    counting = CountingFiles()

    def again() -> Plan:
        return replan(Layout.open(root, config), found.main_version, found.options)

    try:
        apply(Layout.open(root, config), found.plan, again, files or counting)
    except (Killed, StoreError):
        if isinstance(files, PowerLossFiles):
            files.lose()
        layout = Layout.open(root, config)
        half_done = unfinished(layout.root, layout.journal) is not None
        assert not half_done or barriers(layout), "a broker could start on a half-repaired store"
        apply(layout, None, again, Files())
    assert not again().edits
    layout = Layout.open(root, config)
    told = entries(layout)
    undo(layout, session_to_undo(layout), Files())
    assert contents(root) == before
    (work / "told").write_text(repr(told))
    return root, config, len(counting.steps)


Cuts = Iterable[KilledFiles | FailingFiles]


def ways(at: int) -> tuple[KilledFiles | FailingFiles, ...]:
    """A kill, a power loss and a full disk at a step."""
    return KilledFiles(at), PowerLossFiles(at), FailingFiles(at, errno.ENOSPC)


def check_cut_off(name: str, work: Path, cuts: Callable[[int], Cuts]) -> None:
    """Cut a recovery of so many steps off by a kill, a power loss or a full disk: the end is always the same."""
    case = case_of(f"5.5.1-{name}")
    *_, total = cut_off(case, work, None)
    whole = (work / "told").read_text()
    for files in cuts(total):
        cut_off(case, work, files)
        assert (work / "told").read_text() == whole, (type(files).__name__, files.at)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", CUT_OFF)
def test_cut_off_at_some_steps(name: str, tmp_path: Path) -> None:
    """In each way once."""

    def cuts(total: int) -> Cuts:
        return [ways(at)[turn] for turn, at in enumerate((7, total // 2, total - 3))]

    check_cut_off(name, tmp_path, cuts)


@pytest.mark.slow
@pytest.mark.parametrize("name", CUT_OFF)
def test_cut_off_at_every_step(name: str, tmp_path: Path) -> None:
    """In each way."""

    def cuts(total: int) -> Cuts:
        return [way for at in pick(range(total), f"rocks steps {name}", 10) for way in ways(at)]

    check_cut_off(name, tmp_path, cuts)
