"""Checkpoint files against the truth, and short ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.formats.checkpoint import FIELDS
from mqstore.formats.message import SMALLEST
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.checkpoint import Checkpoint, lost_end, read_checkpoint
from mqstore.store.disk.layout import Layout
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


@pytest.mark.parametrize(
    ("confirmed", "named", "lost"),
    [
        *((0, (), 0), (700, (), 0), (800, (), 0), (801, (), 101), (0, (750,), 50), (795, (750,), 95)),
        *((700 + SMALLEST, (), SMALLEST), (699 + SMALLEST, (), 0), (699 + SMALLEST, (750,), 50)),
    ],
)
def test_a_log_that_reached_farther_has_lost_its_end(
    confirmed: int, named: tuple[int, ...], lost: int, tmp_path: Path
) -> None:
    """A BLANK may fill the file of 200 bytes in which the log ends, at 700. The middle of a record is no loss."""
    (tmp_path / "commitlog").mkdir()
    fields = Checkpoint(confirm_phy_offset=confirmed)._asdict()
    for elected in (False, True):
        layout = Layout.open(tmp_path, BrokerConfig({"enableControllerMode": str(elected).lower()}))
        assert len(lost_end(layout, fields, 700, 200, named)) == (lost if elected else 0)
        assert len(lost_end(layout, fields, 700, 200, named, torn_end=max(confirmed, 700))) == (lost if elected else 0)
        assert not lost_end(layout, fields, 700, 200, torn_end=confirmed + 1)
    layout.log_stop = 700
    assert not lost_end(layout, fields, 700, 200, named)
