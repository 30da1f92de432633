"""The program `mqstore`: its commands, and the exit code and the line on stderr for an error.

A command is a function that `options.shared` made, or a `declared.Group`, in a module of its own name, imported when it
is called. Heavy imports still belong inside functions: some commands are called often.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from .declared import PROGRAM, Exit, Group, Stopped
from .exit_codes import ExitCode, exit_code_of, explanation
from .options import say
from .plain_line import values_of
from .progress import SCREEN

COMMANDS: Mapping[str, str] = {
    "put": "Append messages exactly as a broker would.",
    "get": "Read messages by any address.",
    "inspect": "Describe a store or a file: what it is, how much, from when to when, in what state.",
    "dump": "Decode every record, one by one.",
    "verify": "Check every invariant of a store and report each that does not hold.",
    "recover": "Say what a broker's start would do to a store and lose, and plan its recovery.",
    "repair": "Rebuild what is wrong in queues, index, checkpoint, timer and configuration, from the log.",
    "undo": "Take back what `recover`, `repair` or `offsets` did: bytes, times and names of every file as they were.",
    "salvage": "Carve messages out of anything: damaged segments, disk images, devices, core dumps.",
    "offsets": "Show how far each consumer group is: messages, bytes and time behind, and what is out of range.",
    "stats": "Count what fills the logs: bytes, records, messages, sizes and times, group by group.",
    "export": "Write messages as Parquet, Arrow, NDJSON, CSV or Avro files.",
    "sql": "Query stores with SQL.",
    "diff": "Show where two copies of a store differ: log, messages, queues, index, positions, configuration, timers.",
    "report": "Write a page of HTML: what a store is, the verdict on it, and pictures of its content.",
    "trace": "Show the life of one message, and why a group has got it or not.",
    "explain": "Explain a code or label that another command prints.",
    "damage": "Make a damaged copy of a store, for drills and tests.",
    "pipeline": "Work on many and large stores with Spark.",
}
"""In the order of `mqstore --help`, which shows the first sentence of each."""

_HELP = """Read, check, recover and write the message store of an Apache RocketMQ broker, offline.

    Run it before you restart a broker: a broker's own start cuts the log at the first bad record
    and says so only afterwards. Commands that read never write, whatever damage they meet.

    \b
    Examples:
      mqstore inspect /data/store
      mqstore dump /data/store --format ndjson | jq .topic
      mqstore get /data/store --topic orders --key 4711
      mqstore recover /data/store
      mqstore undo /data/store --list
    """


def _command(name: str) -> Any:
    return getattr(import_module(f".{name}", __package__), name)


def program() -> Any:
    """All commands as a typer program: for command lines that are not plain, and for the manual."""
    from .command_line import program

    return program(_HELP, COMMANDS, _command)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code. Prints an error as one line on stderr."""
    SCREEN.at_work = None
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = _call(words)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        _forget_stdout()
        return ExitCode.DONE
    except SystemExit as ended:  # typer's own answer to a closed pipe
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        _forget_stdout()
        return ExitCode.DONE
    except (KeyboardInterrupt, Stopped) as stopped:
        return _interrupted(stopped)
    except Exception as error:  # noqa: BLE001 (the last net: one line, never a traceback)
        _flush_or_forget()
        typer = sys.modules.get("typer")
        if typer is not None and isinstance(error, typer.Abort):
            return _interrupted(error)
        if typer is not None and isinstance(error, typer.TyperException):
            from .command_line import usage_text

            say(usage_text(error, "".join(words[:1])))
            return int(error.exit_code)
        say("; ".join([explanation(error), *_notes(error)]))
        return exit_code_of(error)


def _call(words: Sequence[str]) -> int:
    """Call the command: directly if the line is plain, else through typer."""
    try:
        if words and words[0] in COMMANDS:
            command = _command(words[0])
            values = None if isinstance(command, Group) else values_of(command.parameters(), words[1:])
            if values is not None:
                command(**values)
                return ExitCode.DONE
        result = program().main(list(words), PROGRAM, standalone_mode=False)
        return result if isinstance(result, int) else ExitCode.DONE
    except Exit as ended:
        return ended.exit_code


def _interrupted(stopped: BaseException) -> int:
    """Print how far the command came and what was left behind; return the exit code."""
    at_work = SCREEN.at_work
    how_far: list[str] = [str(at_work)] if at_work is not None and at_work.begun else []
    say("; ".join([", ".join(["interrupted", *how_far]), *_notes(stopped.__cause__ or stopped)]))
    return ExitCode.INTERRUPTED


def _notes(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [])


def _flush_or_forget() -> None:
    """Flush what was printed before an error. If that fails, a full disk say, drop it: it would fail later, too."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        _forget_stdout()


def _forget_stdout() -> None:
    """Point stdout to /dev/null, so that Python's own last flush does not fail again."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return


def _keep_standard_streams() -> None:
    """Keep descriptors 0, 1 and 2 from being given to a file that is opened later, here or in a child process.

    /dev/null takes the place of each one that the shell has closed. Python has noted that the stream is closed, so
    using it is still an error. stderr becomes unbuffered: text that could not be written, on a full disk say, would be
    written again when a child process starts and when Python ends.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    encoding = "utf-8" if sys.stderr is None else sys.stderr.encoding
    raw = io.FileIO(_STDERR, "w", closefd=False)
    sys.stderr = io.TextIOWrapper(raw, encoding, "backslashreplace", write_through=True)


_STDERR = 2
_REPORTS_LEAKS = "_duckdb"
"""A module that takes frozen objects for leaked ones, and says so on stderr."""


def end_as_ctrl_c() -> None:
    """Let SIGTERM end this process as Ctrl-C does: temporary files go, and a line says how far the command came.

    Does nothing if the parent process has SIGTERM ignored. Forked children end at once.
    """
    import signal

    own = os.getpid()

    def ended(number: int, frame: object) -> None:
        del frame
        if os.getpid() != own:
            os._exit(128 + number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, ended)


def main() -> None:
    _keep_standard_streams()
    end_as_ctrl_c()
    # numpy's OpenBLAS would start threads that spin, for products of matrices, which nothing here needs

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    code = run()
    if _REPORTS_LEAKS not in sys.modules:
        gc.freeze()  # skips the last garbage collection at Python's end, a tenth of the time of a short command
    sys.exit(code)
