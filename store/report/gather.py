"""All that a report says of one store: the verdict of `verify`, what is in the log, groups, timers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import fspath
from typing import Any, NamedTuple

import numpy as np

from ...formats.derive.ragged import Ints
from ..counted import bytes_text, counted
from ..disk.lock import holder
from ..errors import Missing, StoreError
from ..findings.next_commands import Command, Given, calls_for_something, next_commands
from ..findings.next_commands import tidying_commands as tidying
from ..inspect.description import last_exit
from ..offsets.lag import Wanted, offsets_of, queue_ends
from ..queues.read import QueueSummary
from ..search.store import Store
from ..settings.options import options_of
from ..timer.read import timer_wheel
from ..timer.wheel import Ticks
from ..verify.register import Scope
from ..verify.run import verify
from ..verify.verdict import Status, Verdict, first_sentence
from .watch import LogPicture

_HOUR_MS = 3_600_000
HOURS_MAX = 24 * 15
"""The wheel turns in two weeks; what is due later, or long ago, is one number."""


class Due(NamedTuple):
    """Timed messages that wait in the wheel, by the hour (ms) in which their tick is due; past: before
    all of these, later: behind them.
    """

    hours: list[tuple[int, int]]
    past: int
    later: int

    @property
    def messages(self) -> int:
        """All of them."""
        return self.past + self.later + sum(number for _, number in self.hours)


@dataclass(frozen=True)
class Seen:
    """One store as a report shows it. facts, start: lines with a label each.

    commands: what to do next, in this order. tidy: they mend warnings only. queues: what their units say.
    lags: records of `offsets_of` by group and topic, the farthest behind first. notes: what could not be
    shown, and why.
    """

    root: str
    verdict: Verdict
    facts: list[tuple[str, str]]
    commands: list[Command]
    tidy: bool
    picture: LogPicture
    queues: Mapping[tuple[str, int], QueueSummary]
    lags: list[dict[str, Any]]
    due: Due
    now_ms: int
    notes: list[str] = field(default_factory=list)

    @property
    def sentence(self) -> str:
        """The verdict, as every command says it."""
        return first_sentence(self.verdict, self.root)

    @property
    def start(self) -> Sequence[tuple[str, str]]:
        """What the next start would do; nothing where it was not predicted."""
        return self.verdict.start


def look(
    store: Store,
    scope: Scope,
    given: Given,
    *,
    now_ms: int,
    progress: Callable[[int], None] | None = None,
    stop: Callable[[], bool] | None = None,
    jobs: int = 1,
) -> Seen:
    """Verify a store and count what is in it, in one pass over its log. Raises Unreadable.

    given: options that next commands need. The other parameters are those of `verify`.
    """
    verdict = verify(
        store,
        scope._replace(watch=LogPicture),
        now_ms=now_ms,
        progress=progress,
        stop=stop,
        jobs=jobs,
    )
    picture = verdict.watched
    assert isinstance(picture, LogPicture)
    notes: list[str] = []
    commands, tidy = _commands(verdict, fspath(store.layout.root), given)
    return Seen(
        fspath(store.layout.root),
        verdict,
        list(_facts(store, verdict, picture.done())),
        commands,
        tidy,
        picture,
        _queues(store, notes),
        _lags(store, now_ms, notes),
        _due(store, now_ms, notes),
        now_ms,
        notes,
    )


def _commands(verdict: Verdict, root: str, given: Given) -> tuple[list[Command], bool]:
    """What mends a store; where nothing has to be mended what tidies it up."""
    about = [finding for finding in verdict.findings if calls_for_something(finding)]
    if not about:
        return ([] if verdict.live else tidying(verdict.findings, root, given)), True
    whole, unmendable = not verdict.unread, verdict.unmendable
    return next_commands(about, root, given, whole=whole, unmendable=unmendable), False


def _facts(store: Store, verdict: Verdict, picture: LogPicture) -> Iterator[tuple[str, str]]:
    """What the store is."""
    layout, generation, files = store.layout, store.generation, store.log_files
    others = [version for version in generation.candidates if version != generation.version]
    maybe = f" (or {', '.join(others)})" if others else ""
    yield "broker", f"{generation.version}{maybe}: {generation.reason}"
    exit_kind, why = last_exit(layout.abort, holder(layout.lock))
    yield "last exit", f"{exit_kind}: {why}"
    size = bytes_text(sum(file.size for file in files.files))
    number = counted(len(files.files), "file")
    yield "log", f"{number}, {size}, from {files.start:,} to {verdict.facts.end:,}"
    yield "in", ", ".join(map(fspath, layout.commit_log_directories))
    rows = picture.queues.rows()
    topics = counted(len(np.unique(rows.group)), "topic", form=",")
    queues = counted(len(rows.group), "queue", form=",")
    dead = f"; {picture.dead:,} besides that are cut off" if picture.dead else ""
    yield "records", f"{verdict.records:,} of {topics}, in {queues}{dead}"
    if compressed := sum(file.compressed for file in files.files):
        yield "compressed", f"{counted(compressed, 'log file')}: no broker reads these so"
    if missing := sum(gap.size for gap in files.gaps):
        yield "partial", f"{bytes_text(missing)} of the log are in no file"
    for note in options_of(layout).notes():
        yield "options", note


def _queues(store: Store, notes: list[str]) -> Mapping[tuple[str, int], QueueSummary]:
    """What the units of all queues say, those of a RocksDB, too."""
    if store.queues_unread:
        notes.append(f"queues: {store.queues_unread}")
    try:
        return queue_ends(store)
    except StoreError as error:
        notes.append(f"queues: {error}")
        return {}


def _lags(store: Store, now_ms: int, notes: list[str]) -> list[dict[str, Any]]:
    try:
        found = offsets_of(store, "", Wanted(now_ms))
    except StoreError as error:
        notes.append(f"groups: {error}")
        return []
    notes += [f"groups: {note}" for note in found.notes]
    return found.rows


def _due(store: Store, now_ms: int, notes: list[str]) -> Due:
    """What waits in the wheel (spec 04, 4.5): each slot by itself, whether a broker still gets there or not."""
    if store.config.get_bool("timerRocksDBEnable"):
        notes.append("timers: timerRocksDBEnable is on: what waits in rocksdbstore is not shown")
    hour = now_ms // _HOUR_MS
    counts: Ints = np.zeros(HOURS_MAX, np.int64)
    past = later = 0
    try:
        precision_ms = Ticks.of_store(store.layout).precision_ms
        for part in timer_wheel(store.layout.timer_wheel):
            slots = part.slots[(part.slots["num"] > 0) & (part.slots["time"] > 0)]
            most = (1 << 62) // precision_ms
            due_ms = np.minimum(slots["time"].astype(np.int64), most) * precision_ms
            number = slots["num"].astype(np.int64)
            hours = due_ms // _HOUR_MS - hour
            inside = (hours >= 0) & (hours < HOURS_MAX)
            np.add.at(counts, hours[inside], number[inside])
            past += int(number[hours < 0].sum())
            later += int(number[hours >= HOURS_MAX].sum())
    except Missing:
        return Due([], 0, 0)
    except StoreError as error:
        notes.append(f"timers: {error}")
    some = np.flatnonzero(counts)
    last = int(some[-1]) + 1 if len(some) else 0
    hours_ms = [((hour + n) * _HOUR_MS, int(counts[n])) for n in range(last)]
    return Due(hours_ms, past, later)


STATUS = {
    Status.CLEAN: "in order",
    Status.UNCLEAN: "not shut down cleanly",
    Status.DAMAGED: "damaged",
}
"""What the statuses are called on the page."""
