"""config/topics.json: a topic that it lacks, as a broker would create it (spec 05, 5.2, 5.3).

A broker serves only topics that it knows. What the file has stays as it is, unknown keys too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from ..disk.files import Files, write_new
from ..disk.regular_file import read_regular
from ..errors import Missing, Refused
from .config_json import dumps, loads
from .delay_level import SCHEDULE_TOPIC, parse_levels
from .write_profile import WriterProfile

NAME = "topics.json"
_TABLE, _VERSION = "topicConfigTable", "dataVersion"
_LARGEST_BYTES = 256 << 20
_QUEUES_OF_A_NEW_TOPIC = 4
_ONE_QUEUE = ("%RETRY%", "%DLQ%", "RMQ_SYS_", "rmq_sys_")
_READ, _WRITE = 4, 2
QUEUE_TYPE, BATCH_QUEUES = "queue.type", "BatchCQ"
"""The attribute of a topic with batch queues (spec 02, 2.7)."""


class Topics:
    """The topics that a store's broker knows. Read with `Topics.read`; `add`, then `write`."""

    def __init__(self, path: Path, content: dict[str, Any], main: bytes | None) -> None:
        self.path = path
        self._content = content
        self._main = main
        self._added = 0

    @classmethod
    def read(cls, config: Path) -> Topics:
        """topics.json of a `config` directory, or its .bak where it is missing or broken.

        Raises Refused where neither can be parsed: no broker starts then. Unreadable.
        """
        path = config / NAME
        main, backup = _read(path), _read(path.with_name(NAME + ".bak"))
        for data in (main, backup):
            content = _parse(data) if data else None
            if content is not None:
                return cls(path, content, data if data is main else None)
        if main or backup:
            raise Refused(
                "neither topics.json nor its .bak can be parsed",
                path=path,
                hint="mend it, or leave it alone with --no-topic-config",
            )
        return cls(path, {}, None)

    @property
    def _table(self) -> dict[str, Any]:
        table: dict[str, Any] = self._content.get(_TABLE, {})
        return table

    @property
    def known(self) -> Collection[str]:
        """The names of all topics."""
        return self._table.keys()

    def __contains__(self, topic: str) -> bool:
        return topic in self._table

    def queues(self, topic: str) -> int | None:
        """Number of queues that a broker serves of a topic, None where it does not know it."""
        entry = self._table.get(topic)
        if not isinstance(entry, dict):
            return None
        counts = (entry.get(name) for name in ("readQueueNums", "writeQueueNums"))
        return max((count for count in counts if isinstance(count, int)), default=0)

    def unserved(self, highest_queue: Mapping[str, int]) -> list[tuple[str, int, int]]:
        """Of topic → highest queue id in use: topics that have fewer queues, and how many."""
        counts = {topic: self.queues(topic) for topic in highest_queue}
        return [
            (topic, highest_queue[topic], count)
            for topic, count in counts.items()
            if count is not None and highest_queue[topic] >= count
        ]

    def attribute(self, topic: str, name: str) -> str | None:
        """An attribute of a topic, such as `queue.type`."""
        entry = self._table.get(topic)
        attributes = entry.get("attributes") if isinstance(entry, dict) else None
        value = attributes.get(name) if isinstance(attributes, dict) else None
        return value if isinstance(value, str) else None

    def add(
        self,
        highest_queue: Mapping[str, int],
        profile: WriterProfile,
        batch_topics: Collection[str] = (),
    ) -> None:
        """Add the topics that are missing: topic → highest queue id in use.

        batch_topics: those of them that have batch queues.
        """
        missing = {t: q for t, q in highest_queue.items() if t not in self._table}
        if not missing:
            return
        self._added += len(missing)
        self._content.setdefault(_VERSION, {})
        table = self._content.setdefault(_TABLE, {})
        for topic, queue_id in missing.items():
            table[topic] = new_topic(topic, queue_id, profile)
            if topic in batch_topics:
                table[topic]["attributes"] = {QUEUE_TYPE: BATCH_QUEUES}

    def write(self, files: Files, profile: WriterProfile, now_ms: Callable[[], int]) -> None:
        """Bring added topics to the disk; the old content becomes the .bak. Nothing without any."""
        if not self._added:
            return
        version = self._content[_VERSION]
        counter = version.get("counter")
        version["counter"] = (counter if isinstance(counter, int) else 0) + self._added
        if profile.modern_topics:
            version.setdefault("stateVersion", 0)
        version["timestamp"] = now_ms()
        files.make_directory(self.path.parent)
        if self._main is not None:
            _replace(files, self.path.with_name(NAME + ".bak"), self._main)
        data = dumps(self._content).encode()
        _replace(files, self.path, data)
        self._main, self._added = data, 0


def new_topic(topic: str, highest_queue: int, profile: WriterProfile) -> dict[str, Any]:
    """The entry that a broker makes when a producer sends to a topic that it does not know."""
    queues = 1 if topic.startswith(_ONE_QUEUE) else _QUEUES_OF_A_NEW_TOPIC
    if topic == SCHEDULE_TOPIC:
        queues = len(parse_levels())
    queues = max(queues, highest_queue + 1)
    closed = profile.closed_dead_letters and topic.startswith("%DLQ%")
    entry: dict[str, Any] = {"attributes": {}} if profile.modern_topics else {}
    return entry | {
        "order": False,
        "perm": _WRITE if closed else _READ | _WRITE,
        "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": topic,
        "topicSysFlag": 0,
        "writeQueueNums": queues,
    }


def _read(path: Path) -> bytes | None:
    try:
        return read_regular(path, _LARGEST_BYTES)
    except Missing:
        return None


def _parse(data: bytes) -> dict[str, Any] | None:
    try:
        content = loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    parts = (content.get(name, {}) for name in (_TABLE, _VERSION))
    return content if all(isinstance(part, dict) for part in parts) else None


def _replace(files: Files, path: Path, data: bytes) -> None:
    """Put new content in the place of a file, so that either the old or the new one is there."""
    temporary = path.with_name(path.name + ".tmp")
    if temporary.exists():
        files.unlink(temporary)
    write_new(files, temporary, data, like=path if path.exists() else None)
    files.rename(temporary, path)
    files.sync_directory(path.parent)


def now_ms() -> int:
    """The clock."""
    return time.time_ns() // 1_000_000
