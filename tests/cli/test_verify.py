"""The command `verify`: verdicts and exit codes, what it leaves out, how it goes on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mqstore.cli import verify as verify_command
from mqstore.cli.app import run
from mqstore.store.findings.catalogue import GROUPS, catalogue
from mqstore.store.repair import recheck
from mqstore.store.verify.verdict import Verdict

from .. import stores
from .datadriven import run_here
from .json_schema import wrong
from .test_reads_only import content, nothing_is_written
from .verified import rows

pytestmark = pytest.mark.long


def test_the_help_names_every_group_of_checks() -> None:
    (only,) = (each for each in verify_command.VerifyOptions.parameters() if each.name == "only")
    shown = only.annotation.__metadata__[0].settings["help"]
    assert shown == f"Only these groups of checks: {', '.join(GROUPS)}."


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("name", "code", "status"),
    [
        ("5.3.3-clean", 0, "clean"),
        ("5.3.3-killed", 3, "unclean"),
        ("5.3.3-killed-page", 1, "damaged"),
        ("4.9.7-dledger", 0, "clean"),
    ],
)
def test_verdict_and_exit_code(world: Path, name: str, code: int, status: str) -> None:
    store = world / name
    before = content(store)
    with nothing_is_written(world):
        found = rows(store, code=code)
    assert content(store) == before
    *findings, summary = found
    assert summary["status"] == status
    assert summary["complete"] and not summary["interrupted"]
    assert [row for row in found if wrong(row)] == []
    for row in findings:
        assert row["broker"] == catalogue()[row["code"]].broker
        assert "{" not in row["repair"]


def test_the_worst_of_several_stores_counts(world: Path) -> None:
    names = ("5.3.3-clean", "5.3.3-killed")
    found = rows(*(world / name for name in names), "--quick", code=3)
    assert [r["status"] for r in found if r["type"] == "summary"] == ["clean", "unclean"]
    result = run_here(["verify", str(world / "none"), str(world / "5.3.3-clean"), "--quick"])
    assert result.code == 5
    assert "no such directory" in result.stderr
    assert "5.3.3-clean: In order, as far as it was checked" in result.stdout


def test_two_processes_find_what_one_finds(world: Path) -> None:
    store = world / "5.3.3-killed-page"
    one, two = (rows(store, "--jobs", jobs, code=1) for jobs in ("1", "2"))
    assert one[:-1] == two[:-1]
    assert {**one[-1], "seconds": 0} == {**two[-1], "seconds": 0}


def test_a_run_that_is_cut_goes_on(world: Path, tmp_path: Path) -> None:
    """Cut at the start, then finished: the findings are those of one run."""
    store, state = world / "5.3.3-killed-page", tmp_path / "state"
    part = ("--only", "commit_log", "--resume", state)
    whole = rows(store, "--only", "commit_log", code=1)
    first = rows(store, *part, "--max-duration", "0s", code=0)
    assert first[-1]["interrupted"] and first[-1]["records"] == 0
    assert "the log from 0 on: --max-duration is over" in first[-1]["unread"]
    saved = json.loads(state.read_text())
    saved["position"] = 262144
    state.write_text(json.dumps(saved))
    second = rows(store, *part, code=1)
    assert not state.exists()
    assert "the log before 262144: an earlier run has read it" in second[-1]["unread"]
    late = {row["code"] for row in whole[:-1] if (row["offset"] or 0) >= 0} - {"I-051", "I-056"}
    assert late <= {row["code"] for row in second[:-1]}


def test_findings_of_an_earlier_run_are_kept(world: Path, tmp_path: Path) -> None:
    store, state = world / "5.3.3-clean", tmp_path / "state"
    finding = {"code": "I-023", "severity": "fatal", "path": "f", "message": "m", "offset": 7}
    rows(store, "--only", "commit_log", "--resume", state, "--max-duration", "0s", code=0)
    saved = json.loads(state.read_text())
    saved["facts"]["records"] = 5
    state.write_text(json.dumps({**saved, "position": 1 << 40, "findings": [finding]}))
    found = rows(store, "--only", "commit_log", "--resume", state, code=1)
    assert [row["code"] for row in found[:-1]] == ["I-023"]
    assert found[-1]["records"] == 5


@pytest.mark.parametrize("text", ["", "{}", "[1]", "no json", '{"mqstore_verify": 2, "store": 3}'])
def test_a_state_that_is_none_is_refused(world: Path, tmp_path: Path, text: str) -> None:
    state = tmp_path / "state"
    state.write_text(text)
    result = run_here(["verify", str(world / "5.3.3-clean"), "--resume", str(state)])
    assert result.code != 0
    assert str(state) in result.stderr
    assert state.read_text() == text


def test_parts_that_are_left_out_are_named(world: Path) -> None:
    store = world / "5.3.3-killed"
    for options, text in (
        (("--quick",), "--quick"),
        (("--since", "2030-01-01T00:00:00Z"), "older than --since"),
        (("--max-duration", "0"), "--max-duration"),
    ):
        summary = rows(store, *options, code=3)[-1]
        assert not summary["complete"]
        assert any(text in told for told in summary["unread"]), options


@pytest.mark.few(1)
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_gives_the_findings_so_far(world: Path, tmp_path: Path, jobs: str) -> None:
    """The rate makes it last; the signal comes once it reads."""
    store, state = world / "5.3.3-killed-page", tmp_path / "state"
    command = [sys.executable, "-m", "tests.cli.test_verify", str(store), "--resume", str(state)]
    process = subprocess.Popen(
        [*command, "--rate", "200K", "--jobs", jobs, "--format", "ndjson"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "reading\n"
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    summary = json.loads(output.splitlines()[-1])
    assert summary["interrupted"] and not summary["complete"]
    assert any("interrupted" in text for text in summary["unread"])
    assert json.loads(state.read_text())["position"] < 524288
    assert "run the same command again" in errors


def test_ctrl_c_while_repairs_are_planned_keeps_the_findings(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log has been read by then: what was found is told."""
    store = world / "5.3.3-killed-page"

    def planned(verdict: Verdict, *others: Any) -> Verdict:
        os.kill(os.getpid(), signal.SIGINT)
        others[-1](0)
        raise AssertionError("it went on")

    monkeypatch.setattr(recheck, "with_open_repairs", planned)
    found = run_here(["verify", str(store), "--format", "ndjson"])
    assert found.code == 130 and json.loads(found.stdout.splitlines()[-1])["complete"], found


def _main() -> None:
    """`verify`, which says on stderr when it has begun to read the log."""
    from mqstore.store.log.commit_log import CommitLog

    read, told = CommitLog.read_around, False

    def read_around(log: CommitLog, *arguments: Any) -> Any:
        nonlocal told
        if not told:
            told = True
            print("reading", file=sys.stderr, flush=True)
        return read(log, *arguments)

    CommitLog.read_around = read_around  # type: ignore[assignment,method-assign]
    sys.exit(run(["verify", *sys.argv[1:]]))


if __name__ == "__main__":
    _main()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--topic", "orderz"], "did you mean orders?"),
        (["--topic", "order*"], "no such topic"),
        (["--topic", ""], "no such topic"),
        (["--topic", "../config"], "no such topic"),
        (["--topic", "orders", "--queue", "99"], "it has 0, 1, 2, 3"),
    ],
)
def test_a_topic_that_is_not_there_is_not_clean(words: list[str], said: str, tmp_path: Path) -> None:
    """Nothing of it would have been looked at."""
    root = stores.unpack("4.9.7-clean", tmp_path)
    result = run_here(["verify", str(root), *words])
    assert (result.code, result.stdout) == (2, "")
    assert said in result.stderr


def test_a_topic_that_only_the_log_names_is_looked_at(tmp_path: Path) -> None:
    """Where queues and configuration are gone a typo is one all the same."""
    root = stores.unpack("4.9.7-clean", tmp_path)
    for part in ("consumequeue", "config"):
        shutil.rmtree(root / part)
    assert run_here(["verify", str(root), "--topic", "orders"]).code == 1
    assert run_here(["verify", str(root), "--topic", "orderz"]).code == 2


def test_a_defect_that_one_store_brings_to_light_is_told_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its path; the others are checked."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    other = tmp_path / "other"

    def judged(path: Path, *rest: Any) -> Any:
        if path == other:
            raise ValueError("embedded null byte")
        return _verdict(path, *rest)

    _verdict = verify_command._verdict
    monkeypatch.setattr(verify_command, "_verdict", judged)
    answer = run_here(["verify", str(other), str(root)])
    assert f"mqstore: {other}: internal error: ValueError: embedded null byte" in answer.stderr
    assert answer.code == 5 and f"{root}: Safe to start" in answer.stdout
