"""Stores that something went wrong with."""

from __future__ import annotations

import random
from pathlib import Path

from ... import slices, stores
from ...damage import Victim
from ...mishaps import Mishap
from ...stores import unpack


def damaged_store(case: str, work: Path) -> Path:
    """One or two mishaps to one of `FEW`, by the name of the case and the seed."""
    chance = random.Random(f"{slices.SEED} {case}")
    name = chance.choice(stores.FEW)
    root = unpack(name, work)
    victim = Victim.of(name, root)
    for _ in range(chance.choice([1, 1, 2])):
        Mishap.of(victim, chance).befall(victim, chance)
    return root
