"""Sessions on the stores of today, cut off at every step: queues in RocksDB alone and besides files, DLedger.

Whatever cuts one off, a kill, a power loss or a disk that refuses: it can be carried on, and ends as one that
was not cut off, or be taken back, and the store is byte for byte as it was. No broker starts in between.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from mqstore.formats.rocksdb_consume_queue import BOUNDS, UNITS
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import NotFound, StoreError
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.plan.plan import Plan
from mqstore.store.queues.rocksdb import RocksDb
from mqstore.store.recover import recovery
from mqstore.store.repair import repair
from mqstore.store.repair.parts import RepairPart, chosen
from mqstore.store.session.apply import apply
from mqstore.store.session.journal import barriers, left_over, unfinished
from mqstore.store.session.undo import session_to_undo, undo

from ...dledger_mishaps import STORE as DLEDGER
from ...dledger_mishaps import damaged as damaged_entries
from ...rocks_cases import case_of, damaged
from ...slices import SEED, pick
from ...stores import unpack
from ..put.faults import CountingFiles, FailingFiles, Killed, KilledFiles, PowerLossFiles
from .test_undo import contents

NOW_MS = 1_795_300_000_000
QUEUES = chosen([RepairPart.QUEUE], ())


class Job(NamedTuple):
    """A command on a damaged store: a recorded case, or the seed of a damaged DLedger log."""

    store: str | int
    policy: Policy | None

    @property
    def name(self) -> str:
        """Of the test."""
        what = f"recover {self.policy}" if self.policy else "repair queues"
        return f"{what}, {self.store if isinstance(self.store, str) else 'dledger'}"

    def made(self, work: Path) -> tuple[Path, BrokerConfig]:
        """The store, in a directory that the next call replaces."""
        if isinstance(self.store, str):
            return damaged(case_of(self.store), work)
        base, root = work / "base" / DLEDGER, work / "store"
        if not base.exists():
            unpack(DLEDGER, base.parent)
        shutil.rmtree(root, ignore_errors=True)
        damaged_entries(self.store, base, root)
        return root, BrokerConfig()

    def plan(self, layout: Layout) -> tuple[Plan | None, Callable[[], Plan]]:
        """What the command does, and how it comes to that again."""
        version = "5.5.1" if isinstance(self.store, str) else "5.3"

        def now() -> Layout:
            return Layout.open(layout.root, layout.broker_config)

        if self.policy is None:
            found = repair.analyze(layout, QUEUES, version, NOW_MS)
            return found.plan, lambda: repair.replan(now(), found.request)
        told = recovery.analyze(layout, version, options=RecoveryOptions(self.policy))
        return told.plan, lambda: recovery.replan(now(), told.main_version, told.options)


JOBS = (
    Job("5.5.1-rocks-halt-1/flip_body_late", Policy.KEEP),
    Job("5.5.1-rocks-clean-1/ckpt_low_and_tail_missing", Policy.BROKER),
    Job("5.5.1-hybrid-halt-1/file_missing_middle", Policy.KEEP),
    Job("5.5.1-hybrid-clean-1/file_cq_zero_middle", Policy.BROKER),
    Job("5.5.1-same-clean-1/db_manifest_half", Policy.KEEP),
    Job("5.5.1-rocks-clean-1/db_sst_zero", None),
    Job("5.5.1-hybrid-clean-1/cq_missing_middle", None),
    Job(30, Policy.KEEP),
    Job(5, Policy.BROKER),
)


def state_of(layout: Layout) -> object:
    """What a session leaves: entries of the database, and all other files."""
    files, place, rows = contents(layout.root), layout.queue_database, None
    if place is not None:
        inside = f"{place.relative_to(layout.root)}/"
        # no two makings of a database are byte for byte the same
        files = {n: d for n, d in files.items() if "/" in n.removeprefix(inside) or inside not in n}
        with RocksDb.open(place) as database:
            rows = {family: dict(database.items(family)) for family in (UNITS, BOUNDS)}
    # index files are named by the time when they were made
    kept = {n: d for n, d in files.items() if not n.startswith("index/")}
    return kept, sorted(d for n, d in files.items() if n.startswith("index/")), rows


def cut_off(job: Job, work: Path, files: Files | None) -> Layout:
    """A store with a session that `files` cut off; None: with a whole one."""
    root, config = job.made(work)
    layout = Layout.open(root, config)
    plan, again = job.plan(layout)
    assert plan is not None and plan.edits
    try:
        apply(Layout.open(root, config), plan, again, files or Files())
    except (Killed, StoreError):
        if isinstance(files, PowerLossFiles):
            files.lose()
    layout = Layout.open(root, config)
    half_done = unfinished(layout.root, layout.journal) is not None
    assert not half_done or barriers(layout), "a broker could start on a half-repaired store"
    return layout


def without_lock(root: Path) -> dict[str, bytes]:
    return {name: data for name, data in contents(root).items() if name != "lock"}


def check_cut_off(job: Job, work: Path, at: int, files: Files, whole: object, lost: int) -> None:
    """Carried on and then taken back, and taken back at once."""
    where = f"{job.name}: {type(files).__name__} at step {at}, seed {SEED}"
    root, _ = job.made(work)
    before = without_lock(root)
    layout = cut_off(job, work, files)
    is_begun = bool(left_over(layout))
    _, again = job.plan(layout)
    assert apply(layout, None, again, Files()).lost == lost or not is_begun, where
    layout = Layout.open(layout.root, layout.broker_config)
    assert state_of(layout) == whole, where
    assert not barriers(layout), where
    # what a power loss leaves is written anew here, and has another time then
    force = isinstance(files, PowerLossFiles)
    undo(layout, session_to_undo(layout), Files(), force=force)
    assert without_lock(layout.root) == before, where
    layout = cut_off(job, work, like(files))
    with suppress(NotFound):  # the journal was not sealed: nothing was changed
        undo(layout, session_to_undo(layout), Files(), force=force)
    assert without_lock(layout.root) == before, where
    assert not barriers(Layout.open(layout.root, layout.broker_config)), where


def like(files: Files) -> Files:
    """The same fault once more."""
    if isinstance(files, FailingFiles):
        return FailingFiles(files.at, files.error)
    assert isinstance(files, KilledFiles)
    return type(files)(files.at, SEED)


def faults_at(step: int) -> list[Files]:
    """A kill at each step; the others take turns."""
    others: list[Files] = [PowerLossFiles(step, SEED), FailingFiles(step, errno.ENOSPC), FailingFiles(step, errno.EIO)]
    return [KilledFiles(step, SEED), others[step % len(others)]]


def check_steps(job: Job, work: Path, steps: Callable[[int], list[int]]) -> None:
    """At these of all steps of a session."""
    root, config = job.made(work)
    counting = CountingFiles()
    plan, again = job.plan(Layout.open(root, config))
    lost = apply(Layout.open(root, config), plan, again, counting).lost
    assert plan is not None and lost == plan.lost_messages
    whole = state_of(Layout.open(root, config))
    for at in steps(len(counting.steps)):
        for files in faults_at(at):
            check_cut_off(job, work, at, files, whole, lost)


@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_at_every_step(job: Job, tmp_path: Path) -> None:
    check_steps(job, tmp_path, lambda total: pick(range(total), f"steps of {job.name}", 2))
