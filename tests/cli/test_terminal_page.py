"""The page of a verdict at a terminal: colours beside its words, the verdict last, too."""

from __future__ import annotations

import re

import pytest

from mqstore.cli.exit_codes import ExitCode
from mqstore.cli.terminal_page import on_terminal

COLOURS = re.compile(r"\x1b\[\d+m")
PAGE = "s: Do not start: x\n\nFatal:\n  I-001  a: Fatal:\n\nWarning:\n  I-002  b\n\nWhat now: look\n  c"


@pytest.mark.parametrize(("code", "style"), [(ExitCode.DONE, 32), (ExitCode.UNCLEAN, 33), (ExitCode.NO, 31)])
def test_verdict_and_severities_have_colour(code: ExitCode, style: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside their words: without colours the page is the same."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "40")
    shown = on_terminal(PAGE, code, colour=True)
    assert COLOURS.sub("", shown) == PAGE == on_terminal(PAGE, code, colour=False)
    lines = shown.split("\n")
    assert lines[0] == f"\x1b[{style}ms: Do not start: x\x1b[0m"
    assert (lines[2], lines[5]) == ("\x1b[31mFatal:\x1b[0m", "\x1b[33mWarning:\x1b[0m")
    assert lines[3] == "  I-001  a: Fatal:" and lines[8].startswith("\x1b[1m")


@pytest.mark.parametrize(("columns", "rows", "twice"), [(80, 11, False), (80, 10, True), (9, 12, True)])
def test_of_a_long_page_the_verdict_is_last_too(
    columns: int, rows: int, twice: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the first line has left the screen; lines that go on below count as they are shown."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", str(rows))
    shown = on_terminal(PAGE, ExitCode.NO, colour=False)
    assert shown == (f"{PAGE}\n\ns: Do not start: x" if twice else PAGE)
