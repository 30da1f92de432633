"""Values and nodes of the filter language, and how a broker compares values (Java's rules, not SQL's).

A value is a text, a boolean, a number, None (unknown) or FAILED: the broker throws during evaluation, and the message
does not match. Properties are always text. Beside a number, a broker parses a text as that kind of number and throws if
it is none: `price > 50` throws for '34.19', `price > 50.0` does not.

An expression can name fields of the record with `@`, besides properties. Their names are those in the message's JSON;
whole numbers are numbers, others are text as in the JSON.

The nodes of an expression's tree refuse what a broker refuses to build.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ...formats import message_properties as names
from ...formats.derive import columns_of
from ...formats.hashing import java_trim
from ...formats.host import host_text
from ...formats.message import MESSAGE

if TYPE_CHECKING:
    from ..log.message import Message


class FilterFailure(Enum):
    """The type of FAILED: the broker throws."""

    FAILED = "failed"


FAILED: Final = FilterFailure.FAILED


class Long(int):
    """A whole number literal of 64 bits; a plain int has 32."""


class Whole(int):
    """A number from a field of the record. Brokers have no such values: they compare with any number."""


Value: TypeAlias = str | bool | int | float | FilterFailure | None
Operator: TypeAlias = Callable[..., Value]

_WHOLE = re.compile(r"[+-]?\d+")
_REAL = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|([+-]?)(NaN|Infinity)"
    r"|([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
BITS = {int: 32, Long: 64, Whole: 64}
_DIGITS_MAX = 4000
"""More digits than any number needs, and fewer than Python refuses to parse."""


def whole(text: str, bits: int) -> int | None:
    """Parse a text as Integer.valueOf or Long.valueOf does; None where these throw."""
    if not _WHOLE.fullmatch(text) or len(text) > _DIGITS_MAX or any(c > "\uffff" for c in text):
        return None
    number = int(text)
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def real(text: str) -> float | None:
    """Parse a text as Double.valueOf does; None where that throws."""
    match = _REAL.fullmatch(java_trim(text))
    if match is None:
        return None
    decimal, sign, name, hexadecimal = match.groups()
    if decimal is not None:
        return float(decimal)
    if name is not None:
        return math.nan if name == "NaN" else -math.inf if sign == "-" else math.inf
    try:
        return float.fromhex(hexadecimal)
    except OverflowError:
        return -math.inf if hexadecimal[0] == "-" else math.inf


def compare(left: Value, right: Value) -> int | None:
    """Compare two values, neither None nor FAILED: below 0, 0, above 0; None where a broker throws."""
    if type(left) is not type(right):
        if isinstance(left, bool):
            return None if isinstance(right, str) else -1
        if isinstance(left, str):
            left = _read(left, right)
        elif isinstance(right, str):
            right = _read(right, left)
        elif isinstance(right, bool):
            return -1
        if left is None or right is None:
            return None
    if isinstance(left, float) or isinstance(right, float):
        return _order(_double(left), _double(right))
    return _order(left, right)


def _read(text: str, like: Value) -> Value:
    """Parse a text as a value of the kind of `like`; None if it is not one."""
    if isinstance(like, bool):
        return text.lower() == "true"
    if isinstance(like, float):
        return real(text)
    return whole(text, BITS[type(like)])  # type: ignore[index]  # an int of some kind


def _double(value: Value) -> tuple[bool, float | int, float]:
    """A key that sorts as Double.compareTo: -0.0 before 0.0, NaN last and equal to itself."""
    assert isinstance(value, int | float)
    if math.isnan(value):
        return (True, 0.0, 1.0)
    # a number of the record stays exact; a literal becomes a double, as in Java
    number = value if isinstance(value, float | Whole) else float(value)
    return (False, number, math.copysign(1.0, number))


def _order(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def equal(left: Value, right: Value) -> Value:
    """`=`. Two missing operands are equal; only the left missing: unknown; only the right missing: unequal."""
    if type(left) is str and type(right) is str:
        return left == right
    if left is FAILED or right is FAILED:
        return FAILED
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    order = compare(left, right)
    return FAILED if order is None else order == 0


def is_null(value: Value) -> Value:
    return FAILED if value is FAILED else value is None


@dataclass(frozen=True)
class Ordering:
    """`<`, `<=`, `>`, `>=`. Two texts are compared as doubles; a broker throws if one is not a number."""

    test: Callable[[int], bool]

    def __call__(self, left: Value, right: Value) -> Value:
        if left is None or left is FAILED:
            return left
        if right is None or right is FAILED:
            return right
        if isinstance(left, str) and isinstance(right, str):
            left, right = real(left), real(right)
            if left is None or right is None:
                return FAILED
        order = compare(left, right)
        return FAILED if order is None else self.test(order)


less = Ordering(lambda order: order < 0)
less_or_equal = Ordering(lambda order: order <= 0)
greater = Ordering(lambda order: order > 0)
greater_or_equal = Ordering(lambda order: order >= 0)


@dataclass(frozen=True)
class TextTest:
    """CONTAINS, STARTSWITH, ENDSWITH. False, negated or not, for a value that is no text, and for an empty `text`."""

    test: Callable[[str, str], bool]
    text: str
    negated: bool

    def __call__(self, value: Value) -> Value:
        if not self.text:
            return False
        if value is FAILED:
            return FAILED
        return isinstance(value, str) and self.test(value, self.text) is not self.negated


@dataclass(frozen=True)
class InList:
    """`IN`: unknown for a value that is no text. A number of the record counts as its decimal digits."""

    texts: frozenset[str]
    negated: bool

    def __call__(self, value: Value) -> Value:
        if isinstance(value, Whole):
            value = str(int(value))
        if not isinstance(value, str):
            return FAILED if value is FAILED else None
        return (value in self.texts) is not self.negated


def negative(value: Value) -> Value:
    """`-`: unknown for a value that is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return FAILED if value is FAILED else None
    return -value if isinstance(value, float) else type(value)(-value)


def boolean(value: Value) -> Value:
    """A property used as a condition: text is never true."""
    if value is None or value is FAILED:
        return value
    return value is True


def logical_not(value: Value) -> Value:
    """`NOT`: unknown stays unknown."""
    return not value if isinstance(value, bool) else value


def logical_and(left: Value, right: Value) -> Value:
    """`AND`: the right side does not matter if the left one is false or failed."""
    if left is False or left is FAILED:
        return left
    if right is False or right is FAILED:
        return right
    return None if left is None or right is None else True


def logical_or(left: Value, right: Value) -> Value:
    """`OR`: the right side does not matter if the left one is true or failed."""
    if left is True or left is FAILED:
        return left
    if right is True or right is FAILED:
        return right
    return None if left is None or right is None else False


#: Fields that are shown as text, or that only describe lengths.
_NO_NUMBERS = ("magic_code", "topic_length", "properties_length")
NUMBERS: Final = (
    "position",
    *(
        column.name
        for column in columns_of(MESSAGE)
        if column.type != "bytes" and "." not in column.name and column.name not in _NO_NUMBERS
    ),
)
CRC_OK: Final = "body_crc_ok"
FIELDS: Final = (*NUMBERS, CRC_OK, "topic", "born_host", "store_host", "message_id", "magic_code")
#: Fields that are properties under another name.
PROPERTIES: Final = {"tags": names.TAGS, "keys": names.KEYS, "unique_key": names.UNIQ_KEY}


def value_of(message: Message, field: str) -> Value:
    """The value of a field of one message."""
    if field == "body_length":
        return Whole(len(message.stored_body))
    if field == "magic_code":
        return magic_text(message.magic_code)
    value = getattr(message, field)
    if field in NUMBERS:
        return Whole(value)
    if field.endswith("_host"):
        return host_text(*value)
    found: Value = value
    return found


def magic_text(code: int) -> str:
    """A magic code as in the JSON of a message."""
    return f"{code:08x}"


DEPTH_MAX = 200
"""Deepest nesting of an expression; a broker's stack can hold a few more levels."""


class RefusedExpression(ValueError):
    """An expression that a broker refuses though the grammar allows it."""


@dataclass(frozen=True)
class Constant:
    """A literal."""

    value: Value
    depth = 1

    @property
    def boolean(self) -> bool:
        """Whether it is TRUE, FALSE or NULL."""
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
    """An operator and its operands; more than two are combined in pairs from left to right."""

    operator: Operator
    operands: tuple[Node, ...]
    boolean: bool
    depth: int


Node: TypeAlias = Constant | Name | Apply


def apply(operator: Operator, *operands: Node, boolean: bool = True) -> Apply:
    """A node that applies an operator to other nodes. Raises RefusedExpression if they are nested too deep."""
    depth = 1 + max(operand.depth for operand in operands)
    if depth > DEPTH_MAX:
        raise RefusedExpression(f"nested deeper than {DEPTH_MAX} levels")
    return Apply(operator, operands, boolean, depth)


def condition(node: Node) -> Node:
    """The node as a condition. Raises RefusedExpression for literals and negated numbers."""
    if node.boolean:
        return node
    if isinstance(node, Name):
        return apply(boolean, node)
    raise RefusedExpression("a value stands where a condition is needed")


def ordered(operator: Operator, left: Node, right: Node) -> Node:
    """`<`, `<=`, `>`, `>=` of numbers, properties and negated values. Raises RefusedExpression for others."""
    for node in (left, right):
        is_text = isinstance(node, Constant) and isinstance(node.value, str)
        if node.boolean or is_text:
            raise RefusedExpression("<, <=, > and >= compare numbers and properties only")
    return apply(operator, left, right)


def equality(left: Node, right: Node) -> Node:
    """`=`. Raises RefusedExpression for NULL, and for TRUE or FALSE before another kind of literal."""
    constants = [node for node in (left, right) if isinstance(node, Constant)]
    if any(node.value is None for node in constants):
        raise RefusedExpression("NULL cannot be compared: use IS NULL or IS NOT NULL")
    if len(constants) == 2 and left.boolean and not right.boolean:
        raise RefusedExpression("TRUE and FALSE do not compare with other literals")
    return apply(equal, left, right)


def between(value: Node, low: Node, high: Node) -> Node:
    """`BETWEEN`, both bounds included. Raises RefusedExpression for literal bounds in the wrong order."""
    if isinstance(low, Constant) and isinstance(high, Constant):
        if low.value is None or high.value is None:
            raise RefusedExpression("NULL is no bound of BETWEEN")
        order = compare(high.value, low.value)
        if order is None:
            raise RefusedExpression("a broker cannot compare the bounds of BETWEEN with each other")
        if order < 0:
            raise RefusedExpression("the bounds of BETWEEN are in the wrong order")
    above = ordered(greater_or_equal, value, low)
    below = ordered(less_or_equal, value, high)
    return apply(logical_and, above, below)


def not_between(value: Node, low: Node, high: Node) -> Node:
    """`NOT BETWEEN`; the bounds may be in any order."""
    below = ordered(less, value, low)
    above = ordered(greater, value, high)
    return apply(logical_or, below, above)


def in_list_node(value: Node, texts: frozenset[str], *, negated: bool) -> Node:
    """`IN`. Raises RefusedExpression for anything but a property on the left."""
    if not isinstance(value, Name):
        raise RefusedExpression("IN takes a property")
    return apply(InList(texts, negated), value)


def whole_literal(text: str) -> Constant:
    """A whole number with an optional L at its end. Raises RefusedExpression beyond 64 bits."""
    number = whole(text.rstrip("lL"), 64)
    if number is None:
        raise RefusedExpression("a whole number does not fit into 64 bits")
    return Constant(number if number < 1 << 31 else Long(number))


def real_literal(text: str) -> Constant:
    """A number with a point or exponent. Raises RefusedExpression for 0.0 and infinity, as a broker does."""
    number = real(text)
    if not number or number == float("inf"):
        raise RefusedExpression(f"{text} is out of a broker's range, which begins above 0.0")
    return Constant(number)
