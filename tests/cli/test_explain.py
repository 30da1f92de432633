"""`explain`: the story of each code and case, and a list of them all."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mqstore.store.findings.catalogue import catalogue
from mqstore.store.log.batch import ExtentKind
from mqstore.store.log.message import Mark, mark_texts
from mqstore.store.recover.broker_bugs import bugs
from mqstore.store.recover.cases import CASES

from .datadriven import run_here
from .json_schema import wrong

TESTDATA = Path(__file__).parents[1] / "testdata"
PRINTED = (
    re.compile(r"\b([IB]-?\d{1,3})\b"),
    re.compile(r"^    case +([a-z-]+):", re.MULTILINE),
    re.compile(r'"case": "([^"]+)"'),
    re.compile(r'"stale": "([^"]+)"'),
    re.compile(r'"(tombstone|filler|after_damage)": true'),
    re.compile(r"(stale: [a-z ]+)\]"),
    re.compile(r"\[(after damage|tombstone|filler|wrong body CRC)[],]"),
    re.compile(r"-- (blank|damage):"),
    re.compile(r"bytes, (torn tail|stale bytes|missing)"),
    re.compile(r"tags_code=-?\d+  (invalid|pre_fill)"),
)
"""What commands print that stands for something."""


def test_the_list_has_all_as_their_schemas_say() -> None:
    result = run_here(["explain", "--list", "--format", "ndjson"])
    records = [json.loads(line) for line in result.stdout.splitlines()]
    names = [record.get("code") or record["label"] for record in records]
    assert names == [*catalogue(), *(case.label for case in CASES), *bugs(), *mark_texts()]
    assert len(set(names)) == len(names)
    assert [problem for record in records for problem in wrong(record)] == []


def test_a_line_each() -> None:
    lines = run_here(["explain", "--list"]).stdout.splitlines()
    assert len(lines) == len(catalogue()) + len(CASES) + len(bugs()) + len(mark_texts())
    assert lines[0].startswith("I-0")


def _printed(transcript: Path) -> str:
    """What it shows of stdout: neither commands nor errors, which may name what is none."""
    lines = transcript.read_text("utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(("  $ ", "  > ", "  2> ")))


def test_missing_log_files_come_from_a_copy() -> None:
    """`recover` alone brings none back."""
    (told,) = json.loads(run_here(["explain", "I-002", "--format", "json"]).stdout)
    assert told["repair"] == "mqstore recover STORE --replica STORE2 --apply"


def test_every_code_that_is_printed_can_be_explained() -> None:
    """Of the transcripts, and of the texts that explain tells itself."""
    told = run_here(["explain", "--list", "--format", "json"]).stdout
    texts = [told, *(_printed(path) for path in TESTDATA.iterdir() if path.is_file())]
    found = {code for text in texts for each in PRINTED for code in each.findall(text)}
    kinds = [{code for code in found if code[0] in start} for start in ("I", "B", "abcdefstw")]
    assert all(len(kind) >= 5 for kind in kinds), kinds
    unknown = [code for code in sorted(found) if run_here(["explain", code]).code]
    assert unknown == []


@pytest.mark.parametrize("word", ["pop_invisible", "offset moved"])
def test_a_verdict_of_trace_leads_to_the_guide(word: str) -> None:
    assert "why-not-delivered.md" in run_here(["explain", word]).stderr


def test_every_mark_has_a_story() -> None:
    """Those of records, of what lies between them, and of units that name none."""
    labels = {mark.name.lower() for mark in Mark} - {"none"}
    assert labels | {kind.value for kind in ExtentKind} <= set(mark_texts())


def test_bugs_name_findings_that_are_there() -> None:
    assert list(bugs()) == [f"B{number}" for number in range(1, len(bugs()) + 1)]
    assert {code for bug in bugs().values() for code in bug.codes} <= set(catalogue())
    assert {bug for case in CASES for bug in case.bugs} <= set(bugs())


@pytest.mark.parametrize("word", ["dead_tail", "dead tail", "stale: dead tail", "Dead_Tail"])
def test_a_mark_is_found_as_it_is_printed(word: str) -> None:
    """By JSON and by text; the case with a dash in its name is another one."""
    text = run_here(["explain", word]).stdout
    assert text.startswith("stale: dead tail: ") and "mqstore recover STORE" in text
    assert run_here(["explain", "dead-tail"]).stdout.startswith("dead-tail: ")


def test_a_bug_names_versions_trigger_and_what_mends() -> None:
    text = " ".join(run_here(["explain", "b25"]).stdout.split())
    bug = bugs()["B25"]
    for part in (bug.versions, bug.trigger, bug.effect, bug.mends, "mqstore explain I-116"):
        assert part in text


@pytest.mark.parametrize("code", ["I-023", "i-133", " I-009 "])
def test_a_story_names_cause_effect_and_what_to_do(code: str) -> None:
    result = run_here(["explain", code])
    told = catalogue()[code.strip().upper()]
    assert result.code == 0
    one_line = " ".join(result.stdout.split())
    for text in (told.statement, told.cause, told.effect, told.broker, told.log):
        assert " ".join(text.split()) in one_line
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_verify_names_the_command_that_finishes_a_change() -> None:
    """A move of queues is finished by `repair`, a job by `pipeline`, others by `recover` or `undo`."""
    assert "mqstore verify STORE" in run_here(["explain", "I-185"]).stdout.splitlines()[-1]


def test_a_case_names_what_both_policies_do() -> None:
    text = " ".join(run_here(["explain", "damage-cuts"]).stdout.split())
    case = next(case for case in CASES if case.label == "damage-cuts")
    for part in (case.found, case.broker, case.plan, case.keep, "mqstore explain I-023", "B5"):
        assert part in text


def test_one_code_is_an_array_as_several_are() -> None:
    """A script need not know how many it asks for."""
    (record,) = json.loads(run_here(["explain", "I-023", "--format", "json"]).stdout)
    assert record["code"] == "I-023"


def test_several_at_once() -> None:
    result = run_here(["explain", "I-023", "killed", "--format", "json"])
    assert [record["type"] for record in json.loads(result.stdout)] == ["explanation", "recovery_case"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--list"),
        (["I-001", "--list"], "--list"),
        (["I-999"], "did you mean"),
        (["damagecuts"], "did you mean damage-cuts?"),
        (["\x1b[31m"], "--list has all of them"),
    ],
)
def test_what_is_no_code(arguments: list[str], said: str) -> None:
    result = run_here(["explain", *arguments])
    assert (result.code, result.stdout) == (2, "")
    assert said in result.stderr
    assert "\x1b" not in result.stderr
