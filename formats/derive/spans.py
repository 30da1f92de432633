"""Fields of one record with their places, for an annotated hex dump."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import construct as c

from .layout import REST, Blob, Fixed, Node, Number, nodes_of
from .scope import ExpressionScope


class Span(NamedTuple):
    """`length` bytes at `offset` hold the field `path`; `value` is an int, a list of ints, bytes or None.

    Padding has the path "". If the data end inside a field, the last span has the path "truncated" and no value.
    """

    offset: int
    length: int
    path: str
    value: Any
    doc: str


def spans(schema: c.Construct[Any, Any], data: bytes) -> list[Span]:
    """The spans of a record of `schema`. data: bytes from its first one on."""
    walker = _Walker(data)
    try:
        walker.walk(nodes_of(schema))
    except EOFError:
        rest = len(data) - walker.at
        if rest:
            walker.spans.append(Span(walker.at, rest, "truncated", None, "data ends"))
    return walker.spans


class _Walker:
    def __init__(self, data: bytes) -> None:
        self._stream = io.BytesIO(data)
        self._values: dict[str, Any] = {}
        self.at = 0
        self.spans: list[Span] = []

    def walk(self, nodes: tuple[Node, ...]) -> None:
        for node in nodes:
            if isinstance(node, Fixed):
                self._take(node.size, node.path, node.doc, node if isinstance(node, Number) else None)
            elif isinstance(node, Blob):
                if node.prefix is not None:
                    self._take(node.prefix.size, node.prefix.path, "", node.prefix)
                self._take(self._length(node), node.path, node.doc, None)
            else:
                wanted = node.condition(ExpressionScope(self._values.__getitem__, node.scope))
                for field in node.lacking(bool(wanted)):
                    self._values[field.path] = 0 if isinstance(field, Number) else b""
                self.walk(node.yes if wanted else node.no)

    def _length(self, blob: Blob) -> int:
        self._values[blob.scope + REST] = len(self._stream.getbuffer()) - self.at
        return int(blob.length(ExpressionScope(self._values.__getitem__, blob.scope)))

    def _take(self, size: int, path: str, doc: str, number: Number | None) -> None:
        if not 0 <= size <= len(self._stream.getbuffer()) - self.at:
            raise EOFError
        data = self._stream.read(size)
        value: Any = data
        if number is not None:
            order = "little" if number.code[0] == "<" else "big"
            width = number.size // (number.count or 1)
            signed = number.code[1] == "i"
            values = [
                int.from_bytes(data[i : i + width], order, signed=signed)  # type: ignore[arg-type]
                for i in range(0, size, width)
            ]
            value = values if number.count is not None else values[0]
        if path:
            self._values[path] = value
        if size:
            self.spans.append(Span(self.at, size, path, value, doc))
        self.at += size
