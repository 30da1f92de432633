"""Tiles are as large as what they stand for, and fill the picture."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
