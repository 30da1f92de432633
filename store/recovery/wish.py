"""What a recovery is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .keep.forms import Forms


class Policy(StrEnum):
    """What a plan keeps. `keep`: every good record. `broker`: what a broker's start would keep."""

    KEEP = "keep"
    BROKER = "broker"


@dataclass(frozen=True)
class Wish:
    """What a plan is asked for. The same wish gives the same plan for the same store.

    made_ms: when it was asked. generations: of brokers that may start on the store. lost_tag: tag
    for tombstones of ordinary topics.
    """

    policy: Policy = Policy.BROKER
    made_ms: int = 0
    generations: tuple[str, ...] = ()
    lost_tag: str = ""

    @property
    def forms(self) -> Forms:
        """How tombstones look."""
        return Forms(self.made_ms, self.generations, self.lost_tag)
