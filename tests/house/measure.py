"""`measure`: rooms of `store/`, the floors they stand on, circles of imports, modules without a room."""

from __future__ import annotations

import sys
from pathlib import Path

import grimp

from .table import ROOT

_STORE = "mqstore.store"
Graph = dict[str, set[str]]


def measure() -> str:
    """A report of some lines."""
    graph = grimp.build_graph("mqstore", exclude_type_checking_imports=False, cache_dir=None)
    modules = sorted(m for m in graph.modules if m.startswith(_STORE + "."))
    lines = [
        f"modules of store: {sum(not _is_package(m) for m in modules)}",
        f"loose: {', '.join(m for m in _loose())}",
    ]
    for what, fold in (("modules", _module), ("rooms", _room)):
        edges: Graph = {fold(module): set() for module in modules}
        for module in modules:
            used = graph.find_modules_directly_imported_by(module)
            edges[fold(module)] |= {fold(m) for m in used if m.startswith(_STORE + ".")}
        lines += _described(what, edges)
    return "\n".join(lines)


def _described(what: str, edges: Graph) -> list[str]:
    for name, used in edges.items():
        used.discard(name)
    groups = circles(edges)
    real = sorted((sorted(group) for group in groups if len(group) > 1), key=len, reverse=True)
    lines = [f"{what}: {len(edges)}, floors {floors(edges, groups)}, circles {len(real)}"]
    return lines + [f"  circle of {len(group)}: {' '.join(group[:40])}" for group in real]


def circles(edges: Graph) -> list[set[str]]:
    """Strongly connected parts, in an order in which each comes behind those it uses."""
    sys.setrecursionlimit(10_000)
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(edges[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            found.append(set(stack[at:]))
            del stack[at:]

    for name in sorted(edges):
        if name not in index:
            visit(name)
    return found


def floors(edges: Graph, groups: list[set[str]]) -> int:
    """How many stand on one another; a circle is one."""
    of = {name: number for number, group in enumerate(groups) for name in group}
    height: dict[int, int] = {}
    for number, group in enumerate(groups):
        below = {of[other] for name in group for other in edges[name]} - {number}
        height[number] = 1 + max((height[other] for other in below), default=0)
    return max(height.values(), default=0)


def _module(module: str) -> str:
    return module.removeprefix(_STORE + ".")


def _room(module: str) -> str:
    parts = _module(module).split(".")
    folder = ROOT / "store" / Path(*parts)
    return ".".join(parts if folder.is_dir() else parts[:-1]) or f"{parts[0]}.py"


def _is_package(module: str) -> bool:
    return (ROOT / "store" / Path(*_module(module).split("."))).is_dir()


def _loose() -> list[str]:
    return sorted(p.name for p in (ROOT / "store").glob("*.py") if p.name != "__init__.py")
