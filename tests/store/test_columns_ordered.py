"""The order of pairs of numbers: messages of many queues, queue by queue, each queue's in log order."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mqstore.store.columns import order_of_pairs

_KEYS = st.tuples(st.integers(0, 300), st.sampled_from([0, 1, 7, 255, 70_000, (1 << 32) - 1]))


@given(st.lists(_KEYS, min_size=1, max_size=50))
def test_few_queues_or_many(keys: list[tuple[int, int]]) -> None:
    topics, queues = np.array(keys, np.int64).T
    expected = sorted(range(len(keys)), key=lambda row: keys[row])
    assert order_of_pairs(topics, queues).tolist() == expected
