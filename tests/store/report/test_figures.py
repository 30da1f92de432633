"""Figures of a report: rows painted in runs, ranges of times, names of steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.store.findings.next_commands import Given
from mqstore.store.report.figures import TopicRanking, _range, _runs, _step_text, queue_spans
from mqstore.store.report.gather import look
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.context import Scope


@given(st.lists(st.sampled_from(["", "a", "b"])))
def test_runs_are_the_row(looks: list[str]) -> None:
    painted = [""] * len(looks)
    for begin, end in _runs(looks):
        painted[begin:end] = [looks[begin]] * (end - begin)
    assert painted == looks


def test_a_wrong_clock_does_not_hide_the_others() -> None:
    """One record of 10,000 that says 1970 is left out, and counted."""
    import numpy as np

    cells = np.array([0, 1_700_000_000, 1_700_000_005], np.int64)
    records = np.array([1, 9_000, 999], np.int64)
    assert _range(cells, records) == (1_700_000_000, 1_700_000_005, 1)


def test_steps_have_names() -> None:
    told = [_step_text(seconds) for seconds in (1, 10, 60, 600, 3600, 86400, 604800, 2419200)]
    assert told == [*("a second", "10 seconds", "a minute", "10 minutes"), *("an hour", "a day", "a week", "4 weeks")]


@pytest.mark.parametrize(
    ("name", "without", "line"),
    [
        ("5.3.3-lmq", 3, ("%LMQ%a/0", "0", "0", "", "", "0", "68", "74,900")),
        ("5.3.3-killed-hole", 7, ("later/1", "0", "0", "", "", "0", "0", "")),
        ("5.3.3-clean", 0, None),
    ],
)
def test_queues_without_a_record_are_there(
    name: str, without: int, line: tuple[str, ...] | None, store: Callable[[str], Path]
) -> None:
    """Those whose messages are all lost, and those that live of units only."""
    with StoreReader(store(name)) as opened:
        seen = look(opened, Scope(), Given(), now_ms=0)
    found = queue_spans(seen, TopicRanking(seen.picture))
    names = [row[0] for row in found.table.rows]
    assert len(names) == len(set(names)) and set(names) == {f"{topic}/{queue_id}" for topic, queue_id in seen.queues}
    assert sum(row[1] == "0" for row in found.table.rows) == without
    assert line is None or line in found.table.rows
    assert found.note == (f"Without a record of their own in the log: {without} queues." if without else "")
