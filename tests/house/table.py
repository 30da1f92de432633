"""`moves.toml`, read: old module → new module, with the names that Python and that people use."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("cli", "formats", "store", "pipeline")
"""The folders at the root that are packages of mqstore."""
FILE = Path(__file__).with_name("moves.toml")


@dataclass(frozen=True)
class Table:
    """modules: old → new dotted name, from the root of the tree. data: files beside them.

    names: packages whose names now come from a module. folders: that texts name. rooms: name → docstring of its __init__.
    """

    modules: dict[str, str]
    names: dict[str, str]
    data: dict[str, str]
    folders: dict[str, str]
    mentions: dict[str, str]
    rooms: dict[str, str]

    @classmethod
    def read(cls, path: Path = FILE, root: Path = ROOT) -> Table:
        """The table, and the modules of rooms that stay with what they are called."""
        told = tomllib.loads(path.read_text("utf-8"))
        modules = {}
        for room, rows in told["rooms"].items():
            for new, old in rows.items():
                if new != "doc":
                    modules[f"store.{old}"] = f"store.{room}.{new}"
        there = {dotted(p, root) for p in (root / "store").rglob("*.py")}
        missing = sorted(modules.keys() - there)
        if missing:
            raise LookupError(f"no such modules: {missing}")
        found = [new for old, new in modules.items() if old != new]
        kept = there - modules.keys()
        twice = sorted({new for new in found if found.count(new) > 1 or new in kept})
        if twice:
            raise LookupError(f"two modules of one name: {twice}")
        real = {dotted(p, root) for p in (root / "store").rglob("*.py") if p.stem != "__init__"}
        homeless = [old for old in real if modules.get(old, old).split(".")[1] not in told["order"]]
        if homeless:
            raise LookupError(f"not in the table, and in no room: {sorted(homeless)}")
        modules |= _tests(told["tests"], modules, root)
        docs = {room: rows["doc"] for room, rows in told["rooms"].items()}
        return cls(modules, told["names"], told["data"], told["folders"], told["mentions"], docs)

    def moved(self, module: str) -> str:
        """The new name of a module, its own where it stays."""
        return self.modules.get(module, module)

    @cached_property
    def leaves(self) -> dict[str, str]:
        """Old file name without folder → the new one, where only one module had it, and it changes."""
        counts: dict[str, set[str]] = {}
        for path in (p for package in PACKAGES for p in (ROOT / package).rglob("*.py")):
            module = dotted(path, ROOT)
            counts.setdefault(leaf(module), set()).add(leaf(self.moved(module)))
        return {old: new for old, (new, *more) in counts.items() if not more and old != new}


def _tests(told: dict[str, str], modules: dict[str, str], root: Path) -> dict[str, str]:
    """Old → new of the tests of `store/`: those of the table, and those named like a module."""
    there = {dotted(path, root) for path in (root / "tests" / "store").rglob("*.py")}
    found = {f"tests.store.{old}": f"tests.store.{new}" for old, new in told.items()}
    for old, new in modules.items():
        folder, _, name = f"tests.{old}".rpartition(".")
        if f"{folder}.test_{name}" in there:
            own, _, called = f"tests.{new}".rpartition(".")
            found.setdefault(f"{folder}.test_{name}", f"{own}.test_{called}")
    missing = sorted(found.keys() - there)
    new_names = [new for old, new in found.items() if old != new]
    kept = there - found.keys()
    twice = sorted({new for new in new_names if new_names.count(new) > 1 or new in kept})
    if missing or twice:
        raise LookupError(f"no such tests: {missing}; two tests of one name: {twice}")
    return found


def dotted(path: Path, root: Path) -> str:
    """The dotted name of a file below the root; of `__init__.py` that of the package."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def leaf(module: str) -> str:
    """The last word of a dotted name."""
    return module.rpartition(".")[2]


def path_of(module: str) -> str:
    """Where a module lies."""
    return f"{module.replace('.', '/')}.py"
