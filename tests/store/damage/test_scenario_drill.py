"""Every scenario damages a copy as its header says, the same for the same seed, and never the store."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from mqstore.store.damage.scenario import drill, plan
from mqstore.store.damage.scenarios import scenario_of, scenarios
from mqstore.store.disk.files import Files
from mqstore.store.errors import InvalidInput, NotFound, Refused, StoreError
from mqstore.store.search.store import StoreReader
from tests.recovery_cases import base
from tests.stores import unpack
from tests.tiered import unpack as unpack_tiered

#: A store that has what a scenario damages; the others take the base, which is small.
STORE = "5.3.3-clean"
STORES = {"timer-ahead": "5.3.3-timer-clean", "ext-cut": "5.3.3-cqext"}
STORES |= {"duplicate-segment": "5.3.3-multipath-killed", "compaction-cut": "5.3.3-compaction"}
STORES |= dict.fromkeys(["topic-forgotten", "offset-beyond"], STORE)
STORES |= dict.fromkeys(["config-cut", "config-tail", "config-zeros"], STORE)
STORES |= dict.fromkeys(["timer-wheel-gone", "timer-wheel-length"], STORE)
BASE = "5.3.3-clean-1"
TIERED = "5.3.3"
SEED = 3


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The stores by scenario, unpacked once: nothing may change them."""
    folder = tmp_path_factory.mktemp("originals")
    found = {name: unpack(name, folder) for name in {STORE, *STORES.values()}}
    small = base(BASE, folder / "work")
    stores = {name: found[STORES[name]] if name in STORES else small for name in scenarios()}
    tiered = shutil.copytree(small, folder / "tiered")
    unpack_tiered(TIERED, tiered)
    return stores | {"tiered-index-end": tiered}


def state(root: Path) -> dict[str, tuple[str, int]]:
    """Content and time of every file, by its place; a hole of a wheel is not read."""
    found = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.stat().st_size < 1 << 22:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path.relative_to(root))] = (digest, path.stat().st_mtime_ns)
        else:
            found[str(path.relative_to(root))] = ("", path.stat().st_size)
    return found


@pytest.mark.parametrize("name", scenarios())
def test_the_copy_differs_where_the_edits_say(name: str, originals: dict[str, Path], tmp_path: Path) -> None:
    original, copy = originals[name], tmp_path / "copy"
    before = state(original)
    with StoreReader(original) as store:
        done = drill(store, copy, scenario_of(name), SEED, Files())
        again = plan(store, scenario_of(name), SEED)
    assert state(original) == before
    after = state(copy)
    edited = {os.path.relpath(edit.path, copy) for edit in done.edits}
    differing = {p for p in before.keys() | after.keys() if before.get(p) != after.get(p)}
    differing = {p for p in differing if not (copy / p).is_dir()}
    assert differing == edited, [edit.to_json() for edit in done.edits]
    moved = [(os.path.relpath(e.path, original), e.kind, e.offset, e.data) for e in again]
    assert moved == [(os.path.relpath(e.path, copy), e.kind, e.offset, e.data) for e in done.edits]


def test_holes_stay_holes_and_links_become_files(tmp_path: Path) -> None:
    original = unpack(STORE, tmp_path)
    (original / "config" / "link").symlink_to("../checkpoint")
    (original / "loop").symlink_to(".")
    os.mkfifo(original / "fifo")
    copy = tmp_path / "copy"
    with StoreReader(original) as store:
        done = drill(store, copy, scenario_of("killed"), 1, Files())
    assert done.left_out == ["fifo", "loop"]
    assert (copy / "config" / "link").read_bytes() == (original / "checkpoint").read_bytes()
    assert not (copy / "config" / "link").is_symlink()
    wheel = copy / "timerwheel"
    assert wheel.stat().st_blocks * 512 < wheel.stat().st_size


def test_a_target_that_will_not_do(tmp_path: Path) -> None:
    original = unpack(STORE, tmp_path)
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "file").touch()
    expected: list[tuple[Path, type[StoreError]]] = [
        *((original, Refused), (original / "copy", Refused), (tmp_path, Refused)),
        (taken, InvalidInput),
    ]
    before = state(original)
    with StoreReader(original) as store:
        for target, error in expected:
            with pytest.raises(error):
                drill(store, target, scenario_of("killed"), 1, Files())
    assert state(original) == before


def test_nothing_is_copied_for_what_the_store_has_not(tmp_path: Path) -> None:
    original = unpack(STORE, tmp_path)
    with StoreReader(original) as store, pytest.raises(NotFound):
        drill(store, tmp_path / "copy", scenario_of("timer-ahead"), 1, Files())
    assert not (tmp_path / "copy").exists()
    with pytest.raises(InvalidInput):
        scenario_of("earthquake")
