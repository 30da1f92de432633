"""No miss: each invariant is broken in seeded ways on real stores, and verify names its code.

The slow test does it `SEEDS` times for each code; what it finds is stored in docs/detection.md.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random

import pytest

from mqstore.store.findings.catalogue import Severity

from ... import slices
from .mutations import Mutation, copied, detection, mutations, original, verified

SEEDS = 24
FAST_STEP = 5
"""Every so many of the codes are looked at in fast runs, all of them in slow ones."""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where stores are unpacked and damaged."""
    return tmp_path_factory.mktemp("mutations")


@cache
def _before(name: str, root: Path) -> frozenset[str]:
    """The codes of a store before it is damaged."""
    return frozenset(finding.code for finding in verified(name, root).findings)


def _detected(mutation: Mutation, name: str, seed: str, work: Path) -> tuple[bool, str]:
    """(verify names the code, what was done and what it says)."""
    root = original(name, work)
    assert mutation.code not in _before(name, root), f"{name} has {mutation.code} as it is"
    damaged = copied(root, work)
    did = mutation.mutate(damaged, Random(seed))
    found = verified(name, damaged).findings
    said = sorted({f"{f.code} {f.severity.label}" for f in found if f.severity > Severity.INFO})
    told = f"{mutation.code} in {name}, seed {seed!r}: {did}; found {said}"
    return mutation.code in {finding.code for finding in found}, told


@pytest.mark.few(6)
@pytest.mark.parametrize("mutation", list(mutations().values())[::FAST_STEP], ids=str)
def test_a_broken_invariant_is_named(mutation: Mutation, work: Path) -> None:
    detected, told = _detected(mutation, mutation.stores[0], f"fast {mutation.code}", work)
    assert detected, told


@pytest.mark.slow
@pytest.mark.parametrize("mutation", mutations().values(), ids=str)
def test_each_way_to_break_an_invariant_is_named(mutation: Mutation, work: Path) -> None:
    missed, made = [], slices.share(SEEDS)
    for number in range(made):
        name = mutation.stores[number % len(mutation.stores)]
        seed = f"{slices.SEED} {mutation.code} {number}"
        detected, told = _detected(mutation, name, seed, work)
        if not detected:
            missed.append(told)
    detection.CODES[mutation.code] = made, made - len(missed)
    assert not missed, "\n".join(missed)


@pytest.mark.slow
def test_the_matrix_is_stored(rewrite: bool) -> None:
    if rewrite and slices.SLICE == 1:
        detection.write()
    assert detection.PAGE.exists()


def test_the_matrix_has_every_invariant() -> None:
    found = detection.rows()
    assert set(found) == set(mutations())
    assert [code for code, (made, named) in found.items() if made < 20 or named < made] == []
