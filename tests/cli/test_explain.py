"""`explain`: the story of each code and case, and a list of them all."""

from __future__ import annotations

import json

import pytest

from mqstore.store.recovery.cases import CASES
from mqstore.store.verify.catalogue import catalogue

from .datadriven import run_here
from .test_schemas import wrong


def test_the_list_has_every_code_and_case_as_its_schema_says() -> None:
    result = run_here(["explain", "--list", "--format", "ndjson"])
    records = [json.loads(line) for line in result.stdout.splitlines()]
    names = [record.get("code") or record["label"] for record in records]
    assert names == [*catalogue(), *(case.label for case in CASES)]
    assert [problem for record in records for problem in wrong(record)] == []


def test_a_line_each() -> None:
    lines = run_here(["explain", "--list"]).stdout.splitlines()
    assert len(lines) == len(catalogue()) + len(CASES)
    assert lines[0].startswith("I-0")


@pytest.mark.parametrize("code", ["I-023", "i-133", " I-009 "])
def test_a_story_names_cause_effect_and_what_to_do(code: str) -> None:
    result = run_here(["explain", code])
    told = catalogue()[code.strip().upper()]
    assert result.code == 0
    one_line = " ".join(result.stdout.split())
    for text in (told.statement, told.cause, told.effect, told.broker, told.log):
        assert " ".join(text.split()) in one_line
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_a_case_names_what_both_policies_do() -> None:
    text = " ".join(run_here(["explain", "damage-cuts"]).stdout.split())
    case = next(case for case in CASES if case.label == "damage-cuts")
    for part in (case.found, case.broker, case.plan, case.keep, "mqstore explain I-023", "B5"):
        assert part in text


def test_several_at_once() -> None:
    result = run_here(["explain", "I-023", "killed", "--format", "json"])
    assert [record["type"] for record in json.loads(result.stdout)] == [
        "explanation",
        "recovery_case",
    ]


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
