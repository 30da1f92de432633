"""What the declarations of commands promise of paths."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mqstore.cli import app
from mqstore.cli.declared import EMPTY_PATH

from .. import stores
from .datadriven import run_here
from .every_command import ALL

PATHS = re.compile(r"\b(FILE|DIR|STORE2?|PATH|IMAGE|COPY|A|B)\b")

NO_PATHS = ("KEY=VALUE", "A,B", "A,B,C", "HEX")


@pytest.mark.few(8)
@pytest.mark.parametrize("name", ALL)
def test_an_empty_path_is_wrong_usage(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    """`"$UNSET"` is not the folder that the shell is in, in no command and no option."""
    monkeypatch.chdir(stores.unpack("4.9.7-clean", tmp_path))
    tried = 0
    for wrong in ALL[name].params:
        shown = wrong.metavar or ""
        if not PATHS.search(shown) or shown in NO_PATHS:
            continue
        words = name.split()
        for parameter in ALL[name].params:
            argument = parameter.param_type_name == "argument"
            value = "" if parameter is wrong else "orders" if parameter.name == "topic" else "x"
            if parameter is wrong or parameter.required:
                words += [value] if argument else [f"{parameter.opts[0]}={value}"]
        result = run_here(words)
        assert (result.code, result.stdout) == (2, ""), words
        assert EMPTY_PATH in result.stderr, (words, result.stderr)
        tried += 1
    assert tried >= 2 or name == "explain"


def test_paths_are_judged_by_whoever_opens_them() -> None:
    """A path without permission is no wrong usage: typer does not look at it."""
    listed = app.program()
    names = listed.list_commands(None)
    commands = [listed.get_command(None, name) for name in names]
    groups = [command for command in commands if hasattr(command, "list_commands")]
    commands += [group.get_command(None, n) for group in groups for n in group.list_commands(None)]
    types = [parameter.type for command in commands for parameter in command.params]
    paths = [each for each in types if hasattr(each, "readable")]
    assert len(paths) >= len(names)
    assert not any(each.readable or each.exists or each.writable for each in paths)
