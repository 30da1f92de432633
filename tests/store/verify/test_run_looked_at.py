"""A verdict on a store whose parts were looked at before."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.store.put.new_message import NewMessage
from mqstore.store.search.store import StoreReader
from mqstore.store.verify import log_pass
from mqstore.store.verify.context import Scope
from mqstore.store.verify.run import look_at, together, verify

from .apart import CUT, NOW_MS, SIZES, written

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def _short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_pass, "CUT_BYTES", CUT)


def test_a_part_that_saw_another_state_of_any_log_file_does_not_count(tmp_path: Path) -> None:
    """Between a look at the parts and the verdict a byte in the middle of the log is spoiled."""
    root = written(tmp_path / "s", [NewMessage(b"orders", bytes(60_000))] * 14)
    with StoreReader(root, SIZES) as store:
        parts = [look_at(store, Scope(), number, 2, now_ms=NOW_MS) for number in range(2)]
        *_, middle, _ = (Path(file.path) for file in store.log_files.files)
    assert any(part.left for part in parts)
    with middle.open("r+b") as file:
        file.seek(30_000)
        file.write(b"?")
    with StoreReader(root, SIZES) as store:
        found = verify(store, now_ms=NOW_MS, looked_at=together(parts)).findings
    assert "I-023" in {finding.code for finding in found}, found
