"""What the next start of a broker does to one message, by the simulated start (spec 7.1 to 7.5).

Nothing but the part of the log is read that a start reads; the rest of `recover`'s prediction, which
counts all messages, is left to that command.
"""

from __future__ import annotations

from ..broker.profiles import profile_of
from ..broker.snapshot import QueueId, Snapshot
from ..disk.lock import holder
from ..errors import StoreError
from ..search.store import Store
from ..start.log import as_configured, switches_of
from ..start.simulate import Outcome, simulate
from .answer import Fate, NextStart
from .family import Place
from .named import Named, Naming


def next_start(store: Store, now_ms: int) -> Outcome | NextStart:
    """Play the start; the answer at once where none can be played. Raises Unreadable."""
    pid = holder(store.layout.lock)
    if pid is not None:
        who = f"process {pid}" if pid else "somebody"
        return NextStart(Fate.RUNNING, f"{who} holds the lock: a broker runs on the store")
    try:
        snapshot = Snapshot.of(store.layout)
        profile = as_configured(profile_of(store.generation.version), store.config)
        outcome = simulate(snapshot, profile, switches_of(snapshot), now_ms)
    except StoreError as error:
        return NextStart(Fate.NOT_PLAYED, f"no start can be played: {error.message}")
    version = profile.version
    if outcome.refusal is not None:
        return NextStart(Fate.NO_START, f"it does not start: {outcome.refusal.reason}", version)
    if outcome.hangs:
        return NextStart(Fate.NO_START, f"it hangs: {outcome.hangs}", version)
    return outcome


def fate_of(outcome: Outcome, position: int, place: Place, unit: Named | None) -> NextStart:
    """What the start that was played does to the record at a position."""
    version = outcome.profile.version
    if position < outcome.log_start:
        reason = f"it gives up the log before {outcome.log_start}"
        return NextStart(Fate.CUT_OFF, reason, version)
    if position >= outcome.log_end:
        reason = f"it cuts the log at {outcome.log_end}, and the record with it"
        return NextStart(Fate.CUT_OFF, reason, version)
    topic, queue_id, offset = place
    if queue_id is None or offset is None:
        return NextStart(Fate.KEPT, "its record stays in the log", version)
    queue = outcome.read_queues.get(QueueId(topic, queue_id))
    inside = queue is not None and queue.min_offset <= offset < queue.max_offset
    was = unit is not None and unit.state is Naming.NAMES
    if inside and (was or unit is None):
        return NextStart(Fate.KEPT, "its record and the unit of its queue stay", version)
    hole = unit is not None and unit.state in (Naming.HOLE, Naming.ELSEWHERE)
    if inside and not hole:
        return NextStart(Fate.DISPATCHED, "it dispatches the record: its queue names it", version)
    reason = f"its queue {topic}/{queue_id} does not name it after the start"
    return NextStart(Fate.NOT_DISPATCHED, reason, version)
