"""The commands of mqstore with their options, as plain data, from the typer app."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mqstore.cli import diff_options, explain, offsets, stats_answer
from mqstore.cli.app import program
from mqstore.cli.command_line import PathType
from mqstore.cli.declared import PROGRAM, path_text
from mqstore.cli.kind_option import KindName
from mqstore.cli.options import Common
from mqstore.store.broker.profiles import VERSIONS
from mqstore.store.damage.scenarios import scenarios
from mqstore.store.findings.catalogue import GROUPS


@dataclass(frozen=True)
class Parameter:
    """An option or an argument. choices: all values. shared: one of those that every command has."""

    names: tuple[str, ...]
    metavar: str
    help: str
    choices: tuple[str, ...]
    is_argument: bool
    is_path: bool
    required: bool
    repeatable: bool
    shared: bool
    default: str

    @property
    def takes_value(self) -> bool:
        """Whether a value follows."""
        return bool(self.metavar)


@dataclass(frozen=True)
class Command:
    """A command or a group of commands. name: as typed, `mqstore pipeline rebuild`."""

    name: str
    summary: str
    paragraphs: tuple[str, ...]
    examples: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    is_group: bool

    @property
    def options(self) -> tuple[Parameter, ...]:
        """Without the arguments."""
        return tuple(p for p in self.parameters if not p.is_argument)

    @property
    def arguments(self) -> tuple[Parameter, ...]:
        """Without the options."""
        return tuple(p for p in self.parameters if p.is_argument)

    @property
    def word(self) -> str:
        """The last word of the name."""
        return self.name.rpartition(" ")[2]


def commands() -> list[Command]:
    """All of them: mqstore itself first, a group before its commands."""
    return list(_walk(program(), PROGRAM))


def _walk(command: Any, name: str) -> Iterator[Command]:
    yield _command(command, name)
    if hasattr(command, "list_commands"):
        for word in command.list_commands(None):
            yield from _walk(command.get_command(None, word), f"{name} {word}")


def _command(command: Any, name: str) -> Command:
    text = inspect.cleandoc(command.help or "")
    description, _, examples = text.partition("\b\nExamples:\n")
    paragraphs = [" ".join(part.split()) for part in description.split("\n\n") if part.strip()]
    return Command(
        name,
        (paragraphs[0] if paragraphs else "").partition(". ")[0].rstrip("."),
        tuple(paragraphs),
        tuple(line.strip() for line in examples.splitlines() if line.strip()),
        tuple(_parameter(each, name) for each in command.params if not getattr(each, "hidden", False)),
        hasattr(command, "list_commands"),
    )


_WORDS: Mapping[str, Iterable[str]] = {
    "broker_version": VERSIONS,
    "as_broker": VERSIONS,
    "kind": KindName,
    "damage scenario": scenarios(),
    "verify only": GROUPS,
    "diff only": diff_options.WHAT,
    "stats by": stats_answer.BY,
    "offsets by": offsets.BY,
    "offsets take": offsets.TAKE,
    "explain codes": dict(explain.everything()),
}
"""The values of parameters that typer takes for any text: name of the parameter, if necessary behind the command."""
_SHARED = set(Common.__annotations__)


def _parameter(parameter: Any, command: str) -> Parameter:
    choices = tuple(str(getattr(c, "value", c)) for c in getattr(parameter.type, "choices", ()))
    is_argument = parameter.param_type_name == "argument"
    flag = bool(getattr(parameter, "is_flag", False))
    metavar = parameter.metavar or ("|".join(choices) if choices else parameter.name.upper())
    of_command = f"{command.rpartition(' ')[2]} {parameter.name}"
    choices = choices or tuple(map(str, _WORDS.get(of_command, _WORDS.get(parameter.name, ()))))
    names = (*parameter.opts, *parameter.secondary_opts)
    default = parameter.default
    shown = default is not None and not flag and not callable(default) and default != ()
    return Parameter(
        () if is_argument else tuple(sorted(names, key=len)),
        "" if flag else metavar,
        parameter.help or "",
        choices,
        is_argument,
        isinstance(parameter.type, PathType) or getattr(parameter.type, "func", None) is path_text,
        bool(parameter.required),
        bool(parameter.multiple or parameter.nargs == -1),
        not is_argument and parameter.name in _SHARED,
        str(getattr(default, "value", default)) if shown else "",
    )
