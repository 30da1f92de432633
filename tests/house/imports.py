"""The imports of one file, rewritten for the modules that have moved; other bytes stay as they are."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from .table import Table, leaf

PACKAGE = "mqstore."
TESTS = "tests."


@dataclass(frozen=True)
class Place:
    """A file: its dotted name before and after, from the root. is_package: it is an __init__."""

    old: str
    new: str
    is_package: bool

    @property
    def package(self) -> str:
        """What relative imports began at."""
        return self.old if self.is_package else self.old.rpartition(".")[0]

    @property
    def new_package(self) -> str:
        """What they begin at."""
        return self.new if self.is_package else self.new.rpartition(".")[0]


@dataclass(frozen=True)
class Change:
    """Characters [begin, end) of a text become `text`."""

    begin: int
    end: int
    text: str


def rewritten(text: str, place: Place, table: Table, known: set[str]) -> str:
    """A file's text with all its imports as they have to be. known: old modules, dotted."""
    tree = ast.parse(text)
    lines = _starts(text)
    changes: list[Change] = []
    renamed: dict[str, str] = {}
    taken = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | {
        n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith(PACKAGE):
                    new = table.moved(alias.name.removeprefix(PACKAGE))
                    if PACKAGE + new != alias.name:
                        changes.append(_of(alias, text, lines, _named(PACKAGE + new, alias.asname)))
        elif isinstance(node, ast.ImportFrom):
            statements = _from(node, place, table, known, taken, renamed)
            if statements is not None:
                change = _of(node, text, lines, "")
                comments = re.findall(r"#[^\n]*", text[change.begin : change.end])
                indent = " " * node.col_offset
                body = f"\n{indent}".join(statements) + (f"  {comments[0]}" if comments else "")
                changes.append(Change(change.begin, change.end, body))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in renamed:
            changes.append(_of(node, text, lines, renamed[node.id]))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            for word in ast.walk(node.value):
                if isinstance(word, ast.Constant) and word.value in renamed:
                    changes.append(_of(word, text, lines, f'"{renamed[word.value]}"'))
    for change in sorted(changes, key=lambda c: -c.begin):
        text = text[: change.begin] + change.text + text[change.end :]
    return text


def _from(
    node: ast.ImportFrom,
    place: Place,
    table: Table,
    known: set[str],
    taken: set[str],
    renamed: dict[str, str],
) -> list[str] | None:
    """Statements for `from ... import ...`; None where it stays. renamed: local names that change."""
    base = _base(node, place)
    if base is None:
        return None
    groups: dict[str, list[str]] = {}
    for alias in node.names:
        whole = f"{base}.{alias.name}" if base else alias.name
        if whole in known:  # a module, not a name of one
            new = table.moved(whole)
            package, name, local = new.rpartition(".")[0], leaf(new), alias.asname
            if name != alias.name and local is None:
                if name in taken:
                    local = alias.name
                else:
                    renamed[alias.name] = name
            groups.setdefault(package, []).append(_named(name, local))
        else:
            module = table.names.get(base, table.moved(base))
            groups.setdefault(module, []).append(_named(alias.name, alias.asname))
    same_place = place.package == place.new_package or not node.level
    if same_place and list(groups) == [base] and not renamed.keys() & {a.name for a in node.names}:
        return None
    return [
        f"from {_spelled(module, place, relative=bool(node.level))} import {', '.join(names)}"
        for module, names in groups.items()
    ]


def _base(node: ast.ImportFrom, place: Place) -> str | None:
    """The module that is imported from, dotted from the root; None for one of somebody else."""
    if node.level:
        parts = place.package.split(".") if place.package else []
        kept = parts[: len(parts) - node.level + 1]
        return ".".join([*kept, *([node.module] if node.module else [])])
    name = node.module or ""
    if name == PACKAGE[:-1]:
        return ""
    if name.startswith(TESTS):
        return name
    return name.removeprefix(PACKAGE) if name.startswith(PACKAGE) else None


def _spelled(module: str, place: Place, *, relative: bool) -> str:
    """A module as a file at its new place names it."""
    if not relative:
        return module if module.startswith(TESTS) else (PACKAGE + module).rstrip(".")
    own, other = place.new_package.split("."), module.split(".") if module else []
    common = 0
    while common < min(len(own), len(other)) and own[common] == other[common]:
        common += 1
    return "." * (len(own) - common + 1) + ".".join(other[common:])


def _named(name: str, local: str | None) -> str:
    return name if local in (None, name) else f"{name} as {local}"


def _starts(text: str) -> list[int]:
    """Where each line begins."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _of(node: ast.expr | ast.stmt | ast.alias, text: str, lines: list[int], new: str) -> Change:
    def place(line: int, column: int) -> int:
        begin = lines[line - 1]
        raw = text[begin : lines[line]].encode()  # columns count bytes
        return begin + len(raw[:column].decode())

    assert node.end_lineno is not None and node.end_col_offset is not None
    begin = place(node.lineno, node.col_offset)
    return Change(begin, place(node.end_lineno, node.end_col_offset), new)
