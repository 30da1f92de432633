"""What schemas are made of: sizes that are worked out, hosts."""

from __future__ import annotations

import construct as c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.derive import Ragged, encode
from mqstore.formats.primitives import HOST_V4, HOST_V6, length_of, rebuild_of, record_size, record_size_field, size_

SIZED = c.Struct(
    "total" / record_size_field(c.Int32ub) * "all of it",
    "first_length" / c.Rebuild(c.Int8ub, size_(c.this.first)),
    "first" / c.Bytes(c.this.first_length),
    "kind" / c.Int8ub,
    "second_length" / c.Rebuild(c.Int16ub, size_(c.this.second)),
    "second" / c.Bytes(c.this.second_length),
)
ROWS = st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=40)), min_size=1, max_size=5)


@given(ROWS)
def test_lengths_and_sizes_follow_from_the_strings(rows: list[tuple[bytes, bytes]]) -> None:
    """Of one record, and of columns."""
    built = [SIZED.build({"first": first, "kind": 7, "second": second}) for first, second in rows]
    for data, (first, second) in zip(built, rows, strict=True):
        parsed = SIZED.parse(data)
        assert parsed.total == len(data) == 8 + len(first) + len(second)
        assert (parsed.first, parsed.second) == (first, second)
    columns = {name: Ragged.of([row[at] for row in rows]) for at, name in enumerate(("first", "second"))}
    assert encode(SIZED, {**columns, "kind": np.full(len(rows), 7)}).buffer.tobytes() == b"".join(built)


def test_lengths_of_a_value_and_of_a_column() -> None:
    assert length_of(b"abc") == 3
    assert length_of(Ragged.of([b"abc", b"", None])).tolist() == [3, 0, -1]


def test_rebuilds_are_found_inside_of_what_is_around_them() -> None:
    found = rebuild_of(SIZED.total)
    assert found is not None and found.func is record_size
    assert rebuild_of(SIZED.first) is None and rebuild_of(SIZED.kind) is None


@pytest.mark.parametrize(
    ("schema", "ip", "data"),
    [(HOST_V4, bytes([127, 0, 0, 1]), "7f00000100002a9f"), (HOST_V6, bytes(15) + b"\1", "00" * 15 + "0100002a9f")],
)
def test_hosts(schema: c.Struct, ip: bytes, data: str) -> None:
    """The port has four bytes (spec 1.2)."""
    assert schema.build({"ip": ip, "port": 10911}).hex() == data
