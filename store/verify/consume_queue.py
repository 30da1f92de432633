"""Group C: consume queues (docs/invariants.md, I-060 … I-087), against the log in both directions."""

from __future__ import annotations

from .context import Scene
from .queue_ends import report_ends, report_missing
from .queue_messages import report_waits
from .queue_rocksdb import check_database
from .queue_state import queues_of
from .queue_units import QueuePass
from .register import after


@after(
    *("I-061", "I-062", "I-063", "I-064", "I-065", "I-066", "I-067", "I-068", "I-069", "I-070"),
    *("I-071", "I-072", "I-075", "I-084", "I-085", "I-086", "I-087"),
)
def units_of_queues(scene: Scene) -> None:
    """All units of all queues, and the messages that have none."""
    queues = queues_of(scene)
    if queues.unreadable:
        scene.unread.append(queues.unreadable)
        return
    for queue in sorted(queues.paths.keys() | queues.checks.keys() | scene.log.missing.keys()):
        if not queues.wanted(queue):
            continue
        check = queues.check(queue)
        seen = QueuePass(scene, queues, check)
        seen.run()
        check.live_end = max(seen.live_end, 0)
        report_ends(scene, queues, check, seen)
        report_missing(scene, queues, check)
        report_waits(scene, check)
    check_database(scene, queues)
