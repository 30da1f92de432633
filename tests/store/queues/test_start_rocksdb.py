"""Units that a start puts on top of a database: the later one of a number counts, however they came."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.store.broker.snapshot import QueueId
from mqstore.store.disk import temporary
from mqstore.store.queues import start_rocksdb
from mqstore.store.queues.start_rocksdb import DatabaseState, Queued
from mqstore.store.queues.units import UNIT_DTYPE

from ...slices import examples

QUEUE = QueueId("orders", 0)
SIZE = 100


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some are joined, and some go to the file."""
    monkeypatch.setattr(start_rocksdb, "_BATCHES_MAX", 3)
    monkeypatch.setattr(temporary, "_IN_MEMORY_BYTES", 200)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), max_size=8)))
def test_what_was_committed_is_what_is_read(commits: list[list[list[int]]]) -> None:
    state, position, wanted = DatabaseState(None), 0, dict[int, int]()
    last = None
    for batches in commits:
        for numbers in batches:
            units = np.zeros(len(numbers), UNIT_DTYPE)
            units["physical_offset"] = position + SIZE * np.arange(len(numbers))
            units["size"] = SIZE
            wanted |= zip(numbers, units["physical_offset"].tolist(), strict=True)
            position += SIZE * len(numbers)
            last = numbers[-1]
            state.dispatch([Queued(QUEUE, np.array(numbers), units)], position, position)
        state.commit()
        found = state.read(QUEUE, 0, 32)["physical_offset"].tolist()
        assert found == [wanted.get(number, 0) for number in range(32)]
        assert state.row == position
        assert state.max_offset(QUEUE) == (0 if last is None else last + 1)


def test_a_batch_without_units_moves_the_row() -> None:
    state = DatabaseState(None)
    state.dispatch([], 500, 500)
    state.commit()
    assert (state.row, state.wrote, state.queues) == (500, True, [])


@pytest.mark.parametrize(("between", "hidden"), [(1, [100, 200]), (250, [100, 200]), (400, [])])
def test_units_of_one_batch_are_written_from_its_end(between: int, hidden: list[int]) -> None:
    """Those of earlier records stay, where fewer than 256 records lie between two with one number (B46)."""
    state, position = DatabaseState(None), SIZE * np.arange(1, between + 6)
    units = np.zeros(between + 5, UNIT_DTYPE)
    units["physical_offset"], units["size"] = position, SIZE
    mine, other = np.r_[:2, between + 2 : between + 5], slice(2, between + 2)
    state.note(position)
    queued = [Queued(QUEUE, np.array([0, 1, 0, 1, 2]), units[mine])]
    queued.append(Queued(QueueId("others", 0), np.arange(between), units[other]))
    state.dispatch(queued, int(position[-1]) + SIZE, int(position[-1]))
    state.commit()
    assert state.can_keep_earlier(QUEUE.__eq__) is bool(hidden)
    later = position[-3:].tolist()
    assert state.read(QUEUE, 0, 3)["physical_offset"].tolist() == later
    state.earlier_stay = True
    assert state.read(QUEUE, 0, 3)["physical_offset"].tolist() == hidden + later[len(hidden) :]
