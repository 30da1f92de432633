"""What a recovery is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..errors import InvalidInput
from .tombstones import Forms

_TAG_BYTES_MAX = 30
"""A tag that fits into any record whose producer gave it a unique key."""


class Policy(StrEnum):
    """What a plan keeps. `keep`: every good record. `broker`: what a broker's start would keep."""

    KEEP = "keep"
    BROKER = "broker"


@dataclass(frozen=True)
class Wish:
    """What a plan is asked for. The same wish gives the same plan for the same store.

    made_ms: when it was asked. generations: of brokers that may start on the store. lost_tag: tag
    for tombstones of ordinary topics. exact: a unit with another tags code than its message's is
    written anew, too. replica: a copy of the log that damaged parts are taken from.
    renumber: queues whose units get the numbers of their records, also where an earlier broker had
    shifted them and consumers know its numbers. parts: of the store, as a repair names them, that are
    put right where no start looks at them, too.
    """

    policy: Policy = Policy.BROKER
    made_ms: int = 0
    generations: tuple[str, ...] = ()
    lost_tag: str = ""
    exact: bool = False
    renumber: frozenset[tuple[str, int]] = frozenset()
    force_empty_log: bool = False
    replica: str = ""
    parts: tuple[str, ...] = ()

    @property
    def forms(self) -> Forms:
        """How tombstones look."""
        return Forms(self.made_ms, self.generations, self.lost_tag)


def check_lost_tag(tag: str) -> None:
    """Raises InvalidInput for what consumers could not subscribe to as one tag."""
    if not tag:
        return
    if not tag.isprintable() or any(c in "| *" for c in tag):
        raise InvalidInput("--lost-tag is no single tag", hint="take letters and digits")
    if len(tag.encode()) > _TAG_BYTES_MAX:
        raise InvalidInput(f"--lost-tag has more than {_TAG_BYTES_MAX} bytes")
