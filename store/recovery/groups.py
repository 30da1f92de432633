"""Consumer groups and their progress, from `config/consumerOffset.json` (spec 05, 5.3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..config_json import loads
from ..errors import Missing
from ..regular_file import read_regular
from .snapshot import QueueId
from .survey import Messages

_LARGEST_BYTES = 256 << 20

Progress = Mapping[QueueId, Mapping[str, int]]
"""Per queue and group the next queue offset to consume."""


def read_progress(config: Path) -> Progress:
    """The progress of all groups; of a file that cannot be parsed its `.bak`; empty without.

    Raises Unreadable.
    """
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        path = config / name
        try:
            data = read_regular(path, _LARGEST_BYTES)
        except Missing:
            continue
        found = _parse(data)
        if found is not None:
            return found
    return {}


def _parse(data: bytes) -> Progress | None:
    try:
        table = loads(data.decode("utf-8", "replace"))
        rows = list(_rows(table["offsetTable"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None
    progress: dict[QueueId, dict[str, int]] = {}
    for queue, group, offset in rows:
        progress.setdefault(queue, {})[group] = offset
    return progress


def _rows(table: Mapping[str, Any]) -> Iterator[tuple[QueueId, str, int]]:
    for name, offsets in table.items():
        topic, _, group = name.rpartition("@")
        for queue_id, offset in offsets.items():
            yield QueueId(topic, int(queue_id)), group, int(offset)


@dataclass
class GroupLoss:
    """Counts, per group and topic, lost messages that the group had not consumed yet."""

    progress: Progress
    counts: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, messages: Messages) -> None:
        """Count lost messages of one queue."""
        for group, offset in self.progress.get(messages.queue, {}).items():
            count = int((messages.offset >= offset).sum())
            if count:
                key = (group, messages.queue.topic)
                self.counts[key] = self.counts.get(key, 0) + count

    def to_json(self) -> list[dict[str, Any]]:
        """The contract's rows."""
        return [
            {"group": group, "topic": topic, "unconsumed_lost": count}
            for (group, topic), count in sorted(self.counts.items())
        ]
