"""config/: a broken file mended from its .bak, from what is left of it, from what the store proves.

Offsets of consumers, and of delay levels, that lie outside their queue are brought inside it. What
a file says besides stays as it is. Spec 05, 5.1 to 5.3; I-140, I-144, I-146, I-152.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...formats.kinds import KINDS, Syntax
from ..config_file import BACKUP, FILES, ConfigFile, read_config_file
from ..config_json import dumps, loads
from ..delay_level import SCHEDULE_TOPIC
from ..dispatch import LMQ_PREFIX
from ..errors import Missing
from ..layout import Layout
from ..recovery.edits import Edit
from ..recovery.snapshot import QueueId
from ..regular_file import read_regular
from ..write.profile import WriterProfile
from ..write.topics import new_topic

Json = dict[Any, Any]
Ranges = Mapping[QueueId, tuple[int, int]]
_LARGEST_BYTES = 256 << 20
_OFFSETS, _LIGHT_OFFSETS = "offsetTable", "lmqOffsetTable"
_TOPICS = ("topics.json", "topicConfigTable")
_GROUPS = ("subscriptionGroup.json", "subscriptionGroupTable")
_OF_GROUPS = ("%RETRY%", "%DLQ%")
_DELAYS = "delayOffset.json"
_CONSUMERS = ("consumerOffset.json", "lmqConsumerOffset.json")


@dataclass(frozen=True)
class Clamped:
    """An offset that lay outside of its queue. group: "" for a delay level."""

    group: str
    queue: QueueId
    before: int
    after: int


@dataclass
class ConfigRepair:
    """What becomes of config/."""

    edits: list[Edit] = field(default_factory=list)
    clamped: list[Clamped] = field(default_factory=list)


def config_repair(layout: Layout, ranges: Ranges, profile: WriterProfile) -> ConfigRepair:
    """Plan it. ranges: (min, max) offset of each queue once it is mended. Raises Unreadable."""
    made = ConfigRepair()
    for name, kind in sorted(FILES.items()):
        path = layout.config / name
        if KINDS[kind].syntax is not Syntax.JSON:
            continue
        content, reason = _content(path, kind, ranges, profile)
        if content is None:
            continue
        moved = list(_clamp(name, content, ranges))
        made.clamped += moved
        if moved:
            reason = "; ".join(filter(None, (reason, f"{len(moved)} offsets outside of a queue")))
        if reason:
            data = dumps(content).encode("utf-8", "surrogatepass")
            codes = ("I-144",) if moved else ("I-140",)
            pieces = ((0, data),)
            made.edits.append(
                Edit("create", str(path), reason, codes, length=len(data), pieces=pieces)
            )
    return made


def _content(
    path: Path, kind: str, ranges: Ranges, profile: WriterProfile
) -> tuple[Json | None, str]:
    """What the file is to say, and why it is written anew, "" where it can stay."""
    main, backup = _read(path, kind), _read(path.with_name(path.name + BACKUP), kind)
    if main is None and (backup is None or backup.problem is not None):
        return None, ""
    if main is not None and main.problem is None:
        return _loaded(path), ""
    if backup is not None and backup.problem is None:
        what = "it is missing" if main is None else main.problem and main.problem.reason
        return _loaded(backup.path), f"taken from {backup.path.name}: {what}"
    rests = [file for file in (main, backup) if file is not None]
    best = max(rests, key=lambda file: sum(1 for _ in file.records()))
    content: Json = _numbered(best.value)
    proven = _prove(path.name, content, ranges, profile)
    return content, f"what is left of {best.path.name}, and {proven} entries that the store proves"


def _read(path: Path, kind: str) -> ConfigFile | None:
    try:
        return read_config_file(path, kind)
    except Missing:
        return None


def _loaded(path: Path) -> Json | None:
    """The file as a broker reads it; None where only a tolerant reader does: it stays as it is."""
    try:
        found = loads(read_regular(path, _LARGEST_BYTES).decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _numbered(value: Any) -> Any:
    """Keys that are numbers as numbers, as a broker writes them."""
    if isinstance(value, list):
        return [_numbered(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        int(key) if isinstance(key, str) and key.isascii() and key.isdigit() else key: _numbered(
            item
        )
        for key, item in value.items()
    }


def _prove(name: str, content: Json, ranges: Ranges, profile: WriterProfile) -> int:
    """Add topics with their queues, and groups that have a retry topic. Returns how many."""
    if name == _TOPICS[0]:
        return _prove_topics(content, ranges, profile)
    if name == _GROUPS[0]:
        return _prove_groups(content, ranges)
    return 0


def _prove_topics(content: Json, ranges: Ranges, profile: WriterProfile) -> int:
    table = _table(content, _TOPICS[1])
    highest: dict[str, int] = {}
    for queue in ranges:
        if not queue.topic.startswith(LMQ_PREFIX):
            highest[queue.topic] = max(highest.get(queue.topic, 0), queue.queue_id)
    missing = {topic: number for topic, number in highest.items() if topic not in table}
    for topic, number in sorted(missing.items()):
        table[topic] = new_topic(topic, number, profile)
    return len(missing)


def _prove_groups(content: Json, ranges: Ranges) -> int:
    table = _table(content, _GROUPS[1])
    groups = {
        queue.topic.removeprefix(prefix)
        for queue in ranges
        for prefix in _OF_GROUPS
        if queue.topic.startswith(prefix)
    }
    missing = sorted(groups - set(table))
    for group in missing:
        table[group] = {"groupName": group}
    return len(missing)


def _table(content: Json, name: str) -> Json:
    """A table of a file; one that is none is begun anew."""
    if not isinstance(content.get(name), dict):
        content[name] = {}
    table: Json = content[name]
    return table


def _clamp(name: str, content: Json, ranges: Ranges) -> Iterator[Clamped]:
    """Bring the offsets of a file inside their queues."""
    light = content.get(_LIGHT_OFFSETS)
    if isinstance(light, dict):
        for key in light:
            topic, _, group = str(key).rpartition("@")
            yield from _clamp_row(group, light, {key: QueueId(topic, 0)}, ranges)
    table = content.get(_OFFSETS)
    if not isinstance(table, dict):
        return
    if name == _DELAYS:
        queues = {level: QueueId(SCHEDULE_TOPIC, level - 1) for level in table if _is_int(level)}
        yield from _clamp_row("", table, queues, ranges)
    elif name in _CONSUMERS:
        for key, row in table.items():
            topic, _, group = str(key).rpartition("@")
            if isinstance(row, dict):
                queues = {number: QueueId(topic, number) for number in row if _is_int(number)}
                yield from _clamp_row(group, row, queues, ranges)


def _clamp_row(
    group: str, row: Json, queues: Mapping[Any, QueueId], ranges: Ranges
) -> Iterator[Clamped]:
    for key, queue in queues.items():
        offset, bounds = row[key], ranges.get(queue)
        if bounds is None or not _is_int(offset):
            continue
        inside = min(max(offset, bounds[0]), bounds[1])
        if inside != offset:
            row[key] = inside
            yield Clamped(group, queue, offset, inside)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
