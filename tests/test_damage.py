"""The damage generators do what they say, and the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from .damage import ALL_KINDS, DROP_FILE, Victim, damage
from .stores import unpack

STORES = ("4.9.7-killed", "4.9.7-multipath", "4.9.7-dledger")


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_one_file_changes_and_spoils_records(name: str, kind: str, tmp_path: Path) -> None:
    untouched, victim = (Victim.of(name, unpack(name, tmp_path / x)) for x in "ab")
    hurt = damage(victim, random.Random(kind), kind=kind)
    changed = []
    for path in untouched.root.rglob("*"):
        other = victim.root / path.relative_to(untouched.root)
        if path.is_file() and (not other.exists() or path.read_bytes() != other.read_bytes()):
            changed.append(other)
    assert changed == [hurt.path]
    assert hurt.path.exists() == (kind != DROP_FILE)
    assert hurt.length > 0
    assert hurt.spoiled or kind == "stale_record", str(hurt)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_same_seed_same_damage(kind: str, store: Callable[[str], Path]) -> None:
    found = []
    for _ in range(2):
        victim = Victim.of("4.9.7-killed", store("4.9.7-killed"))
        hurt = damage(victim, random.Random(7), kind=kind)
        found.append((hurt, hurt.path.read_bytes() if hurt.path.exists() else None))
    assert found[0] == found[1]


def test_files_without_known_records_can_be_damaged(store: Callable[[str], Path]) -> None:
    root = store("4.9.7-killed")
    victim = Victim.of("4.9.7-killed", root)
    for kind in ALL_KINDS:
        index = next((root / "index").iterdir(), root / "checkpoint")
        assert not damage(victim, random.Random(1), kind=kind, path=index).spoiled
