"""What a schema is made of: smallest records, places of fields, and what is refused."""

from __future__ import annotations

from typing import Any

import construct as c
import numpy as np
import pytest

from mqstore.formats import consume_queue_ext, dledger, message
from mqstore.formats.derive import Ragged, decode, dtype_of, encode, minimum_bytes, offset_of
from mqstore.formats.derive.layout import UnsupportedSchema

from .schemas import ARRAYS, NESTED, NOTHING


def test_smallest_records() -> None:
    assert minimum_bytes(message.MESSAGE) == message.SMALLEST == 91
    assert minimum_bytes(dledger.ENTRY) == dledger.HEADER_BYTES
    assert minimum_bytes(consume_queue_ext.UNIT) == consume_queue_ext.UNIT_BYTES_MIN


@pytest.mark.parametrize(
    "schema",
    [
        c.Struct("a" / c.Const(b"x")),
        c.Struct("a" / c.Aligned(4, c.Int8ub)),
        c.Struct("a" / c.VarInt),
        c.Struct("a" / c.Prefixed(c.VarInt, c.GreedyBytes)),
        c.Struct("a" / c.Prefixed(c.Int8ub, c.Struct("b" / c.Int8ub))),
        c.Struct("a" / c.Prefixed(c.Int8ub, c.Compressed(c.GreedyBytes, "zlib"))),
        c.Struct("a" / c.Array(c.this.n, c.Int8ub)),
        c.Struct("a" / c.Array(2, c.Struct("b" / c.Int8ub))),
        c.Struct("a" / c.Int8ub, c.Check(c.this.a == 1)),
        c.Struct("a" / c.GreedyRange(c.Int8ub)),
        c.Struct("a" / c.Pointer(0, c.Int8ub)),
        c.Struct("a" / c.Peek(c.Int8ub)),
        c.Struct("a" / c.NullTerminated(c.GreedyBytes)),
        c.Sequence(c.Int8ub, c.Int8ub),
    ],
    ids=str,
)
def test_what_cannot_be_derived_is_refused(schema: c.Construct[Any, Any]) -> None:
    """Better no answer than one that differs from construct's."""
    for derive in (dtype_of, minimum_bytes):
        with pytest.raises(UnsupportedSchema):
            derive(schema)
    with pytest.raises(UnsupportedSchema):
        decode(schema, np.zeros(9, np.uint8), np.zeros(1, np.int64))
    with pytest.raises(UnsupportedSchema):
        encode(schema, {"a": Ragged.of([b""])})


def test_offsets() -> None:
    assert offset_of(message.MESSAGE, "sys_flag") == 36
    assert offset_of(dledger.ENTRY, "body") == 48
    assert offset_of(ARRAYS, "cells") == 1
    for path in ("body", "nonsense", "store_timestamp"):
        with pytest.raises((KeyError, UnsupportedSchema)):
            offset_of(message.MESSAGE, path)
    assert minimum_bytes(NESTED) == 1 + 2 + 2 + 3 + 1
    assert minimum_bytes(NOTHING) == 0
