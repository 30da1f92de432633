"""Nothing that moves a terminal gets out, in any format."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.cli.terminal import colour_wanted, escape, escape_lines, paint, time_text
from mqstore.store.counted import bytes_text
from mqstore.store.output.escaped import DANGEROUS

from .. import stores
from .at_a_terminal import Terminal

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@given(ANY_TEXT)
def test_escaped_text_has_nothing_dangerous(text: str) -> None:
    """One line, printable, and able to be written as UTF-8."""
    shown = escape(text)
    assert re.search(DANGEROUS, shown) is None
    assert len(shown.splitlines()) <= 1
    shown.encode()


@given(ANY_TEXT)
def test_every_control_and_format_character_is_escaped(text: str) -> None:
    """The table of ranges agrees with Unicode's categories for what steers a terminal."""
    for char in escape(text):
        assert unicodedata.category(char) not in ("Cc", "Cs", "Zl", "Zp")
        assert unicodedata.bidirectional(char) not in (
            *("LRE", "RLE", "LRO", "RLO", "PDF"),
            *("LRI", "RLI", "FSI", "PDI"),
        )


@pytest.mark.parametrize("text", ["日本語 中文 ", "emoji 😀 é", "a\u3000b\u00a0c", "\ufffd"])
def test_letters_of_all_languages_stay(text: str) -> None:
    """Only what steers is escaped."""
    assert escape(text) == text


def test_escape_lines_keeps_line_ends_only() -> None:
    """For text of ours with foreign text in it."""
    assert escape_lines("a\nb\r\x1b[0m\tc") == "a\nb\\r\\x1b[0m\\tc"


def test_paint_escapes_and_colours() -> None:
    """Colour is ours, the text is not."""
    assert paint("\x1b[31mx", "red", colour=True) == "\x1b[31m\\x1b[31mx\x1b[0m"
    assert paint("x", "red", colour=False) == "x"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_only_on_a_terminal_that_nobody_forbids(monkeypatch: pytest.MonkeyPatch) -> None:
    """The option, NO_COLOR and a dumb terminal forbid; a closed stream has no reader."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert colour_wanted(_Terminal(), no_color=False)
    assert not colour_wanted(_Terminal(), no_color=True)
    assert not colour_wanted(io.StringIO(), no_color=False)
    assert not colour_wanted(None, no_color=False)
    monkeypatch.setenv("TERM", "dumb")
    assert not colour_wanted(_Terminal(), no_color=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colour_wanted(_Terminal(), no_color=False)


@pytest.mark.parametrize("epoch_ms", [2**63 - 1, -(2**63), 10**17])
def test_times_that_no_calendar_has_stay_numbers(epoch_ms: int) -> None:
    """A damaged time field is shown, not a traceback."""
    assert time_text(epoch_ms, utc=True) == str(epoch_ms)
    assert time_text(epoch_ms, utc=False) == str(epoch_ms)


def test_sizes_for_people() -> None:
    """Powers of 1024, one digit."""
    assert [bytes_text(n) for n in (1023, 1024, 1 << 40, 1 << 51)] == [*("1023 B", "1.0 KiB", "1.0 TiB", "2.0 PiB")]


COLOURS = re.compile(r"\x1b\[\d+m")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("line", "environment", "coloured"),
    [
        ("verify", {}, True),
        ("recover", {}, True),
        ("inspect", {}, True),
        ("verify --no-color", {}, False),
        ("recover", {"NO_COLOR": "1"}, False),
        ("verify", {"TERM": "dumb"}, False),
        ("recover --format json", {}, False),
        ("verify --output page", {}, False),
    ],
)
def test_colours_of_a_command(line: str, environment: dict[str, str], coloured: bool, tmp_path: Path) -> None:
    """At a real terminal, unless somebody does not want them; never in a file."""
    root = stores.unpack("4.3.1-killed", tmp_path)
    words = [str(tmp_path / word) if word == "page" else word for word in line.split()]
    words += [str(root), "--no-progress"]
    with Terminal(*words, environment=environment, rows=5) as terminal:
        assert terminal.end() in (0, 1, 3)
    assert bool(COLOURS.search(terminal.shown)) is coloured
    if (tmp_path / "page").exists():
        assert "\x1b" not in (tmp_path / "page").read_text()
    elif "json" not in line:
        lines = [COLOURS.sub("", line) for line in terminal.screen]
        assert lines.count(lines[0]) == 2


def test_csv_module_reads_what_escape_leaves() -> None:
    """Line ends inside a cell survive in quotes."""
    line = io.StringIO()
    csv.writer(line).writerow([escape_lines("a\nb")])
    assert next(csv.reader(io.StringIO(line.getvalue()))) == ["a\nb"]
