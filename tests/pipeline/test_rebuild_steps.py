"""What tasks have made becomes a tree: queues without gaps, and a wheel."""

from __future__ import annotations

import shutil
from pathlib import Path

from mqstore.formats.consume_queue import UNIT_BYTES
from mqstore.formats.message import SMALLEST
from mqstore.pipeline.plan import JobPlan, StorePlan, plan_of
from mqstore.pipeline.rebuild import rebuild
from mqstore.pipeline.rebuild_steps import RebuiltFiles, complete
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.file_queue import file_name
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import JOURNAL
from mqstore.store.output.stage import Stage
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.run import verify

from ..stores import messages, unpack
from .plain import plain_job
from .queue_parts import UNITS_PER_FILE, part, units, write
from .trees import tree

LOST = ("TopicA", 0, 197)


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
    """An empty unit would end the queue for a broker: the unit before stands up to the next."""
    (tmp_path / "s" / "commitlog").mkdir(parents=True)
    plan = JobPlan((StorePlan(str(tmp_path / "s"), "", 0, 1000, UNITS_PER_FILE, "5.5", {}),))
    stage = Stage.begin(tmp_path, Files())
    written = write(stage.attempt("1"), part([0, 7, 12]))
    complete(stage, plan, RebuiltFiles(queues=written))
    assert stage.manifest()["queues"][0]["missing"] == 6 + 2 + 2
    front, behind = (units(stage.tree / file.path) for file in written)
    assert front[7:] == [front[7]] * 3 and front[7][0] == 1001
    assert behind[:2] == [front[7]] * 2 and behind[2][0] == 1002


def gap(folder: Path, jump: int) -> tuple[Stage, list[str]]:
    """A queue whose record at offset 35 lies so many bytes behind the one before; the files of its tree."""
    (folder / "s" / "commitlog").mkdir(parents=True)
    plan = JobPlan((StorePlan(str(folder / "s"), "", 0, 9999, UNITS_PER_FILE, "5.5", {}),))
    stage = Stage.begin(folder, Files())
    written = [*write(stage.attempt("1"), part([0, 7])), *write(stage.attempt("2"), part([35], first=1 + jump))]
    written[1].attempt = "2"
    complete(stage, plan, RebuiltFiles(queues=written))
    return stage, sorted(path.name for path in (stage.tree / written[0].path).parent.iterdir())


def test_whole_files_in_a_gap_are_made(tmp_path: Path) -> None:
    """Where the log has room for all messages that the gap lacks."""
    stage, names = gap(tmp_path, (35 - 8) * SMALLEST)
    assert names == [file_name(start * UNIT_BYTES) for start in (0, 10, 20, 30)]
    (queue,) = stage.manifest()["queues"]
    assert (queue["files"], queue["units"], queue["max_offset"]) == (4, 3, 36)
    assert (queue["missing"], queue["without_unit"]) == (6 + 27, 0)
    found = [unit for name in names for unit in units(stage.tree / "consumequeue" / "orders" / "0" / name)]
    assert found[7:35] == [found[7]] * 28
    assert found[7][0] < found[35][0]


def test_a_number_that_the_log_has_no_room_for_makes_no_file(tmp_path: Path) -> None:
    stage, names = gap(tmp_path, (35 - 8) * SMALLEST - 1)
    assert names == [file_name(start * UNIT_BYTES) for start in (0, 30)]
    (queue,) = stage.manifest()["queues"]
    assert (queue["files"], queue["missing"], queue["without_unit"]) == (2, 6 + 27, 20)


def test_a_lost_record_hides_no_message(tmp_path: Path) -> None:
    """In a log that has expired in front: a unit below its start moves the queue's first offset behind it (B23)."""
    root = unpack("5.3.3-expired", tmp_path)
    lost = next(m for m in messages("5.3.3-expired") if (m["topic"], m["queue_id"], m["queue_offset"]) == LOST)
    file = max(f for f in (root / "commitlog").iterdir() if int(f.name) <= lost["physical_offset"])
    data = bytearray(file.read_bytes())
    data[lost["physical_offset"] - int(file.name) + 4] ^= 0xFF
    file.write_bytes(data)
    manifest = rebuild(plan_of([root], BrokerConfig()), tmp_path / "new", plain_job(parts=1))
    assert sum(queue["missing"] for queue in manifest["queues"]) == 1
    shutil.rmtree(root / "consumequeue")
    shutil.copytree(tmp_path / "new" / "consumequeue", root / "consumequeue")
    with StoreReader(root) as store:
        codes = {finding.code for finding in verify(store).findings}
    assert "I-066" in codes and not codes & {"I-061", "I-068", "I-071"}
