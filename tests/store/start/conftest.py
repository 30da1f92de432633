"""The configuration of a real store."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.store.disk.layout import Layout
from mqstore.store.recover.recovery import analyze

from ... import stores
from .configured import NAME, VERSION, Ends


@pytest.fixture(scope="package")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ends]:
    """A real store, and the ends of its queues."""
    root = stores.unpack(NAME, tmp_path_factory.mktemp("config"))
    plan = analyze(Layout.open(root), VERSION).plan
    assert plan is not None
    return root, {row.queue: (row.min_offset, row.max_offset) for row in plan.queues}


@pytest.fixture
def config(real: tuple[Path, Ends], tmp_path: Path) -> Iterator[Path]:
    """A copy of its config/, in a store of nothing else."""
    shutil.copytree(real[0] / "config", tmp_path / "config")
    (tmp_path / "timerwheel").touch()
    yield tmp_path / "config"
