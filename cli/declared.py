"""Declarations of a command without typer: options, output formats, exit, and errors in a command line.

Budgets of a start, in CPU time of `python -c pass`, whole processes, modules compiled: 7 times for `get` of a message
by its place, and for `--help`. typer alone takes 5. So `plain_line` reads a plain command line from these declarations;
`command_line` gives the same declarations to typer, for help and for lines with anything unusual or wrong. `python -m
tests.bench start` measures it, `.ci/run` warns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, NamedTuple, dataclass_transform, get_type_hints

PROGRAM = "mqstore"


class Option:
    """An option: its names, and the settings of `typer.Option`."""

    def __init__(self, *names: str, **settings: Any) -> None:
        self.names = names
        self.settings = settings


class Argument(Option):
    """An argument: the settings of `typer.Argument`."""


REQUIRED: Any = object()
"""The default of a parameter that has none."""


class Parameter(NamedTuple):
    """A parameter of a command. annotation: `Annotated[type, declaration]`."""

    name: str
    default: Any
    annotation: Any


class _Member(NamedTuple):
    option: Option
    default: Any


def option(*names: str, default: Any = None, **settings: Any) -> Any:
    """An option of a group, in place of its value: `topic: str | None = option("--topic", help="…")`."""
    return _Member(Option(*names, **settings), default)


def flag(*names: str, help: str) -> Any:
    return option(*names, default=False, help=help)


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Options:
    """A group of options. An instance holds the values of a call; the class declares the options and their defaults:
    by `option`, by `flag`, or, if groups share it, by a type `Annotated[…, Option(…)]` and a default.

    Not a dataclass: making those costs a fifth of a short command.
    """

    _options: ClassVar[dict[str, Option]]

    def __init_subclass__(cls) -> None:
        cls._options = {name: value.option for name, value in vars(cls).items() if isinstance(value, _Member)}
        for name in cls._options:
            setattr(cls, name, getattr(cls, name).default)

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    def __eq__(self, other: object) -> bool:
        names = type(self).__annotations__
        return type(self) is type(other) and all(getattr(self, name) == getattr(other, name) for name in names)

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def parameters(cls) -> Iterator[Parameter]:
        hints = get_type_hints(cls, include_extras=True)
        for name in cls.__annotations__:
            annotation = Annotated[hints[name], cls._options[name]] if name in cls._options else hints[name]
            yield Parameter(name, getattr(cls, name), annotation)

    def changed_names(self, *besides: str) -> set[str]:
        """Names of the options whose value is not the default. besides: names to leave out."""
        own = type(self)
        return {each for each in own.__annotations__ if getattr(self, each) != getattr(own, each)}.difference(besides)

    def said(self, *besides: str) -> list[str]:
        """The options whose value is not the default, as they are typed. besides: names to leave out."""
        given = self.changed_names(*besides)
        if not given:  # evaluating the annotations, which are strings, takes time
            return []
        declared = (each.annotation.__metadata__[0] for each in self.parameters() if each.name in given)
        return [each.names[0].partition("/")[0] for each in declared]


class Group(NamedTuple):
    """Several commands below one: the help of the group, and each command by its name."""

    help: str
    commands: Mapping[str, Any]


Format = StrEnum("Format", "TEXT JSON NDJSON CSV")
"""Output format. Text is for people and may change, the other formats are stable."""


class Exit(Exception):
    def __init__(self, exit_code: int = 0) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


class Stopped(Exception):
    """Ctrl-C was pressed. Not KeyboardInterrupt, for which typer would exit without a message."""


def bad_parameter(text: str, *, param_hint: str | None = None) -> Exception:
    """The error for a wrong value, or for options that cannot be combined."""
    from typer import BadParameter

    return BadParameter(text, param_hint=param_hint)


def exclude(option: str, groups: Iterable[Options], *goes_with: str) -> None:
    """Raises BadParameter if an option of some groups is given that has no meaning beside `option`.

    goes_with: names of options that may be combined with it.
    """
    for other in (name for group in groups for name in group.said(*goes_with)):
        raise bad_parameter(f"{option} and {other} cannot be combined")


EMPTY_PATH = "the path is empty: is a variable not set?"


def path_text(text: str) -> str:
    """Check a path, or a list of paths, that a command takes as text. Raises BadParameter if the text is empty."""
    if not text:
        raise bad_parameter(EMPTY_PATH)
    return text
