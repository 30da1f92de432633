"""Stores and parts of logs that an answer lacks, and damaged bodies in it: warnings and exit codes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from ..store.counted import counted
from ..store.errors import StoreError
from .declared import Exit, Option
from .exit_codes import ExitCode, exit_code_of
from .options import say
from .pipeline_options import damage_text
from .terminal import page_of

if TYPE_CHECKING:
    from ..store.arrow.log_rows import Damage
    from ..store.disk.broker_conf import BrokerConfig
    from ..store.search.log_search import TimeBounds
    from .options import Common

UNREAD = "unread"
"""Type of the record in an answer for a store that was left out."""
_NAMED = 20
"""Ranges that get a line each."""
T = TypeVar("T")
U = TypeVar("U")

Partial = Annotated[
    bool, Option("--partial", help="Continue without stores that cannot be read; the answer names them.")
]


def report_unreadable(unread: Mapping[str, StoreError], *, others: bool, partial: bool) -> list[dict[str, Any]]:
    """Report each store that cannot be read. Return records that name them if `partial`, else raise Exit.

    others: whether other stores can be read.
    """
    for error in unread.values():
        say(str(error))
    if unread and not (partial and others):
        if others:
            say("nothing was done; --partial continues without what cannot be read")
        raise Exit(max(map(exit_code_of, unread.values())))
    return [{"type": UNREAD, "store": root, "reason": error.message} for root, error in unread.items()]


def readable_logs(
    stores: Sequence[str], config: BrokerConfig, partial: bool, common: Common
) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Bytes of the logs that can be read, by store, and a record for each other store. Warns of empty logs.

    Raises as `report_unreadable`.
    """
    from ..store.arrow.stores import log_sizes

    sizes, unread = log_sizes(stores, config)
    left_out = report_unreadable(unread, others=bool(sizes), partial=partial)
    for root in (root for root, size in sizes.items() if not size):
        common.warn(f"the log is empty: {root}")
    return sizes, left_out


def retry_without_lost(job: Callable[[T], U], asked: T, rest: Callable[[T, StoreError], T | None]) -> tuple[T, U]:
    """Run a job; if it fails because a store has gone away, run it again with the others. rest: what to ask after an
    error, None if no store is missing. Returns what was asked at last, and the answer. Raises StoreError.
    """
    while True:
        try:
            return asked, job(asked)
        except StoreError as error:
            remaining = rest(asked, error)
            if remaining is None:
                raise
            asked = remaining


def run_on_readable(
    job: Callable[[Sequence[str]], T],
    stores: Sequence[str],
    partial: bool,
    check: Callable[[Sequence[str]], Mapping[str, StoreError]],
) -> tuple[T, list[dict[str, Any]]]:
    """The answer of a job about stores; with `partial` also a record for each store that went away during the job, or
    could not be read to its end. check: store → why it cannot be read. Raises StoreError, Exit.
    """
    gone: list[dict[str, Any]] = []

    def rest(asked: Sequence[str], error: StoreError) -> Sequence[str] | None:
        unread = dict(check(asked)) if partial else {}
        if partial and error.store is not None and error.store in asked:
            unread.setdefault(error.store, error)
        if not unread:
            return None
        there = [root for root in asked if root not in unread]
        gone.extend(report_unreadable(unread, others=bool(there), partial=True))
        return there

    _, answered = retry_without_lost(job, stores, rest)
    return answered, gone


def unread_text(record: Mapping[str, Any]) -> str:
    """The text of a record for a store that cannot be read."""
    return page_of([f"not read: {record['store']} ({record['reason']})"])


def report_lacking(damage: Iterable[Damage], bodies: int = 0) -> ExitCode:
    """Report what an answer lacks, and return the exit code for that.

    bodies: number of bodies in the answer that fail their checksum.
    """
    lines = list(_lines(damage, bodies))
    for line in lines[:_NAMED]:
        say(line)
    if len(lines) > _NAMED:
        say(f"and {counted(len(lines) - _NAMED, 'range')} more that cannot be read")
    return ExitCode.NO if lines else ExitCode.DONE


def report_bounds(found: Iterable[TimeBounds], common: Common) -> None:
    """Report the log files that were not read for `--since` and `--until`, unless `--quiet` is given."""
    from ..store.search.log_search import note_bounds

    note_bounds(list(found), common.warn)


def _lines(damage: Iterable[Damage], bodies: int) -> Iterator[str]:
    if bodies:
        fail = counted(bodies, "body fails", "bodies fail")
        yield f"{fail} the checksum, counted all the same; body_crc_ok says which"
    for one in damage:
        yield f"not in the answer: {damage_text(vars(one))}"
