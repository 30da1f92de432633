"""Topics are told apart by their bytes, wherever they stand in a buffer."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats import kernel
from mqstore.formats.derive import Ragged
from mqstore.store.columns import dictionary
from mqstore.store.disk.workers import Forked

TEXTS = st.lists(st.one_of(st.binary(max_size=3), st.binary(max_size=40)), max_size=40)


@pytest.mark.parametrize("engine", ["native", "numpy"])
@given(TEXTS, st.integers(0, 60))
def test_texts_are_told_apart_by_their_bytes(engine: str, texts: list[bytes], slack: int) -> None:
    column = Ragged.of(texts)
    buffer = np.concatenate([column.buffer, np.zeros(slack, np.uint8)])
    with pytest.MonkeyPatch.context() as patch:
        if engine == "numpy":
            patch.setattr(kernel, "is_wanted", lambda rows=0: False)
        found = dictionary(Ragged(buffer, column.start, column.length))
    assert found.values == list(dict.fromkeys(texts))
    assert [found.values[number] for number in found.ids.tolist()] == texts


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
