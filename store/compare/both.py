"""Two stores held against each other: one answer.

What a part of a store cannot be read is no difference: it is told, and the other parts are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from ..disk.byte_reader import noting
from ..errors import StoreError
from ..search.store import Store
from . import parts
from .logs import LogsCompared, Note, Range, compare_logs, differing_fields
from .parts import CHANGED, ONLY_A, ONLY_B, Differs

SHOWN = 1000
"""Differences of a part that are kept; all of them are counted."""
WHAT = frozenset({"log", "queues", "index", "offsets", "config", "timers"})
"""What can be asked for."""
_READ_LOGS = frozenset({"log", "queues", "index", "messages"})
"""For the rest it is enough to know whether the logs are one."""


@dataclass
class Comparison:
    """The answer. differs: the first `SHOWN` of each part. counts: of all of them. unread: what could not be
    compared, and why. quick: only ends, boundaries and samples were looked at.
    """

    logs: LogsCompared
    quick: bool
    differs: list[Differs] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    unread: list[str] = field(default_factory=list)

    @property
    def same(self) -> bool:
        """Nothing differs of what was asked for, and all of it could be compared."""
        return not self.counts and not self.unread

    def add(self, one: Differs) -> None:
        """Something that differs."""
        self.counts[one.part] += 1
        if self.counts[one.part] <= SHOWN:
            self.differs.append(one)


def compare_stores(
    a: Store, b: Store, only: frozenset[str] = WHAT, *, quick: bool = False, note: Note
) -> Comparison:
    """Everything but messages one by one. only: of `WHAT`; with `messages` the logs are read for those. note: told how many bytes of both logs were read. Raises Unreadable
    where a log cannot be read.

    Bytes that a disk does not give are noted, and differ.
    """
    with noting():
        return _compared(a, b, only, quick, note)


def _compared(a: Store, b: Store, only: frozenset[str], quick: bool, note: Note) -> Comparison:
    logs = compare_logs(a, b, quick=quick, heads=not only & _READ_LOGS, note=note)
    found = Comparison(logs, quick)
    asked: dict[str, Callable[[], Iterator[Differs]]] = {
        "log": partial(_of_log, a, b, logs, fields=not quick),
        "queues": partial(parts.queues, a, b, units=bool(logs.same) and not quick),
        "index": partial(parts.index, a, b, logs.common),
        "offsets": partial(parts.offsets, a, b),
        "config": partial(parts.config, a, b),
        "timers": partial(parts.timers, a, b),
    }
    if quick:
        del asked["index"]
    for name in sorted(asked.keys() & only, key=list(asked).index):
        try:
            for each in asked[name]():
                found.add(each)
        except StoreError as error:
            found.unread.append(f"{name}: {error}")
    return found


def _of_log(a: Store, b: Store, logs: LogsCompared, *, fields: bool) -> Iterator[Differs]:
    """Ranges, fields of records, epochs."""
    yield from _ranges(logs)
    if logs.same and fields:
        yield from _records(a, b, logs)
    yield from parts.epochs(a, b)


def _ranges(logs: LogsCompared) -> Iterator[Differs]:
    a, b = (None if side is None else f"{side.start} to {side.stop}" for side in (logs.a, logs.b))
    if logs.same is False:
        yield Differs("log", "another log: the first bytes that both have differ", CHANGED, a, b)
    elif logs.same is None and a != b:
        yield Differs("log", "nothing that both have", parts.how_of(a, b), a, b)
    for each in logs.differing:
        yield Differs("log", _name(each), CHANGED, each.size, each.size, each.start)
    for each in logs.only_a:
        yield Differs("log", _name(each), ONLY_A, each.size, None, each.start)
    for each in logs.only_b:
        yield Differs("log", _name(each), ONLY_B, None, each.size, each.start)


def _name(each: Range) -> str:
    return f"{each.start} to {each.stop}"


def _records(a: Store, b: Store, logs: LogsCompared) -> Iterator[Differs]:
    for one in differing_fields(a, b, logs.differing):
        name = f"{one.position}{f' {one.name}' if one.name else ''}"
        yield Differs("record", name, parts.how_of(one.a, one.b), one.a, one.b, one.position)
