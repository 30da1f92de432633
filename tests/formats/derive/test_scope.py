"""What an expression of a schema sees: members by name, structs inside and around."""

from __future__ import annotations

import construct as c
import pytest

from mqstore.formats.derive.scope import ExpressionScope

VALUES = {"length": 1, "head.flags": 2, "head.host.port": 3, "inner.text": 4}


def scope(prefix: str = "") -> ExpressionScope:
    return ExpressionScope(VALUES.__getitem__, prefix)


@pytest.mark.parametrize(
    ("prefix", "expression", "value"),
    [
        ("", c.this.length, 1),
        ("", c.this.head.flags, 2),
        ("", c.this.head.host.port, 3),
        ("head.", c.this.flags, 2),
        ("head.", c.this.host.port, 3),
        ("head.", c.this._.length, 1),
        ("head.host.", c.this._.flags, 2),
        ("head.host.", c.this._._.length, 1),
        ("head.host.", c.this._._.inner.text, 4),
        ("inner.", c.this._.head.flags & 2, 2),
        ("", c.this.length + c.this.head.flags, 3),
    ],
)
def test_expressions_of_construct(prefix: str, expression: object, value: int) -> None:
    """Attributes and items are the same."""
    assert callable(expression)
    assert expression(scope(prefix)) == value


def test_functions_that_look_by_attribute() -> None:
    assert scope().head.host["port"] == 3
    assert scope("head.")._.length == 1


def test_what_python_asks_for_is_no_member() -> None:
    """Or a copy of a scope, and numpy, would take every name for a struct."""
    assert not hasattr(scope(), "__array__")
    assert not hasattr(scope(), "__deepcopy__")
