"""A schema as plain steps."""

from __future__ import annotations

import construct as c
import pytest

from mqstore.formats.derive.layout import UnsupportedSchema
from mqstore.formats.derive.steps import steps_of


@pytest.mark.parametrize(
    "schema",
    [
        c.Struct("a" / c.Int32sl),
        c.Struct("a" / c.Array(3, c.Int8ub)),
        c.Struct("a" / c.Prefixed(c.Int8ub, c.GreedyBytes)),
        c.Struct("a" / c.Int8ub, "b" / c.Bytes(c.this.a * 2)),
        c.Struct("a" / c.Int8ub, "b" / c.IfThenElse(c.this.a > 2, c.Int8ub, c.Int16ub)),
    ],
)
def test_what_has_no_plain_steps_is_refused(schema: c.Struct) -> None:
    with pytest.raises(UnsupportedSchema):
        steps_of(schema)


def test_padding_and_nested_names() -> None:
    schema = c.Struct("a" / c.Int16ub, c.Padding(2), "n" / c.Struct("b" / c.Int8sb, "c" / c.Bytes(3)))
    assert steps_of(schema) == (("fields", ">H2xb3s", ("a", "n.b", "n.c")),)
