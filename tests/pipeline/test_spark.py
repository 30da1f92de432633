"""The job on a real Spark: in the session of `conftest`."""

from __future__ import annotations

import ast
import os
import socket
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mqstore.pipeline import rebuild as pipeline_rebuild
from mqstore.pipeline import tasks as pipeline_tasks
from mqstore.pipeline.plan import JobPlan, plan_of
from mqstore.pipeline.rebuild import rebuild, spark_job
from mqstore.pipeline.rebuild_steps import RebuiltFiles
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.errors import Unreadable
from mqstore.store.output.stage import Stage

from ..conftest import asks_for_session
from ..slices import pick
from ..stores import unpack
from .test_rebuild import CLEAN, RESTARTED
from .trees import contents, tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_fleet_in_one_job(spark: SparkSession, tmp_path: Path) -> None:
    """Several stores at once: every queue file is the broker's, byte by byte."""
    a_fleet(spark, ("4.9.7-clean", "5.3.3-batchcq"), tmp_path)


@pytest.mark.slow
def test_all_clean_stores_in_one_job(spark: SparkSession, tmp_path: Path) -> None:
    a_fleet(spark, pick([name for name in CLEAN if "cqext" not in name], "fleet", 2), tmp_path)


def a_fleet(spark: SparkSession, names: Sequence[str], tmp_path: Path) -> None:
    roots = [unpack(name, tmp_path / "fleet") for name in names]
    plan = plan_of(roots, BrokerConfig())
    manifest = rebuild(plan, tmp_path / "new", partial(spark_job, spark))
    for root in roots:
        rebuilt = tmp_path / "new" / root.name / "consumequeue"
        assert tree(rebuilt) == tree(root / "consumequeue"), f"{root.name} differs"
        if root.name not in RESTARTED:
            made = tmp_path / "new" / root.name / "index"
            assert contents(made) == contents(root / "index"), f"{root.name}: index"
    assert not manifest["damage"]
    assert not any(queue["missing"] or queue["duplicates"] for queue in manifest["queues"])


def test_a_store_without_a_record(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    plan = plan_of([tmp_path / "store"], BrokerConfig())
    manifest = rebuild(plan, tmp_path / "new", partial(spark_job, spark))
    assert manifest["queues"] == []


def test_damage_comes_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    plan = plan_of([unpack("4.9.7-killed-page", tmp_path)], BrokerConfig())
    manifest = rebuild(plan, tmp_path / "new", partial(spark_job, spark))
    (damage,) = manifest["damage"]
    assert damage["store"] == 0
    assert damage["size"] > 0
    assert sum(queue["missing"] for queue in manifest["queues"]) > 0


def test_a_large_log_in_parts(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part a task, and each queue and index file behind them; bytes are told until all is done."""
    root = unpack("5.3.3-v2", tmp_path)
    plan = plan_of([root], BrokerConfig())
    monkeypatch.setattr(pipeline_rebuild, "PART_BYTES", plan.stores[0].bytes // 3)
    seen: list[int | None] = []
    job = partial(spark_job, spark, tell=lambda done: seen.append(done.bytes))
    rebuild(plan, tmp_path / "new", job)
    assert tree(tmp_path / "new" / "consumequeue") == tree(root / "consumequeue")
    assert contents(tmp_path / "new" / "index") == contents(root / "index")
    told = [done for done in seen if done is not None]
    assert told == sorted(told) and told[-1] >= 0.9 * plan.stores[0].bytes
    made = {path.name for path in (tmp_path / "new").iterdir()}
    assert made == {"consumequeue", "index", "checkpoint"}


def test_a_task_that_fails_leaves_the_target_untouched(spark: SparkSession, tmp_path: Path) -> None:
    plan = plan_of([unpack("5.3.3-v2", tmp_path)], BrokerConfig())

    def job(plan: JobPlan, stage: Stage) -> RebuiltFiles:
        (stage.folder / "attempts").touch()  # no task can make its folder
        return spark_job(spark, plan, stage)

    with pytest.raises(Unreadable, match=r"^not a directory but a file: /.*/attempts; "):
        rebuild(plan, tmp_path / "new", job)
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_a_task_that_fails_once_is_tried_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first attempt has written does not count."""

    class Reader(pipeline_tasks.TaskReader):
        def read(self, share: int) -> Any:
            from pyspark import TaskContext

            answers = list(super().read(share))
            context = TaskContext.get()
            assert context is not None
            if context.attemptNumber() == 0:
                raise RuntimeError("the first attempt fails when all is written")
            return iter(answers)

    root = unpack("5.3.3-v2", tmp_path)
    plan = plan_of([root], BrokerConfig())
    monkeypatch.setattr(pipeline_rebuild, "PART_BYTES", plan.stores[0].bytes // 2)
    monkeypatch.setattr(pipeline_tasks, "TaskReader", Reader)
    rebuild(plan, tmp_path / "new", partial(spark_job, spark))
    assert tree(tmp_path / "new" / "consumequeue") == tree(root / "consumequeue")
    assert {path.name for path in (tmp_path / "new").iterdir()} >= {"consumequeue", "index"}
    assert not (tmp_path / "new" / ".mqstore").exists()


def test_one_worker_has_all_that_ask_for_the_session() -> None:
    """`pytest -n` groups files by their text: it has to see each test that takes the fixture."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        tests = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        names = {a.arg for t in tests if t.name.startswith("test_") for a in t.args.args}
        assert asks_for_session(path) or "spark" not in names, path


def listening(pid: int) -> set[str]:
    """Addresses on which a process waits for TCP connections (proc(5))."""
    descriptors = Path(f"/proc/{pid}/fd").iterdir()
    sockets = {str(path.readlink()).partition("[")[2].rstrip("]") for path in descriptors}
    found = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A" and rest[5] in sockets:
                words = bytes.fromhex(local.partition(":")[0])
                address = b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4))
                found.add(socket.inet_ntop(family, address))
    return found


def test_spark_listens_on_the_loopback_only(spark: SparkSession) -> None:
    spark.range(10).count()
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    java = [int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text() == "java\n"]
    assert java, "the JVM is a child of this process"
    addresses = {address for pid in java for address in listening(pid)}
    assert addresses, "Spark always listens somewhere"
    assert addresses <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
