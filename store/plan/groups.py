"""Consumer groups and their progress: `config/consumerOffset.json` and what stands in its place.

A broker with `enableLmq` keeps `lmqConsumerOffset.json` instead, with the groups of light queues beside
the others; one whose configuration is a RocksDB keeps `config/consumerOffsets/` (spec 05, 5.3, 5.4).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..audit.messages import Messages
from ..audit.verified import SoundRun, Stretch
from ..broker.snapshot import QueueId
from ..broker.topics import loads
from ..disk.byte_reader import read_regular
from ..errors import StoreError, Unreadable
from .lost_messages import LostMessages

_LARGEST_BYTES = 256 << 20
_PLAIN = "consumerOffset.json"
_LIGHT = "lmqConsumerOffset.json"
_ROCKSDB = "consumerOffsets"

Progress = Mapping[QueueId, Mapping[str, int]]
"""Per queue and group the next queue offset to consume."""


class _Table(NamedTuple):
    """What one file says, and when it was written (ms, 0: not known)."""

    progress: dict[QueueId, dict[str, int]]
    written_ms: int = 0


def read_progress(config: Path) -> Progress:
    """The progress of all groups; of a file that cannot be read its `.bak`; empty without.

    Of two files that name the same group the one written later counts.
    """
    tables = [table for name in (_PLAIN, _LIGHT) if (table := _read(config, name)) is not None]
    tables.sort(key=lambda table: table.written_ms)
    tables += _of_rocksdb(config / _ROCKSDB)
    progress: dict[QueueId, dict[str, int]] = {}
    for table in tables:
        for queue, offsets in table.progress.items():
            progress.setdefault(queue, {}).update(offsets)
    return progress


def _read(config: Path, file_name: str) -> _Table | None:
    """A file, or its `.bak`, as a broker takes it; None where neither can be read."""
    for name in (file_name, f"{file_name}.bak"):
        try:
            data = read_regular(config / name, _LARGEST_BYTES)
        except StoreError:
            continue
        found = _parse(data)
        if found is not None:
            return found
    return None


def _parse(data: bytes) -> _Table | None:
    try:
        table = loads(data.decode("utf-8", "replace"))
        rows = [*_rows(table["offsetTable"]), *_light_rows(table.get("lmqOffsetTable") or {})]
        version = table.get("dataVersion")
        written_ms = int(version["timestamp"]) if isinstance(version, dict) else 0
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None
    found = _Table({}, written_ms)
    for queue, group, offset in rows:
        found.progress.setdefault(queue, {})[group] = offset
    return found


def _rows(table: Mapping[str, Any]) -> Iterator[tuple[QueueId, str, int]]:
    for name, offsets in table.items():
        topic, _, group = name.rpartition("@")
        for queue_id, offset in offsets.items():
            yield QueueId(topic, int(queue_id)), group, int(offset)


def _light_rows(table: Mapping[str, Any]) -> Iterator[tuple[QueueId, str, int]]:
    """A light queue has one queue, number 0."""
    for name, offset in table.items():
        topic, _, group = name.rpartition("@")
        yield QueueId(topic, 0), group, int(offset)


def _of_rocksdb(path: Path) -> Iterator[_Table]:
    """The same of a RocksDB, where there is one that can be read."""
    from ..queues.rocksdb import RocksDb, is_rocksdb, readable

    if not is_rocksdb(path) or not readable():
        return
    from ..settings.rocksdb import read_entries

    found = _Table({})
    try:
        with RocksDb.open(path) as database:
            rows = [row for entry in read_entries(database) for row in entry.records]
    except Unreadable:
        return  # what the files say is better than nothing
    for row in rows:
        if row.get("type") == "consumer_offset":
            queue = QueueId(str(row["topic"]), int(row["queue_id"]))
            found.progress.setdefault(queue, {})[str(row["group"])] = int(row["offset"])
    yield found


@dataclass
class GroupLoss:
    """Counts, per group and topic, lost messages that the group had not consumed yet.

    lost: the messages themselves.
    """

    progress: Progress
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    lost: LostMessages = field(default_factory=LostMessages)

    def add(self, messages: Messages) -> None:
        """Count lost messages of one queue."""
        self.lost.add(messages)
        for group, offset in self.progress.get(messages.queue, {}).items():
            count = int((messages.offset >= offset).sum())
            if count:
                key = (group, messages.queue.topic)
                self.counts[key] = self.counts.get(key, 0) + count

    def add_run(self, run: SoundRun, queues: Mapping[QueueId, Stretch]) -> None:
        """Count the messages of a run, all of them lost; queues: those that count."""
        self.lost.add_run(run, queues)
        for queue, stretch in queues.items():
            for group, offset in self.progress.get(queue, {}).items():
                count = stretch.next - max(stretch.first, offset)
                if count > 0:
                    key = (group, queue.topic)
                    self.counts[key] = self.counts.get(key, 0) + count

    def to_json(self) -> list[dict[str, Any]]:
        """Rows of the JSON."""
        return [
            {"group": group, "topic": topic, "unconsumed_lost": count}
            for (group, topic), count in sorted(self.counts.items())
        ]
