"""Schemas to prove the derivations on, and records for any of them.

Records are drawn by walking construct's own classes, and parsed by construct: nothing here knows
how `mqstore.formats.derive` sees a schema.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any

import construct as c
from construct import this
from hypothesis import strategies as st

from mqstore.formats import batch_consume_queue, consume_queue_ext, timer_check
from mqstore.formats.kinds import KINDS
from mqstore.formats.message import MAGIC_V1, MAGIC_V2, MESSAGE, SysFlag
from mqstore.formats.primitives import record_size_field, size_

#: Conditions inside structs inside conditions, over fields of every level, also later ones.
NESTED = c.Struct(
    "kind" / c.Int8ub,
    "head"
    / c.Struct(
        "flags" / c.Int16ub,
        "extra" / c.If(this.flags & 1, c.Int32sb),
        "deep"
        / c.IfThenElse(
            this._.kind & 2,
            c.Struct("a" / c.Int16sl, "b" / c.If(this._._.kind & 4, c.Bytes(3))),
            c.Struct("a" / c.Int32sb, "only" / c.Int8sb),
        ),
    ),
    c.Padding(3),
    "late" / c.If(this.head.flags & 2, c.Int64sb),
    "last" / c.If(this.late, c.Bytes(2)),
    "end" / c.Int8ub,
)
SWITCH = c.Struct(
    "tag" / c.Int8ub,
    "value" / c.Switch(this.tag, {1: c.Int16sb, 2: c.Int32sl, 3: c.Int64sb}, c.Int8sb),
    "again" / c.Int8sb,
    "other" / c.Switch(this.again, {0: c.Bytes(3), 1: c.Prefixed(c.Int8ub, c.GreedyBytes)}),
    "end" / c.Int16ub,
)
LINKED = c.Struct(
    "size" / record_size_field(c.Int32sb),
    "first_length" / c.Rebuild(c.Int16sb, size_(this.first)),
    "units" / c.Rebuild(c.Int8ub, size_(this.second) // 4),
    "first" / c.Bytes(this.first_length),
    "between" / c.Int8ub,
    "second" / c.Bytes(this.units * 4),
)
PREFIXED = c.Struct(
    "plain" / c.Prefixed(c.Int16ub, c.GreedyBytes),
    "whole" / c.Prefixed(c.Int8ub, c.GreedyBytes, includelength=True),
    "little" / c.Prefixed(c.Int32sl, c.GreedyBytes),
    "flag" / c.Int8ub,
    "inner" / c.Struct("text" / c.If(this._.flag & 1, c.Prefixed(c.Int8sb, c.GreedyBytes))),
)
ARRAYS = c.Struct(
    "length" / c.Int8ub,
    "cells" / c.Array(4, c.Int16sl),
    "more" / c.If(this.length & 1, c.Array(2, c.Int32ub)),
    "raw" / c.Bytes(this.length),
    "padded" / c.Padded(6, c.Int32ub),
    "kind" / c.Enum(c.Int8ub, one=1, two=2),
)
REST = c.Struct("head" / c.Int16ub, "flag" / c.Int8ub, "rest" / c.GreedyBytes)
#: A length that does not fit into the memory of any machine.
WIDE = c.Struct("length" / c.Int64sb, "data" / c.Bytes(this.length), "end" / c.Int8ub)
UNSIGNED = c.Struct("length" / c.Int64ub, "data" / c.Bytes(this.length))
#: Conditions that can be known at once, behind a string.
CONSTANT = c.Struct(
    "text" / c.Prefixed(c.Int8ub, c.GreedyBytes), "yes" / c.If(True, c.Int8ub), "no" / c.If(False, c.Int16ub)
)
NOTHING = c.Struct("none" / c.Bytes(0), c.Padding(0))

TEST_SCHEMAS: dict[str, c.Construct[Any, Any]] = {
    "nested": NESTED,
    "switch": SWITCH,
    "linked": LINKED,
    "prefixed": PREFIXED,
    "arrays": ARRAYS,
    "rest": REST,
    "wide": WIDE,
    "unsigned": UNSIGNED,
    "constant": CONSTANT,
    "nothing": NOTHING,
}
#: Every layout of every kind of file.
REAL_SCHEMAS: dict[str, c.Construct[Any, Any]] = {
    f"{kind.name} {layout}": schema for kind in KINDS.values() for layout, schema in kind.layouts
} | {
    "consume-queue-ext unit": consume_queue_ext.UNIT,
    "batch-consume-queue unit": batch_consume_queue.UNIT,
    "timer-check": timer_check.FIELDS,
    "timer-check page": timer_check.TIMER_CHECK,
}
SCHEMAS = REAL_SCHEMAS | TEST_SCHEMAS


def is_fixed(schema: c.Construct[Any, Any]) -> bool:
    """construct knows the size of the schema without a record."""
    try:
        schema.sizeof()
    except c.SizeofError:
        return False
    return True


FIXED_SCHEMAS = {name: schema for name, schema in SCHEMAS.items() if is_fixed(schema)}

#: Longest string that is drawn, but for the explicit examples.
LONG = 40

_CHOICES: dict[int, dict[str, st.SearchStrategy[Any]]] = {
    id(MESSAGE): {
        "magic_code": st.sampled_from([MAGIC_V1, MAGIC_V2]),
        "sys_flag": st.sampled_from([0, *SysFlag, SysFlag.BORN_V6 | SysFlag.STORE_V6]).map(int),
    },
    id(NESTED): {"kind": st.integers(0, 7), "head.flags": st.integers(0, 3)},
    id(SWITCH): {"tag": st.integers(0, 4), "again": st.integers(-1, 2)},
    **{id(schema): {"length": st.integers(0, LONG)} for schema in (ARRAYS, WIDE, UNSIGNED)},
    id(LINKED): {"second": st.binary(max_size=5).map(lambda part: part * 4)},
}


@st.composite
def records(draw: st.DrawFn, schema: c.Construct[Any, Any]) -> bytes:
    """The bytes of one record of `schema`, as construct builds them."""
    choices = _CHOICES.get(id(schema), {})
    value = _draw(draw, schema, c.Container(), "", choices)
    return bytes(schema.build(value))


def _draw(draw: st.DrawFn, sub: Any, context: Any, path: str, choices: Mapping[str, st.SearchStrategy[Any]]) -> Any:
    if path in choices:
        return draw(choices[path])
    if isinstance(sub, c.Rebuild):
        return None
    if isinstance(sub, c.IfThenElse):
        wanted = sub.condfunc(context) if callable(sub.condfunc) else sub.condfunc
        return _draw(draw, sub.thensubcon if wanted else sub.elsesubcon, context, path, choices)
    if isinstance(sub, c.Switch):
        case = sub.cases.get(sub.keyfunc(context), sub.default)
        return _draw(draw, case, context, path, choices)
    if isinstance(sub, c.Struct):
        inner: c.Container[Any] = c.Container(_=context)
        for member in sub.subcons:
            name = f"{path}.{member.name}".lstrip(".")
            drawn = _draw(draw, member, inner, name, choices)
            if member.name:
                inner[member.name] = drawn
        del inner["_"]
        return inner
    if isinstance(sub, c.Array):
        count: Any = sub.count
        return [_draw(draw, sub.subcon, context, path, choices) for _ in range(count)]
    if isinstance(sub, c.FormatField):
        bits, signed = 8 * sub.sizeof(), sub.fmtstr[-1].islower()
        low = -(1 << bits - 1) if signed else 0
        return draw(st.integers(low, low + (1 << bits) - 1))
    if isinstance(sub, c.Bytes):
        length = _known(sub.length, context)
        return draw(st.binary(min_size=length or 0, max_size=LONG if length is None else length))
    if sub is c.GreedyBytes or isinstance(sub, c.Prefixed):
        return draw(st.binary(max_size=LONG))
    if isinstance(sub, c.Subconstruct):
        return _draw(draw, sub.subcon, context, path, choices)
    assert sub is c.Pass, sub
    return None


def _known(length: Any, context: Any) -> int | None:
    """The length of a string where it is no link that follows from the string itself."""
    if isinstance(length, int):
        return length
    try:
        value = length(context)
    except TypeError:
        return None
    return value if isinstance(value, int) else None


def flat(parsed: Any, prefix: str = "") -> dict[str, Any]:
    """Dotted path → value of a parsed record, without what is not there."""
    found: dict[str, Any] = {}
    for name, value in parsed.items():
        if name.startswith("_") or value is None:
            continue
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = plain(value)
    return found


def plain(value: Any) -> Any:
    """A value without the classes of construct."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value if isinstance(value, bytes) else int(value)


def parse(schema: c.Construct[Any, Any], data: bytes) -> tuple[dict[str, Any], int] | None:
    """(fields, bytes read) as construct reads a record at the start of `data`; None if it fails."""
    stream = io.BytesIO(data)
    try:
        parsed = schema.parse_stream(stream)
    except c.ConstructError:
        return None
    return flat(parsed), stream.tell()


def names_of(schema: c.Construct[Any, Any], path: str = "") -> Iterator[str]:
    """Dotted paths of all fields, of every outcome of every condition."""
    sub: Any = schema
    if isinstance(sub, c.Struct):
        for member in sub.subcons:
            if member.name:
                yield from names_of(member, f"{path}.{member.name}".lstrip("."))
    elif isinstance(sub, c.IfThenElse):
        yield from names_of(sub.thensubcon, path)
        yield from names_of(sub.elsesubcon, path)
    elif isinstance(sub, c.Switch):
        for case in (*sub.cases.values(), sub.default):
            yield from names_of(case, path)
    elif isinstance(sub, c.Prefixed | c.Array):
        yield path
    elif isinstance(sub, c.Subconstruct):
        yield from names_of(sub.subcon, path)
    elif sub is not c.Pass:
        yield path
