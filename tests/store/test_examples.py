"""The examples in the docstrings of the library, run."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from mqstore.store.store import Store

MODULES = ("errors", "config", "time_range", "store", "find", "consume_queue", "index")


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name: str, store: Callable[[str], Path]) -> None:
    module = import_module(f"mqstore.store.{name}")
    root = store("5.3.3-clean")
    with Store(root) as opened:
        known = {"path": root, "store": opened}
        results = doctest.testmod(module, extraglobs=known, optionflags=doctest.ELLIPSIS)
    assert results.attempted > 0
    assert results.failed == 0
