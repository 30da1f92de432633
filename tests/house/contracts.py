"""A contract for each room of `store/` in pyproject.toml: it uses nothing that stands above it.

What it uses against the order today is in the contract by name; import-linter complains of a name that
is no longer needed, so the list only gets shorter.
"""

from __future__ import annotations

import tomllib

import grimp

from .table import FILE, ROOT

_STORE = "mqstore.store."


def order() -> list[str]:
    """Rooms and loose modules, from the ground up."""
    return list(tomllib.loads(FILE.read_text("utf-8"))["order"])


def contracts() -> str:
    """The text of all of them."""
    graph = grimp.build_graph("mqstore", cache_dir=None)
    rooms = order()
    modules = [module for module in sorted(graph.modules) if module.startswith(_STORE)]
    unknown = {_room(module) for module in modules} - set(rooms)
    if unknown:
        raise LookupError(f"no place in the order: {sorted(unknown)}")
    against: dict[str, list[str]] = {room: [] for room in rooms}
    for module in modules:
        for used in sorted(graph.find_modules_directly_imported_by(module)):
            if used.startswith(_STORE) and rooms.index(_room(used)) > rooms.index(_room(module)):
                against[_room(module)].append(f"{module} -> {used}")
    texts = (_contract(room, rooms[at + 1 :], against[room]) for at, room in enumerate(rooms[:-1]))
    return "".join(texts)


def _contract(room: str, above: list[str], against: list[str]) -> str:
    lines = [
        "",
        "[[tool.importlinter.contracts]]",
        f'name = "store.{room} uses nothing above it"',
        'type = "forbidden"',
        f'source_modules = ["{_STORE}{room}"]',
        *_list("forbidden_modules", [_STORE + each for each in above]),
        *_list("ignore_imports", against),
        "allow_indirect_imports = true",
    ]
    return "\n".join(lines) + "\n"


def _list(name: str, values: list[str]) -> list[str]:
    return [f"{name} = [", *(f'  "{value}",' for value in values), "]"] if values else []


def _room(module: str) -> str:
    return module.removeprefix(_STORE).partition(".")[0]


def write() -> None:
    """Put them behind those that are there, once."""
    path = ROOT / "pyproject.toml"
    text = path.read_text("utf-8")
    if "uses nothing above it" not in text:
        path.write_text(text + contracts(), "utf-8")
