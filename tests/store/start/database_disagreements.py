"""Comparing a simulated start of a store with queues in a RocksDB with what the real classes did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mqstore.store.audit.messages import Readability, scan_messages
from mqstore.store.broker.snapshot import QueueId
from mqstore.store.disk.layout import Layout
from mqstore.store.queues.references import commit_log_of
from mqstore.store.queues.start_rocksdb import DatabaseState, RowDamage
from mqstore.store.start.outcome import Outcome

Ends = Mapping[str, list[Any]]
"""Queue → min, max, position of the last record. Texts: the classes throw at each question about it."""
THROWS = -2
NO_QUEUE = [0, 0, -1]


class Asked:
    """A queue that was asked once more."""

    def __init__(self, low: int, high: int, physical: int) -> None:
        self.min_offset, self.max_offset, self.max_physical = low, high, physical


def asked(database: DatabaseState, queue: QueueId) -> Asked:
    """A queue as the second who asks is told; -2 where that throws."""
    try:
        low = database.min_offset(queue)
    except RowDamage:
        low = THROWS
    return Asked(low, *ends(database.view(queue))[1:])


def ends(queue: Any) -> list[int]:
    """As the record has them."""
    return [queue.min_offset, queue.max_offset, queue.max_physical]


def state_differences(outcome: Outcome, state: dict[str, Any], names: Sequence[str] | None = None) -> list[str]:
    """What the simulation says otherwise than the state behind a real start.

    state: log_end, queues, and files, database, row, where there are some. names: queues that the real
    classes were asked about, None: all.
    """
    found: list[str] = []
    if outcome.log_end != state["log_end"]:
        found.append(f"log end {outcome.log_end}, not {state['log_end']}")
    found += differences("read", outcome.read_queues, state["queues"], names=names)
    if outcome.stores.files and "files" in state:
        found += differences("files", outcome.queues, state["files"], names=names)
    database = outcome.database
    if database is not None and "database" in state:
        again = {queue: asked(database, queue) for queue in database.queues}
        parts = 2 if database.wrote else 3  # where the last record begins, races, too
        found += differences("database", again, state["database"], parts, names=names)
        if database.row != state["row"]:
            found.append(f"row {database.row}, not {state['row']}")
    return found


def differences(what: str, mine: Any, real: Ends, parts: int = 3, *, names: Sequence[str] | None = None) -> list[str]:
    """Queues that end elsewhere; one without a message may be left out. parts: how many are compared."""
    got = {f"{queue.topic}-{queue.queue_id}": ends(state) for queue, state in mine.items()}
    found = []
    for name in sorted(got.keys() | real.keys()) if names is None else names:
        one, other = got.get(name, NO_QUEUE), real.get(name, NO_QUEUE)
        if not all(isinstance(number, int) for number in other):
            continue
        if one[:parts] != other[:parts] and (one[1] or other[1]):
            found.append(f"{what} {name}: {one}, not {other}")
    return found


def names_of(outcome: Outcome) -> set[str]:
    """Queues that it has anywhere."""
    queues = {*outcome.queues, *outcome.read_queues}
    if outcome.database is not None:
        queues.update(outcome.database.queues)
    return {f"{queue.topic}-{queue.queue_id}" for queue in queues}


def read(layout: Layout, outcome: Outcome) -> Readability:
    """What consumers can read afterwards."""
    kept = [(file.start, file.start + file.wrote) for file in outcome.log.files]
    after = Readability(kept, outcome.read_queues)
    if outcome.snapshot.log:
        how = outcome.stores.making(outcome.switches.dispatching(outcome.profile.dispatch))
        scan_messages(commit_log_of(layout), [after], how)
    return after


def in_no_outcome(found: Sequence[list[str]]) -> list[str]:
    """Of what each outcome of a start says otherwise, what is the same in none of them.

    Where outcomes race, each queue races alone: some are as in one outcome, some as in another.
    """
    left = found[0] if [] not in found else []
    return [text for text in left if all(about(text) in map(about, other) for other in found)]


def about(text: str) -> str:
    """What a disagreement is about."""
    return text.split(":")[0]
