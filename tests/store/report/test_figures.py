"""Figures of a report: rows painted in runs, ranges of times, names of steps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mqstore.store.report.figures import _range, _runs, _step_text


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
