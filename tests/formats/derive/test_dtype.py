"""dtype_of against construct, and the sizes that the specification states."""

from __future__ import annotations

from typing import Any

import construct as c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.formats import (
    batch_consume_queue,
    blank,
    checkpoint,
    commit_log,
    consume_queue,
    dledger,
    index_file,
    lock,
    timer_check,
    timer_log,
    timer_wheel,
)
from mqstore.formats.derive import decode, dtype_of, encode, minimum_bytes, offset_of
from mqstore.formats.derive.layout import UnsupportedSchema
from mqstore.formats.message_id import MESSAGE_ID_V4, MESSAGE_ID_V6, UNIQUE_KEY_V4, UNIQUE_KEY_V6
from tests.slices import examples

from .schemas import FIXED_SCHEMAS, SCHEMAS, flat

IDS = {
    "message id": MESSAGE_ID_V4,
    "message id v6": MESSAGE_ID_V6,
    "unique key": UNIQUE_KEY_V4,
    "unique key v6": UNIQUE_KEY_V6,
    "nested": c.Struct("a" / c.Struct("b" / c.Int16sl, c.Padding(2), "c" / c.Bytes(3))),
}
FIXED = FIXED_SCHEMAS | IDS

#: Bytes by the specification: 1.5, 1.8, 1.13, 2.1, 2.6, 2.7, 3.1, 4.1, 4.5, 4.6, 4.7.
SIZES = [
    (blank.BLANK, 8),
    (commit_log.HEAD, 8),
    (dledger.BLANK, 8),
    (consume_queue.UNIT, 20),
    (batch_consume_queue.UNIT, 46),
    (index_file.HEADER, 40),
    (index_file.SLOT, 4),
    (index_file.ITEM, 20),
    (checkpoint.FIELDS, 48),
    (checkpoint.CHECKPOINT, 4096),
    (lock.LOCK, 4),
    (timer_log.UNIT, 52),
    (timer_log.BLANK, 16),
    (timer_wheel.SLOT, 32),
    (timer_check.FIELDS, 56),
    (timer_check.TIMER_CHECK, 4096),
    (MESSAGE_ID_V4, 16),
    (MESSAGE_ID_V6, 28),
    (UNIQUE_KEY_V4, 16),
    (UNIQUE_KEY_V6, 28),
]


@pytest.mark.parametrize(("schema", "size"), SIZES)
def test_sizes(schema: c.Construct[Any, Any], size: int) -> None:
    assert schema.sizeof() == size
    assert dtype_of(schema).itemsize == size
    assert minimum_bytes(schema) == size


@pytest.mark.parametrize("schema", FIXED.values(), ids=FIXED)
@given(data=st.data())
@settings(max_examples=examples(15))
def test_dtype_reads_and_writes_what_construct_does(schema: c.Construct[Any, Any], data: st.DataObject) -> None:
    size = schema.sizeof()
    if size > 1000:
        used = data.draw(st.binary(min_size=100, max_size=100))
        raw = used.ljust(size, b"\0")
    else:
        raw = data.draw(st.binary(min_size=2 * size, max_size=2 * size))
    dtype = dtype_of(schema)
    assert dtype.itemsize == size
    if not size:
        return
    records = np.frombuffer(raw, dtype)
    columns = decode(schema, np.frombuffer(raw, np.uint8), np.arange(len(records)) * size)
    for i, record in enumerate(records):
        fields = flat(schema.parse(raw[i * size : (i + 1) * size]))
        assert set(dtype.names or ()) == set(fields) == set(columns)
        for path, value in fields.items():
            seen = record[path].tobytes() if isinstance(value, bytes) else record[path].tolist()
            assert seen == value
            column = columns[path][i]
            assert (column if isinstance(value, bytes) else column.tolist()) == value  # type: ignore[union-attr]
            assert dtype.fields is not None
            assert dtype.fields[path][1] == offset_of(schema, path)
    assert len(encode(schema, columns).buffer) == len(records) * size


def test_fields_keep_their_byte_order() -> None:
    dtype = dtype_of(c.Struct("a" / c.Int32sl, "b" / c.Int32sb))
    assert (dtype["a"].str, dtype["b"].str) == ("<i4", ">i4")


@pytest.mark.parametrize("name", sorted(SCHEMAS.keys() - FIXED_SCHEMAS.keys()))
def test_other_schemas_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedSchema):
        dtype_of(SCHEMAS[name])
