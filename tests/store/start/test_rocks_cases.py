"""A simulated start of stores with queues in RocksDB does what the real classes of 5.5.0 and 5.5.1 did."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.store.broker.profiles import profile_of
from mqstore.store.broker.snapshot import QueueId, Snapshot
from mqstore.store.disk.layout import Layout
from mqstore.store.start.log import switches_of
from mqstore.store.start.outcome import Outcome
from mqstore.store.start.simulate import all_outcomes

from ...rocks_cases import Case, all_bases, all_cases, case_of, damaged, served_by_itself
from ...slices import pick
from .database_disagreements import ends, in_no_outcome, names_of, read, state_differences

FAST = (
    *("rocks-clean-1/db_missing", "rocks-halt-1/abort_toggled_torn", "rocks-halt-1/flip_body_late"),
    *("hybrid-clean-1/file_cq_zero_middle", "hybrid-halt-1/file_queues_missing"),
    *("hybrid-clean-1/prefer_rocks_cq_missing_tail", "hybrid-halt-1/accelerated_ckpt_inside"),
    *("same-clean-1/cq_missing_all_units", "rocks-clean-1/separate_path"),
)
BY_BROKERS = "no_lmq_in_rocks"
"""The classes take these options; a broker ends with 253 before it comes to them."""
UNREADABLE = "db_sst_flip"
"""After a crash the real start fails once a merge of tables comes to the block: told where units are read."""
DAMAGED_ROW = "row_short"
"""The real classes throw at each question about one queue; there is no more on record."""
UNKNOWN = "Ghost-0"
"""Has rows and no message: nobody asked the real classes about it."""


def disagreements(case: Case, layout: Layout, outcome: Outcome) -> list[str]:
    """What the simulation says otherwise than the real classes."""
    if case["kind"] == BY_BROKERS and outcome.refusal is not None:
        return []
    if outcome.refusal is not None:
        return [f"refused: {outcome.refusal}"] if case["started"] else []
    if not case["started"]:
        after = read(layout, outcome)
        assert outcome.database is not None
        unread = outcome.snapshot.abort and outcome.database.unreadable
        throws = not ends(outcome.database.view(QueueId("TopicA", 1)))[1]
        as_told = {UNREADABLE: unread, DAMAGED_ROW: throws and after.invisible.messages}
        return [] if as_told.get(case["kind"]) else [f"not refused: {case['exception']}"]
    names = sorted({*case["state"]["queues"], *names_of(outcome)} - {UNKNOWN})
    found = state_differences(outcome, case["state"], names)
    after = read(layout, outcome)
    if (served := served_by_itself(after)) != case["readable"]:
        found.append(f"{served} readable, not {case['readable']}")
    return found


def wrong(case: Case, work: Path) -> list[str]:
    """What each outcome of a start says otherwise; where they race, what is the same in none of them."""
    root, config = damaged(case, work)
    layout = Layout.open(root, config)
    snapshot = Snapshot.of(layout)
    starts = all_outcomes(snapshot, profile_of(case["version"]), switches_of(snapshot))
    found = [disagreements(case, layout, outcome) for outcome in starts]
    return in_no_outcome(found)


@pytest.mark.parametrize("name", FAST)
def test_some_starts(name: str, tmp_path: Path) -> None:
    assert wrong(case_of(f"5.5.1-{name}"), tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("base", all_bases())
def test_all_starts(base: str, tmp_path: Path) -> None:
    mine = [case for case in all_cases() if case["base"] == base]
    chosen = pick(mine, f"starts, rocks {base}")
    failed = {case["case"]: found for case in chosen if (found := wrong(case, tmp_path))}
    assert not failed
