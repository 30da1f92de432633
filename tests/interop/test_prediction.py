"""Random damage to every kind of file: a start does what `recover` says, in the words it says."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from mqstore.store.disk.layout import Layout
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.recover.cases import CASES
from mqstore.store.recover.recovery import analyze
from tests.mishaps import FILES
from tests.slices import SEED, SLICE, share

from .conftest import Judge
from .oracle import VERSIONS
from .random_cases import Cases, RandomCase, Seen

pytestmark = pytest.mark.interop

CASES_PER_VERSION = 1000
#: Of several stores each.
CASES_IN_EVERY_RUN = range(3, 96, 8)
#: Wrong where so many are shown in full, with the least that brings them about.
SHOWN = 5

Tried = Counter[tuple[str, str]]
_OF_DATABASES = tuple(f"queue-database{kind}" for kind in ("", "-path", "-row", "-differs", "-behind", "-light"))
#: Rows of the decision table that no damage reaches, and why.
UNREACHED = {
    "interrupted-recovery": "needs a recovery that was interrupted: tests/store/recover/test_cases.py",
    **dict.fromkeys(
        ("dledger-hole", "dledger-too-small", "dledger-index-length"), "needs a DLedger log: test_dledger_start.py"
    ),
    **dict.fromkeys(_OF_DATABASES, "needs queues in a RocksDB: test_database_prediction.py"),
}


@pytest.fixture(scope="session")
def reached() -> Iterator[Tried]:
    """(row of the decision table, version) → cases of this session."""
    yield Counter()


@pytest.fixture(scope="session")
def damaged() -> Iterator[Tried]:
    """(kind of file, version) → mishaps of this session."""
    yield Counter()


def compared(judge: Judge, numbers: Sequence[int], work: Path, *tried: Tried) -> list[str]:
    """Judge cases, count what they reach and hit; a line for each that ends otherwise."""
    cases = Cases(judge, work)
    wrong: list[str] = []
    for number in numbers:
        case = cases[number]
        seen = case.judged(judge)
        for rows, files in [tried] if tried else []:
            rows.update((row, judge.version) for row in rows_of(case))
            files.update((mishap.where, judge.version) for _, mishap in case.mishaps)
        if found := seen.differences or unsaid(case, seen):
            wrong.append(reproduction(case, judge, found) if len(wrong) < SHOWN else str(case))
    return wrong


def rows_of(case: RandomCase) -> set[str]:
    """The row of the decision table that the damaged store falls into, under either policy."""
    layout = Layout.open(case.made("examined"), case.config)
    each = (analyze(layout, case.version, options=RecoveryOptions(policy)) for policy in Policy)
    return {found.prediction.case.label for found in each}


def unsaid(case: RandomCase, seen: Seen) -> list[str]:
    """Words of a predicted refusal that the broker does not say.

    Of several bad files a broker names the one that it meets first: as the directory lists them.
    """
    refusal = seen.outcome.refusal
    if refusal is None or len(case.mishaps) > 1 or "died" in seen.answer:
        return []
    said = "\n".join([*seen.answer["log"], seen.answer.get("exception", "")])
    kind, _, words = refusal.reason.partition(": ")
    kind = kind.partition(" in the dispatch")[0]
    wanted = [kind, words if kind.endswith("Exception") else Path(refusal.path).name]
    return [f"refuses, but does not say {word!r}" for word in wanted if word not in said]


def reproduction(case: RandomCase, judge: Judge, differences: list[str]) -> str:
    """The least that goes wrong, and the command that shows it."""
    smallest = case.smallest(judge)
    shown = "; ".join(re.sub(r"/\S*mqstore-interop-[^/]*/", "", text) for text in differences)
    return f"{smallest}\n    {shown}\n    {smallest.command}"


def table(title: str, rows: Sequence[str], tried: Tried) -> str:
    """How often each row was reached, by version."""
    lines = [f"\n{title:24}" + "".join(f"{version:>8}" for version in VERSIONS)]
    for row in rows:
        cells = [str(tried[row, version] or "-") for version in VERSIONS]
        lines.append(f"{row:24}" + "".join(f"{cell:>8}" for cell in cells))
    total = [sum(tried[row, version] for row in rows) for version in VERSIONS]
    return "\n".join([*lines, f"{'':24}" + "".join(f"{count:>8}" for count in total)])


def test_some_damage_ends_as_predicted(judge: Judge, tmp_path: Path) -> None:
    wrong = compared(judge, CASES_IN_EVERY_RUN, tmp_path)
    assert not wrong, f"seed {SEED}:\n" + "\n".join(wrong)


@pytest.mark.slow
def test_random_damage_ends_as_predicted(judge: Judge, tmp_path: Path, reached: Tried, damaged: Tried) -> None:
    numbers = range(share(CASES_PER_VERSION))
    wrong = compared(judge, numbers, tmp_path, reached, damaged)
    assert not wrong, f"seed {SEED}, {len(wrong)} of {len(numbers)}:\n" + "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS[-1:], indirect=True)  # behind all others: pytest groups by version
def test_random_damage_reaches_every_row(
    version: str, reached: Tried, damaged: Tried, capsys: pytest.CaptureFixture[str]
) -> None:
    """After all versions: what the cases were. A slice has too few of them for every row."""
    labels = [case.label for case in CASES]
    with capsys.disabled():
        print(table("row", labels, reached))
        print("\n".join(f"{label}: {why}" for label, why in UNREACHED.items()))
        print(table("mishaps in", list(FILES), damaged))
    missed = {label for label in labels if not any(reached[label, v] for v in VERSIONS)}
    unhurt = {kind for kind in FILES if not any(damaged[kind, v] for v in VERSIONS)}
    if SLICE == 1:
        assert missed == UNREACHED.keys()
        assert not unhurt
