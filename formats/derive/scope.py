"""Name lookup for expressions of a schema that are evaluated over columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class ExpressionScope:
    """`this` of an expression: members of one struct by name, `_` for the enclosing struct."""

    def __init__(self, look_up: Callable[[str], Any], prefix: str) -> None:
        self._look_up = look_up
        self._prefix = prefix

    def __getitem__(self, name: str) -> Any:
        if name == "_":
            outer = self._prefix.rstrip(".").rpartition(".")[0]
            return ExpressionScope(self._look_up, f"{outer}." if outer else "")
        try:
            return self._look_up(self._prefix + name)
        except KeyError:
            return ExpressionScope(self._look_up, f"{self._prefix}{name}.")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]
