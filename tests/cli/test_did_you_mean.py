"""What a word that is no command or option may have meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.cli.app import COMMANDS
from mqstore.cli.did_you_mean import command_hint, option_hint


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("fsck", "did you mean mqstore verify PATH?"),
        ("verfy", "did you mean mqstore verify?"),
        (" VERIFY ", "did you mean mqstore verify?"),
        ("tial", "did you mean mqstore get STORE --follow?"),
        ("xyzzy", ""),
        ("", ""),
    ],
)
def test_a_command(word: str, hint: str) -> None:
    """A name of another tool, one that is mistyped, and one that nobody can tell."""
    assert command_hint(word, COMMANDS) == hint


def test_a_command_of_a_group() -> None:
    """Its own commands come before those of the program."""
    assert command_hint("exprot", ["export", "import"], "mqstore pipeline") == "did you mean mqstore pipeline export?"


@pytest.mark.parametrize(
    ("word", "known", "command", "hint"),
    [
        ("--json", ["--format"], "verify", "did you mean --format json?"),
        ("--json", ["--output"], "verify", ""),
        ("--threads", ["--jobs"], "verify", "did you mean --jobs N?"),
        ("--fix", ["--jobs"], "verify", "did you mean mqstore repair STORE --apply?"),
        ("--dry-run", ["--apply"], "recover", "nothing is written without --apply"),
        ("--dry-run", ["--jobs"], "verify", "this command only reads; it writes nothing"),
        ("--dry-run", ["--jobs"], "put", ""),
        ("--master", ["--rate"], "import", "this command runs in this process, without Spark"),
        ("--jbos", ["--jobs", "-j"], "verify", "did you mean --jobs?"),
    ],
)
def test_an_option(word: str, known: list[str], command: str, hint: str) -> None:
    """Only what the command has is proposed; who asks for a dry run is told what happens without."""
    assert option_hint(word, known, command) == hint


@given(st.text(max_size=200))
def test_any_word_has_an_answer(word: str) -> None:
    """However odd or long it is, the hint is a line of ours with nothing of the word in it."""
    for hint in (command_hint(word, COMMANDS), option_hint(word, ["--jobs"], "verify")):
        assert hint == "" or (hint.isprintable() and "\n" not in hint)
