"""The progress bar: only for people who wait, never in the data."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from mqstore.cli import progress
from mqstore.cli.kind_option import KindName
from mqstore.cli.options import Common
from mqstore.formats.kinds import KINDS

from .. import stores
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
    alone: bool = False,
) -> str:
    """What a bar writes to a terminal on stderr; data goes to a file, or there, too."""
    out, err = _Stream(data_on_terminal), _Stream(True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "QUIET_SECONDS", quiet_seconds)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", out)
        patched.setattr(sys, "stderr", err)
        with common.progress("reading", 4 << 20, alone=alone) as bar:
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


def test_no_bar_for_short_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than a second."""
    assert _shown(monkeypatch, Common(), quiet_seconds=1000.0) == ""


def test_no_bar_between_lines_of_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where stdout is the terminal, too."""
    assert _shown(monkeypatch, Common(), data_on_terminal=True) == ""


def test_a_bar_before_anything_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "reading" in _shown(monkeypatch, Common(), data_on_terminal=True, alone=True)


def test_no_bar_in_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but data."""
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    store = stores.unpack("4.9.7-clean", tmp_path)
    assert run_here(["dump", str(store)]).stderr == ""


def test_as_takes_every_kind() -> None:
    """The list that `--help` shows is that of the formats."""
    assert {*KINDS, "store"} == {kind.value for kind in KindName}
