"""Message ids of whole columns as one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.derive import Ragged
from mqstore.formats.id_columns import message_id_column
from mqstore.formats.quick import message_id

IPS = st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16))


PORTS = st.integers(-(2**31), 2**31 - 1)


OFFSETS = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.tuples(IPS, PORTS, OFFSETS), max_size=8))
def test_columns(rows: list[tuple[bytes, int, int]]) -> None:
    rows = [*rows, *rows[:2]]
    ip = Ragged.of([row[0] for row in rows])
    port = np.array([row[1] for row in rows], np.int32)
    offset = np.array([row[2] for row in rows], np.int64)
    assert message_id_column(ip, port, offset).tolist() == [message_id(*row).encode() for row in rows]
