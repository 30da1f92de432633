"""What a command says of itself, without typer: options, forms of its answer, how it ends, what is wrong.

The start of a command is held to a budget, in CPU of `python -c pass`, whole processes, modules
compiled: 7 times for `get` of a message by its place, and for `--help`. typer alone takes 5. So a
plain command line is read from these declarations (`plain_line`); help, and lines with anything
odd or wrong, are typer's, which takes the same declarations (`command_line`). `python -m tests.bench
start` measures it, `.ci/run` warns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar, dataclass_transform, get_type_hints

PROGRAM = "mqstore"
Function = TypeVar("Function", bound=Callable[..., None])


class Option:
    """An option: its names, and settings as those of `typer.Option`."""

    def __init__(self, *names: str, **settings: Any) -> None:
        self.names = names
        self.settings = settings


class Argument(Option):
    """An argument: settings as those of `typer.Argument`."""


REQUIRED: Any = object()
"""The default of a parameter without one."""


class Parameter(NamedTuple):
    """One of a command. annotation: `Annotated[type, declaration]`."""

    name: str
    default: Any
    annotation: Any


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Options:
    """A group of options: what it is called with, by name; the annotations are the declaration.

    All have a default. Not a dataclass: those cost a fifth of a short command.
    """

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    def __eq__(self, other: object) -> bool:
        names = type(self).__annotations__
        return type(self) is type(other) and all(getattr(self, name) == getattr(other, name) for name in names)

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def parameters(cls) -> Iterator[Parameter]:
        """The options, in order."""
        for name, annotation in get_type_hints(cls, include_extras=True).items():
            yield Parameter(name, getattr(cls, name), annotation)

    def set_ones(self, *besides: str) -> set[str]:
        """Names of the options with another value than their default. besides: those that do not count."""
        own = type(self)
        return {each for each in own.__annotations__ if getattr(self, each) != getattr(own, each)}.difference(besides)

    def said(self, *besides: str) -> list[str]:
        """The same, as they are typed."""
        given = self.set_ones(*besides)
        if not given:  # the annotations are texts, which take their time to be read
            return []
        declared = (each.annotation.__metadata__[0] for each in self.parameters() if each.name in given)
        return [each.names[0].partition("/")[0] for each in declared]


class App:
    """The `app` of a command's module: one command, or a group of them.

    functions: each with its name, None where that of the function is meant. Each has been made by
    `options.shared`.
    """

    def __init__(self, help: str | None = None) -> None:
        self.help = help
        self.functions: list[tuple[str | None, Any]] = []

    def command(self, name: str | None = None) -> Callable[[Function], Function]:
        """Decorator: a function is a command."""

        def add(function: Function) -> Function:
            self.functions.append((name, function))
            return function

        return add


class Format(StrEnum):
    """How data is printed. Text is for people and may change, the others are stable."""

    TEXT = "text"
    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"


class Exit(Exception):
    """A command is over."""

    def __init__(self, exit_code: int = 0) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


class Stopped(Exception):
    """Ctrl-C, which typer would take as the end, without a word."""


def bad_parameter(text: str, *, param_hint: str | None = None) -> Exception:
    """The error for what is wrong with a value, or with options that cannot be combined."""
    from typer import BadParameter

    return BadParameter(text, param_hint=param_hint)


def exclude(option: str, groups: Iterable[Options], *goes_with: str) -> None:
    """Raises BadParameter where other options are given that mean nothing beside this one.

    goes_with: names of those that do.
    """
    for other in (name for group in groups for name in group.said(*goes_with)):
        raise bad_parameter(f"{option} and {other} cannot be combined")


EMPTY_PATH = "the path is empty: is a variable not set?"


def path_text(text: str) -> str:
    """A path that a command takes as text, several of them perhaps. Raises BadParameter."""
    if not text:
        raise bad_parameter(EMPTY_PATH)
    return text
