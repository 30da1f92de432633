"""A store of three messages, made once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .asked import put


@pytest.fixture(scope="package")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three messages in orders/0, the second one with the tag Aa and the key k1."""
    store = tmp_path_factory.mktemp("trace") / "store"
    put(store, "orders")
    put(store, "orders", "--tag", "Aa", "--keys", "k1", "--property", "price=5")
    put(store, "orders")
    return store


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """A copy of its own."""
    return Path(shutil.copytree(made, tmp_path / "store"))
