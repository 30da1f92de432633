"""Plain command lines: what is read without typer is what typer reads."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import Enum
from functools import cache
from typing import Any, get_args

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from mqstore.cli import app
from mqstore.cli.command_line import command_of
from mqstore.cli.declared import Group, Parameter
from mqstore.cli.plain_line import values_of
from mqstore.store.errors import StoreError


def _functions() -> Iterator[tuple[str, Any]]:
    for name in app.COMMANDS:
        command = app._command(name)
        if isinstance(command, Group):
            yield from ((f"{name} {own}", function) for own, function in command.commands.items())
        else:
            yield name, command


FUNCTIONS = dict(_functions())


@cache
def _recorded(name: str) -> tuple[Any, dict[str, Any]]:
    """The command as typer has it, and where it leaves what it is called with."""
    seen: dict[str, Any] = {}

    def record(**values: Any) -> None:
        seen.update(values)

    record.parameters = FUNCTIONS[name].parameters  # type: ignore[attr-defined]
    return command_of(record), seen


def typers_values(name: str, words: Sequence[str]) -> dict[str, Any]:
    """What typer hands to a command; nothing where it does not call it."""
    command, seen = _recorded(name)
    seen.clear()
    with suppress(typer.TyperException, StoreError):
        command.main(list(words), "mqstore", standalone_mode=False)
    return dict(seen)


def _examples() -> Iterator[tuple[str, list[str]]]:
    """The command lines in the help of all commands, without what a shell does around them."""
    for name, function in FUNCTIONS.items():
        for line in (function.__doc__ or "").splitlines():
            if line.strip().startswith("mqstore "):
                words = list(itertools.takewhile(lambda w: w not in ("|", ">", "<"), shlex.split(line)))
                yield name, words[1 + len(name.split()) :]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_examples_are_plain_and_mean_the_same(name: str) -> None:
    for of_command, words in _examples():
        if of_command == name:
            assert values_of(FUNCTIONS[name].parameters(), words) == typers_values(name, words)


TEXTS = ("a", "", "-", "--", "0", "7", "-1", " 3", "1_0", "2.5", "nan", "10%", "90s", "64K", "5.3")
GOOD: dict[Any, tuple[str, ...]] = {int: ("7", "1_0"), float: ("2.5", "nan")}
ODD = ("--no-such", "--help", "-h", "-qv", "-n5", "--quiet=1", "--format", "--limit", "s3://b/s")


@st.composite
def lines(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A command and words, most of which it takes."""
    name = draw(st.sampled_from(sorted(FUNCTIONS)))
    words: list[str] = []
    for _ in range(draw(st.integers(0, 4))):
        words += _piece(draw, draw(st.sampled_from(FUNCTIONS[name].parameters())))
    if draw(st.integers(0, 5)) == 0:
        words.append(draw(st.sampled_from(ODD)))
    return name, [*draw(st.lists(st.sampled_from(TEXTS), max_size=3)), *words]


def _piece(draw: st.DrawFn, parameter: Parameter) -> list[str]:
    declared, declaration = get_args(parameter.annotation)
    names = [each for name in declaration.names for each in name.split("/")]
    if not names:
        return [draw(st.sampled_from(TEXTS))]
    name = draw(st.sampled_from(names))
    if declared is bool:
        return [name]
    kinds = [kind for kind in (declared, *get_args(declared)) if isinstance(kind, type)]
    values = [str(each.value) for kind in kinds if issubclass(kind, Enum) for each in kind]
    good = [*values, *(text for kind in kinds for text in GOOD.get(kind, ()))]
    value = draw(st.sampled_from(good or TEXTS) if draw(st.booleans()) else st.sampled_from(TEXTS))
    return draw(st.sampled_from([[name, value], [f"{name}={value}"]]))


@given(lines())
def test_what_is_plain_means_the_same(line: tuple[str, list[str]]) -> None:
    name, words = line
    found = values_of(FUNCTIONS[name].parameters(), words)
    for parameter, value in (found or {}).items():
        typers = typers_values(name, words)[parameter]
        assert value == typers or repr(value) == repr(typers) == "nan"


def test_each_command_has_its_first_sentence_in_the_list() -> None:
    """`mqstore --help` imports none of them."""
    for name, summary in app.COMMANDS.items():
        one = app._command(name)
        help_of = one.help if isinstance(one, Group) else one.__doc__
        text = " ".join(help_of.split("\n\n")[0].split())
        assert text == summary or text.startswith(f"{summary} ")
        assert summary.endswith(".")
