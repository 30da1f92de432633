"""Checkpoint files against the truth, and short ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.formats.checkpoint import FIELDS
from mqstore.store.disk.checkpoint import Checkpoint, read_checkpoint
from mqstore.store.errors import Unreadable

from ...stores import truth
from ..choices import stores_where


@pytest.mark.few(12)
@pytest.mark.parametrize("name", stores_where(lambda t: t.get("checkpoint")))
def test_reads_what_the_broker_reads(name: str, store: Callable[[str], Path]) -> None:
    found = read_checkpoint(store(name) / "checkpoint")
    assert found is not None
    expected = truth(name)["checkpoint"]
    assert {key: found._asdict()[key] for key in expected} == expected


def test_missing_bytes_are_zeros(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    assert read_checkpoint(path) is None
    path.write_bytes(b"")
    assert read_checkpoint(path) == Checkpoint()
    path.write_bytes(FIELDS.build(dict.fromkeys(Checkpoint._fields, 7))[:12])
    assert read_checkpoint(path) == Checkpoint(7)
    with pytest.raises(Unreadable):
        read_checkpoint(tmp_path)
