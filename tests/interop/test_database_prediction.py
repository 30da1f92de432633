"""Random damage to stores with queues in a RocksDB: a start does what `recover` says.

Where a thread of the broker races with its recovery (B42), each outcome that is told counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.slices import SEED, SLICE, share

from .conftest import Judge
from .random_database import VERSIONS, DatabaseCases

pytestmark = pytest.mark.interop

CASES_PER_VERSION = 200
#: Of several stores each.
CASES_IN_EVERY_RUN = range(0, 24, 8)
SHOWN = 5


def compared(judge: Judge, numbers: Sequence[int], work: Path) -> tuple[list[str], Counter[str]]:
    """What ends otherwise, a line each, and how many starts were judged, refused, hung or told in several ways."""
    cases, wrong, seen = DatabaseCases(judge, work), list[str](), Counter[str]()
    for number in numbers:
        case = cases[number]
        found = case.judged(judge)
        ended = "started" if found.started else "hung" if "died" in found.answer else "refused"
        seen.update([ended, *(["raced"] if found.outcomes > 1 else [])])
        if found.differences:
            smallest = case.smallest(judge) if len(wrong) < SHOWN else case
            wrong.append(f"{judge.version} {number}: {smallest}\n    {found.differences}")
    return wrong, seen


@pytest.mark.parametrize("version", VERSIONS)
def test_some_damage_ends_as_predicted(oracle: Callable[[str], Judge], version: str, tmp_path: Path) -> None:
    wrong, _ = compared(oracle(version), CASES_IN_EVERY_RUN, tmp_path)
    assert not wrong, f"seed {SEED}:\n" + "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_random_damage_ends_as_predicted(oracle: Callable[[str], Judge], version: str, tmp_path: Path) -> None:
    numbers = range(share(CASES_PER_VERSION))
    wrong, seen = compared(oracle(version), numbers, tmp_path)
    assert not wrong, f"seed {SEED}, {len(wrong)} of {len(numbers)}:\n" + "\n".join(wrong)
    if SLICE == 1:  # all ends are reached
        assert seen["started"] > len(numbers) // 2 and seen["refused"], seen
        assert seen["raced"] or version == "5.3.3", seen
