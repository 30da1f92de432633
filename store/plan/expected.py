"""Which queues count: the messages of a topic that was deleted do not."""

from __future__ import annotations

from collections.abc import Callable

from ..disk.snapshot import QueueId, Snapshot
from ..start.config_load import load_config
from ..start.config_rules import TOPICS, ConfigRules
from .observer import can_have_files


def expected_queues(snapshot: Snapshot, rules: ConfigRules) -> Callable[[QueueId], bool]:
    """Whether a queue's messages count.

    A deleted topic has no queue directory and no entry in topics.json any more. Nor do those count of
    a topic that cannot be a directory. Where no table can be read every topic may be one that is there.
    """
    taken = load_config(snapshot.layout.config, TOPICS, rules).taken
    table = taken.value.get("topicConfigTable") if taken is not None else None
    if not isinstance(table, dict) or not table:
        return can_have_files
    names = {str(name) for name in table}

    def expected(queue: QueueId) -> bool:
        return can_have_files(queue) and (queue in snapshot.queues or queue.topic in names)

    return expected
