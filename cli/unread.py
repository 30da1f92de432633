"""What a query over stores has not read, or reads though it is not sound: told, and the exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from ..store.counted import counted
from .declared import Exit, Option
from .exit_codes import ExitCode, exit_code_of
from .options import say
from .pipeline_options import damage_text
from .terminal import page_of

if TYPE_CHECKING:
    from ..store.arrow.log_rows import Damage
    from ..store.errors import StoreError

UNREAD = "unread"
"""The type of a record that stands in an answer for a store that is not in it."""
_TOLD = 20
"""Ranges that are named."""
T = TypeVar("T")
U = TypeVar("U")

Partial = Annotated[
    bool, Option("--partial", help="Continue without stores that cannot be read; the answer names them.")
]


def tell_unread(unread: Mapping[str, StoreError], *, others: bool, partial: bool) -> list[dict[str, Any]]:
    """Tell each store that cannot be read, and end unless `partial`: records that name them.

    others: there are stores that can be read. Raises Exit.
    """
    for error in unread.values():
        say(str(error))
    if unread and not (partial and others):
        if others:
            say("nothing was done; --partial continues without what cannot be read")
        raise Exit(max(map(exit_code_of, unread.values())))
    return [{"type": UNREAD, "store": root, "reason": error.message} for root, error in unread.items()]


def without_gone(job: Callable[[T], U], asked: T, rest: Callable[[T, StoreError], T | None]) -> tuple[T, U]:
    """What was asked in the end, and what the job answers; where it fails as a store went away meanwhile, the job
    begins again with the others. rest: of what was asked, after an error, None where it is all there. Raises
    StoreError.
    """
    from ..store.errors import StoreError

    while True:
        try:
            return asked, job(asked)
        except StoreError as error:
            left = rest(asked, error)
            if left is None:
                raise
            asked = left


def of_readable(
    job: Callable[[Sequence[str]], T],
    stores: Sequence[str],
    partial: bool,
    check: Callable[[Sequence[str]], Mapping[str, StoreError]],
) -> tuple[T, list[dict[str, Any]]]:
    """What a job answers about stores, and with `partial` a record for each that went away meanwhile, or could not be
    read to its end. check: stores that are not there, and why. Raises StoreError, Exit.
    """
    gone: list[dict[str, Any]] = []

    def rest(asked: Sequence[str], error: StoreError) -> Sequence[str] | None:
        unread = dict(check(asked)) if partial else {}
        if partial and error.store is not None and error.store in asked:
            unread.setdefault(error.store, error)
        if not unread:
            return None
        there = [root for root in asked if root not in unread]
        gone.extend(tell_unread(unread, others=bool(there), partial=True))
        return there

    _, answered = without_gone(job, stores, rest)
    return answered, gone


def unread_text(record: Mapping[str, Any]) -> str:
    """A record of a store that cannot be read, for people."""
    return page_of([f"not read: {record['store']} ({record['reason']})"])


def tell_lacking(damage: Iterable[Damage], bodies: int = 0) -> ExitCode:
    """Tell what an answer lacks: the exit code that this asks for.

    bodies: how many of those that were read fail their checksum.
    """
    lines = list(_lines(damage, bodies))
    for line in lines[:_TOLD]:
        say(line)
    if len(lines) > _TOLD:
        say(f"and {counted(len(lines) - _TOLD, 'range')} more that cannot be read")
    return ExitCode.NO if lines else ExitCode.DONE


def _lines(damage: Iterable[Damage], bodies: int) -> Iterator[str]:
    if bodies:
        fail = counted(bodies, "body fails", "bodies fail")
        yield f"{fail} the checksum, counted all the same; body_crc_ok says which"
    for one in damage:
        at = {"store": one.store, "position": one.position, "size": one.size, "reason": one.reason}
        yield f"not in the answer: {damage_text(at)}"
