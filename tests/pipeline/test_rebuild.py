"""`pipeline rebuild` but for Spark: the same functions, called by `plain_job`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mqstore.cli.pipeline_rebuild import losses_of, report_of
from mqstore.formats.consume_queue import PRE_FILL, UNIT
from mqstore.formats.derive import dtype_of
from mqstore.pipeline.export import export, here
from mqstore.pipeline.plan import plan_of
from mqstore.pipeline.rebuild import rebuild
from mqstore.pipeline.rebuild_steps import RebuiltFiles
from mqstore.store.arrow.data_set import Mode
from mqstore.store.arrow.export_files import ExportHow
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import JOURNAL
from mqstore.store.errors import InUse, NoSpace, NotAStore, Refused, StoreError
from mqstore.store.log.batch import NO_FILE
from mqstore.store.output.stage import Into, Stage, one_job, publish_job
from mqstore.store.search.store import StoreReader

from .. import stores
from ..packing import pack_below
from ..slices import pick
from ..store.put.faults import CountingFiles, Killed, KilledFiles
from ..stores import NAMES, truth, unpack
from .plain import plain_job
from .trees import contents, tree

DERIVED = ("consumequeue", "batchconsumequeue", "consumequeue_ext")
EXPIRED = tuple(name for name in NAMES if "expired" in name)
CLEAN = tuple(
    name
    for name in NAMES
    if truth(name)["expected_verdict"] == "clean" and name not in EXPIRED and "rocksdb" not in name
)
FAST = ("4.3.1-clean", "5.1.4-batchcq", "5.3.3-cqext", "5.3.3-dledger", "5.3.3-multipath-killed")
RESTARTED = tuple(name for name in CLEAN if "restarted" in name)
"""A start has given up index files, or begun a new one."""


def run(root: Path, target: Path, **job: Any) -> dict[str, Any]:
    return rebuild(plan_of([root], BrokerConfig()), target, plain_job(**job))


def as_the_broker_wrote_it(name: str, folder: Path) -> None:
    root = unpack(name, folder)
    config = BrokerConfig(stores.config(name, root))
    manifest = rebuild(plan_of([root], config), folder / "new", plain_job(seed=len(name)))
    for part in DERIVED:
        assert tree(folder / "new" / part) == tree(root / part), f"{name}: {part} differs"
    if name not in RESTARTED:
        assert contents(folder / "new" / "index") == contents(root / "index"), f"{name}: index"
    assert not manifest["damage"]
    assert not any(queue["missing"] or queue["duplicates"] for queue in manifest["queues"])
    queues = sum(len(set(tree(root / part))) for part in DERIVED[:2])
    assert sum(queue["files"] for queue in manifest["queues"]) == queues
    shutil.rmtree(folder)


def test_a_compressed_log_gives_what_the_plain_one_gives(tmp_path: Path) -> None:
    root = unpack("5.3.3-timer-clean", tmp_path)
    run(root, tmp_path / "plain")
    assert pack_below([root / "commitlog", root / "consumequeue"], "gzip")
    run(root, tmp_path / "packed")
    assert (tmp_path / "packed" / "timerwheel").exists()
    assert tree(tmp_path / "packed") == tree(tmp_path / "plain")


@pytest.mark.parametrize("name", FAST)
def test_everything_is_as_the_broker_wrote_it(name: str, tmp_path: Path) -> None:
    as_the_broker_wrote_it(name, tmp_path)


@pytest.mark.slow
def test_all_clean_stores_are_as_the_broker_wrote_them(tmp_path: Path) -> None:
    for name in pick(CLEAN, "rebuild"):
        as_the_broker_wrote_it(name, tmp_path / name)


@pytest.mark.parametrize(
    ("name", "gone", "units"),
    [
        ("5.3.3-killed", 262144, 292),  # none of the records behind it are left: an empty file is
        ("4.9.7-killed-hole", None, 315),
        ("5.3.3-dledger", 49152, None),  # there are records behind it
    ],
)
def test_a_missing_file_is_told(name: str, gone: int | None, units: int | None, tmp_path: Path) -> None:
    """By the place that is missing; what is behind it is there."""
    root = unpack(name, tmp_path)
    config = BrokerConfig(stores.config(name, root))
    whole = rebuild(plan_of([root], config), tmp_path / "whole", plain_job())
    if gone is not None:
        (file,) = root.rglob(f"{gone:020}")
        size = file.stat().st_size
        file.unlink()
    with StoreReader(root, config) as store:
        (gap,) = store.log_files.gaps
        assert plan_of([root], config).stores[0].stop == store.log_end.position
    found = rebuild(plan_of([root], config), tmp_path / "new", plain_job())
    lost = {"store": 0, "position": gap.position, "size": gap.size, "reason": NO_FILE}
    assert found["damage"] == [lost]
    assert gone is None or (gap.position, gap.size) == (gone, size)
    report = report_of(plan_of([root], config), tmp_path / "new", found, {})
    assert report["status"] == "incomplete" and "no file holds" in losses_of(report)[0]
    ends = [{q["topic"]: q["max_offset"] for q in one["queues"]} for one in (whole, found)]
    if units is None:
        assert ends[0] == ends[1], "each queue goes on behind it"
    else:
        assert sum(queue["units"] for queue in found["queues"]) == units


@pytest.mark.parametrize("name", EXPIRED)
def test_where_the_log_has_expired_there_is_pre_fill(name: str, tmp_path: Path) -> None:
    """A broker keeps units of expired records; a rebuild cannot know them (spec 2.1)."""
    root = unpack(name, tmp_path)
    manifest = run(root, tmp_path / "new")
    log_start = plan_of([root], BrokerConfig()).stores[0].start
    broker, rebuilt = root / "consumequeue", tmp_path / "new" / "consumequeue"
    assert log_start > 0
    for path in sorted(broker.rglob("*")):
        if not path.is_file():
            continue
        units = np.fromfile(path, dtype_of(UNIT))
        expired = (units["physical_offset"] < log_start) & (units["size"] > 0)
        other = rebuilt / path.relative_to(broker)
        if expired.sum() == (units["size"] > 0).sum():
            assert not other.exists(), "a file without a unit of this log"
            continue
        for field, value in PRE_FILL.items():
            units[field][expired] = value
        assert units.tobytes() == other.read_bytes(), f"{path} is not as a broker's rebuild"
    assert not any(queue["missing"] for queue in manifest["queues"])


def test_several_stores_have_a_folder_each(tmp_path: Path) -> None:
    names = ("4.9.7-clean", "5.3.3-clean")
    roots = [unpack(name, tmp_path / "fleet") for name in names]
    (tmp_path / "fleet/empty/commitlog").mkdir(parents=True)
    rebuild(plan_of([*roots, tmp_path / "fleet/empty"], BrokerConfig()), tmp_path / "new", plain_job())
    assert not list((tmp_path / "new/empty").iterdir()), "there is nothing to make of an empty log"
    for name, root in zip(names, roots, strict=True):
        assert tree(tmp_path / "new" / name / "consumequeue") == tree(root / "consumequeue")
        assert {path.name for path in (tmp_path / "new" / name).iterdir()} >= {"index", "checkpoint"}


def test_damage_is_reported_and_what_is_good_is_there(tmp_path: Path) -> None:
    manifest = run(unpack("4.9.7-killed-page", tmp_path), tmp_path / "new")
    (damage,) = manifest["damage"]
    assert damage["size"] > 0
    lost = sum(queue["missing"] for queue in manifest["queues"])
    units = sum(queue["units"] for queue in manifest["queues"])
    undamaged = run(unpack("4.9.7-killed", tmp_path), tmp_path / "undamaged")
    assert units + lost == sum(queue["units"] for queue in undamaged["queues"])
    for path in sorted((tmp_path / "new").rglob("0" * 10 + "*")):
        empty = np.fromfile(path, dtype_of(UNIT))["size"] == 0
        assert not (empty[:-1] & ~empty[1:]).any(), f"an empty unit would end the queue: {path}"


def test_a_record_with_another_position_is_told(tmp_path: Path) -> None:
    """Its unit leads to what it says itself, as a broker writes it: no message is read there."""
    root, at, size = unpack("5.3.3-clean", tmp_path), 43_954, 423
    path = root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[at + 35] ^= 0x40
    path.write_bytes(data)
    manifest = run(root, tmp_path / "new")
    reason = f"the record names another position: {at + 64}"
    assert manifest["damage"] == [{"store": 0, "position": at, "size": size, "reason": reason}]


def test_a_failing_job_leaves_the_target_untouched(tmp_path: Path) -> None:
    plan = plan_of([unpack("5.3.3-v2", tmp_path)], BrokerConfig())
    target = tmp_path / "new"

    def fails(plan: Any, stage: Stage) -> RebuiltFiles:
        (stage.attempt("0") / "x").mkdir(parents=True)
        raise NoSpace("disk full")

    with pytest.raises(NoSpace):
        rebuild(plan, target, fails)
    assert not target.exists()
    target.mkdir()
    with pytest.raises(NoSpace):
        rebuild(plan, target, fails)
    assert not list(target.iterdir())


def killed_and_run_again(folder: Path, steps: Callable[[int], Sequence[int]]) -> None:
    """Kill a job at some of its steps; what is seen is nothing or all, and the next run ends it."""
    root = unpack("5.3.3-timer-clean", folder)
    plan = plan_of([root], BrokerConfig())
    job = plain_job(parts=1)
    counted = CountingFiles()
    rebuild(plan, folder / "counted", job, counted)
    wanted = tree(folder / "counted")
    for at in steps(len(counted.steps)):
        target = folder / str(at)
        with pytest.raises(Killed):
            rebuild(plan, target, job, KilledFiles(at))
        if target.exists():
            assert seen(target) == wanted, f"half of it was visible after {counted.steps[at]}"
        if not target.exists() or Stage.left_in(target, Files()):
            try:
                rebuild(plan, target, job)
            except Refused:  # all but the last folder of the stage was removed
                assert not any(stage.sealed for stage in Stage.left_in(target, Files()))
        assert seen(target) == wanted, f"killed at {counted.steps[at]}"
        shutil.rmtree(target)


def seen(target: Path) -> dict[str, str]:
    """What somebody who looks at the target sees, as `tree`."""
    return {name: digest for name, digest in tree(target).items() if not name.startswith(JOURNAL)}


@pytest.mark.slow
def test_killed_and_run_again(tmp_path: Path) -> None:
    """Around the manifest, where it is decided, and at a few others."""
    killed_and_run_again(tmp_path, lambda count: [*range(0, count - 20, 60), *range(count - 20, count, 3)])


@pytest.mark.slow
def test_killed_at_every_step_and_run_again(tmp_path: Path) -> None:
    killed_and_run_again(tmp_path, lambda count: pick(range(count), "rebuild_killed"))


@pytest.mark.parametrize("existed", [False, True])
def test_a_log_that_has_grown_since_a_rebuild_was_cut_off(existed: bool, tmp_path: Path) -> None:
    """The same command is another job now: the one that was cut off is finished, and told."""
    root, target = unpack("5.3.3-v2", tmp_path), tmp_path / "new"
    plan, counted = plan_of([root], BrokerConfig()), CountingFiles()
    rebuild(plan, tmp_path / "counted", plain_job(), counted)
    if existed:
        target.mkdir()
    sealed = counted.steps.index(("rename", "manifest.draft"))
    with pytest.raises(Killed):
        rebuild(plan, target, plain_job(), KilledFiles(sealed + 4))
    assert target.exists() is existed
    grown = replace(plan, stores=(replace(plan.stores[0], stop=plan.stores[0].stop - 1),))
    with pytest.raises(
        Refused, match=r"is finished now, with the data that it had read then: .*; --to takes a new dir"
    ):
        rebuild(grown, target, plain_job())
    assert tree(target) == tree(tmp_path / "counted")


@pytest.mark.parametrize("existed", [False, True])
def test_jobs_of_two_kinds_that_meet(existed: bool, tmp_path: Path) -> None:
    """Each finishes what the other one was cut off in, as that would have, and goes no further."""
    root, target = unpack("5.3.3-v2", tmp_path), tmp_path / "new"

    def make(files: Files) -> None:
        rebuild(plan_of([root], BrokerConfig()), target, plain_job(), files)

    def add(files: Files) -> None:
        export([str(root)], {}, ExportHow(), target, here(lambda _: None), files, Mode.APPEND)

    for first, second in ((make, add), (add, make)):
        counted = CountingFiles()
        first(counted)
        wanted = seen(target)
        shutil.rmtree(target)
        if existed:
            target.mkdir()
        with pytest.raises(Killed):
            first(KilledFiles(counted.steps.index(("rename", "manifest.draft")) + 2))
        with pytest.raises(Refused):
            second(Files())
        assert seen(target).keys() == wanted.keys()
        shutil.rmtree(target)


def test_a_target_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    root = unpack("5.3.3-v2", tmp_path)
    before = sorted(root.iterdir())
    with pytest.raises(Refused, match=r"not empty \(\S+ is in it\).*; --to takes a new directory"):
        run(root, root)
    assert sorted(root.iterdir()) == before
    (tmp_path / "file").touch()
    with pytest.raises(NotAStore, match="not a directory"):
        run(root, tmp_path / "file")


def test_one_job_at_a_time(tmp_path: Path) -> None:
    root = unpack("5.3.3-v2", tmp_path)
    target = tmp_path / "new"

    def second(plan: Any, stage: Stage) -> RebuiltFiles:
        with pytest.raises(InUse, match="wait until the other job has ended"):
            run(root, target)
        return plain_job()(plan, stage)

    rebuild(plan_of([root], BrokerConfig()), target, second)
    assert tree(target / "consumequeue") == tree(root / "consumequeue")


def test_one_job_at_a_time_where_the_directory_is_made_meanwhile(tmp_path: Path) -> None:
    """Empty or not: the work of the first one stays, beside it, and gets the name if that is free."""
    root = unpack("5.3.3-v2", tmp_path)
    target = tmp_path / "new"

    def second(plan: Any, stage: Stage) -> RebuiltFiles:
        target.mkdir()
        with pytest.raises(InUse, match="wait until the other job has ended"):
            run(root, target)
        (target / "file").touch()
        with pytest.raises(InUse, match="wait until the other job has ended"), one_job(target, Files()):
            pass
        return plain_job()(plan, stage)

    with pytest.raises(StoreError, match="not empty"):
        rebuild(plan_of([root], BrokerConfig()), target, second)
    with pytest.raises(Refused, match="not empty"):
        run(root, target)
    with pytest.raises(Refused, match="there is unpublished output"):
        publish_job(target, lambda _: None, lambda _: False, into=Into(adds=True))
    (target / "file").unlink()
    run(root, target)
    assert tree(target / "consumequeue") == tree(root / "consumequeue")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["5.3.3-v2", "new"]
