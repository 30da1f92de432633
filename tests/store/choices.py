"""Which real stores a test runs over: a few of tests/stores, and by `-m slow` all there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ..stores import ALL, FEW, NAMES, truth

Condition = Callable[[dict[str, Any]], Any]


def stores_where(condition: Condition) -> list[Any]:
    """Parameters for the stores whose truth fulfils a condition."""
    return few([name for name in ALL if condition(truth(name))])


def few(names: Sequence[str] = NAMES) -> list[Any]:
    """Parameters for these stores, fast ones for those of `FEW`."""
    return [pytest.param(n, marks=() if n in FEW else pytest.mark.slow) for n in names]


def clean_where(condition: Condition) -> list[Any]:
    """The same of stores that a broker left whole: what it answers holds for them as they lie."""
    return stores_where(lambda t: t["expected_verdict"] == "clean" and condition(t))


def each_of(names: Sequence[Any]) -> Any:
    """The fixture `name`, for a module or a conftest.py: each of these names or parameters."""

    @pytest.fixture(name="name", params=names)
    def name(request: pytest.FixtureRequest) -> str:
        chosen: str = request.param
        return chosen

    return name
