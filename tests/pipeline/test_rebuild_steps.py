"""What tasks have made becomes a tree: queues without gaps, and a wheel."""

from __future__ import annotations

from pathlib import Path

from mqstore.pipeline.plan import JobPlan, StorePlan, plan_of
from mqstore.pipeline.rebuild import rebuild
from mqstore.pipeline.rebuild_steps import RebuiltFiles, complete
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import JOURNAL
from mqstore.store.output.stage import Stage

from ..stores import unpack
from .plain import plain_job
from .queue_parts import PRE_FILL_UNIT, UNITS_PER_FILE, part, units, write
from .trees import tree


def test_what_is_no_file_of_the_timer_log_is_left_alone(tmp_path: Path) -> None:
    """An entry that somebody has left there, a core dump, say: the wheel is that of the others."""
    root = unpack("5.3.3-timer-clean", tmp_path)
    rebuild(plan_of([root], BrokerConfig()), tmp_path / "as it is", plain_job(parts=1))
    (root / "timerlog" / "core").write_bytes(b"ELF" * 100)
    (root / "timerlog" / "00000000000000000007").write_bytes(b"of no start")
    (root / "timerlog" / ("9" * 20)).mkdir()
    rebuild(plan_of([root], BrokerConfig()), tmp_path / "with others", plain_job(parts=1))
    trees = [tree(tmp_path / name) for name in ("as it is", "with others")]
    first, second = ({n: d for n, d in made.items() if not n.startswith(JOURNAL)} for made in trees)
    assert first == second
    assert any("timerwheel" in name for name in first)


def test_a_gap_across_files_ends_no_queue(tmp_path: Path) -> None:
    """An empty unit would end the queue for a broker: the front file is filled up."""
    (tmp_path / "s" / "commitlog").mkdir(parents=True)
    plan = JobPlan((StorePlan(str(tmp_path / "s"), "", 0, 1000, UNITS_PER_FILE, "5.5", {}),))
    stage = Stage.begin(tmp_path, Files())
    written = write(stage.attempt("1"), part([0, 7, 12]))
    complete(stage, plan, RebuiltFiles(queues=written))
    assert stage.manifest()["queues"][0]["missing"] == 6 + 2 + 2
    front = units(stage.tree / written[0].path)
    assert front[8:] == [PRE_FILL_UNIT] * 2
    assert units(stage.tree / written[1].path)[:2] == [PRE_FILL_UNIT] * 2
