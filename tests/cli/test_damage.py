"""`mqstore damage`: what lies in a store that is no file, and what was done as lines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from mqstore.cli.damage import _text

from .. import stores
from .datadriven import run_here


def test_what_is_no_file_is_told_and_not_copied(tmp_path: Path) -> None:
    root, copy = stores.unpack("4.9.7-clean", tmp_path), tmp_path / "copy"
    os.mkfifo(root / "config" / "pipe")
    done = run_here(["damage", str(root), "--to", str(copy), "--scenario", "killed"])
    assert done.code == 0 and done.stdout.startswith(f"{copy}: killed, seed 1\n")
    assert done.stderr == "mqstore: neither file nor directory, not copied: config/pipe\n"
    assert (copy / "abort").is_file() and not (copy / "config" / "pipe").exists()
    assert not (root / "abort").exists()


def test_scenarios_are_a_line_each() -> None:
    lines = run_here(["damage", "--list"]).stdout.splitlines()
    names = [line.split()[0] for line in lines]
    assert len(set(names)) == len(lines) > 10 and {"killed", "torn-tail"} <= set(names)
    assert run_here(["damage", "--list", "--fields", "name"]).stdout.split() == names


def edit(kind: str, path: str = "/copy/abort") -> dict[str, Any]:
    return {"kind": kind, "path": path, "offset": 7, "length": 2048, "reason": "r"}


def drill(*edits: dict[str, Any]) -> str:
    return _text({"copy": "/copy", "scenario": "s", "seed": 3, "edits": edits})


def test_an_edit_is_a_line_with_its_place() -> None:
    assert drill(edit("write"), edit("truncate")).splitlines() == [
        "/copy: s, seed 3",
        "  write    /copy/abort at 7, 2.0 KiB: r",
        "  truncate /copy/abort to 2.0 KiB: r",
    ]


def test_names_make_no_lines_of_their_own() -> None:
    assert len(drill(edit("write", "/copy/consumequeue/t\nmqstore: all is well")).splitlines()) == 2
