"""Which part of the slow work a run does, and with which seed.

Two environment variables steer every test marked `slow`; `CONTRIBUTING.md` tells people about them:

* `MQSTORE_SEED` (integer, default 1) is the only source of chance.
* `MQSTORE_SLICE` (0 < share <= 1, default 1) is the share of the work: `.ci/run` takes a thin slice,
  the scripts beside it all of it.

A slow test asks `share(n)` for how many of its n cases to make, or `pick(cases)` for which of a
list of given cases to look at, and `rng("name")` for a generator that no other test disturbs.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings

T = TypeVar("T")

DEFAULT_SEED = 1
SEED = int(os.environ.get("MQSTORE_SEED", DEFAULT_SEED))
SLICE = float(os.environ.get("MQSTORE_SLICE", "1"))

if not 0 < SLICE <= 1:
    raise ValueError(f"MQSTORE_SLICE={SLICE}: must be above 0 and at most 1")


def share(total: int) -> int:
    """How many of `total` cases this run makes: at least one."""
    return max(1, round(total * SLICE))


def examples(most: int) -> int:
    """How many examples hypothesis makes in this run where a slow one makes `most`."""
    return max(5, most * settings().max_examples // 100)


def rng(name: str) -> random.Random:
    """A generator of its own for the test called `name`, the same for the same seed."""
    return random.Random(f"{SEED} {name}")


def pick(cases: Sequence[T], name: str, fewest: int = 1) -> list[T]:
    """The cases that this run looks at, chosen by the seed, in their own order."""
    count = min(max(share(len(cases)), fewest), len(cases))
    chosen = rng(name).sample(range(len(cases)), count)
    return [cases[i] for i in sorted(chosen)]


def spread(count: int, wanted: int) -> set[int]:
    """Numbers of so many of `count` things, from the first to the last and evenly between."""
    wanted = min(wanted, count)
    return {(count - 1) * number // max(1, wanted - 1) for number in range(wanted)}
