"""Numbers of a fixed-size schema, one unit at a time, without numpy.

`derive.dtype_of` reads columns. A command that needs three units of a queue should not have to import numpy, and
construct takes ten times as long per unit as `struct`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from construct import Construct, FormatField, Rebuild, Renamed

T = TypeVar("T")


@lru_cache(maxsize=64)
def numbers_of(schema: Construct[Any, Any]) -> struct.Struct:
    """The `struct.Struct` with the fields of `schema`, in order.

    Raises TypeError for a schema with anything but numbers of one byte order.
    """
    codes = []
    for member in schema.subcons:  # type: ignore[attr-defined]
        inner = member
        while isinstance(inner, Renamed | Rebuild):
            inner = inner.subcon
        if not isinstance(inner, FormatField):
            raise TypeError(f"{member.name}: not a number")
        codes.append(inner.fmtstr)
    orders = {code[0] for code in codes}
    if len(orders) != 1:
        raise TypeError("numbers of several byte orders")
    return struct.Struct(orders.pop() + "".join(code[1:] for code in codes))


def tuple_of(kind: Callable[..., T], schema: Construct[Any, Any], data: bytes) -> T:
    """The numbers of `schema` at the beginning of `data` as a named tuple of class `kind`; missing bytes are zeros.

    A test compares the fields of each such class with its schema.
    """
    form = numbers_of(schema)
    return kind(*form.unpack(data[: form.size].ljust(form.size, b"\0")))
