"""numbers_of against construct."""

from __future__ import annotations

import construct as c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats import consume_queue, index_file, timer_wheel
from mqstore.formats.fixed import numbers_of

SCHEMAS = [
    consume_queue.UNIT,
    index_file.HEADER,
    index_file.SLOT,
    index_file.ITEM,
    timer_wheel.SLOT,
]


@pytest.mark.parametrize("schema", SCHEMAS)
@given(data=st.data())
def test_reads_and_writes_what_construct_does(schema: c.Struct, data: st.DataObject) -> None:
    size = schema.sizeof()
    assert numbers_of(schema).size == size
    raw = data.draw(st.binary(min_size=size, max_size=size))
    parsed = schema.parse(raw)
    values = numbers_of(schema).unpack(raw)
    assert dict(zip((m.name for m in schema.subcons), values, strict=True)) == {
        name: value for name, value in parsed.items() if not name.startswith("_")
    }
    assert numbers_of(schema).pack(*values) == raw


@pytest.mark.parametrize(
    "schema",
    [c.Struct("a" / c.Int32sb, "b" / c.Int32sl), c.Struct("a" / c.Bytes(3)), c.Struct()],
)
def test_refuses_other_schemas(schema: c.Struct) -> None:
    with pytest.raises(TypeError):
        numbers_of(schema)
