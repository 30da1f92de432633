"""The command `mqstore`: which commands there are, and what their errors say to the shell.

A command is a module of this package with an `app` (see `options.command_app`). It is imported when
it is called, or listed: its own heavy imports therefore belong into its function.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .command_line import Group, usage_text
from .did_you_mean import PROGRAM
from .exit_codes import ExitCode, exit_code_of
from .options import command_app, say
from .progress import SCREEN

if TYPE_CHECKING:
    from typer.core import TyperCommand, TyperGroup

_YOUNG_OBJECTS = 20_000
"""Between two looks for garbage: imports make many objects, and none of them is any."""

COMMANDS = (
    *("put", "get", "inspect", "dump", "verify", "recover", "repair", "undo", "salvage"),
    *("stats", "export", "sql", "diff", "explain", "damage", "pipeline"),
)
"""In the order of `mqstore --help`; what is not built yet is not here."""


class Commands(Group):
    """The commands, each imported when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in that order."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | TyperGroup | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in self.commands:
            module = import_module(f".{cmd_name}", __package__)
            command = typer.main.get_command(module.app)
            command.name = cmd_name
            self.commands[cmd_name] = command
        return self.commands[cmd_name]  # type: ignore[return-value]


app = command_app(
    help="""Read, check, recover and write the message store of an Apache RocketMQ broker, offline.

    Run it before you restart a broker: a broker's own start cuts the log at the first bad record
    and says so afterwards. Commands that read write nothing, whatever they meet.

    \b
    Examples:
      mqstore inspect /data/store
      mqstore dump /data/store --format ndjson | jq .topic
      mqstore get /data/store --topic orders --key 4711
      mqstore recover /data/store
      mqstore undo /data/store --list
    """
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"{PROGRAM} {version(PROGRAM)}")
        raise typer.Exit


@app.callback(cls=Commands, invoke_without_command=True)
def _program(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and give its exit code. Prints errors as one line on stderr."""
    SCREEN.at_work = None
    command = typer.main.get_command(app)
    try:
        result = command.main(
            None if arguments is None else list(arguments), PROGRAM, standalone_mode=False
        )
        if sys.stdout is not None:
            sys.stdout.flush()
        return result if isinstance(result, int) else ExitCode.DONE
    except BrokenPipeError:
        _forget_stdout()
        return ExitCode.DONE
    except SystemExit as ended:  # typer's own answer to a closed pipe
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        _forget_stdout()
        return ExitCode.DONE
    except (KeyboardInterrupt, typer.Abort) as stopped:
        at_work = SCREEN.at_work
        how_far: list[str] = [str(at_work)] if at_work is not None and at_work.begun else []
        left = getattr(stopped.__cause__ or stopped, "__notes__", ())
        say("; ".join([", ".join(["interrupted", *how_far]), *left]))
        return ExitCode.INTERRUPTED
    except typer.TyperException as error:
        say(usage_text(error))
        return error.exit_code
    except Exception as error:  # noqa: BLE001 (the last net: one line, never a traceback)
        say(_explanation(error))
        return exit_code_of(error)


def _explanation(error: Exception) -> str:
    """One line: what, where, what to do."""
    from ..store.errors import StoreError, from_os_error

    if isinstance(error, StoreError):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return str(from_os_error(error, error.filename, "cannot read or write"))
    if isinstance(error, OSError):
        return f"cannot read or write ({error.strerror or error})"
    if isinstance(error, MemoryError):
        return "out of memory; take less at once (--count, --max-body, --jobs)"
    return f"internal error: {type(error).__name__}: {error}; --verbose shows where, please report"


def _forget_stdout() -> None:
    """Nobody reads: let Python's own last flush go nowhere instead of complaining."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return


def _keep_standard_streams() -> None:
    """Nothing that is opened later becomes stdin, stdout or stderr, of a child process either.

    Where the shell has closed one, /dev/null stands in its place; who wants to read or write there
    is told all the same, for Python has noted it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = os.fdopen(_STDERR, "w", encoding="utf-8", closefd=False)


_STDERR = 2
_TELLS_OF_LEAKS = "_duckdb"
"""Takes what is frozen for lost, and says so on stderr."""


def main() -> None:
    """Entry point of the program `mqstore`."""
    _keep_standard_streams()
    # the threads that numpy starts to multiply matrices spin, and nothing here has any to multiply
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(_YOUNG_OBJECTS)
    code = run()
    if _TELLS_OF_LEAKS not in sys.modules:
        gc.freeze()  # spares the last look for garbage at Python's end, a tenth of a short command
    sys.exit(code)
