"""Conditions of `get` and `dump`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqstore.cli.selection_options import ConditionOptions
from mqstore.store.errors import InvalidInput

from .printed import get


@pytest.fixture
def root(store: Callable[[str], Path]) -> Path:
    return store("5.3.3-clean")


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("a = ", "--where: not an expression at the end"),
        ("a LIKE 'x%'", "has text after its end: \"LIKE 'x%'\""),
        ("@nope = 1", "--where: no field @nope"),
        ("a > 'x'", "--where: <, <=, > and >= compare numbers"),
    ],
)
def test_a_condition_that_a_broker_refuses(root: Path, where: str, says: str) -> None:
    result = get(root, "--where", where)
    assert (result.code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1 and says in result.stderr


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"queue": 3}, "--queue needs --topic"),
        ({"tag": " || "}, "--tag: no tag given"),
        ({"tag": ""}, "--tag: no tag given"),
        ({"key": ""}, "--key: no key given"),
        ({"unique_key": "", "topic": "t"}, "--unique-key: no key given"),
        ({"grep": "("}, "--grep: not a regular expression"),
        ({"grep": "a{99999999999999999999}"}, "--grep: not a regular expression"),
        ({"where": "a = 1 " + "b" * 60}, "has text after its end: 'b{40}…'"),
        ({"since": "2000", "until": "1000"}, "later"),
    ],
)
def test_conditions_that_make_no_sense(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        ConditionOptions(**given).selection(100)


def test_without_a_condition_nothing_is_asked() -> None:
    assert not ConditionOptions().selection(100).asks
    assert ConditionOptions(topic="t", queue=0).selection(7)[:2] == ("t", 0)
