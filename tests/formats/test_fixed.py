"""numbers_of against construct."""

from __future__ import annotations

from typing import Any

import construct as c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats import checkpoint, consume_queue, index_file, timer_check, timer_wheel
from mqstore.formats.fixed import numbers_of, tuple_of
from mqstore.store.disk.checkpoint import Checkpoint, TimerCheck
from mqstore.store.index.read import Header, Item
from mqstore.store.timer.wheel import Slot

SCHEMAS = [consume_queue.UNIT, index_file.HEADER, index_file.SLOT, index_file.ITEM, timer_wheel.SLOT]


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
    ("kind", "schema"),
    [
        (Checkpoint, checkpoint.FIELDS),
        (TimerCheck, timer_check.FIELDS),
        (Header, index_file.HEADER),
        (Item, index_file.ITEM),
        (Slot, timer_wheel.SLOT),
    ],
)
def test_named_tuples_have_the_fields_of_their_schema(kind: Any, schema: c.Struct) -> None:
    """In its order; what a file lacks of them is zero."""
    assert kind._fields == tuple(member.name for member in schema.subcons)
    numbers = tuple(range(1, len(kind._fields) + 1))
    raw = numbers_of(schema).pack(*numbers)
    assert tuple_of(kind, schema, raw + b"more") == kind(*numbers)
    size = numbers_of(c.Struct(*schema.subcons[:2])).size
    assert tuple_of(kind, schema, raw[:size]) == (1, 2, *[0] * (len(numbers) - 2))


@pytest.mark.parametrize("schema", [c.Struct("a" / c.Int32sb, "b" / c.Int32sl), c.Struct("a" / c.Bytes(3)), c.Struct()])
def test_refuses_other_schemas(schema: c.Struct) -> None:
    with pytest.raises(TypeError):
        numbers_of(schema)
