"""How command lines are understood: old spellings, empty paths, and words that are none of ours."""

from __future__ import annotations

import re
from copy import copy
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import TyperPath

from .did_you_mean import PROGRAM, command_hint, option_hint

OLD_SPELLINGS = {
    "as_broker": ("--broker-version",),
    "broker_version": ("--as-broker",),
    "count": ("--limit",),
    "top": ("--limit",),
    "dry_run": ("-n",),
}
"""Options by the name of their parameter, and what they are called besides; no help tells it."""
_URI = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
"""It would become a folder called `s3:`."""
COMMON_OPTIONS = "Common options"
"""Where the help lists what every command has."""
EMPTY = "an empty path: is a variable not set?"


class Command(TyperCommand):
    """A command that takes the old spellings of its options, too, and says what may be meant."""

    def make_parser(self, ctx: Any) -> Any:
        """The parser of a command line."""
        parser = super().make_parser(ctx)
        taken = options_of(self)
        for parameter in self.params:
            old = [
                name for name in OLD_SPELLINGS.get(parameter.name or "", ()) if name not in taken
            ]
            if old:
                hidden = copy(parameter)
                hidden.opts = old
                hidden.add_to_parser(parser, ctx)
        return parser

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, the command's own options, then those that every command has."""
        sections: dict[str, list[tuple[str, str]]] = {
            title: [] for title in ("Arguments", "Options", COMMON_OPTIONS)
        }
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


class Group(TyperGroup):
    """Commands, with the one that is meant where a word is none of them."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names. Raises UsageError."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            hint = command_hint(args[0], self.list_commands(ctx), ctx.command_path)
            ctx.fail(f"no such command: {args[0]}" + (f"; {hint}" if hint else ""))
        return super().resolve_command(ctx, args)


def options_of(command: Any) -> set[str]:
    """Every option of a command, as it is typed."""
    return {name for p in command.params for name in (*p.opts, *p.secondary_opts)}


def usage_text(error: typer.TyperException) -> str:
    """What is wrong with a command line, what may be meant, and where help is."""
    context: Any = getattr(error, "ctx", None)
    path = context.command_path if context else PROGRAM
    said = error.format_message().rstrip(".")
    option = getattr(error, "option_name", None)
    if option is not None and hasattr(error, "possibilities") and context is not None:
        hint = option_hint(option, options_of(context.command), context.command.name)
        said = f"no such option: {option}" + (f"; {hint}" if hint else "")
    return f"{said}{'' if said.endswith('?') else ';'} see {path} --help"


class PathType(TyperPath):
    """A path of a command line. The empty one would be the folder that the shell is in."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """The path as it was typed. Raises BadParameter."""
        if value == "":
            self.fail(EMPTY, param, ctx)
        if isinstance(value, str) and _URI.match(value):
            self.fail(f"{value}: a path of this machine is wanted, no URI", param, ctx)
        return super().convert(value, param, ctx)


def path_text(text: str) -> str:
    """A path that a command takes as text, several of them perhaps. Raises BadParameter."""
    if not text:
        raise typer.BadParameter(EMPTY)
    return text
