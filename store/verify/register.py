"""Which function checks which invariant, and when it is called.

A check is a function with one decorator of this module. It reads the `VerifyContext` and adds findings to it; a check
of records is called for every batch of the log. A function that is registered for several codes is called once. What
it checks is said by the statements of its codes in the catalogue, and not again in the function.
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
    units, tags codes included; returns whether that is enough, else `messages` gets them, too. extents: for ranges that
    are no record. after: once, after the log. last: after all, whichever groups are asked for.
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
        return {code for moment in self for code in moment}


CHECKS = Checks(*({} for _ in Checks._fields))


def checks_of(moment: dict[str, F], groups: frozenset[str]) -> dict[F, list[str]]:
    """Return the checks of a moment, each once with all its codes, in the order of the codes of these groups."""
    codes = sorted(code for code, group in group_of().items() if group in groups)
    found = dict.fromkeys(moment[code] for code in codes if code in moment)
    return {check: [code for code, registered in moment.items() if registered is check] for check in found}


def registering(moment: dict[str, F]) -> Callable[..., Callable[[F], F]]:
    """Return the decorator that registers a check for some codes at a moment."""

    def of_codes(*codes: str) -> Callable[[F], F]:
        def register(check: F) -> F:
            for code in codes:
                if code in moment:
                    raise ValueError(f"{code} is checked twice at one moment")
                moment[code] = check
            return check

        return register

    return of_codes


before = registering(CHECKS.before)
of_records = registering(CHECKS.records)
of_stale = registering(CHECKS.stale)
of_messages = registering(CHECKS.messages)
of_settled = registering(CHECKS.settled)
of_extents = registering(CHECKS.extents)
after = registering(CHECKS.after)
last = registering(CHECKS.last)
