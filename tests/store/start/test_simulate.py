"""A simulated start does what the real classes did: outcome, log end, files, queues."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mqstore.formats.consume_queue import UNIT, UNIT_BYTES
from mqstore.store.broker.profiles import profile_of
from mqstore.store.broker.snapshot import QueueId, Snapshot
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.start.log import switches_of
from mqstore.store.start.outcome import Outcome
from mqstore.store.start.simulate import simulate

from ... import recovery_cases
from ...slices import pick
from ...stores import config, unpack
from ..verify.mutations.edit import set_field
from .disagreements import disagreements


def start_of(case: dict[str, Any], work: Path, *, other_order: bool = False) -> Outcome:
    """Simulate the start of a case. other_order: of files with one name, the other one is first."""
    root = recovery_cases.damaged(case, work)
    snapshot = Snapshot.of(Layout.open(root, recovery_cases.config_of(case, root)))
    if other_order:
        log = list(reversed(snapshot.log))
        log.sort(key=lambda entry: entry.name)
        snapshot = replace(snapshot, log=tuple(log))
    clock = ((case.get("timer") or {}).get("load") or {}).get("now_ms", 0)
    return simulate(snapshot, profile_of(case["version"]), switches_of(snapshot), clock)


def test_kinds_of_damage(tmp_path: Path) -> None:
    """Some kinds to a log and to what features add: the slow test has all."""
    failed = {}
    for case in (*recovery_cases.cases()[::8], *recovery_cases.feature_cases()[::32]):
        found = disagreements(case, start_of(case, tmp_path))
        if found:
            failed[case["case"]] = found
    assert not failed


#: Store → its queue that names the last record, what the real classes find of it: max offset, and how far it reaches.
_REACHES = {
    "4.3.1-clean": (QueueId("RMQ_SYS_TRANS_HALF_TOPIC", 0), 24, (1 << 63) - 1),
    "4.9.7-clean": (QueueId("RMQ_SYS_TRANS_HALF_TOPIC", 0), 23, -9223372036854775486),
    "5.3.3-clean": (QueueId("later", 1), 3, -9223372036854775549),
}


@pytest.mark.parametrize("name", _REACHES)
def test_how_far_a_queue_reaches_is_a_number_of_java(name: str, tmp_path: Path) -> None:
    """Where that is negative it counts for nothing: the queues are behind the log, and nothing is cut."""
    root = unpack(name, tmp_path)
    queue, max_offset, reaches = _REACHES[name]
    path = root / "consumequeue" / queue.topic / str(queue.queue_id) / "0".zfill(20)
    set_field(path, (max_offset - 1) * UNIT_BYTES, UNIT, "physical_offset", (1 << 63) - 1)
    snapshot = Snapshot.of(Layout.open(root, BrokerConfig(config(name, root))))
    outcome = simulate(snapshot, profile_of(name.partition("-")[0]))
    state = outcome.queues[queue]
    assert (state.max_offset, state.max_physical) == (max_offset, reaches)
    assert (outcome.queues_end < outcome.log_end) == (reaches < 0)


@pytest.mark.slow
@pytest.mark.parametrize("features", [False, True], ids=["plain", "features"])
def test_all_measured_starts(features: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No case is open: 0 of 0.5 % that may be, 0 of 2 % of a feature."""
    every = recovery_cases.all_feature_cases() if features else recovery_cases.all_cases()
    tried: Counter[tuple[str, str]] = Counter()
    wrong: Counter[tuple[str, str]] = Counter()
    failed = {}
    for case in pick(every, f"recovery cases, features {features}"):
        key = kind_of(case)
        tried[key] += 1
        found = disagreements(case, start_of(case, tmp_path))
        if found:
            wrong[key] += 1
            failed[case["case"]] = found
    with capsys.disabled():
        print(matrix(tried, wrong))
    assert not failed


@pytest.mark.slow
def test_starts_that_depend_on_the_place_of_the_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A broker meets one of two directories first, by their names; these were not written down.

    tests/interop/test_switches.py judges which one it is.
    """
    tried: Counter[tuple[str, str]] = Counter()
    wrong: Counter[tuple[str, str]] = Counter()
    for case in pick(recovery_cases.cases_of_either_order(), "recovery cases of either order"):
        tried[kind_of(case)] += 1
        starts = (start_of(case, tmp_path, other_order=order) for order in (False, True))
        if all(disagreements(case, start) for start in starts):
            wrong[kind_of(case)] += 1
    with capsys.disabled():
        print(matrix(tried, wrong))
    assert not wrong.total()


def kind_of(case: dict[str, Any]) -> tuple[str, str]:
    """Row and column of the matrix."""
    return f"{case.get('feature', '')} {case['kind']}".strip(), case["version"]


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
    share = wrong.total() / max(1, tried.total())
    total = f"{tried.total()} cases, {wrong.total()} disagree ({share:.2%})"
    return "\n".join([*lines, total])
