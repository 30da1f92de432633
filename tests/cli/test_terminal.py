"""Nothing that moves a terminal gets out, in any format."""

from __future__ import annotations

import csv
import io
import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.cli import json_text
from mqstore.cli.terminal import (
    DANGEROUS,
    bytes_text,
    colour_wanted,
    escape,
    escape_lines,
    paint,
    time_text,
)

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@given(ANY_TEXT)
def test_escaped_text_has_nothing_dangerous(text: str) -> None:
    """One line, printable, and able to be written as UTF-8."""
    shown = escape(text)
    assert DANGEROUS.search(shown) is None
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


@given(st.dictionaries(ANY_TEXT, st.one_of(ANY_TEXT, st.lists(ANY_TEXT), st.integers())))
def test_json_is_the_same_data_and_safe(value: dict[str, object]) -> None:
    """Escapes of JSON lose nothing; not even halves of surrogate pairs of a file name."""
    for text in (json_text.dumps(value), json_text.dumps_wide(value).replace("\n", " ")):
        assert DANGEROUS.search(text) is None
        assert json.loads(text) == _joined(value)
        text.encode()


def _joined(value: dict[str, object]) -> object:
    """What any JSON reader makes of it: two halves side by side become one character."""
    return json.loads(json.dumps(value))


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
    assert [bytes_text(n) for n in (1023, 1024, 1 << 40, 1 << 51)] == [
        *("1023 B", "1.0 KiB", "1.0 TiB", "2.0 PiB")
    ]


def test_csv_module_reads_what_escape_leaves() -> None:
    """Line ends inside a cell survive in quotes."""
    line = io.StringIO()
    csv.writer(line).writerow([escape_lines("a\nb")])
    assert next(csv.reader(io.StringIO(line.getvalue()))) == ["a\nb"]
