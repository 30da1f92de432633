"""No miss: each invariant is broken in seeded ways on real stores, and verify names its code.

The slow test does it `SEEDS` times for each code and, with `--rewrite` and the whole share, stores
how often which code was found in docs/detection.md.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from random import Random

import pytest

from mqstore.store.verify.catalogue import Severity

from ... import slices
from .mutations import Mutation, copied, mutations, original, verified

SEEDS = 24
MATRIX = Path(__file__).parents[3] / "docs" / "detection.md"
_FOUND: dict[str, Counter[str]] = {}
_HEAD = """# What `verify` detects

Each invariant of the catalogue ([invariants.md](invariants.md)) is broken on copies of real stores in
seeded ways (`tests/store/verify/mutations`), each of which breaks its statement; the store before does
not have the code. *Made*: so many damaged stores. *Found*: in so many of them `verify` named the code.

Written by `MQSTORE_SLICE=1 pytest tests/store/verify/test_mutations.py --rewrite`.

| Invariant | Made | Found | Stores |
|---|---|---|---|
"""


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


@pytest.mark.parametrize("mutation", mutations().values(), ids=str)
def test_a_broken_invariant_is_named(mutation: Mutation, work: Path) -> None:
    detected, told = _detected(mutation, mutation.stores[0], f"fast {mutation.code}", work)
    assert detected, told


@pytest.mark.slow
@pytest.mark.parametrize("mutation", mutations().values(), ids=str)
def test_each_way_to_break_an_invariant_is_named(mutation: Mutation, work: Path) -> None:
    missed = []
    found = _FOUND.setdefault(mutation.code, Counter())
    for number in range(slices.share(SEEDS)):
        name = mutation.stores[number % len(mutation.stores)]
        seed = f"{slices.SEED} {mutation.code} {number}"
        detected, told = _detected(mutation, name, seed, work)
        found["made"] += 1
        found["found"] += detected
        if not detected:
            missed.append(told)
    assert not missed, "\n".join(missed)


@pytest.mark.slow
def test_the_matrix_is_stored(rewrite: bool) -> None:
    if rewrite and slices.SLICE == 1:
        rows = (
            f"| {code} | {found['made']} | {found['found']} "
            f"| {', '.join(mutations()[code].stores)} |\n"
            for code, found in sorted(_FOUND.items())
        )
        MATRIX.write_text(_HEAD + "".join(rows), encoding="utf-8")
    assert MATRIX.exists()
