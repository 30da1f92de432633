"""Byte tables and column lists of a schema, for documents and for other type systems."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import construct as c

from .layout import Blob, Branch, FixedBytes, Node, Number, nodes_of


class ByteTableRow(NamedTuple):
    """One row of a byte table. offset: a number while it is constant, then a sum."""

    offset: str
    type: str
    name: str
    doc: str


class Column(NamedTuple):
    """One field. type: i1 to i8, u1 to u8, or bytes. optional: a condition may leave the field out."""

    name: str
    type: str
    doc: str
    optional: bool = False


def table(schema: c.Construct[Any, Any]) -> list[ByteTableRow]:
    """Byte table of a schema, one row per field."""
    return list(_rows(nodes_of(schema), [0], []))


def _rows(nodes: tuple[Node, ...], base: list[int], added: list[str]) -> Iterator[ByteTableRow]:
    """base[0]: constant bytes so far. added: names of the lengths that are added to them."""
    for node in nodes:
        offset = " + ".join([str(base[0]), *added])
        if isinstance(node, Number):
            count = f" x {node.count}" if node.count is not None else ""
            yield ByteTableRow(offset, node.code[1:] + count, node.path, node.doc)
            base[0] += node.size
        elif isinstance(node, Blob):
            if node.prefix is not None:
                yield ByteTableRow(offset, node.prefix.code[1:], f"(length of {node.path})", "")
                base[0] += node.prefix.size
                offset = " + ".join([str(base[0]), *added])
            yield ByteTableRow(offset, "…", node.path, node.doc)
            added.append(f"|{node.path}|")
        elif isinstance(node, Branch):
            yield from _branch_rows(node, base, added)
        else:
            if node.path:
                yield ByteTableRow(offset, str(node.size), node.path, node.doc)
            base[0] += node.size


def _branch_rows(branch: Branch, base: list[int], added: list[str]) -> Iterator[ByteTableRow]:
    """Yield one row per field of both outcomes; a difference in size becomes a named term."""
    yes, no = [base[0]], [base[0]]
    of_yes: list[str] = []
    of_no: list[str] = []
    yes_rows = list(_rows(branch.yes, yes, of_yes))
    no_rows = list(_rows(branch.no, no, of_no))
    offset = " + ".join([str(base[0]), *added])
    names = dict.fromkeys(row.name for row in [*no_rows, *yes_rows])
    by_name = [{row.name: row for row in rows} for rows in (no_rows, yes_rows)]
    for name in names:
        found = [rows[name] for rows in by_name if name in rows]
        types = " or ".join(dict.fromkeys(row.type for row in found))
        absent = "" if len(found) == len(by_name) else " or none"
        yield ByteTableRow(offset if found[0].offset == str(base[0]) else "…", types + absent, name,
                  found[0].doc)  # fmt: skip
    base[0] = min(yes[0], no[0])
    if yes[0] != no[0]:
        added.append(f"{abs(yes[0] - no[0])}?")
    # a missing string has no bytes, so the sum is right for both outcomes
    added.extend(dict.fromkeys([*of_yes, *of_no]))


def columns_of(schema: c.Construct[Any, Any]) -> list[Column]:
    """Named fields in byte order, each once; for two widths the wider type."""
    found: dict[str, Column] = {}
    _collect(nodes_of(schema), found, False)
    return list(found.values())


def _collect(nodes: tuple[Node, ...], found: dict[str, Column], optional: bool) -> None:
    for node in nodes:
        if isinstance(node, Number):
            found.setdefault(node.path, Column(node.path, node.code[1:], node.doc, optional))
        elif isinstance(node, Blob | FixedBytes):
            if node.path:
                found.setdefault(node.path, Column(node.path, "bytes", node.doc, optional))
        else:
            yes: dict[str, Column] = {}
            no: dict[str, Column] = {}
            _collect(node.yes, yes, optional)
            _collect(node.no, no, optional)
            for name, column in {**no, **yes}.items():
                either = yes.get(name, column), no.get(name, column)
                wider = max(side.type for side in either)
                partly = name not in yes or name not in no or any(s.optional for s in either)
                found.setdefault(name, Column(name, wider, column.doc, partly))
