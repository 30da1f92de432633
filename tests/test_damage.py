"""The damage generators do what they say, and the same for the same seed."""

from __future__ import annotations

import filecmp
import functools
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from .damage import ALL_KINDS, DROP_FILE, Victim, damage
from .stores import unpack

STORES = ("4.9.7-killed", "4.9.7-multipath", "4.9.7-dledger")


Pair = tuple[Path, Victim]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    """An untouched store, and the same to be damaged, unpacked once: a test mends what it damages."""
    folder = tmp_path_factory.mktemp("pairs")

    @functools.cache
    def get(name: str) -> Pair:
        return unpack(name, folder / "a"), Victim.of(name, unpack(name, folder / "b"))

    return get


@pytest.mark.few(16)
@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_one_file_changes_and_spoils_records(name: str, kind: str, pair: Callable[[str], Pair]) -> None:
    untouched, victim = pair(name)
    hurt = damage(victim, random.Random(kind), kind=kind)
    changed = []
    for path in untouched.rglob("*"):
        other = victim.root / path.relative_to(untouched)
        if path.is_file() and not (other.exists() and filecmp.cmp(path, other, shallow=False)):
            changed.append(other)
    there = hurt.path.exists()
    shutil.copy2(untouched / hurt.path.relative_to(victim.root), hurt.path)
    assert changed == [hurt.path]
    assert there == (kind != DROP_FILE)
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
