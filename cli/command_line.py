"""Command lines that typer parses because they are not plain: help, old spellings, mistakes."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from copy import copy
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import TyperPath

from .declared import EMPTY_PATH, PROGRAM, REQUIRED, Argument, Exit, Group, Parameter
from .did_you_mean import command_hint, option_hint
from .options import Common
from .plain_line import is_uri

OLD_SPELLINGS = {
    "as_broker": ("--broker-version",),
    "broker_version": ("--as-broker",),
    "count": ("--limit",),
    "top": ("--limit",),
    "dry_run": ("-n",),
}
"""Parameter name → option names that are accepted, too; no help shows them."""
COMMON_OPTIONS = "Common options"
"""Heading in the help of the options that every command has."""
_SETTINGS = {
    "rich_markup_mode": None,
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 100},
}
"""Completion comes from the scripts in `completions/`, `cli/app.py` prints errors, help is plain text: rich would
triple the time of a start.
"""


class Command(TyperCommand):
    """A command that also accepts old spellings of its options, and lists common options last in its help."""

    def make_parser(self, ctx: Any) -> Any:
        parser = super().make_parser(ctx)
        taken = options_of(self)
        for parameter in self.params:
            old = [name for name in OLD_SPELLINGS.get(parameter.name or "", ()) if name not in taken]
            if old:
                hidden = copy(parameter)
                hidden.opts = old
                hidden.add_to_parser(parser, ctx)
        return parser

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, the command's own options, then the options that every command has."""
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in ("Arguments", "Options", COMMON_OPTIONS)}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            own = "Arguments" if parameter.param_type_name == "argument" else "Options"
            title = getattr(parameter, "rich_help_panel", None) or own
            if parameter.name == "help" and sections[COMMON_OPTIONS]:
                title = COMMON_OPTIONS
            if record is not None:
                sections[title].append(record)
        for title, rows in sections.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


class CommandGroup(TyperGroup):
    """A group of commands; the error for an unknown command suggests the one that is probably meant."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names. Raises UsageError."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            hint = command_hint(args[0], self.list_commands(ctx), ctx.command_path)
            ctx.fail(f"no such command: {args[0]}" + (f"; {hint}" if hint else ""))
        return super().resolve_command(ctx, args)


class AllCommands(CommandGroup):
    """All commands, each imported when it is asked for. load: returns the function or the `Group` of a command."""

    load: Callable[[str], Any]
    summaries: Mapping[str, str]

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.summaries)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | TyperGroup | None:
        if cmd_name not in self.summaries:
            return None
        if cmd_name not in self.commands:
            command = command_of(self.load(cmd_name))
            command.name = cmd_name
            self.commands[cmd_name] = command
        return self.commands[cmd_name]  # type: ignore[return-value]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands with their summaries, without importing any of them."""
        limit = formatter.width - 6 - max(map(len, self.summaries))
        with formatter.section("Commands"):
            formatter.write_dl([(name, _shortened(text, limit)) for name, text in self.summaries.items()])


def _shortened(text: str, limit: int) -> str:
    return TyperCommand(None, help=text, rich_markup_mode=None).get_short_help_str(limit)


def program(help: str, summaries: Mapping[str, str], load: Callable[[str], Any]) -> Any:
    """The typer program of mqstore. summaries: command → summary. load: as of `AllCommands`."""
    made = typer.Typer(help=help, **_SETTINGS)  # type: ignore[arg-type]
    made.callback(cls=AllCommands, invoke_without_command=True)(_program)
    whole: Any = typer.main.get_command(made)
    whole.load, whole.summaries = load, summaries
    return whole


def _program(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", is_eager=True, help="Show the version.")] = False,
    verbose: Annotated[
        bool, typer.Option("-v", help="With --version: also say whether the native kernel is used.")
    ] = False,
) -> None:
    if version:
        _print_version(verbose)
        raise Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


def _print_version(verbose: bool) -> None:
    from importlib.metadata import version as version_of

    print(f"{PROGRAM} {version_of(PROGRAM)}")
    if verbose:
        import platform

        from ..formats import kernel

        print(f"Python {platform.python_version()}, numpy {version_of('numpy')}")
        print(f"bulk bytes are read by: {kernel.describe()}")


def command_of(declared: Any) -> TyperCommand | TyperGroup:
    """The typer command for a function, or the group of commands for a `Group`."""
    group = declared if isinstance(declared, Group) else Group("", {declared.__name__: declared})
    made = typer.Typer(cls=CommandGroup, help=group.help, **_SETTINGS)  # type: ignore[arg-type]
    for name, function in group.commands.items():
        made.command(name, cls=Command)(_for_typer(function))
    command: Any = typer.main.get_command(made)
    return command  # type: ignore[no-any-return]


def _for_typer(function: Any) -> Callable[..., None]:
    @functools.wraps(function)
    def command(**values: Any) -> None:
        function(**values)

    parameters = [_of_typer(parameter) for parameter in function.parameters()]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def _of_typer(parameter: Parameter) -> inspect.Parameter:
    """The typer parameter for a declared one. It checks no path: the command reports that, and as no wrong usage."""
    declared, declaration = get_args(parameter.annotation)
    make = typer.Argument if isinstance(declaration, Argument) else typer.Option
    info = make(*declaration.names, **declaration.settings)
    if parameter.name in Common.__annotations__:
        info.rich_help_panel = COMMON_OPTIONS
    if declared is Path or Path in get_args(declared):
        info.click_type = PathType(readable=False)
    default = inspect.Parameter.empty if parameter.default is REQUIRED else parameter.default
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(parameter.name, kind, default=default, annotation=Annotated[declared, info])


def options_of(command: Any) -> set[str]:
    return {name for p in command.params for name in (*p.opts, *p.secondary_opts)}


def usage_text(error: typer.TyperException, command: str) -> str:
    """What is wrong with a command line, what may be meant, where help is. command: for an error without typer's
    context.
    """
    context: Any = getattr(error, "ctx", None)
    path = context.command_path if context else f"{PROGRAM} {command}".rstrip()
    text = error.format_message().rstrip(".")
    for kind, name in (("int", "whole number"), ("float", "number")):
        text = re.sub(rf"is not a valid {kind}( range)?$", f"is not a {name}", text)
    option = getattr(error, "option_name", None)
    if option is not None and hasattr(error, "possibilities") and context is not None:
        hint = option_hint(option, options_of(context.command), context.command.name)
        text = f"no such option: {option}" + (f"; {hint}" if hint else "")
    return f"{text}{'' if text.endswith('?') else ';'} see {path} --help"


class PathType(TyperPath):
    """A path on a command line. Refuses an empty one, which would mean the current directory, `-` for `--to`, and
    URIs.
    """

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the path as it was typed. Raises BadParameter."""
        if value == "":
            self.fail(EMPTY_PATH, param, ctx)
        if value == "-" and getattr(param, "name", "") == "to":
            self.fail("- is not accepted as a path; name one", param, ctx)
        if isinstance(value, str) and is_uri(value):
            self.fail(f"{value}: use a path of this machine, not a URI", param, ctx)
        return super().convert(value, param, ctx)
