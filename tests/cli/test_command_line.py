"""How command lines are understood: words that are none of ours, old spellings."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from mqstore.cli import did_you_mean
from mqstore.cli.command_line import OLD_SPELLINGS, options_of

from .. import stores
from .datadriven import run_here
from .every_command import ALL


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("check", "mqstore verify PATH"),
        ("fsck", "mqstore verify PATH"),
        ("tail", "mqstore get STORE --follow"),
        ("find", "mqstore get STORE --key KEY"),
        ("fix", "mqstore repair STORE"),
        ("ls", "mqstore inspect PATH"),
        ("cat", "mqstore dump PATH"),
        ("restore", "mqstore undo STORE"),
        ("du", "mqstore stats STORE"),
        ("compare", "mqstore diff A B"),
        ("select", "mqstore sql QUERY STORE"),
        ("lag", "mqstore offsets STORE"),
        ("Verify", "mqstore verify?"),
        ("recvoer", "mqstore recover?"),
        ("chekc", "mqstore verify PATH"),
        ("pipeline check", "mqstore pipeline verify?"),
        ("pipeline stat", "mqstore pipeline stats?"),
        ("pipeline fix", "mqstore repair STORE"),
    ],
)
def test_a_word_that_is_no_command_leads_somewhere(word: str, meant: str) -> None:
    result = run_here([*word.split(), "/data/store"])
    assert (result.code, result.stdout) == (2, "")
    assert f"did you mean {meant}" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("word", ["xyzzy", "q", "\x1b[31m", ""])
def test_a_word_like_nothing_leads_to_help(word: str) -> None:
    result = run_here([word])
    assert result.code == 2
    assert "did you mean" not in result.stderr and "mqstore --help" in result.stderr
    assert "\x1b" not in result.stderr


def test_what_is_meant_is_there() -> None:
    """Every command line that is proposed has a command and options of ours."""
    meant = {*did_you_mean.COMMANDS.values(), *did_you_mean.ELSEWHERE.values()}
    lines = [f"mqstore{line}" for text in meant for line in text.split("mqstore")[1:]]
    assert len(lines) > 20
    for line in lines:
        words = shlex.split(re.sub(r" beside|, or|\([^)]*\)", "", line))[1:]
        name = next((n for n in (" ".join(words[:2]), words[0]) if n in ALL), "")
        options = {word for word in words if word.startswith("-")}
        known = options_of(ALL[name]) if name else {"--help", "--version"}
        assert options <= known, line
    named = {text.split()[0] for options in did_you_mean.OPTIONS.values() for text in options}
    assert named <= {option for command in ALL.values() for option in options_of(command)}


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("verify s --json", "did you mean --format json?"),
        ("get s --json", "did you mean --format json?"),
        ("recover s --dry-run", "nothing is written without --apply"),
        ("repair s -n", "nothing is written without --apply"),
        ("undo s --dry-run", "undo shows what it would take back"),
        ("verify s --dry-run", "this command only reads"),
        ("verify s --fix", "did you mean mqstore repair STORE --apply?"),
        ("get s --head 3", "did you mean --limit N?"),
        ("dump s --head=3", "did you mean --count N?"),
        ("get s --limt 3", "did you mean --limit?"),
        ("get s --msg-id 3", "did you mean --message-id HEX?"),
        ("recover s --threads 3", "did you mean --jobs N?"),
    ],
)
def test_an_option_that_is_none_leads_somewhere(line: str, hint: str) -> None:
    result = run_here(line.split())
    assert (result.code, result.stdout) == (2, "")
    assert hint in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("line", ["put s --dry-run", "damage s --dry-run", "get s --zzz"])
def test_an_option_that_nothing_is_like(line: str) -> None:
    """What writes is not said to write nothing."""
    result = run_here(line.split())
    assert result.code == 2 and "no such option" in result.stderr
    assert "nothing" not in result.stderr and "did you mean" not in result.stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("recover store --wait x", "'--wait': 'x' is not a number;"),
        ("stats store --jobs 1.5", "'1.5' is not a whole number;"),
        ("damage store --to copy --seed x", "'--seed': 'x' is not a whole number;"),
    ],
)
def test_what_is_no_number(line: str, said: str) -> None:
    result = run_here(line.split())
    assert result.code == 2 and said in result.stderr


def test_old_spellings_work_and_are_not_told(tmp_path: Path) -> None:
    """-n counts records, whatever the option is called; --dry-run of salvage had it before."""
    root = str(stores.unpack("4.9.7-clean", tmp_path))
    one = run_here(["dump", root, "--count", "1"])
    for words in (["-n", "1"], ["--limit", "1"], ["--limit=1"], ["-n1"]):
        assert run_here(["dump", root, *words]) == one
    dry = run_here(["salvage", root, "--dry-run"])
    assert run_here(["salvage", root, "-n"]) == dry
    for name, command in ALL.items():
        told = run_here([*name.split(), "--help"]).stdout
        for parameter in command.params:
            for old in set(OLD_SPELLINGS.get(parameter.name or "", ())) - options_of(command):
                assert not re.search(rf"(?<![\w-]){old}\b", told), (name, old)


def test_one_letter_has_one_meaning() -> None:
    """In every command that has it."""
    meanings: dict[str, set[str]] = {}
    for command in ALL.values():
        for parameter in command.params:
            for option in parameter.opts:
                if len(option) == 2:
                    meanings.setdefault(option, set()).add(parameter.name)
    counts = {"limit", "count", "top"}
    assert meanings.pop("-n") == counts
    assert {letter: names for letter, names in meanings.items() if len(names) > 1} == {}
