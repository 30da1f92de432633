#!/usr/bin/env python3
"""Write what is derived from the code: manual pages, completion scripts, JSON Schemas.

    python man/generate.py            write the files
    python man/generate.py --check    exit 1 and name the files that differ

man1 comes from the typer app, one page a command; man5 from the docstrings and byte tables of
`formats`; the completion scripts from the same commands; schemas of records that are layouts of
`formats` from these, and so the tables of `formats/quick_tables.py`; docs/invariants.md from the
catalogue of `verify`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent


def _import(name: str) -> ModuleType:
    """A module of this checkout, or one beside this script."""
    from importlib import import_module

    for folder in (ROOT / "src", Path(__file__).parent):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    return import_module(name)


def contents() -> Iterator[tuple[Path, str]]:
    """Every generated file with its content."""
    commands = _import("command_tree").commands()
    pages = _import("pages")
    for command in commands:
        yield (ROOT / "man" / "man1" / f"{command.name.replace(' ', '-')}.1", pages.man1(command, commands))
    yield ROOT / "man" / "man5" / "mqstore-store.5", pages.man5()
    shells = _import("completion_scripts")
    yield ROOT / "completions" / "bash" / "mqstore", shells.bash(commands)
    yield ROOT / "completions" / "zsh" / "_mqstore", shells.zsh(commands)
    yield ROOT / "completions" / "fish" / "mqstore.fish", shells.fish(commands)
    for record_type, found in _import("schemas").schemas().items():
        yield ROOT / "cli" / "schemas" / f"{record_type}.json", json.dumps(found, indent=2) + "\n"
    yield ROOT / "docs" / "invariants.md", _import("invariants").markdown()
    tables = _import("mqstore.formats.derive.steps").tables()
    yield ROOT / "formats" / "quick_tables.py", tables


def stale() -> list[Path]:
    """Files that are not what would be written, and pages that nothing writes."""
    wanted = dict(contents())
    different = [path for path, text in wanted.items() if not path.exists() or path.read_text("utf-8") != text]
    pages = {path for number in (1, 5) for path in (ROOT / "man" / f"man{number}").glob("*.*")}
    return different + sorted(pages - wanted.keys())


def main(arguments: list[str]) -> int:
    """Write, or with `--check` compare."""
    if arguments == ["--check"]:
        for path in stale():
            print(f"{path.relative_to(ROOT)} is not what man/generate.py writes")
        return 1 if stale() else 0
    if arguments:
        print(__doc__)
        return 2
    for path, text in contents():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    for path in stale():
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
