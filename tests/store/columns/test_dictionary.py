"""Topics are told apart by their bytes, wherever they stand in a buffer."""

from __future__ import annotations

import os

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.derive import Ragged
from mqstore.store.columns.dictionary import KnownTopics
from mqstore.store.disk.workers import Forked

NAMES = st.lists(st.binary(min_size=1, max_size=40), unique=True, min_size=1, max_size=8)


@given(NAMES, st.lists(st.integers(0, 7), max_size=30), st.integers(0, 60))
def test_numbers_are_those_of_the_names(names: list[bytes], rows: list[int], slack: int) -> None:
    chosen = [row % len(names) for row in rows]
    column = Ragged.of([names[row] for row in chosen])
    buffer = np.concatenate([column.buffer, np.full(slack, 0xFF, np.uint8)])
    found = KnownTopics(names).numbers(Ragged(buffer, column.start, column.length))
    assert found is not None
    assert found.tolist() == chosen


@given(NAMES, st.binary(max_size=300), st.integers(0, 60))
def test_another_name_is_none_of_them(names: list[bytes], other: bytes, slack: int) -> None:
    if other in names:
        return
    column = Ragged.of([names[0], other, names[-1]])
    buffer = np.concatenate([column.buffer, np.zeros(slack, np.uint8)])
    assert KnownTopics(names).numbers(Ragged(buffer, column.start, column.length)) is None


def test_a_name_that_goes_on_with_zeros_is_another() -> None:
    column = Ragged.of([b"Topic\0", b"Topic", bytes(64)])
    assert KnownTopics([b"Topic"]).numbers(column[:2]) is None
    assert KnownTopics([b"Topic", b"Topic\0"]).numbers(column[:2]).tolist() == [1, 0]  # type: ignore[union-attr]


def test_work_in_a_child_comes_back() -> None:
    with Forked(lambda: [os.getpid()]) as child:
        found = child.result()
    assert found is not None and found != [os.getpid()]


def test_a_child_that_fails_has_no_result() -> None:
    def fails() -> None:
        raise ValueError

    with Forked(fails) as child:
        assert child.result() is None


def test_a_child_that_nobody_waits_for_is_gone() -> None:
    with Forked(lambda: os.read(os.pipe()[0], 1)) as child:
        pid = child.pid
    assert pid
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return
    raise AssertionError("the child lives on")
