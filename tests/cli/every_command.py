"""Every command, as typer has it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mqstore.cli import app


def commands() -> Iterator[tuple[list[str], Any]]:
    """Every command with the words that call it."""
    top: Any = app.program()
    for name in top.list_commands(None):
        command = top.get_command(None, name)
        if hasattr(command, "list_commands"):
            for word in command.list_commands(None):
                yield [name, word], command.get_command(None, word)
        else:
            yield [name], command


ALL = {" ".join(words): command for words, command in commands()}
