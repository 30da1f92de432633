"""The exit codes of all commands, and the error that leads to each."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..store.verify.verdict import Status


class ExitCode(IntEnum):
    DONE = 0
    NO = 1
    USAGE = 2
    UNCLEAN = 3
    IN_USE = 4
    FAILED = 5
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.DONE: "Done; found; read, even if damage was met (a record of type damage and a "
    "line on stderr say so); nothing to do; the reader closed the pipe.",
    ExitCode.NO: "The answer is no: not found; a broker's start or the plan would lose or hide "
    "messages, or the broker would not start; applied, with a loss that is named; sql, stats, export, diff: "
    "the answer lacks damaged parts or, with --partial, stores that cannot be read.",
    ExitCode.USAGE: "Wrong usage, or --apply in a script without --yes.",
    ExitCode.UNCLEAN: "Nothing lost, but not shut down cleanly: abort exists, queues are behind the log. "
    "1 beats 3: an incomplete record at the end of the log is a lost message.",
    ExitCode.IN_USE: "The store is in use by a broker or another mqstore; only commands that write.",
    ExitCode.FAILED: "Cannot read or write: missing, no permission, disk full, I/O error, "
    "unsupported layout; or refused for safety.",
    ExitCode.INTERRUPTED: "Interrupted.",
}
"""For the manual."""


def exit_code_of_status(status: Status) -> ExitCode:
    codes = {"clean": ExitCode.DONE, "unclean": ExitCode.UNCLEAN, "damaged": ExitCode.NO}
    return codes[status.value]


def exit_code_of(error: BaseException) -> ExitCode:
    from ..store import errors

    codes: dict[type, ExitCode] = {
        KeyboardInterrupt: ExitCode.INTERRUPTED,
        errors.NotFound: ExitCode.NO,
        errors.Corrupted: ExitCode.NO,
        errors.InvalidInput: ExitCode.USAGE,
        errors.Unclean: ExitCode.UNCLEAN,
        errors.InUse: ExitCode.IN_USE,
    }
    return next((codes[kind] for kind in type(error).__mro__ if kind in codes), ExitCode.FAILED)


def explanation(error: Exception) -> str:
    """One line about an error: what is wrong, where, and what to do."""
    from ..store.errors import InTheWay, StoreError, from_os_error

    if isinstance(error, InTheWay) and error.path is not None:
        from ..store.findings.next_commands import moving_away

        if move := moving_away(error.path):
            error.hint = f"if a directory belongs there, move the file out of the store: {move}"
    if isinstance(error, StoreError):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return str(from_os_error(error, error.filename, "cannot read or write"))
    if isinstance(error, OSError):
        return f"cannot read or write ({error.strerror or error})"
    if isinstance(error, MemoryError):
        return "out of memory; read less at once (--count, --max-body, --jobs)"
    return f"internal error: {type(error).__name__}: {error}; please report it, with the traceback of --verbose"
