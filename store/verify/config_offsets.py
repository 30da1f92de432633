"""Offsets that the configuration keeps, against the queues (I-144 … I-146, I-152), and segments."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

from ...formats.consumer_offset import OFFSET_TABLES
from ..broker.delay_level import SCHEDULE_TOPIC
from ..broker.dispatch import LMQ_PREFIX
from ..disk.snapshot import QueueId
from .catalogue import Severity
from .config_tables import Told, config_tables
from .context import Scene
from .queue_bounds import queue_bounds
from .register import after, before

_CLAMPS_SINCE = "4.9"
_DELETED, _NEW = 2, 0
_LIGHT_TABLE = "lmqOffsetTable"
_SYSTEM_GROUPS = "CID_RMQ_SYS_"
_VALUE = "config_value"


@after("I-144")
def consumers_are_inside_their_queues(scene: Scene) -> None:
    """What a group has consumed lies between the ends of the queue."""
    tables, told = config_tables(scene), Told(scene, "I-144")
    topics = tables.names("topic_config", "topic")
    for row in tables.entries("consumer_offset", scene.scope.topic):
        if row.values.get("table") == _LIGHT_TABLE:
            continue
        queue = QueueId(row.values["topic"], row.values["queue_id"])
        if scene.scope.queue_id not in (None, queue.queue_id):
            continue
        offset, group = row.values["offset"], row.values["group"]
        text, severity = _outside(scene, queue, offset, known=queue.topic in topics)
        if text:
            told.add(row.path, f"{group!r} on {queue.topic}/{queue.queue_id}: {text}", severity)
    for row in tables.entries(_VALUE):
        table, _, key = str(row.values.get("name", "")).partition(".")
        if table in OFFSET_TABLES and row.values.get("problem"):
            told.add(row.path, f"{key!r} in {table} is no offset of a topic, group and queue")
    told.tell()


def _outside(
    scene: Scene, queue: QueueId, offset: int, *, known: bool
) -> tuple[str, Severity | None]:
    """(what is wrong with an offset of a group, its severity), "" for nothing."""
    if offset < 0:
        return f"offset {offset}", None
    bounds = queue_bounds(scene).of(queue)
    if bounds is None:
        sure = known and scene.log.complete and scene.log.start == 0 and offset > 0
        return (
            (f"offset {offset}, and the queue has never had a message", None)
            if sure
            else ("", None)
        )
    first, end = bounds
    if offset > end and scene.log.complete:
        return f"offset {offset} is behind the end of the queue, {end}", None
    if offset < first:
        return f"offset {offset}, the queue begins at {first}: expired", Severity.INFO
    return "", None


@before("I-145")
def offsets_are_of_known_ones(scene: Scene) -> None:
    """The topic and the group of an offset are known."""
    tables, told = config_tables(scene), Told(scene, "I-145")
    topics = tables.names("topic_config", "topic")
    groups = tables.names("subscription_group", "group")
    for row in tables.entries("consumer_offset", scene.scope.topic):
        topic, group = row.values["topic"], row.values["group"]
        if group.startswith(_SYSTEM_GROUPS):
            continue
        if topics and topic not in topics and not topic.startswith(LMQ_PREFIX):
            told.add(row.path, f"an offset of {group!r} on {topic!r}, and there is no such topic")
        elif groups and group not in groups and not group.startswith(LMQ_PREFIX):
            told.add(row.path, f"an offset of {group!r} on {topic!r}, and there is no such group")
    told.tell()


@after("I-146")
def delays_are_inside_their_queues(scene: Scene) -> None:
    """A delay level exists, and what was delivered of it lies inside its queue."""
    if scene.scope.topic not in (None, SCHEDULE_TOPIC):
        return
    told = Told(scene, "I-146")
    option = scene.store.layout.options.delay_levels
    levels, given = len(option.value), option.is_given
    clamps = scene.profile.version >= _CLAMPS_SINCE
    for row in config_tables(scene).entries("delay_offset"):
        level, offset = row.values["delay_level"], row.values["offset"]
        if not 1 <= level <= levels:
            text = f"delay level {level} is not of 1 to {levels}"
            # where the log has all there ever was, a level without a queue delivered nothing
            guess = level > levels and not given and (scene.log.start > 0 or offset == 0)
            text += f"; {option.name} may have more (--set {option.name}=…)" if guess else ""
            told.add(row.path, text, Severity.WARNING if guess else None)
            continue
        bounds = queue_bounds(scene).of(QueueId(SCHEDULE_TOPIC, level - 1))
        if bounds is None and scene.log.start > 0:
            continue
        first, end = bounds or (0, 0)
        text = f"delay level {level}: offset {offset} is outside the queue, {first} to {end}"
        if offset < 0 or (offset > end and scene.log.complete):
            more = ": a start of 4.9 or later moves it to the end" if clamps else ""
            told.add(row.path, text + more, Severity.WARNING if clamps else None)
        elif offset < first:
            told.add(row.path, text + ": expired", Severity.INFO)
    told.tell()


@after("I-152")
def light_consumers_are_inside_their_queues(scene: Scene) -> None:
    """An offset of a light queue names one, and is not behind its end."""
    told = Told(scene, "I-152")
    for row in config_tables(scene).entries("consumer_offset", scene.scope.topic):
        if row.values.get("table") != _LIGHT_TABLE:
            continue
        topic, offset = row.values["topic"], row.values["offset"]
        bounds, light = queue_bounds(scene).of(QueueId(topic, 0)), topic.startswith(LMQ_PREFIX)
        end = 0 if bounds is None else bounds[1]
        if not light and bounds is None:
            told.add(row.path, f"{topic!r} is no light queue: its name has no {LMQ_PREFIX}")
        elif offset < 0 or (
            offset > end and scene.log.complete and (bounds or not scene.log.start)
        ):
            told.add(row.path, f"{topic}: offset {offset} is behind the end of the queue, {end}")
        elif not light:
            text = f"{topic!r} is no light queue, and a group for light queues consumes it"
            told.add(row.path, text, Severity.INFO)
    told.tell()


@before("I-153")
def tiered_segments_are_contiguous(scene: Scene) -> None:
    """Segments of one tiered file follow one another, and only the last one is open."""
    by_path: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in config_tables(scene).entries("tiered_segment"):
        if row.values.get("status") != _DELETED:
            table = str(row.values.get("table"))
            by_path[row.path, table, row.values["path"]].append(row.values)
    told = Told(scene, "I-153")
    for (path, _, name), segments in by_path.items():
        segments.sort(key=lambda segment: int(segment["base_offset"]))
        for one, later in pairwise(segments):
            end = one["base_offset"] + one.get("size", 0)
            if end != later["base_offset"]:
                text = f"{name}: a segment ends at {end}, the next begins at {later['base_offset']}"
                told.add(path, text)
            elif one.get("status") == _NEW:
                told.add(path, f"{name}: the segment at {one['base_offset']} is open, not the last")
    told.tell()
