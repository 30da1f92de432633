"""The store that the tests of applying and undoing break."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from mqstore.store.disk.layout import Layout
from mqstore.store.log.batch import Batch
from mqstore.store.queues.references import commit_log_of

from ... import recovery_cases
from ...recovery_cases import CONFIG


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A killed store with a damaged record and a queue that is gone: every kind of edit."""
    store = tmp_path / "store"
    shutil.copytree(recovery_cases.base("5.3.3-halt-2", tmp_path), store)
    log = commit_log_of(Layout.open(store, CONFIG))
    batch = next(item for item in log.scan(32768) if isinstance(item, Batch))
    bodies = batch.columns.ragged("body")
    row = int(np.flatnonzero(bodies.length > 0)[3])
    position = int(batch.position[row]) + int(bodies.start[row] - batch.columns.starts[row])
    with (store / "commitlog" / f"{position // 8192 * 8192:020d}").open("r+b") as file:
        file.seek(position % 8192)
        file.write(bytes([bodies[row][0] ^ 1]))
    shutil.rmtree(next((store / "consumequeue" / "TopicA").iterdir()))
    return store
