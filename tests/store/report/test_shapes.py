"""Tiles are as large as what they stand for, and fill the picture."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.store.report.figures import _range, _runs, _step_text
from mqstore.store.report.shapes import squarified

SIZES = st.lists(st.integers(1, 1 << 40), min_size=1, max_size=41).map(lambda sizes: sorted(sizes, reverse=True))


@given(SIZES)
def test_a_tree_map_has_the_areas_of_its_sizes(sizes: list[int]) -> None:
    tiles = squarified(sizes, 640, 300)
    assert len(tiles) == len(sizes)
    for size, (x, y, width, height) in zip(sizes, tiles, strict=True):
        assert width * height == pytest.approx(640 * 300 * size / sum(sizes), rel=1e-6, abs=1e-6)
        assert x >= -1e-6 and x + width <= 640 + 1e-6
        assert y >= -1e-6 and y + height <= 300 + 1e-6


@given(SIZES)
def test_tiles_do_not_overlap(sizes: list[int]) -> None:
    for (x, y, w, h), (i, j, k, m) in combinations(squarified(sizes, 640, 300), 2):
        across = min(x + w, i + k) - max(x, i)
        down = min(y + h, j + m) - max(y, j)
        assert across <= 1e-6 or down <= 1e-6


def test_of_nothing_there_is_no_tile() -> None:
    assert squarified([], 640, 300) == [] and squarified([0, 0], 640, 300) == []


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
    assert told == [
        *("a second", "10 seconds", "a minute", "10 minutes"),
        *("an hour", "a day", "a week", "4 weeks"),
    ]
