"""config/: a broken file mended from its .bak, from what is left of it, from what the store proves.

Offsets that lie outside their queue are brought inside it (`config_offsets.py`), entries that are not
possible are put right (`config_entries.py`). What a file says besides stays as it is. Spec 05, 5.1 to
5.3; I-140.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...formats.kinds import KINDS, Syntax
from ..broker.config_json import dumps, loads
from ..broker.dispatch import LMQ_PREFIX
from ..broker.profiles import DispatchRules, Profile
from ..broker.system_topics import group_of_topic, is_system_topic
from ..broker.topics import BATCH_QUEUES, QUEUE_TYPE, new_topic
from ..broker.write_profile import WriterProfile
from ..counted import counted
from ..disk.edits import Edit
from ..disk.file_queue import start_of
from ..disk.layout import Layout
from ..disk.regular_file import read_regular
from ..disk.snapshot import Snapshot
from ..errors import InvalidInput
from ..queues.read import queue_directories
from ..settings.read import BACKUP, FILES
from ..start.config import ConfigStart, config_start
from ..start.config_load import Loaded, Start, Text, as_proof, judge, load_config, misfits
from ..start.config_rules import config_rules
from ..verify.config_tables import ConfigTables
from .config_entries import Proven, mend_entries
from .config_offsets import Bounds, Clamped, Ranges, clamp

Json = dict[Any, Any]
_LARGEST_BYTES = 256 << 20
_TOPICS = ("topics.json", "topicConfigTable")
_GROUPS = ("subscriptionGroup.json", "subscriptionGroupTable")
_UNSETTLED = {
    _TOPICS[0]: "as new ones: permission, order, message type and other attributes are lost",
    _GROUPS[0]: "as new ones: retries, modes and other settings are lost",
}
"""What nothing proves of entries that the store proves."""
_VERSION = "dataVersion"
_TOLD = 3
"""Entries of a file that are told one by one."""
_OFFSET_CODES = {
    "consumerOffset.json": "I-144",
    "delayOffset.json": "I-146",
    "lmqConsumerOffset.json": "I-152",
}
Mended = tuple[str, str]


@dataclass
class ConfigRepair:
    """What becomes of config/."""

    edits: list[Edit] = field(default_factory=list)
    clamped: list[Clamped] = field(default_factory=list)


def config_repair(
    snapshot: Snapshot, ranges: Ranges, profile: Profile, writer: WriterProfile
) -> ConfigRepair:
    """Plan it. ranges: (min, max) offset of each queue once it is mended. Raises Unreadable."""
    made, layout, rules = ConfigRepair(), snapshot.layout, config_rules(profile)
    tables = ConfigTables.read(layout.config)
    start = config_start(layout, profile, ranges)
    proven = _proven(snapshot, tables, start, ranges, writer, profile.dispatch)
    gone = frozenset() if start.bare else start.forgotten
    from_zero = any(start_of(entry.name) == 0 for entry in snapshot.log)
    bounds = Bounds(ranges, proven.topics, _levels(layout, from_zero), from_zero)
    for name, kind in sorted(FILES.items()):
        path = layout.config / name
        if KINDS[kind].syntax is not Syntax.JSON or path.is_dir():
            continue
        content, reason = _content(load_config(layout.config, name, rules), path, gone, proven)
        if content is None:
            continue
        moved = list(clamp(name, content, bounds))
        mended = list(mend_entries(name, content, proven))
        reasons = [reason, f"{counted(len(moved), 'offset')} outside of a queue" if moved else ""]
        reasons += [what for _, what in mended[:_TOLD]]
        reasons += (
            [counted(len(mended) - _TOLD, "more entry", "more entries")]
            if len(mended) > _TOLD
            else []
        )
        if any(reasons):
            data = dumps(content).encode("utf-8", "surrogatepass")
            edit = _edit(path, data, reasons, moved, mended)
            if not judge(name, data, rules).problem:
                made.edits.append(edit)
                made.clamped += moved
    return made


def _levels(layout: Layout, from_zero: bool) -> int | None:
    """How many delay levels there are; None where nobody says so, or so that a broker can read it, and
    the log has not all messages that there ever were: one of a level of its own may be gone.
    """
    try:
        option = layout.options.delay_levels
    except InvalidInput:
        return None
    return len(option.value) if from_zero or option.is_given else None


def _edit(
    path: Path, data: bytes, reasons: list[str], moved: list[Clamped], mended: list[Mended]
) -> Edit:
    """A file that is written anew."""
    codes = {code for code, _ in mended} | ({_OFFSET_CODES[path.name]} if moved else set())
    reason = "; ".join(filter(None, reasons))
    codes = codes if codes and not reasons[0] else {"I-140", *codes}
    pieces = ((0, data),)
    return Edit("create", str(path), reason, tuple(sorted(codes)), length=len(data), pieces=pieces)


def _proven(
    snapshot: Snapshot,
    tables: ConfigTables,
    start: ConfigStart,
    ranges: Ranges,
    writer: WriterProfile,
    rules: DispatchRules,
) -> Proven:
    """What queues, log and directories say of topics and groups, and of groups what a start would
    forget of them. Raises Unreadable.
    """
    highest: dict[str, int] = {}
    for queue in ranges:
        if not queue.topic.startswith(LMQ_PREFIX):
            highest[queue.topic] = max(highest.get(queue.topic, 0), queue.queue_id)
    # a broker of 4.9.3 and later of that line makes queues of any name that a message asks for
    free = rules.multi_dispatch and not rules.light_closed
    there = {queue.topic for queue in queue_directories(snapshot.layout.consume_queue)}
    unserved = (
        set() if free else {topic for topic in there & set(highest) if not is_system_topic(topic)}
    )
    return Proven(
        highest,
        frozenset(unserved),
        frozenset(tables.names("topic_config", "topic")),
        frozenset(tables.names("subscription_group", "group")),
        frozenset(start.lost_groups),
        snapshot.batch_topics | {queue.topic for queue in snapshot.batch_queues},
        frozenset(ranges),
        writer,
    )


def _content(
    loaded: Loaded, path: Path, gone: frozenset[str], proven: Proven
) -> tuple[Json | None, str]:
    """What the file is to say, and why it is written anew, "" where it can stay.

    gone: files that a start forgets something of.
    """
    content: Json | None
    name, backup = loaded.name, path.with_name(path.name + BACKUP)
    if loaded.start is Start.LOADS and name not in gone:
        if loaded.main.odd:
            return _numbered(loaded.main.value), f"written as brokers do: {loaded.main.odd}"
        content = _loaded(path)
        if content is not None or loaded.main.value:
            return content, ""
    if loaded.start is Start.EMPTY and name not in gone and not path.exists():
        return None, ""
    content = {}
    if loaded.start is Start.BACKUP:
        content = _loaded(backup) or {}
    kept = _merge(name, content, _fitting(name, loaded.backup))
    kept += _merge(name, content, _fitting(name, loaded.main))
    count = _prove(name, content, proven) if name in gone or loaded.taken is None else 0
    table = KINDS[FILES[name]].tables[0].member
    content.setdefault(table, {})
    why = loaded.main.problem or ("entries are missing" if name in gone else "it has no table")
    if loaded.start is Start.BACKUP:
        more = kept + count
        besides = f", and {counted(more, 'entry', 'entries')} that it lacks" if more else ""
        besides += f" ({counted(count, 'entry', 'entries')}: {_UNSETTLED[name]})" if count else ""
        return content, f"taken from {backup.name}{besides}: {why}"
    proved = f"{counted(count, 'entry', 'entries')} that the store proves"
    proved += f" ({_UNSETTLED[name]})" if count else ""
    if not loaded.main.there:
        return content, f"made anew, with {proved}: {why}"
    return content, f"what is left of it, and {proved}: {why}"


def _fitting(name: str, text: Text) -> Json:
    """Of what can be read the entries that a broker takes, of the tables that it has."""
    found: Json = {}
    text = as_proof(name, text)
    for table in KINDS[FILES[name]].tables:
        value = text.value.get(table.member)
        if not isinstance(value, dict):
            continue
        if not table.levels:  # of the whole file, not of its entries
            found[table.member] = _numbered(value)
            continue
        rows = {key: row for key, row in value.items() if not next(misfits(table, {key: row}), "")}
        found[table.member] = _numbered(rows)
    return found


def _merge(name: str, content: Json, more: Json) -> int:
    """Add what is missing, and of two offsets take the higher one. Returns how many were changed."""
    changed = 0
    for member, rows in more.items():
        table = content.setdefault(member, {})
        if not isinstance(table, dict):
            table = content[member] = {}
        for key, row in rows.items():
            mine = table.get(key)
            if mine is None:
                table[key] = row
                changed += member != _VERSION
            elif isinstance(mine, dict) and isinstance(row, dict) and "Offset" in name:
                higher = {q: o for q, o in row.items() if _less(mine.get(q), o)}
                mine.update(higher)
                changed += bool(higher)
            elif "Offset" in name and member != _VERSION and _less(mine, row):
                table[key] = row
                changed += 1
    return changed


def _less(mine: Any, other: Any) -> bool:
    return mine is None or (isinstance(mine, int) and isinstance(other, int) and mine < other)


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
        int(key)
        if isinstance(key, str) and len(key) < 20 and key.isascii() and key.isdigit()
        else key: _numbered(item)
        for key, item in value.items()
    }


def _prove(name: str, content: Json, proven: Proven) -> int:
    """Add topics with their queues, and groups that have a retry topic. Returns how many."""
    if name == _TOPICS[0]:
        return _prove_topics(content, proven)
    if name == _GROUPS[0]:
        return _prove_groups(content, proven)
    return 0


def _prove_topics(content: Json, proven: Proven) -> int:
    table = _table(content, _TOPICS[1])
    missing = {topic: number for topic, number in proven.highest.items() if topic not in table}
    for topic, number in sorted(missing.items()):
        table[topic] = new_topic(topic, number, proven.profile)
        if topic in proven.batch_topics:
            table[topic]["attributes"] = {QUEUE_TYPE: BATCH_QUEUES}
    return len(missing)


def _prove_groups(content: Json, proven: Proven) -> int:
    table = _table(content, _GROUPS[1])
    groups = {group_of_topic(queue.topic) for queue in proven.queues}
    missing = sorted((groups | proven.lost_groups) - {"", *table})
    for group in missing:
        table[group] = {"groupName": group}
    return len(missing)


def _table(content: Json, name: str) -> Json:
    """A table of a file; one that is none is begun anew."""
    if not isinstance(content.get(name), dict):
        content[name] = {}
    table: Json = content[name]
    return table
