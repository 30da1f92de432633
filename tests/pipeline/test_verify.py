"""`pipeline verify` and the local `verify` say the same of the same stores."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from mqstore.cli.exit_codes import ExitCode, exit_code_of
from mqstore.pipeline import tasks as pipeline_tasks
from mqstore.pipeline import verify as pipeline_verify
from mqstore.pipeline.failures import JobFailed
from mqstore.pipeline.tasks import TaskReader, answer_of, told
from mqstore.pipeline.verify import (
    PART_BYTES,
    PARTS_MAX,
    can_be_cut,
    check,
    joined,
    judge,
    judged_rows,
    look,
    tasks_of,
    verify_on,
)
from mqstore.store.arrow.stores import log_sizes
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.errors import Missing, StoreError
from mqstore.store.findings.catalogue import GROUPS
from mqstore.store.repair.recheck import with_open_repairs
from mqstore.store.search.store import StoreReader
from mqstore.store.verify import log_pass
from mqstore.store.verify.context import Scope
from mqstore.store.verify.parallel import Beside, PartResult
from mqstore.store.verify.run import verify
from mqstore.store.verify.verdict import Status, Verdict
from tests.cli.datadriven import run_here

from .. import stores
from ..recovery_cases import cases, config_of, damaged
from ..slices import pick, rng
from ..store.verify.mutations.edit import records

pytestmark = pytest.mark.long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW_MS = 1_795_300_000_000
FAST = ("4.9.7-killed-page", "5.5.0-timer-killed")


def local(root: Path, config: BrokerConfig | None = None) -> Verdict:
    with StoreReader(root, config) as store:
        return with_open_repairs(verify(store, Scope(), now_ms=NOW_MS), store.layout)


def in_tasks(roots: list[str], config: BrokerConfig | None = None) -> list[tuple[str, Verdict | StoreError]]:
    """What Spark does, but for Spark."""
    config = config or BrokerConfig()
    tasks = tasks_of(roots, config, NOW_MS, sizes=log_sizes(roots, config)[0])
    answers: list[tuple[str, Any]] = []
    left: dict[str, list[Any]] = {}
    for task in tasks:
        if "part" in task:
            left.setdefault(task["root"], []).append(answer_of(look, task).get("answer"))
        else:
            answers.append((task["root"], told(answer_of(check, task))))
    last = {task["root"]: task for task in tasks}
    for root, parts in left.items():
        answers.append((root, told(answer_of(partial(judge, left=parts), last[root]))))
    return joined([task["root"] for task in tasks], answers)


def same(found: Verdict | StoreError, wanted: Verdict) -> None:
    """But for the time that it took, and for what a later run could use."""
    assert isinstance(found, Verdict), found
    assert replace(found, seconds=0.0, facts=wanted.facts) == replace(wanted, seconds=0.0)


@pytest.mark.parametrize("name", FAST)
def test_the_verdict_is_that_of_the_local_command(name: str, tmp_path: Path) -> None:
    root = stores.unpack(name, tmp_path)
    ((path, found),) = in_tasks([str(root)])
    assert path == str(root)
    same(found, local(root))


def test_a_repair_with_nothing_to_do_is_not_proposed(tmp_path: Path) -> None:
    """As the local command, it asks what repairs would do behind a recovery."""
    root = stores.unpack("5.3.3-timer-clean", tmp_path)
    config = BrokerConfig(stores.config("5.3.3-timer-clean", root))
    shutil.rmtree(root / "timerlog")
    (root / "timerwheel").unlink()
    settings = [f"--set={name}={value}" for name, value in config.items()]
    assert run_here(["recover", str(root), "--apply", "--yes", *settings]).code == 1
    ((_, found),) = in_tasks([str(root)], config)
    same(found, wanted := local(root, config))
    assert wanted.status is Status.DAMAGED and wanted.to_renumber == ()


def rows_of(function: str, tasks: list[dict[str, Any]]) -> list[pa.Table]:
    """What a worker of Spark yields for each task."""
    reader = TaskReader(function, tasks)
    return [pa.Table.from_batches(reader.read(share)) for share in range(len(tasks))]


@pytest.mark.slow
def test_a_path_that_is_no_text(tmp_path: Path, short_parts: list[PartResult]) -> None:
    """Also for Arrow, in all that a worker does; in parts, too."""
    name = os.fsdecode(b"st\xff\xfere")
    root = stores.unpack(FAST[0], tmp_path).rename(tmp_path / name)
    tasks = json.loads(json.dumps(tasks_of([str(root)], {}, NOW_MS)))
    rows = pa.concat_tables(rows_of("verify:check", tasks)).to_pylist()
    assert [(row["task"], row["store"]) for row in rows] == [(0, 0)]
    answers = [(str(root), told(json.loads(row["answer"]))) for row in rows]
    ((_, found),) = joined([str(root)], answers)
    same(found, local(root))
    tasks = tasks_of([str(root)], {}, NOW_MS, sizes=log_sizes([str(root)], BrokerConfig())[0])
    left = pa.concat_tables(rows_of("verify:look", tasks))
    (row,) = judged_rows(left, tasks).to_pylist()
    assert row["task"] == 0 and len(tasks) > 1
    ((_, found),) = joined([str(root)], [(str(root), told(json.loads(row["answer"])))])
    same(found, local(root))
    (row,) = rows_of("verify:check", tasks_of([f"{root}-none"], {}, NOW_MS)[:1])[0].to_pylist()
    assert isinstance(told(json.loads(row["answer"])), Missing)


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch) -> list[PartResult]:
    """Logs of some hundred kilobytes are cut, too. What of them is taken on."""
    taken: list[PartResult] = []
    merge = Beside._merge

    def noting(self: Beside, left: PartResult) -> None:
        taken.append(left)
        merge(self, left)

    monkeypatch.setattr(Beside, "_merge", noting)
    monkeypatch.setattr(log_pass, "CUT_BYTES", 1 << 15)
    monkeypatch.setattr(pipeline_verify, "PART_BYTES", 1 << 16)
    return taken


@pytest.mark.slow
@pytest.mark.parametrize(("name", "share"), [("5.3.3-killed-page", 0.2), ("5.5.0-killed", 0.8)])
def test_a_log_in_parts(name: str, share: float, tmp_path: Path, short_parts: list[PartResult]) -> None:
    """What is in front of damage is taken on, and the verdict is the same; also if parts failed."""
    root = stores.unpack(name, tmp_path)
    ((_, found),) = in_tasks([str(root)])
    wanted = local(root)
    same(found, wanted)
    taken = sum(left.log.records for left in short_parts)
    assert len(short_parts) > 1 and taken > share * wanted.records
    task = tasks_of([str(root)], {}, NOW_MS, sizes={str(root): 1 << 17})[0]
    same(joined([str(root)], [(str(root), judge(task, [None, None]))])[0][1], wanted)


@pytest.mark.slow
@pytest.mark.parametrize("bound", [0, 30 << 20])
def test_what_a_part_leaves_is_bounded(
    bound: int, tmp_path: Path, short_parts: list[PartResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left out is read by the run behind the parts, which says the same."""
    root = stores.unpack("5.3.3-killed-page", tmp_path)
    monkeypatch.setattr(pipeline_verify, "LEFT_BYTES", bound)
    tasks = tasks_of([str(root)], {}, NOW_MS, sizes=log_sizes([str(root)], BrokerConfig())[0])
    left = [look(task) for task in tasks]
    sizes = [len(pickle.dumps(pipeline_verify.unpacked(one))) for one in left]
    assert all(size < bound + (1 << 16) for size in sizes)
    same(joined([str(root)], [(str(root), judge(tasks[0], left))])[0][1], local(root))
    assert bool(short_parts) is bool(bound)


def test_parts_of_another_state_of_the_store_do_not_count(tmp_path: Path, short_parts: list[PartResult]) -> None:
    """What was written between the tasks and the run behind them is seen."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    tasks = tasks_of([str(root)], {}, NOW_MS, sizes={str(root): 1 << 18})
    left = [look(task) for task in tasks]
    path = min((root / "commitlog").iterdir())
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"damage")
    os.utime(max((root / "commitlog").iterdir()))
    same(joined([str(root)], [(str(root), judge(tasks[0], left))])[0][1], local(root))
    assert not short_parts


def test_what_repeats_is_seen_across_processes() -> None:
    """Each task may be a process of its own, with other hashes of texts."""
    code = "from mqstore.store.verify.log_order import _seed; print(_seed(b'topic'))"
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1


def test_only_large_stores_are_cut() -> None:
    sizes = {"a": PART_BYTES * 2 - 1, "b": PART_BYTES * 5, "s3://x/c": PART_BYTES * 5}
    sizes["d"] = PART_BYTES * 1000
    tasks = tasks_of(sizes, {}, NOW_MS, sizes=sizes)
    assert Counter(task["root"] for task in tasks if "part" in task) == {"b": 5, "d": PARTS_MAX}
    assert sum(t["bytes"] for t in tasks if t["root"] == "b") == sizes["b"]
    for one in ({"quick": True}, {"groups": frozenset({"index"})}, {"in_parts": ()}):
        made = tasks_of(sizes, {}, NOW_MS, sizes=sizes, **one)
        assert not any("part" in task for task in made)


@pytest.mark.usefixtures("short_parts")
def test_only_logs_that_have_parts_are_cut(tmp_path: Path) -> None:
    """The others are a task."""
    names = ("5.3.3-killed-page", "5.3.3-dledger", "5.3.3-rocksdb")
    roots = [str(stores.unpack(name, tmp_path)) for name in names] + [str(tmp_path / "none")]
    sizes = dict.fromkeys([*roots, "s3://x/c"], 1 << 30)
    cut = can_be_cut(sizes, {}, 40)
    assert cut == {roots[0]}
    tasks = tasks_of(roots, {}, NOW_MS, sizes=sizes, in_parts=cut)
    assert [task["groups"] for task in tasks if task["root"] == roots[1]] == [sorted(GROUPS)]


@pytest.mark.usefixtures("short_parts")
def test_only_logs_that_cores_would_wait_for_are_cut(tmp_path: Path) -> None:
    root = str(stores.unpack("5.3.3-killed-page", tmp_path))
    assert can_be_cut({root: 1 << 30}, {}, 2) == set(), "parts take more, and hardly end before"
    assert can_be_cut({root: 1 << 30}, {}, 3) == {root}
    assert can_be_cut({root: 1 << 30, "beside": 3 << 30}, {}, 8) == set()
    assert can_be_cut({root: 1 << 30, "beside": 3 << 30}, {}, 9) == {root}


@pytest.mark.slow
@pytest.mark.parametrize("name", pick(stores.NAMES, "pipeline_verify parts", 2))
def test_damage_in_parts(name: str, tmp_path: Path, short_parts: list[PartResult]) -> None:
    root, random = stores.unpack(name, tmp_path), rng(f"pipeline_verify {name}")
    ((_, found),) = in_tasks([str(root)])
    same(found, local(root))
    for place in random.sample(places := records(root), min(5, len(places))):
        with place.path.open("r+b") as file:
            file.seek(place.offset + random.randrange(place.size))
            file.write(random.randbytes(1))
    ((_, found),) = in_tasks([str(root)])
    same(found, local(root))


@pytest.mark.slow
def test_cases_of_damage_in_parts(
    tmp_path: Path, short_parts: list[PartResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their files have 8 KiB."""
    monkeypatch.setattr(log_pass, "CUT_BYTES", 1 << 11)
    monkeypatch.setattr(pipeline_verify, "PART_BYTES", 1 << 12)
    for number, case in enumerate(pick(cases(), "pipeline_verify cases", 5)):
        (folder := tmp_path / str(number)).mkdir()
        root = damaged(case, folder)
        wanted = local(root, config_of(case, root))
        ((_, found),) = in_tasks([str(root)], config_of(case, root))
        same(found, wanted)


def in_workers(taken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `short_parts`, in processes of Spark, which get by value what is no module's.

    taken: a file that has a line for each part that was taken on: of how many records.
    """

    def shortly(run: Callable[[], Any]) -> Any:
        before, log_pass.CUT_BYTES = log_pass.CUT_BYTES, 1 << 15
        try:
            return run()
        finally:
            log_pass.CUT_BYTES = before

    class Reader(TaskReader):
        def read(self, share: int) -> Iterator[Any]:
            read = super().read
            return iter(shortly(lambda: list(read(share))))

    def judged(rows: pa.Table, tasks: list[dict[str, Any]]) -> pa.Table:
        merge = Beside._merge

        def noting(self: Beside, result: PartResult) -> None:
            with taken.open("a") as file:
                print(result.log.records, file=file)
            merge(self, result)

        Beside._merge = noting  # type: ignore[method-assign]
        try:
            return shortly(lambda: judged_rows(rows, tasks))
        finally:
            Beside._merge = merge  # type: ignore[method-assign]

    monkeypatch.setattr(pipeline_tasks, "TaskReader", Reader)
    monkeypatch.setattr(pipeline_verify, "judged_rows", judged)
    monkeypatch.setattr(log_pass, "CUT_BYTES", 1 << 15)  # here: some findings tell of windows


@pytest.mark.slow
def test_on_spark(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores in parts, which are taken on, beside a small one and none, in one job; odd paths."""
    names = ("5.5.0-killed", "5.3.3-killed-page", "5.3.3-v2")
    roots = [str(stores.unpack(name, tmp_path)) for name in names] + [str(tmp_path / "none")]
    roots[0] = str(Path(roots[0]).rename(tmp_path / os.fsdecode(b"\xff\xfe")))
    sizes = {roots[0]: PART_BYTES * 3, roots[1]: PART_BYTES * 2, roots[3]: PART_BYTES * 2}
    in_workers(tmp_path / "taken", monkeypatch)
    found = verify_on(spark, tasks_of(roots, {}, NOW_MS, sizes=sizes))
    assert [root for root, _ in found] == roots
    for root, verdict in found[:3]:
        same(verdict, local(Path(root)))
    assert isinstance(found[3][1], Missing)
    taken = sum(map(int, (tmp_path / "taken").read_text().split()))
    assert taken > local(Path(roots[0])).records // 2


@pytest.mark.parametrize("parts", [0, 2])
def test_a_job_that_does_not_even_begin(parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Python there for workers, say: one line, as of a job that fails."""

    def fail(*_: object) -> None:
        raise RuntimeError('Cannot run program "/none"')

    for module in (pipeline_tasks, pipeline_verify):
        monkeypatch.setattr(module, "rows_of_tasks", fail)
    tasks = tasks_of(["s"], {}, NOW_MS, sizes={"s": PART_BYTES * parts})
    with pytest.raises(JobFailed, match="Cannot run program"):
        verify_on(None, tasks)  # type: ignore[arg-type]


@pytest.mark.slow
def test_it_is_so_for_all_stores(tmp_path: Path) -> None:
    roots = [stores.unpack(name, tmp_path) for name in pick(stores.NAMES, "pipeline_verify")]
    for path, found in in_tasks([str(root) for root in roots]):
        same(found, local(Path(path)))


def test_a_store_that_cannot_be_read_ends_nothing(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-v2", tmp_path)
    (none, error), (_, found) = in_tasks([str(tmp_path / "none"), str(root)])
    assert none == str(tmp_path / "none")
    assert isinstance(error, Missing) and str(error).startswith("no such directory")
    same(found, local(root))


@pytest.mark.parametrize("parts", [0, 2])
def test_a_defect_that_one_store_brings_to_light_ends_nothing(
    parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its log is looked at whole or in parts."""
    (bad := tmp_path / "bad").mkdir()
    good = stores.unpack("5.3.3-v2", tmp_path)
    read = StoreReader.__init__

    def fail(self: StoreReader, path: str, *rest: Any, **more: Any) -> None:
        if str(path) == str(bad):
            raise ValueError("embedded null byte")
        read(self, path, *rest, **more)

    monkeypatch.setattr(StoreReader, "__init__", fail)
    sizes = {str(bad): PART_BYTES * parts}
    assert can_be_cut({str(bad): PART_BYTES * 9}, {}, 1) == set()
    answers = []
    for task in tasks_of([str(bad), str(good)], {}, NOW_MS, sizes=sizes):
        gap_text = told(answer_of(look, task)) if "part" in task else None
        assert gap_text is None or isinstance(gap_text, StoreError)
        answers.append((task["root"], told(answer_of(partial(judge, left=[None]), task))))
    (_, error), (_, found) = joined([str(bad), str(good)], answers)
    assert isinstance(error, StoreError)
    assert str(error).startswith(f"internal error: ValueError: embedded null byte: {bad}; mqstore verify")
    assert exit_code_of(error) is ExitCode.FAILED
    same(found, local(good))


def test_groups_are_confined() -> None:
    only_log = tasks_of(["s"], {}, NOW_MS, groups=frozenset({"commit_log"}))
    assert [task["groups"] for task in only_log] == [["commit_log"]]
    groups = frozenset({"commit_log", "index"})
    both = tasks_of(["s"], {}, NOW_MS, groups=groups, sizes={"s": PART_BYTES})
    assert [task["groups"] for task in both] == [["commit_log", "index"]]
