"""The progress bar: only for people who wait, never in the data."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

from mqstore.cli import progress
from mqstore.cli.options import Common
from mqstore.formats.epoch_file import FILE as EPOCH_FILE

from .. import stores
from .at_a_terminal import Terminal
from .datadriven import run_here


class _Stream(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def _shown(
    monkeypatch: pytest.MonkeyPatch,
    common: Common,
    *,
    quiet_seconds: float = 0.0,
    data_on_terminal: bool = False,
    terminal: str = "xterm",
) -> str:
    """What a bar writes to a terminal on stderr; data goes to a file, or there, too."""
    out, err = _Stream(data_on_terminal), _Stream(True)
    monkeypatch.setenv("TERM", terminal)
    monkeypatch.setattr(progress, "QUIET_SECONDS", quiet_seconds)
    monkeypatch.setattr(progress, "_REDRAW_SECONDS", 0.0)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", out)
        patched.setattr(sys, "stderr", err)
        with common.progress("reading", 4 << 20) as bar:
            for _ in range(4):
                bar.advance(1 << 20)
    assert out.getvalue() == ""
    return err.getvalue()


def test_a_bar_with_bytes_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """On stderr, and gone at the end."""
    shown = _shown(monkeypatch, Common())
    assert "reading" in shown
    assert "4.0/4.0 MiB" in shown
    assert shown.endswith("\x1b[2K")


@pytest.mark.parametrize("common", [Common(quiet=True), Common(no_progress=True)])
def test_no_bar_where_it_is_not_wanted(common: Common, monkeypatch: pytest.MonkeyPatch) -> None:
    """By option."""
    assert _shown(monkeypatch, common) == ""


def test_no_bar_on_a_terminal_that_cannot_erase_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _shown(monkeypatch, Common(), terminal="dumb") == ""


def test_no_bar_for_short_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than a second."""
    assert _shown(monkeypatch, Common(), quiet_seconds=1000.0) == ""


def test_a_bar_where_data_goes_to_the_same_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is where an operator sits."""
    assert "reading" in _shown(monkeypatch, Common(), data_on_terminal=True)


AT_ONCE = (
    "from mqstore.cli import app, progress\n"
    "progress.QUIET_SECONDS = progress._REDRAW_SECONDS = progress._AFTER_DATA_SECONDS = 0.0\n"
    "app.main()\n"
)


@pytest.mark.few(1)
@pytest.mark.parametrize("command", ["dump", "verify", "recover", "repair", "salvage --dry-run", "get --grep orders"])
def test_no_line_of_data_is_garbled(command: str, tmp_path: Path) -> None:
    """What is on the screen at the end are the lines that a pipe gets, and no bar."""
    words = command.split()
    store = stores.unpack("4.9.7-clean", tmp_path)
    plain = run_here([*words, str(store)])
    with Terminal(*words, str(store), program=AT_ONCE, columns=200) as terminal:
        assert terminal.end() == plain.code
    assert "━" in terminal.shown and "KiB" in terminal.shown
    said = (plain.stdout + plain.stderr).replace("+00:00", "").split()
    assert "\n".join(terminal.screen).replace("+00:00", "").split() == said


@pytest.mark.few(1)
@pytest.mark.parametrize("words", ["recover --role slave --epoch", "diff"])
def test_a_bar_where_the_logs_of_a_slave_and_its_master_are_compared(words: str, tmp_path: Path) -> None:
    slave = stores.unpack("5.3.3-ha-slave", tmp_path)
    master = stores.unpack("5.3.3-ha-master", tmp_path)
    for root, begins in ((slave, (0,)), (master, (0, 8))):
        rows = "".join(f"{number}-{begin}\n" for number, begin in enumerate(begins, 1))
        (root / EPOCH_FILE).write_text(f"{len(begins)}\n0\n{rows}")
    with Terminal(*words.split(), str(master), str(slave), program=AT_ONCE, columns=200) as terminal:
        assert terminal.end() in (0, 1)
    drawn = terminal.shown.split("\r\x1b[2K")
    for what in ("reading the log", "comparing") if "slave" in words else ("comparing",):
        assert any(line.startswith(what) and "━" in line for line in drawn), what


@pytest.mark.few(1)
@pytest.mark.parametrize("columns", [20, 60, 100])
def test_a_bar_is_one_line(columns: int, tmp_path: Path) -> None:
    """Of a narrow terminal, too: what was printed above stays."""
    store = stores.unpack("4.9.7-clean", tmp_path)
    with Terminal("salvage", "-n", str(store), program=AT_ONCE, columns=columns) as terminal:
        terminal.end()
    drawn = re.sub(r"\x1b\[[\d;]*m", "", terminal.shown).split("\r\x1b[2K")
    assert max(len(line) for line in drawn[:-1]) < columns
    assert any("searching" in line for line in drawn)


def test_a_warning_stands_on_a_line_of_its_own(tmp_path: Path) -> None:
    """The bar makes room for it, too."""
    program = (
        "from mqstore.cli import progress\nfrom mqstore.cli.options import Common\n"
        "progress.QUIET_SECONDS = 0.0\n"
        "with Common().progress('reading', 100) as bar:\n"
        "    bar.advance(50); Common().warn('look'); bar.advance(50)\n"
        "print('done')\n"
    )
    with Terminal(program=program) as terminal:
        terminal.end()
    assert "reading" in terminal.shown
    assert terminal.screen == ["mqstore: look", "done"]


def test_no_bar_in_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but data."""
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    store = stores.unpack("4.9.7-clean", tmp_path)
    assert run_here(["dump", str(store)]).stderr == ""
