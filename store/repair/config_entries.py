"""Entries of config/ that contradict their own key, or what no broker writes, put right.

The key is what a broker looks up, so names inside an entry follow it. What an entry lacks comes from
the store: a topic has as many queues as its messages need. Spec 05, 5.2 to 5.6; I-076, I-142 to
I-144, I-149, I-150, I-154.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..broker.topics import new_topic
from ..broker.write_profile import WriterProfile
from ..disk.snapshot import QueueId
from ..errors import one_line
from ..verify.config_topics import MODES, PERM_MOST

Json = dict[Any, Any]
_TOPICS, _GROUPS, _FILTERS, _MODES_TABLE, _OFFSETS = (
    "topicConfigTable",
    "subscriptionGroupTable",
    "filterDataByTopic",
    "messageRequestModeMap",
    "offsetTable",
)
_TOLD_CHARS = 60
"""Of a name or value that is told."""
_QUEUE_NUMBERS = ("readQueueNums", "writeQueueNums")


@dataclass(frozen=True)
class Proven:
    """What the store proves. highest: topic → its highest queue. unserved: topics with queues that
    are to have an entry. topics, groups: names that are known. lost_groups: groups that something names
    and a start would not have. queues: all of them.
    """

    highest: Mapping[str, int]
    unserved: frozenset[str]
    topics: frozenset[str]
    groups: frozenset[str]
    lost_groups: frozenset[str]
    batch_topics: frozenset[str]
    queues: frozenset[QueueId]
    profile: WriterProfile


def mend_entries(name: str, content: Json, proven: Proven) -> Iterator[tuple[str, str]]:
    """Put the entries of the file of this name right: (code, what was done), one by one."""
    mend = _FILES.get(name)
    if mend is not None:
        yield from mend(content, proven)


def _topics(content: Json, proven: Proven) -> Iterator[tuple[str, str]]:
    table = content.get(_TOPICS)
    if not isinstance(table, dict):
        return
    for topic, entry in table.items():
        if not isinstance(entry, dict):
            continue
        fresh = new_topic(topic, proven.highest.get(topic, 0), proven.profile)
        if entry.get("topicName", topic) != topic:
            yield "I-142", _set(entry, topic, "topicName", topic)
        perm = entry.get("perm", 0)
        if _is_int(perm) and not 0 <= perm <= PERM_MOST:
            yield "I-142", _set(entry, topic, "perm", fresh["perm"])
        counts = [entry.get(column, 1) for column in _QUEUE_NUMBERS]
        sound = [n for n in counts if _is_int(n) and n > 0]
        for column, count in zip(_QUEUE_NUMBERS, counts, strict=True):
            if _is_int(count) and count <= 0:
                most = max([*sound, proven.highest.get(topic, -1) + 1])
                yield "I-142", _set(entry, topic, column, most or fresh[column])
        counts = [entry.get(column, 1) for column in _QUEUE_NUMBERS]
        needed = proven.highest.get(topic, -1) + 1
        if topic in proven.topics and all(_is_int(n) and n < needed for n in counts):
            yield "I-076", _set(entry, topic, _QUEUE_NUMBERS[0], needed)
    for topic in sorted(proven.unserved - set(table)):
        table[topic] = new_topic(topic, proven.highest[topic], proven.profile)
        yield "I-150", f"{_short(topic)}: it has queues and no entry"


def _groups(content: Json, proven: Proven) -> Iterator[tuple[str, str]]:
    del proven
    table = content.get(_GROUPS)
    for group, entry in table.items() if isinstance(table, dict) else ():
        if isinstance(entry, dict) and entry.get("groupName", group) != group:
            yield "I-143", _set(entry, group, "groupName", group)


def _filters(content: Json, proven: Proven) -> Iterator[tuple[str, str]]:
    del proven
    topics = content.get(_FILTERS)
    for topic, entry in topics.items() if isinstance(topics, dict) else ():
        groups = entry.get("groupFilterData") if isinstance(entry, dict) else None
        for group, data in groups.items() if isinstance(groups, dict) else ():
            for column, own in (("topic", topic), ("consumerGroup", group)):
                if isinstance(data, dict) and data.get(column, own) != own:
                    yield "I-149", _set(data, f"{topic} {group}", column, own)


def _modes(content: Json, proven: Proven) -> Iterator[tuple[str, str]]:
    """A mode is one of two, or the entry goes: then a broker takes its default, as it does now."""
    del proven
    topics = content.get(_MODES_TABLE)
    for topic, groups in topics.items() if isinstance(topics, dict) else ():
        for group in list(groups) if isinstance(groups, dict) else ():
            entry = groups[group]
            mode = entry.get("mode") if isinstance(entry, dict) else None
            if not isinstance(mode, str) or mode in MODES:
                continue
            meant = mode.strip().upper()
            if meant in MODES:
                yield "I-154", _set(entry, f"{topic} {group}", "mode", meant)
            else:
                del groups[group]
                what = f"mode {_short(mode)}, as if there were no entry"
                yield "I-154", f"{_short(topic)} {_short(group)}: {what}"


def _offsets(content: Json, proven: Proven) -> Iterator[tuple[str, str]]:
    """A key is topic@group; one without @ is split where only one way to do so is known."""
    table = content.get(_OFFSETS)
    if not isinstance(table, dict):
        return
    for key in list(table):
        if "@" in str(key):
            continue
        text = str(key)
        halves = [(t, text.removeprefix(t)) for t in proven.topics if text.startswith(t)]
        ways = [f"{topic}@{group}" for topic, group in halves if group in proven.groups]
        row = table.pop(key)
        if len(ways) == 1 and ways[0] not in table:
            table[ways[0]] = row
            yield "I-144", f"{_short(text)}: {_short(ways[0])}"
        else:
            what = f"taken out with {_short(row)}"
            yield "I-144", f"{_short(text)}: of no topic and group, {what}"


def _set(entry: Json, key: str, column: str, value: Any) -> str:
    before, entry[column] = entry.get(column), value
    return f"{_short(key)}: {column} {_short(before)} -> {_short(value)}"


def _short(value: Any) -> str:
    """What a file says, on one line and not longer than a person reads."""
    text = one_line(str(value))
    return text if len(text) <= _TOLD_CHARS else f"{text[:_TOLD_CHARS]}… ({len(text)} characters)"


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_FILES: dict[str, Callable[[Json, Proven], Iterator[tuple[str, str]]]] = {
    "topics.json": _topics,
    "subscriptionGroup.json": _groups,
    "consumerFilter.json": _filters,
    "messageRequestMode.json": _modes,
    "consumerOffset.json": _offsets,
}
