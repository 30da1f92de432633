"""A pair of stores of one master and its slave."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mqstore.store.damage.scenarios import PAGE_BYTES
from mqstore.store.disk.file_queue import file_name

from ... import stores
from .ha_pair import MASTER, PAGE, Stores, overwrite


@pytest.fixture(scope="package")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    """Stores without the wheel of their timer, which is large and of no use here."""
    folder = tmp_path_factory.mktemp("ha")

    def get(name: str) -> Path:
        root = folder / name
        if not root.exists():
            stores.unpack(name, folder)
            (root / "timerwheel").unlink(missing_ok=True)
        return root

    return get


@pytest.fixture
def torn(unpacked: Stores, tmp_path: Path) -> Path:
    """The master with a page of zeros in its first file."""
    root = Path(shutil.copytree(unpacked(MASTER), tmp_path / "store"))
    overwrite(root / "commitlog" / file_name(0), PAGE, bytes(PAGE_BYTES))
    return root
