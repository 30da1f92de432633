"""Which function checks which invariant, and when it is called.

A check is a function with one decorator of this module. It reads the `VerifyContext` and adds findings to it; a check
of records is called for every batch of the log. A function that is registered for several codes is called once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ..findings.catalogue import group_of

if TYPE_CHECKING:
    from ..audit.messages import Messages
    from ..audit.prove import ComparedUnits
    from ..broker.snapshot import QueueId
    from ..log.commit_log import Extent
    from .context import Records, VerifyContext

Once = Callable[["VerifyContext"], None]
OfRecords = Callable[["VerifyContext", "Records"], None]
OfMessages = Callable[["VerifyContext", "Messages"], None]
OfSettled = Callable[["VerifyContext", "Mapping[QueueId, ComparedUnits]"], bool]
OfExtent = Callable[["VerifyContext", "Extent"], None]
F = TypeVar("F")


class Checks(NamedTuple):
    """All checks by the moment of their call, each by its code.

    before: once, before the log is read. records: for each batch of good records of this log. stale: for each batch of
    others. messages: for messages of one queue, in log order; settled: for messages of many queues that have their
    units, returns whether that is enough. extents: for ranges that are no record. after: once, after the log. last:
    after all.
    """

    before: dict[str, Once]
    records: dict[str, OfRecords]
    stale: dict[str, OfRecords]
    messages: dict[str, OfMessages]
    settled: dict[str, OfSettled]
    extents: dict[str, OfExtent]
    after: dict[str, Once]
    last: dict[str, Once]

    @property
    def codes(self) -> set[str]:
        """Every invariant that some function checks."""
        of_log = (self.records, self.stale, self.messages, self.settled, self.extents)
        moments = (self.before, *of_log, self.after, self.last)
        return {code for moment in moments for code in moment}


CHECKS = Checks(*({} for _ in Checks._fields))


def checks_of(moment: dict[str, F], groups: frozenset[str]) -> list[F]:
    """Return the checks of a moment, each once, in the order of their codes."""
    codes = sorted(code for code, group in group_of().items() if group in groups)
    return list(dict.fromkeys(moment[code] for code in codes if code in moment))


def _in(moment: dict[str, F], codes: tuple[str, ...]) -> Callable[[F], F]:
    def register(check: F) -> F:
        for code in codes:
            if code in moment:
                raise ValueError(f"{code} is checked twice at one moment")
            moment[code] = check
        return check

    return register


def before(*codes: str) -> Callable[[Once], Once]:
    """Register a check of these invariants before the log is read."""
    return _in(CHECKS.before, codes)


def of_records(*codes: str) -> Callable[[OfRecords], OfRecords]:
    """Register a check of these invariants in good records of this log, batch by batch."""
    return _in(CHECKS.records, codes)


def of_stale(*codes: str) -> Callable[[OfRecords], OfRecords]:
    """Register a check of these invariants in whole records that do not belong to this log, or no longer."""
    return _in(CHECKS.stale, codes)


def of_messages(*codes: str) -> Callable[[OfMessages], OfMessages]:
    """Register a check of these invariants in the messages of one queue, some at a time."""
    return _in(CHECKS.messages, codes)


def of_settled(*codes: str) -> Callable[[OfSettled], OfSettled]:
    """Register a check of messages of many queues whose units, tags codes included, are right; the check of
    `of_messages` gets these messages only if this one returns False.
    """
    return _in(CHECKS.settled, codes)


def of_extents(*codes: str) -> Callable[[OfExtent], OfExtent]:
    """Register a check of these invariants in ranges that are no record."""
    return _in(CHECKS.extents, codes)


def after(*codes: str) -> Callable[[Once], Once]:
    """Register a check of these invariants after the log has been read."""
    return _in(CHECKS.after, codes)


def last(*codes: str) -> Callable[[Once], Once]:
    """Register a check that is called after all others, whichever groups are asked for."""
    return _in(CHECKS.last, codes)
