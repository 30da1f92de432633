"""Topics, groups, filters and static topics: entries that contradict themselves or the store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from ..broker.dispatch import LMQ_PREFIX
from ..broker.system_topics import is_system_topic
from ..queues.read import queue_directories
from .catalogue import Severity
from .config_tables import ConfigTables, Row, Told, config_tables
from .context import Scene
from .register import after, before

PERM_MOST = 15
_POLICY, _COMPACTION = "cleanup.policy", "COMPACTION"
_ATTRIBUTES: dict[str, frozenset[str] | None] = {
    "queue.type": frozenset({"SimpleCQ", "BatchCQ", "RocksDBCQ"}),
    _POLICY: frozenset({"DELETE", _COMPACTION}),
    "message.type": frozenset(
        {"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "PRIORITY", "LITE"}
    ),
    "reserve.time": None,
}
"""Attributes of a topic and what they may be; None: any number."""
MODES = frozenset({"PULL", "POP"})


@before("I-142")
def topics_are_possible(scene: Scene) -> None:
    """A topic has its own name, permissions that exist, and queues."""
    told = Told(scene, "I-142")
    for row in config_tables(scene).entries("topic_config", scene.scope.topic):
        if text := _wrong_topic(row.values):
            told.add(row.path, text)
    told.tell()


def _wrong_topic(entry: dict[str, Any]) -> str:
    topic = entry["topic"]
    if (name := entry.get("topic_name", topic)) != topic:
        return f"topic {topic!r} is called {name!r} in its entry"
    if not 0 <= entry.get("perm", 0) <= PERM_MOST:
        return f"topic {topic!r}: perm {entry['perm']} is not of 0 to {PERM_MOST}"
    for column in ("read_queue_nums", "write_queue_nums"):
        if entry.get(column, 1) <= 0:
            return f"topic {topic!r}: {column} is {entry[column]}"
    return ""


@before("I-143")
def groups_are_possible(scene: Scene) -> None:
    """A consumer group has its own name."""
    told = Told(scene, "I-143")
    for row in config_tables(scene).entries("subscription_group"):
        group = row.values["group"]
        if (name := row.values.get("group_name", group)) != group:
            told.add(row.path, f"group {group!r} is called {name!r} in its entry")
    told.tell()


@after("I-148")
def attributes_are_known(scene: Scene) -> None:
    """Attributes of topics are ones that brokers know, and fit the compaction directories."""
    tables, told = config_tables(scene), Told(scene, "I-148")
    compacted = set()
    for row in tables.entries("topic_config", scene.scope.topic):
        attributes = row.values.get("attributes", {})
        if attributes.get(_POLICY) == _COMPACTION:
            compacted.add(row.values["topic"])
        for text in _odd_attributes(row.values["topic"], attributes):
            told.add(row.path, text)
    _compare_compaction(scene, tables, compacted, told)
    told.tell()


def _odd_attributes(topic: str, attributes: dict[str, Any]) -> Iterator[str]:
    for name, value in attributes.items():
        if name not in _ATTRIBUTES:
            yield f"topic {topic!r}: no broker knows the attribute {name!r}"
            continue
        known = _ATTRIBUTES[name]
        number = isinstance(value, int) or str(value).removeprefix("-").isdecimal()
        if (value not in known) if known is not None else not number:
            yield f"topic {topic!r}: {name} is {value!r}"


def _compare_compaction(
    scene: Scene, tables: ConfigTables, compacted: set[str], told: Told
) -> None:
    layout = scene.store.layout
    there = {queue.topic for queue in queue_directories(layout.compaction_queues)}
    if not tables.rows["topic_config"]:
        return
    for topic in sorted(there - compacted):
        if scene.scope.topic in (None, topic):
            text = f"topic {topic!r} has compaction files, and its {_POLICY} is not {_COMPACTION}"
            told.add(os.fspath(layout.compaction_queues / topic), text)
    in_log = {queue.topic for queue in scene.log.next_offset}
    enabled = scene.store.config.get_bool("enableCompaction", default=True)
    for topic in sorted((compacted & in_log) - there) if enabled else ():
        text = f"topic {topic!r} is to be compacted, has messages, and no compaction files"
        told.add(os.fspath(layout.compaction_queues), text)


@before("I-149")
def filters_name_themselves(scene: Scene) -> None:
    """A filter has the topic and the group that it is filed under."""
    told = Told(scene, "I-149")
    for row in config_tables(scene).entries("consumer_filter", scene.scope.topic):
        topic, group = row.values["topic"], row.values["group"]
        inner = row.values.get("more", {}).get("topic", topic)
        own = row.values.get("consumer_group", group)
        if (inner, own) != (topic, group):
            text = f"the filter of {topic!r} and {group!r} says that it is of {inner!r} and {own!r}"
            told.add(row.path, text)
    told.tell()


@before("I-150")
def queues_have_a_topic(scene: Scene) -> None:
    """Each topic with queues is in topics.json."""
    tables = config_tables(scene)
    known = tables.names("topic_config", "topic")
    told = Told(scene, "I-150")
    topics = {queue.topic for queue in scene.store.queues}
    free = not scene.profile.dispatch.light_closed and scene.profile.dispatch.multi_dispatch
    for topic in sorted(topics - known):
        if is_system_topic(topic) or topic.startswith(LMQ_PREFIX):
            continue
        if scene.scope.topic in (None, topic):
            text = f"topic {topic!r} has queues and no entry: a broker does not serve it"
            legal = "; a 4.9 broker makes queues of any name that a message asks for"
            path = os.fspath(scene.store.layout.consume_queue)
            told.add(path, text + (legal if free else ""), Severity.INFO if free else None)
    told.tell()


@before("I-151")
def static_topics_are_ordered(scene: Scene) -> None:
    """A static topic is of this broker, and the parts of its queues follow one another."""
    told = Told(scene, "I-151")
    own = scene.store.config.get("brokerName")
    for row in config_tables(scene).entries("topic_queue_mapping", scene.scope.topic):
        for text in _odd_mapping(row, own):
            told.add(row.path, text)
    told.tell()


def _odd_mapping(row: Row, own: str | None) -> Iterator[str]:
    topic, broker = row.values["topic"], row.values.get("bname")
    if own is not None and broker not in (None, own):
        yield f"static topic {topic!r} is of the broker {broker!r}, this one is {own!r}"
    for queue, items in row.values.get("hosted_queues", {}).items():
        parts = [part for part in items or [] if isinstance(part, dict)]
        for one, later in pairwise(parts):
            for name in ("gen", "logicOffset"):
                before_, then = one.get(name), later.get(name)
                ordered = isinstance(before_, int) and isinstance(then, int) and before_ <= then
                if not ordered and not (name == "logicOffset" and then == -1):
                    yield f"static topic {topic!r}, queue {queue}: {name} {then} behind {before_}"


@before("I-154")
def modes_are_known(scene: Scene) -> None:
    """A group pulls or pops."""
    told = Told(scene, "I-154")
    for row in config_tables(scene).entries("message_request_mode", scene.scope.topic):
        mode = row.values.get("mode")
        if mode not in MODES:
            topic, group = row.values["topic"], row.values["group"]
            told.add(row.path, f"{group!r} on {topic!r}: mode {mode!r} is neither PULL nor POP")
    told.tell()
