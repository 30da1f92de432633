"""A schema as a tree of nodes: the one place that knows construct's classes.

Wrappers that do not change the bytes (Renamed, Rebuild, Default, Enum, adapters) are ignored; Computed and the like
take no bytes. Classes that can reject a record with all its bytes (Const, Check), or move within it, raise
UnsupportedSchema. Names are dotted paths. An expression (a length, a condition) belongs to a scope, the path prefix in
which its names are looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import construct as c

from ..primitives import length_of, record_size

Expression = Callable[[Any], Any]


class UnsupportedSchema(TypeError):
    """The schema has a construct class from which nothing can be derived."""


@dataclass(frozen=True, eq=False)
class Number:
    """A number of fixed width. code: numpy's type code, big- or little-endian as on disk."""

    path: str
    code: str
    size: int
    doc: str
    scope: str
    rebuild: Expression | None = None
    #: Length of an array of constant length, None for a single number.
    count: int | None = None

    @property
    def is_record_size(self) -> bool:
        """Whether the number is the size of the record that contains it."""
        return self.rebuild is record_size


@dataclass(frozen=True, eq=False)
class FixedBytes:
    """Bytes of constant length; padding has no name."""

    path: str
    size: int
    doc: str = ""


@dataclass(frozen=True, eq=False)
class Blob:
    """Bytes whose length is an expression over earlier fields."""

    path: str
    length: Expression
    doc: str
    scope: str
    #: The number that holds the length, if it has no name of its own (construct's Prefixed).
    prefix: Number | None = None


@dataclass(frozen=True, eq=False)
class Branch:
    """A condition and the nodes of its two outcomes."""

    condition: Expression
    scope: str
    yes: tuple[Node, ...]
    no: tuple[Node, ...]

    def lacking(self, outcome: bool) -> tuple[Field, ...]:
        """Fields that only the other outcome has, in byte order."""
        return _lacking(self)[outcome]


Fixed = Number | FixedBytes
"""Nodes of constant size."""
Field = Fixed | Blob
Node = Field | Branch

#: Name under which a scope has the number of remaining bytes.
REST = "#rest"

_FORMATS = {
    "b": "i1", "B": "u1", "h": "i2", "H": "u2", "l": "i4", "L": "u4", "i": "i4", "I": "u4",
    "q": "i8", "Q": "u8", "e": "f2", "f": "f4", "d": "f8", "?": "u1",
}  # fmt: skip
#: Wrappers that do not change the bytes.
_TRANSPARENT = (c.Renamed, c.Rebuild, c.Default, c.Adapter)
_NO_BYTES = ("Computed", "Pass", "Tell", "Index")


@lru_cache(maxsize=256)
def nodes_of(schema: c.Construct[Any, Any]) -> tuple[Node, ...]:
    """The nodes of a schema in byte order. Raises UnsupportedSchema."""
    return tuple(_walk(schema, "", "", "", None))


def _walk(sub: Any, path: str, scope: str, doc: str, rebuild: Expression | None) -> Iterator[Node]:
    """Yield the nodes of one construct. scope: prefix for the names in its expressions."""
    doc = sub.docs or doc
    if isinstance(sub, c.Renamed):
        yield from _walk(sub.subcon, path, scope, doc, rebuild)
    elif isinstance(sub, c.FormatField):
        yield _number(sub, path, scope, doc, rebuild)
    elif isinstance(sub, c.Struct):
        yield from _struct(sub, path)
    elif isinstance(sub, c.Bytes):
        yield Blob(path, sub.length, doc, scope) if callable(sub.length) else FixedBytes(path, sub.length, doc)
    elif isinstance(sub, c.IfThenElse):
        yield Branch(
            _as_expression(sub.condfunc),
            scope,
            tuple(_walk(sub.thensubcon, path, scope, doc, rebuild)),
            tuple(_walk(sub.elsesubcon, path, scope, doc, rebuild)),
        )
    elif isinstance(sub, c.Switch):
        yield from _switch(sub, path, scope, doc, rebuild)
    elif isinstance(sub, c.Prefixed):
        yield _prefixed(sub, path, scope, doc)
    elif isinstance(sub, c.Array):
        yield from _array(sub, path, scope, doc)
    elif isinstance(sub, c.Padded):
        inner = tuple(_walk(sub.subcon, path, scope, doc, rebuild))
        yield from inner
        yield FixedBytes("", sub.sizeof() - sum(_size_of(node) for node in inner))
    elif isinstance(sub, c.Rebuild):
        yield from _walk(sub.subcon, path, scope, doc, _as_expression(sub.func))
    elif type(sub).__name__ in _NO_BYTES:
        return
    elif isinstance(sub, type(c.GreedyBytes)):
        yield Blob(path, _rest, doc, scope)
    elif isinstance(sub, _TRANSPARENT):
        yield from _walk(sub.subcon, path, scope, doc, rebuild)
    else:
        raise UnsupportedSchema(f"{path or 'schema'}: {type(sub).__name__}")


@lru_cache(maxsize=1024)
def _lacking(branch: Branch) -> tuple[tuple[Field, ...], tuple[Field, ...]]:
    """(fields that the `no` side lacks, fields that the `yes` side lacks)."""
    yes = {field.path: field for field in fields_of(branch.yes)}
    no = {field.path: field for field in fields_of(branch.no)}
    return (
        tuple(field for path, field in yes.items() if path not in no),
        tuple(field for path, field in no.items() if path not in yes),
    )


def fields_of(nodes: tuple[Node, ...]) -> Iterator[Field]:
    """Yield the named fields of both outcomes of every condition, in byte order."""
    for node in nodes:
        if isinstance(node, Branch):
            yield from fields_of(node.yes)
            yield from fields_of(node.no)
        elif node.path:
            if isinstance(node, Blob) and node.prefix is not None:
                yield node.prefix
            yield node


def _as_expression(value: Any) -> Expression:
    if callable(value):
        return value  # type: ignore[no-any-return]
    return lambda _context: value


def _number(sub: Any, path: str, scope: str, doc: str, rebuild: Expression | None) -> Fixed:
    # the width comes from sizeof: construct's ">l" is four bytes, numpy's may be eight
    endian, letter = sub.fmtstr[0], sub.fmtstr[1:]
    code = ("<" if endian == "<" else ">") + _FORMATS[letter]
    if not path:
        return FixedBytes("", sub.sizeof())
    return Number(path, code, sub.sizeof(), doc, scope, rebuild)


def _struct(sub: Any, path: str) -> Iterator[Node]:
    prefix = f"{path}." if path else ""
    for member in sub.subcons:
        name = f"{prefix}{member.name}" if member.name else ""
        for node in _walk(member, name, prefix, "", None):
            yield FixedBytes("", _size_of(node)) if not member.name and isinstance(node, Blob | FixedBytes) else node


def _switch(sub: Any, path: str, scope: str, doc: str, rebuild: Expression | None) -> Iterator[Node]:
    rest = tuple(_walk(sub.default, path, scope, doc, rebuild))
    key = _as_expression(sub.keyfunc)
    for value, case in reversed(list(sub.cases.items())):

        def condition(context: Any, value: Any = value) -> Any:
            return key(context) == value

        rest = (Branch(condition, scope, tuple(_walk(case, path, scope, doc, rebuild)), rest),)
    yield from rest


def _prefixed(sub: Any, path: str, scope: str, doc: str) -> Blob:
    if not isinstance(_unwrap(sub.subcon), type(c.GreedyBytes)):
        raise UnsupportedSchema(f"{path}: Prefixed over {type(sub.subcon).__name__}")
    name = path.removeprefix(scope)
    own = sub.lengthfield.sizeof() if sub.includelength else 0

    def stored(context: Any) -> Any:
        return length_of(context[name]) + own

    def length(context: Any) -> Any:
        return context[f"{name}#length"] - own

    field = _unwrap(sub.lengthfield)
    if not isinstance(field, c.FormatField):
        raise UnsupportedSchema(f"{path}: a length that is a {type(field).__name__}")
    prefix = _number(field, f"{path}#length", scope, "", stored)
    assert isinstance(prefix, Number)
    return Blob(path, length, doc, scope, prefix)


def _array(sub: Any, path: str, scope: str, doc: str) -> Iterator[Node]:
    if not isinstance(sub.count, int):
        raise UnsupportedSchema(f"{path}: an array whose length is not constant")
    inner = tuple(_walk(sub.subcon, path, scope, doc, None))
    if len(inner) != 1 or not isinstance(inner[0], Number) or inner[0].path != path:
        raise UnsupportedSchema(f"{path}: an array of structs")
    n = inner[0]
    yield Number(n.path, n.code, n.size * sub.count, n.doc, n.scope, None, sub.count)


def _rest(context: Any) -> Any:
    """Length of a string that takes all remaining bytes."""
    return context[REST]


def _unwrap(sub: Any) -> Any:
    while isinstance(sub, _TRANSPARENT):
        sub = sub.subcon
    return sub


def _size_of(node: Node) -> int:
    """Raises UnsupportedSchema for a node without a constant size."""
    if isinstance(node, Fixed):
        return node.size
    raise UnsupportedSchema("not of constant size")


def minimum_bytes(schema: c.Construct[Any, Any]) -> int:
    """Size of the smallest record: every variable member is empty, every condition has the shorter outcome."""

    def least(nodes: tuple[Node, ...]) -> int:
        total = 0
        for node in nodes:
            if isinstance(node, Branch):
                total += min(least(node.yes), least(node.no))
            elif isinstance(node, Blob):
                total += node.prefix.size if node.prefix else 0
            else:
                total += node.size
        return total

    return least(nodes_of(schema))


def offset_of(schema: c.Construct[Any, Any], path: str) -> int:
    """Byte offset of a field at a constant place. Raises KeyError, UnsupportedSchema."""
    position = 0
    for node in nodes_of(schema):
        if not isinstance(node, Branch) and node.path == path:
            return position
        position += _size_of(node)
    raise KeyError(path)
