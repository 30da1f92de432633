"""The exit codes of every command, and which error leads to which: the only list of them."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a command's end says to the shell (the contract, section 3, "Exit codes")."""

    DONE = 0
    """Done; found; nothing to do; the reader closed the pipe."""
    NO = 1
    """The answer is no: not found, findings, something would be or was lost."""
    USAGE = 2
    """Wrong usage, or `--apply` in a script without `--yes`."""
    UNCLEAN = 3
    """Nothing lost, but not shut down cleanly."""
    IN_USE = 4
    """A broker or another mqstore has the store."""
    FAILED = 5
    """Cannot read or write, unsupported layout, or refused for safety."""
    INTERRUPTED = 130
    """Ctrl-C."""


def exit_code_of(error: BaseException) -> ExitCode:
    """The exit code for an error that ended a command."""
    from ..store import errors

    if isinstance(error, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    for kind, code in (
        (errors.NotFound, ExitCode.NO),
        (errors.InvalidInput, ExitCode.USAGE),
        (errors.Unclean, ExitCode.UNCLEAN),
        (errors.InUse, ExitCode.IN_USE),
    ):
        if isinstance(error, kind):
            return code
    return ExitCode.FAILED
