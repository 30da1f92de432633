"""Index items that a start gives up, against what real brokers left after theirs (spec 07, B19)."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.store.broker.profiles import profile_of
from mqstore.store.broker.snapshot import Snapshot
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.index.read import Geometry, IndexFile, sizes_of
from mqstore.store.recover.predict import index_items_lost
from mqstore.store.start.outcome import Outcome
from mqstore.store.start.simulate import simulate

from ... import recovery_cases, stores
from ...recovery_cases import CONFIG, config_of

KILLED = [n for n in ("4.3.1-killed", "4.9.7-killed", "5.5.0-killed") if n in stores.NAMES]


def layout_of(name: str, folder: Path) -> Layout:
    root = stores.unpack(name, folder)
    return Layout.open(root, BrokerConfig().with_set(stores.config_set(name, root)))


def started(layout: Layout, version: str) -> Outcome:
    return simulate(Snapshot.of(layout), profile_of(version))


def items(layout: Layout) -> set[tuple[int, int]]:
    """(key hash, position) of all items of a store."""
    geometry = Geometry(sizes_of(layout).index_slots.value, sizes_of(layout).index_items.value)
    found = set()
    for path in sorted(layout.index.iterdir()):
        with IndexFile(path, geometry) as file:
            for _, rows in file.columns():
                pairs = zip(rows["key_hash"].tolist(), rows["physical_offset"].tolist(), strict=True)
                found |= set(pairs)
    return found


@pytest.mark.parametrize("name", KILLED)
def test_what_a_real_start_has_lost(name: str, tmp_path: Path) -> None:
    """Keys that were found before and are not afterwards: as many as was said."""
    before, after = (layout_of(n, tmp_path) for n in (name, f"{name}-restarted"))
    outcome = started(before, name[:5])
    gone = {(k, at) for k, at in items(before) - items(after) if at < outcome.log_end}
    assert index_items_lost(outcome) >= len(gone)
    assert {at for _, at in gone} <= set(range(outcome.scan_start))
    assert bool(gone) is bool(index_items_lost(outcome))


def test_items_before_the_recovery(tmp_path: Path) -> None:
    """Files newer than the checkpoint go; what lies before the recovery's start is lost."""
    case = recovery_cases.case_of("checkpoint_index_zero")
    root = recovery_cases.damaged(case, tmp_path)
    layout = Layout.open(root, config_of(case, root))
    outcome = started(layout, case["version"])
    geometry = Geometry(sizes_of(layout).index_slots.value, sizes_of(layout).index_items.value)
    count = 0
    for path in sorted(layout.index.iterdir()):
        with IndexFile(path, geometry) as file:
            count += sum(file.item(n).physical_offset < outcome.scan_start for n in range(1, file.last + 1))
    assert index_items_lost(outcome) == count > 0


def test_a_clean_exit_keeps_the_index(tmp_path: Path) -> None:
    base = recovery_cases.base("5.3.3-clean-1", tmp_path)
    assert index_items_lost(started(Layout.open(base, CONFIG), "5.3")) == 0
