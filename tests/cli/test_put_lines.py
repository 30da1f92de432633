"""Answers made of columns are those of the messages one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.cli.json_text import line_of
from mqstore.cli.put_lines import lines_of
from mqstore.cli.put_target import answers_of
from mqstore.formats import kernel
from mqstore.store.put.bulk import StoredColumns

TEXTS = st.one_of(
    st.sampled_from(
        [
            b"",
            b"UNIQ_KEY\x01k\x02",
            b"UNIQ_KEY\x01a\x02UNIQ_KEY\x01b\x02UNIQ_KEY\x01\x02",
            b"UNIQ_KEY\x01\xff\x02",
            b"TAGS\x01UNIQ_KEY\x02UNIQ_KEY\x01a\x01b",
            "UNIQ_KEY\x01\u202e\x02".encode(),
            b'UNIQ_KEY\x01"\\\n\x7f\x02',
        ]
    ),
    st.binary(max_size=12).map(lambda value: b"UNIQ_KEY\x01" + value + b"\x02"),
)
NUMBERS = st.integers(-(2**40), 2**40)


@pytest.mark.parametrize("native", [True, False])
@given(st.lists(st.tuples(TEXTS, NUMBERS), min_size=4, max_size=9), st.text(max_size=5))
def test_answers_of_any_properties(native: bool, rows: list[tuple[bytes, int]], topic: str) -> None:
    rows = [*rows, *[(b"UNIQ_KEY\x01k\x02", 1)] * 30]
    numbers = np.array([number for _, number in rows], np.int64)
    stored = StoredColumns(
        [topic, "other"], np.arange(len(rows)) % 2, *(numbers, numbers, numbers, numbers), (b"\x7f\0\0\1", 10911)
    )
    properties = [text for text, _ in rows]
    with pytest.MonkeyPatch.context() as patch:
        if not native:
            patch.setattr(kernel, "is_wanted", lambda rows=0: False)
        found = lines_of(stored, properties)
        shown = [bytes(one) if isinstance(one, memoryview) else line_of(one) for one in found]
    expected = b"".join(map(line_of, answers_of(stored.rows(), properties)))
    assert b"".join(shown) == expected
