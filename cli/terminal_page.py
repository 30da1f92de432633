"""A page with a verdict on a terminal: coloured, and with the verdict again at the end of a long page."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .exit_codes import ExitCode
from .terminal import paint

_OF_CODES = {ExitCode.DONE: "green", ExitCode.UNCLEAN: "yellow"}
"""Colour of a verdict by its exit code; others are red."""
_HEADS = {"Fatal": "red", "Error": "red", "Warning": "yellow", "Info": "cyan"}
_HEAD = re.compile(rf"({'|'.join(_HEADS)}):")
_NEXT = ("What now:", "Next:", "Then:")


def on_terminal(text: str, code: ExitCode, *, colour: bool) -> str:
    """The page with colours. text: escaped; the verdict is everything up to the first empty line.

    code: the exit code of the command.
    """
    from shutil import get_terminal_size

    columns, rows = get_terminal_size()
    lines = text.split("\n")
    shown = list(_painted(lines, code, colour))
    taken = sum(1 + max(0, len(line) - 1) // columns for line in lines)
    if taken >= rows:
        verdict = shown[: _verdict_lines(lines)]
        shown += ["", *verdict]
    return "\n".join(shown)


def _verdict_lines(lines: list[str]) -> int:
    return lines.index("") if "" in lines else len(lines)


def _painted(lines: list[str], code: ExitCode, colour: bool) -> Iterator[str]:
    verdict = _verdict_lines(lines)
    for number, line in enumerate(lines):
        if number < verdict:
            yield paint(line, _OF_CODES.get(code, "red"), colour)
        elif head := _HEAD.fullmatch(line):
            yield paint(line, _HEADS[head[1]], colour)
        elif line.startswith(_NEXT):
            yield paint(line, "bold", colour)
        else:
            yield line
