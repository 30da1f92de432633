"""Conditions of `get` and `dump`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .printed import get


@pytest.fixture
def root(store: Callable[[str], Path]) -> Path:
    return store("5.3.3-clean")


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("a = ", "--where: not an expression at the end"),
        ("a LIKE 'x%'", "goes on behind its end at \"LIKE 'x%'\""),
        ("@nope = 1", "--where: no field @nope"),
        ("a > 'x'", "--where: <, <=, > and >= compare numbers"),
    ],
)
def test_a_condition_that_a_broker_refuses(root: Path, where: str, says: str) -> None:
    result = get(root, "--where", where)
    assert (result.code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1 and says in result.stderr
