"""The tree of an expression, and what a broker refuses to build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from . import filter_values
from .filter_values import Long, Operator, Value

DEPTH_MAX = 200
"""Levels of nesting; a broker's stack bears some more."""


class Refused(ValueError):
    """What a broker refuses though the grammar allows it."""


@dataclass(frozen=True)
class Constant:
    """A literal."""

    value: Value
    depth = 1

    @property
    def boolean(self) -> bool:
        """TRUE, FALSE, NULL."""
        return self.value is None or isinstance(self.value, bool)


@dataclass(frozen=True)
class Name:
    """A property, or with `field` a field of the record."""

    name: str
    field: bool = False
    depth = 1
    boolean = False


@dataclass(frozen=True, eq=False)
class Apply:
    """An operator and what it is applied to; of more than two from left to right, in pairs."""

    operator: Operator
    operands: tuple[Node, ...]
    boolean: bool
    depth: int


Node: TypeAlias = Constant | Name | Apply


def apply(operator: Operator, *operands: Node, boolean: bool = True) -> Apply:
    """A node over others. Raises Refused where they are nested too deep."""
    depth = 1 + max(operand.depth for operand in operands)
    if depth > DEPTH_MAX:
        raise Refused(f"nested deeper than {DEPTH_MAX} levels")
    return Apply(operator, operands, boolean, depth)


def condition(node: Node) -> Node:
    """The node where a condition is needed. Raises Refused for literals and negated numbers."""
    if node.boolean:
        return node
    if isinstance(node, Name):
        return apply(filter_values.boolean, node)
    raise Refused("a value stands where a condition is needed")


def ordered(operator: Operator, left: Node, right: Node) -> Node:
    """`<` and its kin: only numbers, properties and what is negated. Raises Refused."""
    for node in (left, right):
        if isinstance(node, Constant):
            number = not node.boolean and not isinstance(node.value, str)
        else:
            number = not node.boolean
        if not number:
            raise Refused("<, <=, > and >= compare numbers and properties only")
    return apply(operator, left, right)


def equality(left: Node, right: Node) -> Node:
    """`=`. Raises Refused for NULL, and for TRUE or FALSE before another kind of literal."""
    constants = [node for node in (left, right) if isinstance(node, Constant)]
    if any(node.value is None for node in constants):
        raise Refused("nothing compares with NULL: say IS NULL or IS NOT NULL")
    if len(constants) == 2 and left.boolean and not right.boolean:
        raise Refused("TRUE and FALSE do not compare with other literals")
    return apply(filter_values.equal, left, right)


def between(value: Node, low: Node, high: Node) -> Node:
    """`BETWEEN`: both bounds belong to it. Raises Refused for literals in the wrong order."""
    if isinstance(low, Constant) and isinstance(high, Constant):
        if low.value is None or high.value is None:
            raise Refused("NULL is no bound of BETWEEN")
        order = filter_values.compare(high.value, low.value)
        if order is None:
            raise Refused("a broker cannot compare the bounds of BETWEEN with each other")
        if order < 0:
            raise Refused("the bounds of BETWEEN are in the wrong order")
    above = ordered(filter_values.greater_or_equal, value, low)
    below = ordered(filter_values.less_or_equal, value, high)
    return apply(filter_values.logical_and, above, below)


def not_between(value: Node, low: Node, high: Node) -> Node:
    """`NOT BETWEEN`: the bounds may be in any order."""
    below = ordered(filter_values.less, value, low)
    above = ordered(filter_values.greater, value, high)
    return apply(filter_values.logical_or, below, above)


def in_list(value: Node, texts: frozenset[str], *, negated: bool) -> Node:
    """`IN`. Raises Refused for anything but a property."""
    if not isinstance(value, Name):
        raise Refused("IN takes a property")
    return apply(filter_values.in_list(texts, negated=negated), value)


def whole_literal(text: str) -> Constant:
    """A whole number, with or without the L behind it. Raises Refused beyond 64 bits."""
    number = filter_values.whole(text.rstrip("lL"), 64)
    if number is None:
        raise Refused("a whole number does not fit into 64 bits")
    return Constant(number if number < 1 << 31 else Long(number))


def real_literal(text: str) -> Constant:
    """A number with a point or exponent. Raises Refused for 0.0 and the infinite, as a broker."""
    number = filter_values.real(text)
    if not number or number == float("inf"):
        raise Refused(f"{text} is out of a broker's range, which begins above 0.0")
    return Constant(number)
