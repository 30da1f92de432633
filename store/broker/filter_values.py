"""Values of the filter language, and how a broker compares them (Java's rules, not SQL's).

A value is text, a truth value, a number, None (unknown) or FAILED: the broker throws while it
evaluates, and the message does not match. Properties are always text. A number beside a text makes
the broker read the text as that kind of number, and throw where it is none: `price > 50` throws
for '34.19', `price > 50.0` does not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, TypeAlias


class Failure(Enum):
    """What a broker throws for."""

    FAILED = "failed"


FAILED: Final = Failure.FAILED


class Long(int):
    """A whole number literal of 64 bits. A plain int is one of 32."""


class Whole(int):
    """A number of the record itself. No broker knows these: they compare with any number."""


Value: TypeAlias = str | bool | int | float | Failure | None
Operator: TypeAlias = Callable[..., Value]

_WHOLE = re.compile(r"[+-]?\d+")
_REAL = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|([+-]?)(NaN|Infinity)"
    r"|([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_BITS = {int: 32, Long: 64, Whole: 64}
_DIGITS_MAX = 4000
"""More digits than any number needs; Python refuses to read much more."""
#: Characters that Java's String.trim takes off.
_BLANKS = "".join(map(chr, range(0x21)))


def whole(text: str, bits: int) -> int | None:
    """The text as Integer.valueOf or Long.valueOf reads it; None where these throw."""
    if not _WHOLE.fullmatch(text) or len(text) > _DIGITS_MAX or any(c > "\uffff" for c in text):
        return None
    number = int(text)
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def real(text: str) -> float | None:
    """The text as Double.valueOf reads it; None where that throws."""
    match = _REAL.fullmatch(text.strip(_BLANKS))
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
    """Below 0, 0 or above 0; None where a broker throws. Neither is None or FAILED."""
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
    """The text as a value of the other one's kind; None where it is none."""
    if isinstance(like, bool):
        return text.lower() == "true"
    if isinstance(like, float):
        return real(text)
    return whole(text, _BITS[type(like)])  # type: ignore[index]  # an int of some kind


def _double(value: Value) -> tuple[bool, float | int, float]:
    """Sorts as Double.compareTo: -0.0 before 0.0, NaN behind all and equal to itself."""
    assert isinstance(value, int | float)
    if math.isnan(value):
        return (True, 0.0, 1.0)
    # a number of the record stays exact, a literal becomes a double as in Java
    number = value if isinstance(value, float | Whole) else float(value)
    return (False, number, math.copysign(1.0, number))


def _order(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def equal(left: Value, right: Value) -> Value:
    """`=`. A missing left side is unknown, a missing right side unequal, two are equal."""
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
    """`IS NULL`."""
    return FAILED if value is FAILED else value is None


def ordering(test: Callable[[int], bool]) -> Operator:
    """`<` and its kin. Two texts are compared as doubles; a broker throws where one is none."""

    def compared(left: Value, right: Value) -> Value:
        if left is None or left is FAILED:
            return left
        if right is None or right is FAILED:
            return right
        if isinstance(left, str) and isinstance(right, str):
            left, right = real(left), real(right)
            if left is None or right is None:
                return FAILED
        order = compare(left, right)
        return FAILED if order is None else test(order)

    return compared


less = ordering(lambda order: order < 0)
less_or_equal = ordering(lambda order: order <= 0)
greater = ordering(lambda order: order > 0)
greater_or_equal = ordering(lambda order: order >= 0)


def text_test(test: Callable[[str, str], bool], text: str, *, negated: bool) -> Operator:
    """CONTAINS and its kin. What is no text, or nothing to look for, is false, negated or not."""

    def tested(value: Value) -> Value:
        if not text:
            return False
        if value is FAILED:
            return FAILED
        return isinstance(value, str) and test(value, text) is not negated

    return tested


def in_list(texts: frozenset[str], *, negated: bool) -> Operator:
    """`IN`: unknown for what is no text. A number of the record counts as its decimal digits."""

    def tested(value: Value) -> Value:
        if isinstance(value, Whole):
            value = str(int(value))
        if not isinstance(value, str):
            return FAILED if value is FAILED else None
        return (value in texts) is not negated

    return tested


def negative(value: Value) -> Value:
    """`-`: unknown for what is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return FAILED if value is FAILED else None
    return -value if isinstance(value, float) else type(value)(-value)


def boolean(value: Value) -> Value:
    """A property as a condition: text is never true."""
    if value is None or value is FAILED:
        return value
    return value is True


def logical_not(value: Value) -> Value:
    """`NOT`: unknown stays unknown."""
    return not value if isinstance(value, bool) else value


def logical_and(left: Value, right: Value) -> Value:
    """`AND`: the right side is not looked at where the left one decides or fails."""
    if left is False or left is FAILED:
        return left
    if right is False or right is FAILED:
        return right
    return None if left is None or right is None else True


def logical_or(left: Value, right: Value) -> Value:
    """`OR`: the right side is not looked at where the left one decides or fails."""
    if left is True or left is FAILED:
        return left
    if right is True or right is FAILED:
        return right
    return None if left is None or right is None else False
