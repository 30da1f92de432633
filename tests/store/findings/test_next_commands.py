"""The commands that come next: as few as possible, with all that was given, ready to be pasted."""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.file_queue import file_name
from mqstore.store.disk.layout import Layout
from mqstore.store.findings.catalogue import Severity, catalogue
from mqstore.store.findings.findings import Finding
from mqstore.store.findings.next_commands import (
    MADE_ANEW,
    NOTHING_GIVEN,
    Given,
    NextCommand,
    by_hand,
    by_hand_for,
    command,
    command_for,
    moving_back,
    naming_log,
    next_commands,
    pipeline_again,
)
from mqstore.store.verify.verdict import Status, Verdict, tidying_of

GIVEN = Given(("--set", "a=b c"), "5.3", ("--journal", "/mnt/x"))
TAIL = "--broker-version 5.3 --set 'a=b c' --journal /mnt/x"


def found(code: str, topic: str | None = None, queue_id: int | None = None) -> Finding:
    severity = catalogue()[code].severity
    return Finding(code, severity, "p q", "", 7, topic=topic, queue_id=queue_id)


def tidying(findings: list[Finding], recovered: bool | None = None) -> list[NextCommand]:
    return tidying_of(Verdict(Status.CLEAN, findings, 0, 0, 0.0, recovered=recovered), "s", NOTHING_GIVEN)


def lines(*findings: Finding, whole: bool = True, recovered: bool = False) -> list[str]:
    return [str(c) for c in next_commands(findings, "s", whole=whole, recovered=recovered)]


HOW: dict[str, Any] = {"config": {}, "as_broker": None, "keep_times": True, "on_damage": "fail"}
CHOSEN = {"keep_times": False, "on_damage": "skip"}


@pytest.mark.parametrize(
    ("manifest", "line"),
    [
        ({"job": {"files": ["/a b"], "how": HOW}}, "import '/a b' --to s"),
        ({"job": {"files": [f"/in/d=1/{n}" for n in range(9)], "how": HOW}}, "import /in/d=1 --to s"),
        (
            {"job": {"files": ["/a"], "how": {"config": {"a": "{}"}, "as_broker": "4.9", **CHOSEN}}},
            "import /a --to s --set 'a={}' --as-broker 4.9 --new-times --on-damage skip",
        ),
        ({"job": {"folders": {"/a": ""}, "topics": ["x-*"], "how": HOW}}, "compact /a --to s --topic 'x-*'"),
        (
            {"plan": {"stores": [{"root": "/a", "broker_version": "5.3", "options": {"b": "c"}}]}},
            "rebuild /a --to s --broker-version 5.3 --set b=c",
        ),
        ({"messages": 1}, ""),  # of a write in Spark
        ({"job": {"files": 1, "how": HOW}}, ""),
        ({"plan": {"stores": [{}]}}, ""),
        ({"job": [1]}, ""),
        ([], ""),
    ],
)
def test_a_job_of_a_pipeline_is_run_again_as_it_was(manifest: Any, line: str) -> None:
    again = pipeline_again(manifest)
    assert (str(by_hand(again, "s")) if again else "") == (f"mqstore pipeline {line}" if line else "")


def test_what_is_half_made_is_moved_away_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(by_hand(MADE_ANEW, "a b")) == "mv 'a b' 'a b-half'"
    assert str(by_hand(MADE_ANEW, ".")) == f"mv {tmp_path} {tmp_path}-half"


def test_nothing_wrong_calls_for_nothing() -> None:
    assert lines() == []
    assert lines(found("I-029"), found("I-110")) == []


def test_one_command_for_all_that_one_mends() -> None:
    queues = [found("I-062", "orders", number) for number in range(3000)]
    assert lines(*queues[:2]) == ["mqstore repair s --queue orders/0 --queue orders/1 --apply"]
    assert lines(*queues) == ["mqstore repair s --queue '*' --apply"]
    assert lines(found("I-101"), found("I-100")) == ["mqstore repair s --index --apply"]
    assert lines(found("I-022"), found("I-042")) == ["mqstore recover s --apply"]
    assert lines(found("I-022"), found("I-101")) == ["mqstore recover s --apply"]
    assert lines(*queues[:1], found("I-101")) == ["mqstore repair s --all --apply"]


def test_what_a_recovery_would_mend_has_no_command_where_it_has_nothing_to_do() -> None:
    assert lines(found("I-022"), recovered=True) == []
    assert lines(found("I-022"), found("I-101"), recovered=True) == ["mqstore repair s --index --apply"]
    assert command_for(found("I-022"), "s", recovered=True) is None


def test_of_parts_that_no_repair_has_anything_to_do_for_only_shifted_queues_have_a_command() -> None:
    queues = [found("I-064", "orders", 1), found("I-064", "orders", 2)]
    findings = [found("I-022"), found("I-133"), *queues, found("I-034")]
    none = next_commands(findings, "s", recovered=True, to_renumber=())
    assert [str(c) for c in none] == ["mqstore get s --at 7 --format json"]
    shifted = ("orders/2",)
    commands = next_commands(findings, "s", recovered=True, to_renumber=shifted)
    assert str(commands[0]) == "mqstore repair s --queue orders/2 --apply" and commands[0].codes == ("I-064",)
    helps = [command_for(f, "s", commands, recovered=True, to_renumber=shifted) for f in findings]
    assert helps == [None, None, None, commands[0], commands[1]]
    warning = replace(found("I-133"), severity=Severity.WARNING)
    assert [str(c) for c in tidying([warning], recovered=True)] == ["mqstore repair s --timer --apply"]


def test_a_part_is_not_named_where_the_log_was_not_looked_at() -> None:
    assert lines(found("I-101"), whole=False) == ["mqstore repair s --all --apply"]
    assert lines(found("I-022"), whole=False) == ["mqstore recover s --apply"]


def test_what_no_repair_mends_comes_last_each_once() -> None:
    told = lines(found("I-034"), found("I-034"), found("I-101"))
    assert told == ["mqstore repair s --index --apply", "mqstore get s --at 7 --format json"]


def test_a_finding_has_the_command_that_mends_the_others_too() -> None:
    findings = [found("I-022"), found("I-101"), found("I-110"), found("I-029")]
    commands = next_commands(findings, "s")
    assert {str(command_for(f, "s", commands)) for f in findings[:3]} == {str(commands[0])}
    assert command_for(findings[3], "s", commands) is None
    assert str(command_for(findings[2], "s")) == "mqstore repair s --checkpoint --apply"


def test_a_command_repeats_what_was_given() -> None:
    (mend,) = next_commands([found("I-022")], "s t", GIVEN)
    assert str(mend) == f"mqstore recover 's t' --apply {TAIL}"
    (look,) = next_commands([found("I-034")], "-s", GIVEN)
    assert str(look) == "mqstore get ./-s --at 7 --format json --set 'a=b c'"
    assert str(command("inspect", "s", given=GIVEN)) == "mqstore inspect s --set 'a=b c'"


@pytest.mark.parametrize("code", [c for c, row in catalogue().items() if row.repair])
def test_a_command_of_any_code_can_be_pasted(code: str) -> None:
    """Whatever names a path or a topic has."""
    finding = Finding(code, Severity.ERROR, "a'b $(c) {d}", "", 0, topic="%t", queue_id=0)
    told = command_for(finding, "s {t} 'u", given=GIVEN)
    assert told is not None
    assert tuple(shlex.split(str(told))) == told.words


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
@example(["a\x1b[2J", "it's\n\\x41", "\u202e%LMQ%ä/0", "\udcff9"])
def test_a_command_with_any_name_can_be_pasted(words: list[str]) -> None:
    """Control characters and bytes that are no text: what a terminal shows is what a shell takes."""
    shown = str(NextCommand(("printf", "%s\\0", *words)))
    assert shown.isprintable()
    taken = subprocess.run(["bash", "-c", shown], capture_output=True, check=True).stdout
    assert taken == b"".join(os.fsencode(word) + b"\0" for word in words or [""])


def test_what_is_in_the_way_comes_first() -> None:
    odd = replace(found("I-078", "%LMQ%a", 7), path="s/x/y", repair="mv {path} {aside}")
    told = lines(odd, found("I-101"))
    assert told == ["mv s/x/y s-aside-x-y", "mqstore repair s --index --apply"]


def test_of_a_store_that_no_plan_is_made_for_the_messages_are_saved() -> None:
    findings = [found("I-022"), found("I-101")]
    (save,) = next_commands(findings, "s", unmendable="a DLedger log")
    assert str(save) == "mqstore salvage s --to s-salvaged --layout compact"
    assert save.codes == ("I-022",)
    assert command_for(findings[1], "s", [save], unmendable="a DLedger log") is None
    (convert,) = next_commands(findings, "s", unmendable="another: mqstore repair s --convert plain --to t")
    assert str(convert) == "mqstore repair s --convert plain --to s-plain" and convert.codes == ("I-022",)
    assert lines(found("I-022"), found("I-187")) == []


@pytest.mark.parametrize("root", [".", "a/..", "./", "-s", "/data/store/"])
def test_what_is_made_beside_a_store_is_not_made_in_it(
    root: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of a store that is called by a dot, too."""
    monkeypatch.chdir(tmp_path)
    (save,) = next_commands([found("I-022")], root, unmendable="a DLedger log")
    place = Path(save.words[save.words.index("--to") + 1])
    inside = Path(root).resolve()
    assert place.name.endswith("-salvaged") and inside not in Path(place).resolve().parents
    odd = replace(found("I-078", "%LMQ%a", 7), path=f"{root.rstrip('/')}/x/y", repair="mv {path} {aside}")
    target = next_commands([odd], root)[0].words[2]
    assert inside not in Path(target).resolve().parents and target.endswith("-aside-x-y")


def test_nothing_is_run_on_a_store_in_object_storage() -> None:
    root = "s3://bucket/store"
    findings = [found("I-022"), found("I-034"), found("I-101")]
    assert next_commands(findings, root) == []
    assert [command_for(finding, root) for finding in findings] == [None] * 3


def test_warnings_have_commands_of_their_own() -> None:
    """What only shows them is left out; nothing is told of an info."""
    touch = replace(found("I-013"), repair="touch -r {path} /older")
    told = tidying([touch, found("I-151"), found("I-091"), found("I-107")])
    assert [str(each) for each in told] == ["touch -r 'p q' /older", "mqstore repair s --index --apply"]
    told = tidying([found("I-091"), found("I-076"), found("I-150")])
    commands = {"mqstore repair s --index --apply": ("I-091",), "mqstore repair s --config --apply": ("I-076", "I-150")}
    assert {str(each): each.codes for each in told} == commands
    told = tidying([found("I-150"), found("I-149")])
    assert {str(each): each.codes for each in told} == {"mqstore repair s --config --apply": ("I-149", "I-150")}


def test_no_command_by_hand_where_a_finding_lacks_a_name_for_it() -> None:
    look, renumber = "mqstore get {store} --at {position}", "mqstore repair {store} --queue {queue}"
    assert by_hand_for(found("I-133"), "s", GIVEN, look) is None
    assert by_hand_for(found("I-114"), "s", GIVEN, renumber) is None
    record = replace(found("I-045"), path="s/commitlog/00000000000000004096")
    assert str(by_hand_for(record, "s", GIVEN, look)) == "mqstore get s --at 4103 --set 'a=b c'"
    compacted = replace(record, path="s/compaction/compactionLog/t/0/00000000000000000000")
    assert by_hand_for(compacted, "s", GIVEN, look) is None


def test_no_command_by_hand_for_what_is_not_there(tmp_path: Path) -> None:
    finding, look = replace(found("I-163"), path=str(tmp_path)), "mqstore dump {path}"
    assert by_hand_for(finding, "s", GIVEN, look) is not None
    assert by_hand_for(replace(finding, path=str(tmp_path / "gone")), "s", GIVEN, look) is None


def test_nothing_else_has_a_command_beside_bytes_that_nobody_can_read() -> None:
    findings = [found("I-100"), found("I-015")]
    commands = next_commands(findings, "s")
    assert [command_for(each, "s", commands) for each in findings] == [None, commands[0]]


def _with_files_aside(root: Path, places: dict[str, int]) -> Layout:
    """A store with log files of 8 bytes: one in each directory, from the position that is given."""
    for place, start in places.items():
        (root / place).mkdir(parents=True)
        (root / place / file_name(start)).write_bytes(bytes(8))
    return Layout.open(root)


@pytest.mark.parametrize("names", [("a", "b"), ("a,b",), ("a,b", "c;d"), ("a:b", "c"), ("a,b", "c;d", "e:f")])
def test_directories_of_a_log_can_be_named_whatever_their_names(names: tuple[str, ...], tmp_path: Path) -> None:
    """Brokers split at a comma, unless their JVM has another separator."""
    paths = [tmp_path / name / "commitlog" for name in names]
    for path in paths:
        path.mkdir(parents=True)
    words = shlex.split(str(naming_log(paths)))
    assert BrokerConfig().with_set(words[1::2]).log_paths == [*map(str, paths)]
    assert ("multiPathSplitter" in words[1]) == any("," in name for name in names)


@pytest.mark.parametrize("others", [[], ["notes.txt"], ["notes.txt", "1.bak"]])
def test_the_log_files_of_all_directories_are_moved_back_and_nothing_else(others: list[str], tmp_path: Path) -> None:
    layout = _with_files_aside(tmp_path, {"commitlog": 16, "old 1": 8, "backup/commitlog": 0})
    for name in others:
        (tmp_path / "backup/commitlog" / name).write_text("kept")
    where = f"{tmp_path}/backup/commitlog and {tmp_path}/old 1"
    assert layout.unread_log.startswith(f"2 files of this log are in {where}, which ")
    subprocess.run(moving_back(layout).split("`")[1], shell=True, check=True)
    assert {path.name for path in (tmp_path / "backup/commitlog").iterdir()} == set(others)
    assert {path.name for path in (tmp_path / "commitlog").iterdir()} == {file_name(start) for start in (0, 8, 16)}
    assert Layout.open(tmp_path, BrokerConfig({"fileReservedTime": "48"})).unread_log == ""


def test_compressed_log_files_are_not_moved_to_where_brokers_look(tmp_path: Path) -> None:
    """Their names keep brokers from starting: an archive in a store goes elsewhere."""
    _with_files_aside(tmp_path, {"commitlog": 16, "old": 8, "older": 0})
    subprocess.run(["gzip", tmp_path / "old" / file_name(8)], check=True)
    layout = Layout.open(tmp_path)
    hint = moving_back(layout)
    assert hint.startswith("move the compressed files out of the store;") and "mv" not in hint and "--set" not in hint
    subprocess.run(["gunzip", tmp_path / "old" / f"{file_name(8)}.gz"], check=True)
    assert "mv " in moving_back(Layout.open(tmp_path))
