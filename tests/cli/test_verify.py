"""The command `verify`: verdicts and exit codes, what it leaves out, how it goes on, its formats."""

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
from prometheus_client.parser import text_string_to_metric_families

from mqstore.cli.app import run
from mqstore.cli.verify_text import folded
from mqstore.store.findings.catalogue import catalogue

from .. import stores
from .datadriven import run_here
from .test_reads_only import content, nothing_is_written
from .test_schemas import wrong

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some stores, not to be changed."""
    root = tmp_path_factory.mktemp("verify")
    for name in ("5.3.3-clean", "5.3.3-killed", "5.3.3-killed-page", "4.9.7-dledger"):
        stores.unpack(name, root)
    return root


def rows(*arguments: str | Path, code: int) -> Rows:
    """What it prints as NDJSON."""
    result = run_here(["verify", *map(str, arguments), "--format", "ndjson"])
    assert result.code == code, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


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
    assert "5.3.3-clean: In order, as far as it was looked at" in result.stdout


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


def _told(row: dict[str, Any]) -> dict[str, Any]:
    """All but the next command: that is for all findings that are told."""
    return {name: value for name, value in row.items() if name != "repair"}


def test_of_a_part_only_its_own_findings_are_told(world: Path) -> None:
    store = world / "5.3.3-killed-page"
    *whole, _ = rows(store, code=1)
    for name, code, count in (
        ("commitlog", 1, None),
        ("index", 1, 1),
        ("checkpoint", 0, 0),
        ("abort", 3, 1),
    ):
        *found, summary = rows(store / name, code=code)
        inside = (f"{store / name}", f"{store / name}/")
        of_part = [r for r in whole if r["path"] == inside[0] or inside[1] in r["path"]]
        assert [_told(r) for r in found] == [_told(r) for r in of_part]
        assert len(found) == count or count is None, name
        assert (summary["store"], summary["complete"], wrong(summary)) == (str(store), False, [])
        assert summary["unread"] == [f"all but {store / name}: it alone was asked for"]


def test_the_log_of_a_dledger_is_a_part_of_its_store(world: Path) -> None:
    """It has an index and a checkpoint, as a store has."""
    store = world / "4.9.7-dledger"
    for part in (store / "dledger-n0", store / "dledger-n0" / "data"):
        assert [row["store"] for row in rows(part, "--quick", code=0)] == [str(store)]


def test_of_a_queue_no_other_is_told(tmp_path: Path) -> None:
    store = stores.unpack("5.3.3-clean", tmp_path)
    queue = store / "consumequeue" / "orders" / "3"
    file = min(queue.iterdir())
    file.write_bytes(bytes(20) + file.read_bytes()[20:])
    for part in (file, queue, queue.parent, queue.parents[1]):
        *found, _ = rows(part, "--quick", code=1)
        assert {(row["topic"], row["queue_id"]) for row in found} == {("orders", 3)}, part
    rows(queue.parent / "2", "--quick", code=0)
    (queue / "CURRENT").touch()
    for part in (file, queue / "none", tmp_path):
        rows(part, "--quick", code=5)


@pytest.mark.parametrize(
    "options",
    [("--only", "index"), ("--topic", "t"), ("--resume", "s"), ("--format", "prometheus")],
)
def test_options_of_whole_stores_are_refused_for_a_part(world: Path, options: tuple[str, str]) -> None:
    result = run_here(["verify", str(world / "5.3.3-clean" / "index"), *options])
    assert (result.code, result.stdout) == (2, "")
    assert f"{options[0]}" in result.stderr and str(world / "5.3.3-clean") in result.stderr


def test_metrics_parse(world: Path, tmp_path: Path) -> None:
    target = tmp_path / "mqstore.prom"
    both = [str(world / "5.3.3-killed-page"), str(world / "5.3.3-clean")]
    result = run_here(["verify", *both, "--format", "prometheus", "-o", str(target)])
    assert (result.code, result.stdout) == (1, "")
    assert list(tmp_path.iterdir()) == [target]
    assert oct(target.stat().st_mode & 0o777) == "0o644"
    families = {f.name: f for f in text_string_to_metric_families(target.read_text())}
    assert all(f.type == "gauge" and f.documentation for f in families.values())
    assert all(name.startswith("mqstore_verify_") for name in families)

    def value(name: str, store: str, **labels: str) -> float:
        wanted = {"store": store, "mode": "deep", **labels}
        (sample,) = [s for s in families[f"mqstore_verify_{name}"].samples if s.labels == wanted]
        return sample.value

    assert value("status", both[0], status="damaged") == 1
    assert value("status", both[0], status="clean") == 0
    assert value("status", both[1], status="clean") == 1
    assert value("complete", both[0]) == 1
    assert value("findings", both[0], severity="fatal") == 2  # the damage, and what a start loses
    assert value("last_run_timestamp_seconds", both[1]) > 1e9


def test_metrics_go_where_a_link_leads(tmp_path: Path) -> None:
    """As each other --output: the link stays, and the collector's file is replaced."""
    store = stores.unpack("5.3.3-clean", tmp_path / "disk")
    target, link = tmp_path / "collected", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    words = ["verify", str(store), "--quick", "--format", "prometheus", "-o", str(link)]
    assert run_here(words).code == 0
    assert link.is_symlink() and target.read_text().startswith("# HELP mqstore_verify_")


def test_a_strange_path_is_a_good_label(tmp_path: Path) -> None:
    from mqstore.cli.prometheus import metrics
    from mqstore.store.verify.verdict import Status, Verdict

    path = Path(os.fsdecode(b'/a"b\\c\nd\xff'))
    text = metrics([(path, Verdict(Status.CLEAN, [], 0, 0, 0.0))], 1.5)
    samples = [s for f in text_string_to_metric_families(text) for s in f.samples]
    assert {s.labels["store"] for s in samples} == {'/a"b\\c\nd\ufffd'}
    text.encode()


def test_the_page_begins_with_the_verdict(world: Path) -> None:
    store = world / "5.3.3-killed-page"
    lines = run_here(["verify", str(store)]).stdout.splitlines()
    assert lines[0].startswith(f"{store}: Do not start a broker: a broker 5.3 would lose 36 messages")
    heads = [line for line in lines if line in ("Fatal:", "Error:", "Warning:", "Info:")]
    assert heads == ["Fatal:", "Error:", "Warning:", "Info:"]
    assert lines[-2].startswith(f"  mqstore recover {store} --apply  # I-022, ")
    assert "@114673: no record at 376817" in "\n".join(lines)


def test_a_terminal_gets_lines_that_fit(world: Path) -> None:
    """The same words; what is longer than a line goes on below, commands stay whole."""
    text = run_here(["verify", str(world / "5.3.3-killed-page")]).stdout
    narrow = folded(text, 80)
    assert narrow.split() == text.split()
    told, _, commands = narrow.partition("\nWhat now:")
    assert commands == text.partition("\nWhat now:")[2]
    long = [line for line in told.splitlines() if len(line) > 80]
    assert all(len(line.split()) == 1 for line in long), "but for paths"
    behind = told.split("Fatal:\n")[1].splitlines()
    assert behind[0].startswith("  commitlog/") and behind[1].startswith("    ")


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
