"""A simulated start does what the real classes did: outcome, log end, files, queues."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mqstore.store.layout import Layout
from mqstore.store.recovery.profiles import profile_of
from mqstore.store.recovery.recovery import switches_of
from mqstore.store.recovery.simulate import Outcome, simulate
from mqstore.store.recovery.snapshot import Snapshot

from ... import recovery_cases
from ...slices import pick
from .disagreements import disagreements


def start_of(case: dict[str, Any], work: Path) -> Outcome:
    """Simulate the start of a case."""
    root = recovery_cases.damaged(case, work)
    snapshot = Snapshot.of(Layout.open(root, recovery_cases.config_of(case, root)))
    clock = ((case.get("timer") or {}).get("load") or {}).get("now_ms", 0)
    return simulate(snapshot, profile_of(case["version"]), switches_of(snapshot), clock)


def test_every_kind_of_damage(tmp_path: Path) -> None:
    failed = {}
    for case in (*recovery_cases.cases(), *recovery_cases.feature_cases()):
        found = disagreements(case, start_of(case, tmp_path))
        if found:
            failed[case["case"]] = found
    assert not failed


@pytest.mark.slow
@pytest.mark.parametrize("features", [False, True], ids=["plain", "features"])
def test_all_measured_starts(
    features: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    every = recovery_cases.all_feature_cases() if features else recovery_cases.all_cases()
    tried: Counter[tuple[str, str]] = Counter()
    wrong: Counter[tuple[str, str]] = Counter()
    failed = {}
    for case in pick(every, f"recovery cases, features {features}"):
        key = (f"{case.get('feature', '')} {case['kind']}".strip(), case["version"])
        tried[key] += 1
        found = disagreements(case, start_of(case, tmp_path))
        if found:
            wrong[key] += 1
            failed[case["case"]] = found
    with capsys.disabled():
        print(matrix(tried, wrong))
    assert not failed


def matrix(tried: Counter[tuple[str, str]], wrong: Counter[tuple[str, str]]) -> str:
    """Kind by version: cases tried, and how many disagree."""
    versions = sorted({version for _, version in tried})
    lines = [f"\n{'kind':36}" + "".join(f"{version:>8}" for version in versions)]
    for kind in sorted({kind for kind, _ in tried}):
        cells = []
        for version in versions:
            count, bad = tried[kind, version], wrong[kind, version]
            cells.append(f"{count}/{bad}" if bad else str(count or "-"))
        lines.append(f"{kind:36}" + "".join(f"{cell:>8}" for cell in cells))
    total = f"{sum(tried.values())} cases, {sum(wrong.values())} disagree"
    return "\n".join([*lines, total])
