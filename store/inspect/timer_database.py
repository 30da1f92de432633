"""Timers that are kept in the RocksDB `rocksdbstore/` (timerRocksDBEnable, 5.4+; spec 04, 4.10).

A row for each message, under the time when it fires; the broker notes up to which time it has delivered,
and from where it reads the timer topic's queue. Wheel and timer log go on beside it: they have the
cancel messages.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

import numpy as np

from ..counted import counted
from ..disk.checkpoint import read_timer_check
from ..errors import StoreError
from ..search.store import Note, Store
from ..settings.rocksdb_store import TimersKept, timers_kept
from ..timer.read import NOWHERE, TimerEntries
from .timer_chains import Chained, Wheel

OPTION = "timerRocksDBEnable"


class Engine(StrEnum):
    """Where a broker keeps its timers."""

    WHEEL = "wheel"
    ROCKSDB = "rocksdb"


def in_database(store: Store, note: Note) -> TimersKept | None:
    """The timers in the RocksDB where a broker that starts reads them there, else None.

    The configuration tells; without it the one of both that has got farther in the timer topic's queue.
    """
    said = store.config.get(OPTION)
    try:
        kept = timers_kept(store.layout.rocksdb_store)
    except StoreError as error:
        if store.config.get_bool(OPTION):
            note(f"timers: {OPTION} is on, and {error.message}: what waits there is not known")
        return None
    if said is not None:
        if store.config.get_bool(OPTION):
            nothing = np.zeros(0, np.int64)
            return kept or TimersKept(nothing, nothing, nothing)
        if kept is not None and (waits := int((kept.due_ms > kept.delivered_ms).sum())):
            waiting = counted(waits, "timer waits", "timers wait")
            note(
                f"timers: {waiting} in rocksdbstore, where a broker with {OPTION}=false does not look"
            )
        return None
    check = read_timer_check(store.layout.config / "timercheck")
    behind = min(check.last_timer_queue_offset, check.master_timer_queue_offset) if check else 0
    if kept is None or kept.queue_offset <= behind:
        return None
    note(f"timers: taken from rocksdbstore, which has got farther: {OPTION}=true, else say --set")
    return kept


def with_database(
    wheel: Wheel, chained: Chained, kept: TimersKept, note: Note
) -> tuple[Wheel, Chained]:
    """Where a broker goes on, and what leads to messages, with the rows of the RocksDB besides."""
    entries, count = chained.entries, len(kept.due_ms)
    waits = int(((chained.fires_ms != NOWHERE) & ~entries.deletes).sum())
    if waits:
        note(f"timers: {counted(waits, 'entry')} of the wheel from before it was in RocksDB, too")
    nothing = np.zeros(count, np.int64)
    position = entries.end + np.arange(count, dtype=np.int64)
    none_before = np.full(count, NOWHERE, np.int64)
    rows = TimerEntries(
        position, none_before, kept.due_ms, kept.position, kept.size, nothing, nothing, nothing
    )
    fires = np.where(kept.due_ms > kept.delivered_ms, kept.due_ms, NOWHERE)
    both = TimerEntries.concat([entries, rows])
    ahead = replace(
        wheel,
        last_read_ms=kept.delivered_ms,
        read_ms=kept.delivered_ms,
        queue_offset=kept.queue_offset,
    )
    return ahead, chained._replace(entries=both, fires_ms=np.concatenate([chained.fires_ms, fires]))
