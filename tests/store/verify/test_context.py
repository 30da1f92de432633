"""What is known of a log is the same whether it was looked at in one run or in parts."""

from __future__ import annotations

import sys
from array import array
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.store.broker.snapshot import QueueId
from mqstore.store.disk.byte_reader import noting
from mqstore.store.errors import UnreadableRange
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.context import (
    Covered,
    LogFacts,
    RepeatedChecks,
    Scope,
    VerifyContext,
    ended,
    going_on,
    note_gaps,
)

from ...stores import unpack


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of the log."""
    return unpack("5.3.3-clean", tmp_path_factory.mktemp("context"))


GAPS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=8)


@given(GAPS, st.integers(0, 8))
def test_gaps_that_go_on_at_a_seam_are_one(steps: list[tuple[int, int]], seam: int) -> None:
    """Wherever the rows of messages without a unit are cut in two, and inside of a row as well."""
    rows, offset = list[tuple[int, int, int, int]](), 0
    for between, count in steps:
        first = offset + between + bool(rows)
        rows.append((first, count, 100 * first, 100 * (first + count)))
        offset = first + count
    whole = [number for row in rows for number in row]
    at = min(seam, len(rows))
    front, behind = rows[:at], rows[at:]
    if behind and behind[0][1] > 1:  # and in the middle of a row
        first, count, position, end = behind[0]
        front = [*front, (first, 1, position, position + 100)]
        behind = [(first + 1, count - 1, position + 100, end), *behind[1:]]
    gaps = array("q", [number for row in front for number in row])
    note_gaps(gaps, [number for row in behind for number in row])
    assert gaps.tolist() == whole


def test_facts_of_a_part_behind() -> None:
    queue, other = QueueId("t", 0), QueueId("t", 1)
    facts = LogFacts(
        *(0, 500, 5, 30), bytes=500, dispatched=400, first_offset={queue: 3}, next_offset={queue: 8}, last=[300, 400]
    )
    behind = LogFacts(
        *(500, 900, 4, 20),
        bytes=400,
        dispatched=300,
        first_offset={queue: 9, other: 0},
        next_offset={queue: 10, other: 2},
        last=[700, 800],
        last_timestamp=19,
        missing={other: array("q", [0, 1, 500, 600])},
    )
    facts.merge(behind)
    assert (facts.start, facts.end, facts.records, facts.bytes) == (0, 900, 9, 900)
    assert (facts.newest, facts.dispatched) == (30, 400)
    assert (facts.first_offset, facts.next_offset) == ({queue: 3, other: 0}, {queue: 10, other: 2})
    assert facts.last[-2:] == [700, 800] and facts.last_timestamp == 19
    assert facts.missing == behind.missing


def test_a_run_that_goes_on_keeps_what_was_seen_and_changes_nothing_of_it() -> None:
    queue = QueueId("t", 0)
    before = LogFacts(end=900, records=9, first_offset={queue: 3}, stopped_at=900, missing={queue: array("q")})
    facts = before.going_on(100)
    assert (facts.start, facts.end, facts.records, facts.stopped_at) == (100, 900, 9, None)
    assert facts.complete and not before.complete
    facts.first_offset[queue] = 7
    facts.missing[queue].append(1)
    assert before.first_offset == {queue: 3} and not before.missing[queue]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), max_size=6), st.lists(st.integers(0, 70)))
def test_covered(ranges: list[tuple[int, int]], asked: list[int]) -> None:
    """What a part has been at is added to what was seen in front of it."""
    front, behind = Covered(), Covered()
    begin, wanted = 0, set[int]()
    for number, (between, size) in enumerate(ranges):
        begin += between
        (front if number < len(ranges) // 2 else behind).add(begin, begin + size)
        wanted |= set(range(begin, begin + size))
        begin += size
    front.merge(None, behind)  # type: ignore[arg-type]
    assert front.has(np.array(asked, np.int64)).tolist() == [position in wanted for position in asked]


def test_places_of_the_log(root: Path) -> None:
    with StoreReader(root) as store:
        context = VerifyContext(store, Scope())
        for file in store.log_files.files:
            assert context.place(file.start + 7) == (file.path, 7)
        beyond = store.log_files.end
        assert context.place(beyond) == (str(root / "commitlog"), beyond)
        context.gone.add_range(10, 20)
        context.gone.add_range(40, 41)
        positions = np.array([9, 10, 19, 20, 40, 41])
        assert context.gone.has(positions).tolist() == [False, True, True, False, True, False]


def test_where_no_group_is_nothing_of_groups_is_imported(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mqstore.store.plan.observer", None)  # whoever imports it fails
    with StoreReader(root) as store:
        assert VerifyContext(store, Scope()).uncommitted is None


def test_why_a_run_ends(root: Path) -> None:
    with StoreReader(root) as store:
        assert VerifyContext(store, Scope()).stopped() == ""
        assert VerifyContext(store, Scope(), asked_to_stop=lambda: True).stopped() == "interrupted"
        late = VerifyContext(store, Scope(max_duration_s=0))
        assert late.stopped() == "--max-duration is over"
        once = iter([1])
        assert [late.kept("key", lambda: next(once)) for _ in range(2)] == [1, 1]
        assert late.states() == {"key": 1}


def test_a_check_that_meets_bytes_that_cannot_be_read_is_left_out(root: Path) -> None:
    """The others go on; which codes were not checked to the end is kept."""
    called: list[tuple[str, int]] = []

    def good(_: VerifyContext, item: int) -> None:
        called.append(("good", item))

    def bad(_: VerifyContext, item: int) -> None:
        called.append(("bad", item))
        raise UnreadableRange("cannot read", path="f", offset=3, length=5, reason="EIO")

    with StoreReader(root) as store, noting():
        context = VerifyContext(store, Scope())
        every = RepeatedChecks(context, {good: ["I-099"], bad: ["I-100", "I-101"]})
        for item in range(2):
            every(item)
        assert called == [("good", 0), ("bad", 0), ("good", 1)]
        with going_on(context, ["I-090"]):
            raise UnreadableRange("cannot read", path="f", offset=3, length=5, reason="EIO")
        assert ended(context) == {"cannot read f": {"I-090", "I-100", "I-101"}}
