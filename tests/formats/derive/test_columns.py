"""Columns of decoded records: some of them, their kinds, and fields that are not there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.formats.derive import Ragged, decode
from mqstore.formats.message import MESSAGE
from tests.slices import examples

from .schemas import records
from .test_decode import message


@given(drawn=st.lists(records(MESSAGE), min_size=1, max_size=5), data=st.data())
@settings(max_examples=examples(15))
def test_take_keeps_all_columns(drawn: list[bytes], data: st.DataObject) -> None:
    """By slice, mask and index, before and after the columns were looked at."""
    starts = np.cumsum([0, *map(len, drawn[:-1])])
    buffer = np.frombuffer(b"".join(drawn), np.uint8)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(drawn), max_size=len(drawn))))
    for key in (slice(1, None), mask, np.flatnonzero(mask)[::-1]):
        whole = decode(MESSAGE, buffer, starts)
        fresh = whole.take(key)
        for path in whole:
            expected = whole[path][key]
            found, seen = fresh[path], whole.take(key)[path]
            if isinstance(expected, Ragged):
                assert isinstance(found, Ragged)
                assert isinstance(seen, Ragged)
                assert found.tolist() == seen.tolist() == expected.tolist()
            else:
                assert found.tolist() == seen.tolist() == expected.tolist()
        assert fresh.starts.tolist() == whole.starts[key].tolist()
        assert fresh.ends.tolist() == whole.ends[key].tolist()


def test_kind_of_a_column_is_checked() -> None:
    columns = decode(MESSAGE, np.frombuffer(message(), np.uint8), np.zeros(1, np.int64))
    assert columns.ints("total_size")[0] == 91
    assert columns.ragged("body")[0] == b""
    with pytest.raises(TypeError, match="body"):
        columns.ints("body")
    with pytest.raises(TypeError, match="flag"):
        columns.ragged("flag")
    with pytest.raises(KeyError):
        columns.ints("nonsense")
    assert not columns.present("nonsense")[0]
    assert columns.ints("flag").dtype.isnative
