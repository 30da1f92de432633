"""A simulated start does what the real classes did: outcome, log end, files, queues."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mqstore.store.layout import Layout
from mqstore.store.recovery.profiles import profile_of
from mqstore.store.recovery.simulate import Outcome, simulate
from mqstore.store.recovery.snapshot import Snapshot

from ... import recovery_cases
from ...slices import pick


def start_of(case: dict[str, Any], work: Path) -> Outcome:
    """Simulate the start of a case."""
    layout = Layout.open(recovery_cases.damaged(case, work), recovery_cases.CONFIG)
    return simulate(Snapshot.of(layout), profile_of(case["version"]))


def disagreements(case: dict[str, Any], outcome: Outcome) -> list[str]:
    """What the simulation says otherwise than the real classes."""
    load, start = case["load"], case.get("start") or {}
    if "hung" in load:
        return [] if outcome.delay_seconds else ["the load hung"]
    if not load["loaded"]:
        return [] if outcome.refusal else ["the load was refused"]
    if outcome.refusal:
        return [f"the load was not refused: {outcome.refusal}"]
    found = []
    if ("hung" in start) != bool(outcome.hangs):
        found.append(f"hangs: {outcome.hangs}")
    state = load["state"]
    if outcome.log_end != state["max_offset"]:
        found.append(f"log end {outcome.log_end}, not {state['max_offset']}")
    if state["min_offset"] >= 0 and outcome.log_start != state["min_offset"]:
        found.append(f"log start {outcome.log_start}, not {state['min_offset']}")
    settled = start.get("state") or state
    if "hung" not in start:
        found += _queue_differences(outcome, settled["queues"])
    removed = _lasting(outcome)
    really = {path for path in load["files"]["removed"] if "queue/" not in path}
    really |= {p for p in start.get("files", load["files"])["removed"] if "queue/" in p}
    really = {path for path in really if not path.endswith("/")}
    if "hung" not in start and removed ^ really:
        found.append(f"removed {sorted(removed - really)}, not {sorted(really - removed)}")
    return found


def _queue_differences(outcome: Outcome, really: dict[str, list[int]]) -> list[str]:
    found = []
    mine = {
        f"{name.topic}-{name.queue_id}": [q.min_offset, q.max_offset, q.max_physical]
        for name, q in outcome.queues.items()
    }
    for name in sorted(mine.keys() | really.keys()):
        silent = name not in really and mine[name][1] == 0
        if mine.get(name) != really.get(name) and not silent:
            found.append(f"queue {name}: {mine.get(name)}, not {really.get(name)}")
    return found


def _lasting(outcome: Outcome) -> set[str]:
    """Files removed and not made again by the dispatch, relative to the store."""
    removed = [f.entry for f in outcome.log_removed if f.entry]
    removed += outcome.log.deleted + outcome.queue_deletions
    removed += [header.entry for header in outcome.index.deleted]
    for queue in outcome.queues.values():
        removed += [file.entry for file in queue.removed if file.entry]
    made = {
        f"consumequeue/{name.topic}/{name.queue_id}/{file.start:020d}"
        for name, queue in outcome.queues.items()
        for file in queue.files
    }
    root = outcome.snapshot.layout.root
    return {str(Path(entry.path).relative_to(root)) for entry in removed} - made


def test_every_kind_of_damage(tmp_path: Path) -> None:
    failed = {}
    for case in recovery_cases.cases():
        found = disagreements(case, start_of(case, tmp_path))
        if found:
            failed[case["case"]] = found
    assert not failed


@pytest.mark.slow
def test_all_measured_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tried: Counter[tuple[str, str]] = Counter()
    wrong: Counter[tuple[str, str]] = Counter()
    failed = {}
    for case in pick(recovery_cases.all_cases(), "recovery cases"):
        key = (case["kind"], case["version"])
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
    lines = [f"\n{'kind':30}" + "".join(f"{version:>8}" for version in versions)]
    for kind in sorted({kind for kind, _ in tried}):
        cells = []
        for version in versions:
            count, bad = tried[kind, version], wrong[kind, version]
            cells.append(f"{count}/{bad}" if bad else str(count or "-"))
        lines.append(f"{kind:30}" + "".join(f"{cell:>8}" for cell in cells))
    total = f"{sum(tried.values())} cases, {sum(wrong.values())} disagree"
    return "\n".join([*lines, total])
