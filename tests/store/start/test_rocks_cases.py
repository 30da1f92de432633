"""A simulated start of stores with queues in RocksDB does what the real classes of 5.5.1 did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqstore.store.audit.messages import Readability, scan_messages
from mqstore.store.broker.profiles import profile_of
from mqstore.store.broker.snapshot import QueueId, Snapshot
from mqstore.store.disk.layout import Layout
from mqstore.store.log.commit_log import CommitLog
from mqstore.store.start.log import switches_of
from mqstore.store.start.simulate import Outcome, all_outcomes

from ...rocks_cases import Case, case_of, cases, damaged
from ...slices import pick

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


def ends(queue: Any) -> list[int]:
    """As the record has them."""
    return [queue.min_offset, queue.max_offset, queue.max_physical]


def disagreements(case: Case, layout: Layout, outcome: Outcome) -> list[str]:
    """What the simulation says otherwise than the real classes."""
    if case["kind"] == BY_BROKERS and outcome.refusal is not None:
        return []
    if outcome.refusal is not None:
        return [f"refused: {outcome.refusal}"] if case["started"] else []
    found: list[str] = []
    if not case["started"]:
        after = read(layout, outcome)
        assert outcome.database is not None
        unread = outcome.snapshot.abort and outcome.database.unreadable
        throws = not ends(outcome.database.view(QueueId("TopicA", 1)))[1]
        as_told = {UNREADABLE: unread, DAMAGED_ROW: throws and after.invisible.messages}
        return [] if as_told.get(case["kind"]) else [f"not refused: {case['exception']}"]
    state = case["state"]
    if outcome.log_end != state["log_end"]:
        found.append(f"log end {outcome.log_end}, not {state['log_end']}")
    found += differences("read", outcome.read_queues, state["queues"])
    if outcome.stores.files and "files" in state:
        found += differences("files", outcome.queues, state["files"])
    database = outcome.database
    if database is not None and "database" in state:
        again = {queue: Asked(database.min_offset(queue), *ends(database.view(queue))[1:])
                 for queue in database.queues}  # fmt: skip
        parts = 2 if outcome.snapshot.abort else 3  # where the last record begins, races, too
        found += differences("database", again, state["database"], parts)
        if database.row != state["row"]:
            found.append(f"row {database.row}, not {state['row']}")
    after = read(layout, outcome)
    if after.readable != case["readable"]:
        found.append(f"{after.readable} readable, not {case['readable']}")
    return found


class Asked:
    """A queue that was asked once more."""

    def __init__(self, low: int, high: int, physical: int) -> None:
        self.min_offset, self.max_offset, self.max_physical = low, high, physical


def differences(what: str, mine: Any, real: dict[str, list[int]], parts: int = 3) -> list[str]:
    """Queues that end elsewhere; one without a message may be left out. parts: how many are compared."""
    got = {f"{queue.topic}-{queue.queue_id}": ends(state) for queue, state in mine.items()}
    found = []
    for name in sorted(got.keys() | real.keys()):
        one, other = got.get(name, [0, 0, -1]), real.get(name, [0, 0, -1])
        if name == UNKNOWN or not isinstance(other[0], int):
            continue
        if one[:parts] != other[:parts] and (one[1] or other[1]):
            found.append(f"{what} {name}: {one}, not {other}")
    return found


def read(layout: Layout, outcome: Outcome) -> Readability:
    """What consumers can read afterwards."""
    kept = [(file.start, file.start + file.wrote) for file in outcome.log.files]
    after = Readability(kept, outcome.read_queues)
    if outcome.snapshot.log:
        how = outcome.switches.dispatching(outcome.profile.dispatch)
        scan_messages(CommitLog.open(layout), [after], how)
    return after


def wrong(case: Case, work: Path) -> list[str]:
    """What each outcome of a start says otherwise; where they race, what is the same in none of them."""
    root, config = damaged(case, work)
    layout = Layout.open(root, config)
    snapshot = Snapshot.of(layout)
    starts = all_outcomes(snapshot, profile_of(case["version"]), switches_of(snapshot))
    found = [disagreements(case, layout, outcome) for outcome in starts]
    left = found[0] if [] not in found else []
    # each queue races alone (tests/rocks_cases/README.md): some as in one outcome, some as in another
    return [text for text in left if all(name_in(text) in map(name_in, other) for other in found)]


def name_in(text: str) -> str:
    """What a disagreement is about."""
    return text.split(":")[0]


@pytest.mark.parametrize("name", FAST)
def test_some_starts(name: str, tmp_path: Path) -> None:
    assert wrong(case_of(f"5.5.1-{name}"), tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("base", sorted({case["base"] for case in cases()}))
def test_all_starts(base: str, tmp_path: Path) -> None:
    mine = [case for case in cases() if case["base"] == base]
    chosen = pick(mine, f"starts, rocks {base}")
    failed = {case["case"]: found for case in chosen if (found := wrong(case, tmp_path))}
    assert not failed
