"""Which real stores a test runs over: those of tests/stores, and by `-m slow` all there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ..stores import ALL, NAMES, truth

Condition = Callable[[dict[str, Any]], Any]


def stores_where(condition: Condition) -> list[Any]:
    """Parameters for the stores whose truth fulfils a condition."""
    return [
        pytest.param(name, marks=() if name in NAMES else pytest.mark.slow)
        for name in ALL
        if condition(truth(name))
    ]


def clean_where(condition: Condition) -> list[Any]:
    """The same of stores that a broker left whole: what it answers holds for them as they lie."""
    return stores_where(lambda t: t["expected_verdict"] == "clean" and condition(t))
