"""ARCHITECTURE.md and what each room says of itself, held against the code."""

from __future__ import annotations

import ast
import re
import tomllib

import pytest

from .test_house_rules import ROOT

PAGE = ROOT / "ARCHITECTURE.md"
STORE = ROOT / "store"
TWO_SCREENS = 120
WIDTH = 100
LOOSE = 4
MODULES = 200


def floors() -> list[set[str]]:
    """The floors of `store/`, highest first, as import-linter has them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    ((layers),) = [c["layers"] for c in contracts if c.get("containers") == ["mqstore.store"]]
    return [{room.strip() for room in floor.split("|")} for floor in layers]


FLOOR_OF = {room: number for number, floor in enumerate(floors()) for room in floor}
ROOMS = sorted(path.parent.name for path in STORE.glob("*/__init__.py"))


def used_by(room: str) -> set[str]:
    """The rooms, and modules beside them, that a room imports: anywhere, also for types."""
    found = set[str]()
    for path in (STORE / room).rglob("*.py"):
        inside = path.relative_to(ROOT).parts[:-1]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not node.level:
                continue
            above = inside[: len(inside) - node.level + 1]
            base = [*above, *(node.module.split(".") if node.module else [])]
            for name in node.names:
                full = [*base, name.name]
                found |= {full[1]} if full[0] == "store" and len(full) > 1 else set()
    return found - {room}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_it_may_use_and_uses_nothing_else(room: str) -> None:
    text = ast.get_docstring(ast.parse((STORE / room / "__init__.py").read_text(encoding="utf-8")))
    said = re.search(r"It may\s+use\s+(.*?)\.(?:\s|$)", text or "", re.DOTALL)
    assert said, "It may use …"
    named = set(re.findall(r"`(\w+)`", said[1]))
    assert named <= FLOOR_OF.keys()
    assert all(FLOOR_OF[each] > FLOOR_OF[room] for each in named)
    below = FLOOR_OF.keys() if "all" in said[1] and "below" in said[1] else set()
    highest = min(FLOOR_OF[each] for each in named)
    allowed = named | {each for each in below if FLOOR_OF[each] > highest}
    assert used_by(room) <= allowed


def test_the_page_fits_two_screens_and_has_one_picture() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    assert sum(max(1, -(-len(line) // WIDTH)) for line in lines) <= TWO_SCREENS
    assert lines.count("```") == 2


def test_the_picture_has_the_floors_of_import_linter() -> None:
    picture = PAGE.read_text(encoding="utf-8").split("```")[1]
    rows = [re.split(r" │ ", line.strip(" │"))[0] for line in picture.splitlines()]
    shown = [set(re.findall(r"\w+", row)) for row in rows]
    order = [rows for floor in floors()[1:] for rows, have in enumerate(shown) if have == floor]
    assert len(order) == len(floors()) - 1 and order == sorted(order)


def test_what_the_page_names_is_there() -> None:
    text = PAGE.read_text(encoding="utf-8")
    names = {name for name in re.findall(r"`([^`\n ]+)`", text) if "/" in name}
    names -= {name for name in names if "NAME" in name or name == "config/"}
    assert [name for name in sorted(names) if not (ROOT / name).exists()] == []


def test_the_store_has_few_modules() -> None:
    modules = [path for path in STORE.rglob("*.py") if path.name != "__init__.py"]
    assert len(modules) <= MODULES
    assert sum(path.parent == STORE for path in modules) <= LOOSE
