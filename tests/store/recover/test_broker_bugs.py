"""Messages that stay but become invisible: the bug of spec 07, 7.12, that does it is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mqstore.store.audit.messages import HIDDEN, MISPLACED, Share, Tally
from mqstore.store.broker.profiles import VERSIONS, profile_of
from mqstore.store.broker.snapshot import QueueId, Snapshot
from mqstore.store.disk.layout import Layout
from mqstore.store.recover.broker_bugs import bugs, with_bugs
from mqstore.store.recover.recovery import analyze
from mqstore.store.start.simulate import simulate

from ... import recovery_cases
from ...recovery_cases import CONFIG, Case, config_of

CASES = [
    ("B1", "cq_behind_all_middle", "5.3.3", "clean"),
    ("B1", "cq_short_last", "4.3.1", "clean"),
    ("B2", "cq_queue_missing", "5.5.0", "clean"),
    ("B2", "cq_topic_missing", "4.9.7", "clean"),
    ("B3", "cq_prefill_last", "4.9.7", "halt"),
    ("B19", "cq_all_missing", "5.3.3", "halt"),
    ("B22", "cq_prefill_last", "5.1.4", "halt"),
    ("B25", "cq_and_index_missing", "5.5.0", "clean"),
]


def case_of(kind: str, version: str, exit: str) -> Case:
    """A case of that kind, of this version and exit where there is one."""
    pool = [*recovery_cases.cases(), *recovery_cases.feature_cases()]
    found = [case for case in pool if case["kind"] == kind]
    exact = [c for c in found if (c["version"], c["exit"]) == (version, exit)]
    return (exact or found)[0]


@pytest.mark.few(4)
@pytest.mark.parametrize(("bug", "kind", "version", "exit"), CASES)
def test_the_bug_is_named(bug: str, kind: str, version: str, exit: str, tmp_path: Path) -> None:
    case = case_of(kind, version, exit)
    root = recovery_cases.damaged(case, tmp_path)
    if (case["exit"] == "clean") is not (exit == "clean"):
        (root / "abort").unlink() if exit == "clean" else (root / "abort").touch()
    found = analyze(Layout.open(root, config_of(case, root)), version)
    assert found.prediction.invisible.messages, found.prediction.case.label
    reasons = {share.reason for share in found.prediction.invisible}
    assert any(f"({bug}: {bugs()[bug].words})" in reason for reason in reasons), reasons


@pytest.mark.parametrize("version", VERSIONS)
def test_a_min_offset_that_jumps(version: str, tmp_path: Path) -> None:
    """Only a binary search can miss the messages in front."""
    root = tmp_path / "store"
    case = recovery_cases.case_of("abort_toggled")
    root = recovery_cases.damaged(case, tmp_path)
    outcome = simulate(Snapshot.of(Layout.open(root, CONFIG)), profile_of(version))
    share = Share(QueueId("TopicA", 0), HIDDEN, 3, 300, 1, 2, 0, 2)
    (named,) = with_bugs(outcome, Tally({(share.queue, HIDDEN): share}))
    assert named.messages == 3
    assert ("B23" in named.reason) is (version[0] == "5")


def test_damage_alone_is_no_bug(tmp_path: Path) -> None:
    """A unit that was overwritten is wrong, and nothing that a broker does makes it so."""
    case = case_of("cq_wrong_offset", "5.3.3", "clean")
    root = recovery_cases.damaged(case, tmp_path)
    found = analyze(Layout.open(root, config_of(case, root)), case["version"])
    assert {share.reason for share in found.prediction.invisible} == {MISPLACED}


def test_nothing_is_named_where_nothing_starts(tmp_path: Path) -> None:
    case = recovery_cases.case_of("abort_toggled")
    root = recovery_cases.damaged(case, tmp_path)
    outcome = simulate(Snapshot.of(Layout.open(root, CONFIG)), profile_of("5.3"))
    share = Share(QueueId("TopicA", 0), MISPLACED, 1)
    tally = Tally({(share.queue, MISPLACED): share})
    assert with_bugs(replace(outcome, refusal=object()), tally) is tally  # type: ignore[arg-type]
