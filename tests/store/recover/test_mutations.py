"""Any damage: a prediction and a plan, or one error that says why not; applied, it holds."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from mqstore.store.broker.profiles import VERSIONS
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import StoreError
from mqstore.store.recover.recovery import analyze, replan
from mqstore.store.session.apply import apply

from ... import recovery_cases
from ...recovery_cases import CONFIG
from ...slices import rng, share
from ..plan.test_plan import Unflushed

pytestmark = pytest.mark.long

BASES = ("4.3.1-halt-1", "4.9.7-halt-2", "5.3.3-halt-1", "5.5.0-halt-2", "5.3.3-clean-2")


def mutate(root: Path, chance: random.Random) -> str:
    """Damage one file or directory of a store; returns what was done."""
    files = sorted(p for p in root.rglob("*") if p.is_file() and "rocksdbstore" not in p.parts)
    path = chance.choice(files)
    kind = chance.choice(("bytes", "bytes", "bytes", "zeros", "cut", "grow", "remove", "rename"))
    size = path.stat().st_size
    at = chance.randrange(size) if size else 0
    if kind in ("bytes", "zeros") and size:
        length = chance.choice((1, 1, 4, 8, 20, 300))
        with path.open("r+b") as file:
            file.seek(at)
            file.write(bytes(length) if kind == "zeros" else chance.randbytes(length))
    elif kind == "cut":
        os.truncate(path, at)
    elif kind == "grow":
        os.truncate(path, size + chance.choice((1, 20, 8192)))
    elif kind == "remove":
        path.unlink()
    elif kind == "rename":
        names = ("123", "-1", "9" * 20, "9" * 30, "x", path.name + "0", "00000000000000008192")
        path.rename(path.with_name(chance.choice(names)))
    return f"{kind} {path.relative_to(root)} at {at}"


def look(root: Path, version: str, *, carry_out: bool) -> list[str]:
    """Examine a store, recover it, examine it again; returns what is wrong."""
    try:
        found = analyze(Layout.open(root, CONFIG), version)
        found.to_json()
        if found.plan is None or not carry_out:
            return []
        layout = Layout.open(root, CONFIG)
        apply(layout, found.plan, lambda: replan(layout, version), Unflushed())
        left = replan(Layout.open(root, CONFIG), version).edits
    except StoreError as error:
        return [] if "\n" not in str(error) else [f"more than a line: {error}"]
    return [f"left to do: {edit.kind} {edit.path}: {edit.reason}" for edit in left]


def one(work: Path, seed: int, *, carry_out: bool) -> tuple[str, list[str]]:
    """A store with one to three mutations by seed: what was done, and what is wrong."""
    own = random.Random(seed)
    root = work / "store"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(recovery_cases.base(own.choice(BASES), work), root)
    done = [mutate(root, own) for _ in range(own.randint(1, 3))]
    version = own.choice(VERSIONS[1:])  # 4.3 does not know the IPv6 hosts in these stores
    try:
        wrong = look(root, version, carry_out=carry_out)
    except Exception as error:  # noqa: BLE001 (the seed has to be told)
        wrong = [repr(error)]
    return f"seed {seed}, {version}: {done}", wrong


def run(work: Path, count: int, name: str) -> dict[str, list[str]]:
    """Try so many seeded mutations; what is wrong by what was done."""
    chance = rng(name)
    tried = [one(work, chance.randrange(1 << 32), carry_out=number % 2 == 0) for number in range(count)]
    return {done: wrong for done, wrong in tried if wrong}


def test_a_queue_with_wrong_numbers_keeps_its_units_behind_a_file_that_is_gone(tmp_path: Path) -> None:
    """A record names another number, the second of three files of its queue has an odd name."""
    _, wrong = one(tmp_path, 1592385394, carry_out=True)
    assert not wrong


def test_an_index_made_anew_names_the_place_where_a_record_stands(tmp_path: Path) -> None:
    """A record names another place, and the index is damaged, too: the new one is right."""
    _, wrong = one(tmp_path, 1942643793, carry_out=True)
    assert not wrong


def test_some_mutations(tmp_path: Path) -> None:
    assert not run(tmp_path, 10, "recovery mutations")


@pytest.mark.slow
def test_many_mutations(tmp_path: Path) -> None:
    assert not run(tmp_path, share(5000), "many recovery mutations")
