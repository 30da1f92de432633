"""`store.stats` of many logs: part by part, on several cores or tasks, added up in the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Self

from ..disk.workers import Forked, cores
from ..inspect.stats import Stats
from .ask import Ask
from .log_columns import STORE
from .log_rows import Damage, LogPart, messages_of, parts_of


@dataclass
class Counted:
    """Records of some logs in groups, and what of the logs is in none of them."""

    stats: Stats
    damage: list[Damage] = field(default_factory=list)

    def add(self, other: Counted, store: str) -> None:
        """Count what `other` has, whose records are those of a store: first of the groups' names, if
        this one has one more. Raises LimitExceeded.
        """
        if len(self.stats.by) > len(other.stats.by):
            groups = other.stats.groups
            other.stats.groups = {(store, *key): group for key, group in groups.items()}
        self.stats.merge(other.stats)
        self.damage += other.damage

    def to_json(self) -> list[Any]:
        """All of it, for `from_json`."""
        places = [[one.position, one.size, one.reason] for one in self.damage]
        return [self.stats.to_json(), places]

    @classmethod
    def from_json(cls, store: str, by: Sequence[str], found: Sequence[Any]) -> Self:
        """What `to_json` gave of a store."""
        stats, places = found
        return cls(Stats.from_json(by, stats), [Damage(store, *place) for place in places])


def count_part(ask: Ask, part: LogPart, by: Sequence[str]) -> Counted:
    """The records of one part in the times asked for. by: of `store.stats.DIMENSIONS`.

    Raises StoreError.
    """
    found = Counted(Stats(by))
    for batch in messages_of(ask, part, found.damage.append):
        found.stats.add(batch)
    return found


def count_here(
    ask: Ask, by: Sequence[str], jobs: int | None, advance: Callable[[int], None]
) -> Counted:
    """All logs, on so many cores. by: as above, with `store` before it or not; advance: is told of
    bytes that are done. Raises StoreError.
    """
    total = Counted(Stats(by))
    inside = [name for name in by if name != STORE]
    parts = parts_of(ask)
    for part, found in zip(parts, _counted(ask, parts, inside, jobs or cores()), strict=True):
        total.add(found, part.store)
        advance(part.bytes)
    return total


def _counted(ask: Ask, parts: Sequence[LogPart], by: Sequence[str], jobs: int) -> Iterator[Counted]:
    """The counts of each part, so many at a time in processes of their own."""
    if min(jobs, len(parts)) < 2:
        yield from (count_part(ask, part, by) for part in parts)
        return
    with ExitStack() as children:
        at_work: deque[tuple[LogPart, Forked[Counted]]] = deque()
        left = iter(parts)
        for part in left:
            at_work.append((part, children.enter_context(_forked(ask, part, by))))
            if len(at_work) == jobs:
                break
        while at_work:
            part, child = at_work.popleft()
            found = child.result()
            for following in left:
                at_work.append((following, children.enter_context(_forked(ask, following, by))))
                break
            yield count_part(ask, part, by) if found is None else found


def _forked(ask: Ask, part: LogPart, by: Sequence[str]) -> Forked[Counted]:
    return Forked(lambda: count_part(ask, part, by))
