"""Comparing a simulated start with what the real classes did: outcome, log end, files, queues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mqstore.store.queues.batches import BatchQueueState
from mqstore.store.start.outcome import Outcome
from mqstore.store.timer.start import TimerState

QUEUES = ("consumequeue", "batchconsumequeue")
#: What every life of a store changes; the simulation says nothing of it.
NO_DATA = ("abort", "checkpoint", "lock", "config", "rocksdbstore", "compaction")
#: Offsets of a queue that has no files: a broker makes one as soon as it is asked for.
NO_QUEUE = [0, 0, -1]


def disagreements(case: dict[str, Any], outcome: Outcome) -> list[str]:
    """What the simulation says otherwise than the real classes."""
    load, start = case["load"], case.get("start") or {}
    if case.get("feature") == "timer":
        start = {}  # messages have come by then, at their time
    if "hung" in load:
        return [] if outcome.delay_seconds else ["the load hung"]
    if not load["loaded"]:
        return [] if outcome.refusal else ["the load was refused"]
    if outcome.refusal:
        return [f"the load was not refused: {outcome.refusal}"]
    found = []
    if ("hung" in start) != bool(outcome.hangs):
        found.append(f"hangs: {outcome.hangs}")
    state = load["state"]
    if outcome.log_end != state["max_offset"]:
        found.append(f"log end {outcome.log_end}, not {state['max_offset']}")
    if state["min_offset"] >= 0 and outcome.log_start != state["min_offset"]:
        found.append(f"log start {outcome.log_start}, not {state['min_offset']}")
    settled = start.get("state") or state
    if "hung" not in start:
        found += _queue_differences(outcome, settled["queues"])
    if timer := (case.get("timer") or {}).get("load"):
        found += _timer_differences(outcome.timer, timer)
    if "hung" in start:
        return found
    in_the_end = start.get("files", load["files"])
    removed, made = _file_changes(outcome)
    really = {path for path in load["files"]["removed"] if not path.startswith(QUEUES)}
    really |= {path for path in in_the_end["removed"] if path.startswith(QUEUES)}
    really = {path for path in really if path[-1] != "/" and path.split("/")[0] not in NO_DATA}
    if removed ^ really:
        found.append(f"removed {sorted(removed - really)}, not {sorted(really - removed)}")
    really = {path for path in in_the_end["added"] if path.startswith(QUEUES) and path[-1] != "/"}
    if made ^ really:
        found.append(f"made {sorted(made - really)}, not {sorted(really - made)}")
    return found


def _queue_differences(outcome: Outcome, really: dict[str, list[int]]) -> list[str]:
    found = []
    mine = {
        f"{name.topic}-{name.queue_id}": [q.min_offset, q.max_offset, q.max_physical]
        for name, q in outcome.queues.items()
    }
    for name in sorted(mine.keys() | really.keys()):
        if name not in really and mine[name][1] == 0:
            continue
        if name not in mine and really[name] == NO_QUEUE:
            continue  # the delay levels of 4.9, some time after the start
        if mine.get(name) != really.get(name):
            found.append(f"queue {name}: {mine.get(name)}, not {really.get(name)}")
    return found


def _timer_differences(mine: TimerState | None, really: dict[str, Any]) -> list[str]:
    """The time that a timer reads on from is the clock's where timercheck is lost: not compared."""
    if mine is None:
        used = really["slots"] or really["queue_offset"] or really["log_end"]
        return ["no timer"] if used else []
    found = [
        f"timer: {name} {value}, not {really[name]}"
        for name, value in (("queue_offset", mine.queue_offset), ("log_end", mine.log_end))
        if value != really[name]
    ]
    used = np.flatnonzero(mine.wheel.view(np.uint8).reshape(len(mine.wheel), -1).any(axis=1))
    unit_ms = mine.ticks.precision_ms
    rows = ((number, *mine.wheel[number].tolist()) for number in used.tolist())
    slots = [[number, _java_long(time * unit_ms), *rest] for number, time, *rest in rows]
    wanted = [row[:6] for row in really["slots"]]
    odd = [slot for slot in slots if slot not in wanted], [s for s in wanted if s not in slots]
    return found + ([f"slots {odd[0][:2]}, not {odd[1][:2]}"] if any(odd) else [])


def _java_long(number: int) -> int:
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _file_changes(outcome: Outcome) -> tuple[set[str], set[str]]:
    """Files removed for good; files of queues made that were not there. Relative to the store."""
    removed = [f.entry for f in outcome.log_removed if f.entry]
    removed += outcome.log.deleted + outcome.queue_deletions
    removed += [header.entry for header in outcome.index.deleted]
    if outcome.timer is not None:
        removed += [file.entry for file in outcome.timer.removed if file.entry]
        removed += outcome.timer.deleted
    in_the_end = set()
    root = outcome.snapshot.layout.root
    for name, queue in outcome.queues.items():
        own = "batchconsumequeue" if isinstance(queue, BatchQueueState) else "consumequeue"
        for directory, state in ((own, queue), ("consumequeue_ext", queue.ext)):
            if state is not None:
                removed += [file.entry for file in state.removed if file.entry]
                path = root / directory / name.topic / str(name.queue_id)
                names = (f.entry.name if f.entry else f"{f.start:020d}" for f in state.files)
                in_the_end |= {str((path / name).relative_to(root)) for name in names}
    gone = {str(Path(entry.path).relative_to(root)) for entry in removed}
    return gone - in_the_end, {path for path in in_the_end if not (root / path).exists()}
