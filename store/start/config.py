"""What a broker's start makes of `config/`, and what is lost by it (spec 05, 5.2).

Each file is loaded as `config_load` says. What is proved to have been there and is not taken is lost. Proofs of a
table's entries: what can still be read of the file and its .bak; for topics, queues with messages; for groups, offsets
and retry topics. Files that a broker writes all the time are reported as lost even if nothing proves what was in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ...formats.config import BACKUP
from ...formats.consumer_offset import GROUP_TOPIC_MAP, PULL_OFFSET_TABLE
from ...formats.json_table import JsonTable
from ...formats.kinds import KINDS
from ..broker.profiles import Profile
from ..broker.snapshot import QueueId
from ..broker.system_topics import (
    CHECKED_TOO_OFTEN,
    DEAD_LETTER_PREFIX,
    LMQ_PREFIX,
    OP_TOPIC,
    SCHEDULE_TOPIC,
    TRANSACTION_POSITIONS,
    group_of_topic,
    is_system_group,
    is_system_topic,
)
from ..counted import counted, listed
from ..disk.layout import Layout
from ..queues.rocksdb import is_rocksdb
from ..queues.rocksdb_copy import database_loss
from ..settings.generation import has_properties_of_brokers
from ..settings.parse import misfits, numbers
from ..settings.read import FILES, TEMPORARY, ConfigFile
from ..settings.rocksdb import counter_of, in_force, keeps_databases, stand_ins
from . import config_load

Ranges = Mapping[QueueId, tuple[int, int]]
Undelivered = Callable[[Mapping[int, int]], Mapping[int, int]] | None
"""Delay level → offset passed: the first earlier offset that no broker can have delivered. None: not asked."""
_OF_STORE = frozenset({config_load.DELAYS, config_load.TIMERS, config_load.TIMER_CHECK})
"""What the store itself writes, with or without a broker's configuration."""
_PROVED_BY_FILE = (config_load.FILTERS, config_load.ORDER, config_load.MAPPING, config_load.MODES, config_load.TIERED)
"""Tables whose entries only their own files prove."""
_KEYS = ("topic", "group", "queue_id", "delay_level")
_KEYS_OF_SEGMENT = ("table", "path", "base_offset")
_OFFSET_RECORDS = ("consumer_offset", "delay_offset")


class LostPosition(NamedTuple):
    """The lost offset of a group. before: None if unknown. after: None if the group begins by its own rule."""

    group: str
    topic: str
    queue_id: int
    before: int
    after: int | None


class LostDelay(NamedTuple):
    """A delay level that continues at `after`: repeats messages, or skips those from `before` (None: unknown) on."""

    delay_level: int
    before: int | None
    after: int

    @property
    def skips(self) -> bool:
        """Whether some messages are never delivered."""
        return self.before is not None and self.before < self.after


_NAMED_MAX = 5
"""So many positions of one file are named in a text."""
_Key = tuple[Any, ...]


def entries_of(name: str, text: config_load.Text) -> dict[_Key, int]:
    """The readable entries: key → offset, 0 in tables without offsets. The key begins with the table."""
    kind, value = FILES[name], dict(text.value)
    for table in KINDS[kind].tables:
        if table.member in value and table.value is not None:
            value[table.member] = numbers(value[table.member])
    value.pop(PULL_OFFSET_TABLE, None)  # written, and never read again
    types = {table.record_type for table in KINDS[kind].tables} - {"data_version"}
    found: dict[_Key, int] = {}
    for row in ConfigFile(Path(name), kind, value).records():
        if row["type"] in types:
            key: _Key = (row.get("table", ""), *(row.get(key) for key in _KEYS))
            if "path" in row:
                key += tuple(row[key] for key in _KEYS_OF_SEGMENT)
            found[key] = row["offset"] if row["type"] in _OFFSET_RECORDS else 0
    return found


def delay_progress(layout: Layout, rules: config_load.ConfigRules) -> dict[int, int] | None:
    """Delay level → next queue offset to deliver, as a start loads it; empty if neither delayOffset.json nor its .bak
    is there, None if there is one and none is taken.
    """
    one = config_load.load_config(layout.config, config_load.DELAYS, rules)
    if one.taken is None:
        return None if _present(one) else {}
    return {key[4]: offset for key, offset in entries_of(config_load.DELAYS, one.taken).items()}


def lone_position(rows: Mapping[Any, Any]) -> str:
    """The topic of transactions whose position is known while that of the other topic is not; "" otherwise.

    With a single position a broker asks for decided transactions once more, and delivers them once more, or never asks
    for open ones. With neither it reads all of both topics, and finds what is decided.
    """
    known = [key for key in TRANSACTION_POSITIONS if rows.get(key)]
    return known[0] if len(known) == 1 else ""


def entry_text(key: _Key) -> str:
    """Text for the key of an entry, without its table."""
    return "@".join(str(part) for part in key if part is not None)


def _signs(layout: Layout, queues: Ranges) -> tuple[bool, bool]:
    """Whether a broker with a configuration has run here: (by files, by what only a broker leaves).

    By files: `config/` has a table, a .bak or the rest of a write. What only a broker leaves: files beyond those that
    the store or `put` writes, an empty `config/`, a timer without its timercheck, or messages in topics that only a
    broker fills, or that came through a broker.
    """
    found = {path.name for path in layout.config.iterdir()} if layout.config.is_dir() else None
    plain = {name.removesuffix(BACKUP).removesuffix(TEMPORARY) for name in found or ()}
    tables = plain & (set(FILES) - _OF_STORE)
    topics = {queue.topic for queue in queues}
    own = any(topic in (CHECKED_TOO_OFTEN, OP_TOPIC) or topic.startswith(DEAD_LETTER_PREFIX) for topic in topics)
    gone = found is None and (own or layout.timer_wheel.exists() or has_properties_of_brokers(layout))
    return bool(tables), bool(tables - {config_load.TOPICS}) or found == set() or gone


@dataclass(frozen=True)
class ConfigLoss:
    """What is proved and the loaded tables lack. ran: a broker has written its files here. cut: files whose RocksDB has
    lost entries. copies: the broker copies topics, groups and positions from its master.
    """

    loaded: Mapping[str, config_load.LoadedConfig]
    queues: Ranges
    ran: bool
    undelivered: Undelivered
    cut: frozenset[str] = frozenset()
    copies: bool = False
    _entries: dict[str, tuple[dict[_Key, int], dict[_Key, int]]] = field(default_factory=dict)

    def topics(self) -> tuple[frozenset[str], frozenset[str]]:
        """Topics with messages but no entry: those lost with the table, and those that an intact table lacks."""
        one = self.loaded[config_load.TOPICS]
        known = {key[1] for key in self._taken(one)}
        proved = {queue.topic for queue, (first, end) in self.queues.items() if end > first} - known
        missing = frozenset(t for t in proved if not t.startswith(LMQ_PREFIX) and not is_system_topic(t))
        emptied = one.start is not config_load.LoadAction.LOADS or all(map(is_system_topic, known))
        lost = config_load.TOPICS in self.cut or (emptied and not self._not_copied(one))
        reported = frozenset() if one.main.unseen else missing
        own = {key[1] for key in self._proved(one)} if one.older_than else ()
        return (reported, frozenset()) if lost else (reported.intersection(own), reported.difference(own))

    def groups(self) -> Iterator[str]:
        """Yield groups that offsets, retry topics or the rest of the file name, and the loaded table lacks."""
        one = self.loaded[config_load.GROUPS]
        known = {key[2] for key in self._taken(one)}
        own = {key[2] for key in self._proved(one)}
        named = {key[2] for key in self._proved(self._offsets) | self._taken(self._offsets)}
        named |= {group_of_topic(queue.topic) for queue in self.queues}
        proper = {group for group in known if not is_system_group(group)}
        changed = config_load.GROUPS not in self.cut and counter_of(one.main.value)  # not only the broker's own groups
        whole = one.start is config_load.LoadAction.LOADS and (proper or changed)
        asked = not (whole or self._not_copied(one)) and (self.ran or _present(one))
        proved = own | (named if asked else set())
        if (not whole or one.older_than) and not one.main.unseen:
            lost = proved - known - {""}
            yield from sorted(name for name in lost if not is_system_group(name) and not name.startswith(LMQ_PREFIX))

    def unsettled(self) -> tuple[frozenset[str], frozenset[str]]:
        """Lost topics and lost groups whose own entries cannot be read any more."""
        topics = {key[1] for key in self._proved(self.loaded[config_load.TOPICS])}
        groups = {key[2] for key in self._proved(self.loaded[config_load.GROUPS])}
        return self.topics()[0] - topics, frozenset(self.groups()) - groups

    def positions(self) -> Iterator[LostPosition]:
        """Yield offsets that the loaded table lacks, or has lower."""
        one = self._offsets
        taken = self._taken(one)
        if one.start is config_load.LoadAction.LOADS and (taken or one.main.unseen) and not one.older_than:
            return
        for key, before in sorted(self._proved(one).items(), key=repr):
            _, topic, group, queue_id, _ = key
            after = taken.get(key)
            number = 0 if queue_id is None else queue_id
            end = self.queues.get(QueueId(topic, number), (0, 0))[1]
            if end > 0 and (after is None or after < before):
                yield LostPosition(group, topic, number, before, after)

    def delays(self) -> Iterator[LostDelay]:
        """Yield delay levels whose queue is read again, or not up to its end."""
        one = self.loaded[config_load.DELAYS]
        rest = {key[4]: offset for key, offset in self._proved(one).items()}
        after = {key[4]: offset for key, offset in self._taken(one).items()}
        levels = {queue.queue_id + 1: both for queue, both in self.queues.items() if queue.topic == SCHEDULE_TOPIC}
        begin = {level: min(offset, levels.get(level, (0, 0))[1]) for level, offset in after.items() if offset > 0}
        known = one.start is config_load.LoadAction.LOADS and bool(after or one.main.unseen)
        wholly = not known and _without_table(one) and (self.ran or _present(one))
        # a level does not begin again if no broker can have delivered its first message
        new = {level: first + 1 for level, (first, _) in levels.items() if wholly and level not in rest}
        waits = self.undelivered({**new, **begin}) if self.undelivered else {}
        yield from (LostDelay(level, first, begin[level]) for level, first in sorted(waits.items()) if level in begin)
        for level, (first, end) in sorted(levels.items()):
            if known or end <= first or level in waits:
                continue
            begins = max(after.get(level, first), first)
            before = rest.get(level)
            if (before is None and wholly) or (before is not None and begins < min(before, end)):
                yield LostDelay(level, before, begins)

    def others(self) -> Iterator[tuple[str, str]]:
        """Yield file and entry of filters, orders, static topics and modes that can be read but are not taken."""
        for name in _PROVED_BY_FILE:
            one = self.loaded.get(name)
            if one is None or (one.start is config_load.LoadAction.LOADS and one.main.unseen):
                continue
            if one.start is not config_load.LoadAction.LOADS or not self._taken(one):
                for key in sorted(set(self._proved(one)) - set(self._taken(one)), key=repr):
                    yield name, entry_text(key[1:])

    def unknown(self) -> Iterator[tuple[str, str]]:
        """Yield files that have lost something that cannot be named, and what it is."""
        if self._offsets.taken is not None and self._offsets.taken.fails:
            yield self._offsets.name, "groups cannot commit: the table of offsets is null"
        any_message = any(end > 0 for _, end in self.queues.values())
        for name, what in (
            (self._offsets.name, "the positions of all groups are lost"),
            *((name, f"the content of {name} is lost") for name in _PROVED_BY_FILE),
        ):
            one = self.loaded.get(name)
            if one is None or not _without_table(one):
                continue
            if rests := self._proved(one):
                noted = _topics_of_groups(one)
                lacking = noted - {(key[2], key[1]) for key in rests}
                all_there = noted and not lacking and not one.main.open[1:]  # the text ends behind a row
                if (tables := _tables_not_whole(one)) and not all_there:
                    parts = [f"{group} on {topic}" for group, topic in sorted(lacking)] or tables
                    yield name, f"a part of {name} is lost ({listed(parts, _NAMED_MAX)})"
                continue
            consumed = any_message and (self.ran or _present(one)) and not self._nobody_consumed
            consumed = consumed and not self._not_copied(one)
            if one.main.there or (one is self._offsets and consumed):
                yield name, what

    def _not_copied(self, one: config_load.LoadedConfig) -> bool:
        """Whether no file, or a whole one without entries, is what the broker has before it first copied the table."""
        something = one.main.there or one.backup.there or one.newer.value
        return self.copies and (one.start is config_load.LoadAction.LOADS or not something)

    @property
    def _nobody_consumed(self) -> bool:
        """Whether the table of topics is there, and nothing names a group, each of which would have a topic for its
        retries. A broker that was killed early has not written its offsets yet.
        """
        topics = {key[1] for key in self._taken(self.loaded[config_load.TOPICS])}
        topics |= {queue.topic for queue in self.queues}
        known = {key[2] for key in self._taken(self.loaded[config_load.GROUPS])}
        known |= {group_of_topic(topic) for topic in topics}
        has_topics = self.loaded[config_load.TOPICS].taken is not None
        return has_topics and all(is_system_group(group) for group in known - {""})

    @property
    def _offsets(self) -> config_load.LoadedConfig:
        return self.loaded.get(config_load.LMQ_OFFSETS) or self.loaded[config_load.OFFSETS]

    def entries_taken(self, one: config_load.LoadedConfig) -> int:
        return len(self._taken(one))

    def _taken(self, one: config_load.LoadedConfig) -> dict[_Key, int]:
        return self._entries_of_file(one)[0]

    def _proved(self, one: config_load.LoadedConfig) -> dict[_Key, int]:
        """All entries of file, .bak and RocksDB; of two offsets the higher one."""
        return self._entries_of_file(one)[1]

    def _entries_of_file(self, one: config_load.LoadedConfig) -> tuple[dict[_Key, int], dict[_Key, int]]:
        """The entries taken and the entries proved, computed once for each file."""
        if one.name not in self._entries:
            main, *others = (config_load.as_proof(one.name, text) for text in (one.main, one.backup, one.newer))
            taken = own = entries_of(one.name, main)
            if one.taken is not main:
                taken = entries_of(one.name, one.taken) if one.taken else {}
            rests = dict(own)
            for text in (other for other in others if other.value != main.value):
                for key, offset in entries_of(one.name, text).items():
                    rests[key] = max(offset, rests.get(key, offset))
            self._entries[one.name] = taken, rests
        return self._entries[one.name]


def _without_table(one: config_load.LoadedConfig) -> bool:
    """Whether nothing is taken, or a file whose table has lost its name."""
    return one.taken is None or one.taken.nameless


def _tables_not_whole(one: config_load.LoadedConfig) -> list[str]:
    """Tables that neither file nor .bak has whole, nor a RocksDB in place of both."""
    proofs = (one.main, one.backup, one.newer)
    texts = [config_load.as_proof(one.name, text) for text in proofs if text.there or text.value]
    tables = (table for table in KINDS[FILES[one.name]].tables if table.levels and table.member != PULL_OFFSET_TABLE)
    return [table.member for table in tables if not any(_has_whole(text, table) for text in texts)]


def _topics_of_groups(one: config_load.LoadedConfig) -> set[tuple[str, str]]:
    """(group, topic) of each position, which a broker notes in the same file, before the offsets."""
    noted = one.main.value.get(GROUP_TOPIC_MAP)
    groups = noted.items() if isinstance(noted, dict) else ()
    return {(str(group), str(topic)) for group, topics in groups if isinstance(topics, list) for topic in topics}


def _has_whole(text: config_load.Text, table: JsonTable) -> bool:
    broken = table.member not in text.value or text.open[:1] == (table.member,)
    return not broken and not next(misfits(table, text.value[table.member]), "")


def _present(one: config_load.LoadedConfig) -> bool:
    """Whether the file or its .bak exists, even without a byte."""
    return one.main.present or one.backup.present


class ConfigFileStart(NamedTuple):
    """The start with one file. problem: why it is not taken itself, or "". overwritten: the next write destroys it."""

    file: str
    start: config_load.LoadAction
    problem: str
    entries: int
    overwritten: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "file": f"config/{self.file}",
            "outcome": str(self.start),
            "problem": self.problem or None,
            "entries": self.entries,
            "overwritten": self.overwritten,
        }


class ConfigStart(NamedTuple):
    """The start of one broker version on a `config/`.

    refuses: why there is no start, "" if there is one; then `lost_…` is what no file has. unnamed: files that have lost
    something that cannot be named, with a text for it. unsettled: lost topics and groups whose settings are lost, too.
    bare: a log with its queues, without a sign that it ever had a configuration: what is lost is reported, but is no
    harm. databases: files whose tables are in a RocksDB. cut_databases: those whose RocksDB has lost entries, as its
    files prove, and how. unserved: topics with messages that an intact table has no entry for: deleted or not.
    unread: files in whose place the store had a RocksDB that this version does not read, and its name.
    """

    version: str
    refuses: str = ""
    files: tuple[ConfigFileStart, ...] = ()
    lost_topics: tuple[str, ...] = ()
    lost_groups: tuple[str, ...] = ()
    lost_positions: tuple[LostPosition, ...] = ()
    lost_delays: tuple[LostDelay, ...] = ()
    lost_entries: tuple[tuple[str, str], ...] = ()
    unnamed: tuple[tuple[str, str], ...] = ()
    bare: bool = False
    unsettled: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
    databases: frozenset[str] = frozenset()
    cut_databases: tuple[tuple[str, str], ...] = ()
    unserved: tuple[str, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()

    @property
    def unknown(self) -> tuple[str, ...]:
        """Texts of what is lost and cannot be named."""
        return tuple(dict.fromkeys(text for _, text in (*self.unnamed, *self.cut_databases)))

    @property
    def loses(self) -> bool:
        """Whether some of the configuration is forgotten or goes back."""
        named = self.lost_topics or self.lost_groups or self.lost_positions
        return bool(named or self.lost_delays or self.lost_entries or self.unknown)

    @property
    def forgets(self) -> bool:
        """Whether there is a start, and it forgets what the store had."""
        skips = any(lost.skips for lost in self.lost_delays)
        return (skips or (self.loses and not self.bare)) and not self.refuses

    @property
    def harmful(self) -> bool:
        """Whether there is no start, or one that forgets what the store had."""
        return bool(self.refuses) or self.forgets

    @property
    def forgotten(self) -> frozenset[str]:
        offsets = {file.file for file in self.files} & {config_load.OFFSETS, config_load.LMQ_OFFSETS}
        named = (
            (self.lost_topics, {config_load.TOPICS}),
            (self.lost_groups, {config_load.GROUPS}),
            (self.lost_positions, offsets),
            ([lost for lost in self.lost_delays if not lost.skips], {config_load.DELAYS}),
        )
        found = {name for lost, names in named if lost for name in names}
        return frozenset(found | {name for name, _ in (*self.lost_entries, *self.unnamed, *self.cut_databases)})

    @property
    def backups(self) -> tuple[str, ...]:
        """Files whose .bak is taken."""
        return tuple(file.file for file in self.files if file.start is config_load.LoadAction.BACKUP)

    @property
    def sentence(self) -> str:
        """What is lost, in one short sentence; "" for nothing."""
        again, skipped = ([lost for lost in self.lost_delays if lost.skips is skips] for skips in (False, True))
        parts = (
            (self.lost_topics, "topic is no longer served", "topics are no longer served"),
            (self.lost_groups, "group is forgotten", "groups are forgotten"),
            (self.lost_positions, "position of a group is lost", "positions of groups are lost"),
            (again, "delay level begins again", "delay levels begin again"),
            (skipped, "delay level leaves messages undelivered", "delay levels leave messages undelivered"),
            (self.lost_entries, "other entry is lost", "other entries are lost"),
        )
        known = (counted(len(lost), one, several) for lost, one, several in parts if lost)
        unread = {f"config/{database}" for name, database in self.unread if name in self.forgotten}
        why = f"because it does not read {' and '.join(sorted(unread))}" if unread else ""
        return ", ".join(filter(None, (*known, *self.unknown, why)))

    def to_json(self) -> dict[str, Any]:
        return {
            "refuses": self.refuses or None,
            "bare": self.bare,
            "files": [file.to_json() for file in self.files],
            "lost_topics": list(self.lost_topics),
            "lost_groups": list(self.lost_groups),
            "lost_positions": [lost._asdict() for lost in self.lost_positions],
            "lost_delays": [lost._asdict() for lost in self.lost_delays],
            "lost_entries": [{"file": f"config/{name}", "entry": entry} for name, entry in self.lost_entries],
            "unknown": list(self.unknown),
        }


def config_start(layout: Layout, profile: Profile, queues: Ranges, undelivered: Undelivered = None) -> ConfigStart:
    """Predict the start, once for a layout. queues: (min, max) offset of each, also of LMQs. Raises Unreadable."""
    asked = (config_start, profile, frozenset(queues.items()), undelivered is None)
    return layout.once(lambda _: _predicted(layout, profile, queues, undelivered), asked)


def _predicted(layout: Layout, profile: Profile, queues: Ranges, undelivered: Undelivered) -> ConfigStart:
    rules = config_load.config_rules(profile)
    with_timer = profile.timer is not None and (layout.timer_wheel.exists() or layout.timer_log.exists())
    names = (*files_in_use(layout, rules.needed), *(rules.needed_by_timer if with_timer else ()))
    passed_over = (*rules.passed_over, *(name for name in rules.if_there if _has_any_version(layout.config, name)))
    loaded = {name: config_load.load_config(layout.config, name, rules) for name in (*names, *passed_over)}
    stored = {name: one for name, one in config_load.load_databases(layout, rules).items() if name in loaded}
    loaded |= stored
    refused = (
        one.reason
        for name, one in loaded.items()
        if one.start is config_load.LoadAction.REFUSES and (name in names or one.main.dies or one.backup.dies)
    )
    of_files, of_a_broker = _signs(layout, queues)
    cut, places = _cut_databases(layout, rules), in_force(layout.config, layout.broker_config).databases
    cut_names = frozenset(name for name, _ in cut)
    lost = ConfigLoss(loaded, queues, of_a_broker, undelivered, cut_names, layout.copies_config)
    files = tuple(_file_start(one, lost.entries_taken(one)) for one in loaded.values())
    if with_timer:  # a broker takes the bytes there are, and zeros for others; the timer reports losses
        exists = (layout.config / config_load.TIMER_CHECK).exists()
        start = config_load.LoadAction.LOADS if exists else config_load.LoadAction.EMPTY
        files += (ConfigFileStart(config_load.TIMER_CHECK, start, "" if exists else "missing", 0, overwritten=False),)
    lost_topics, unserved = lost.topics()
    return ConfigStart(
        profile.version,
        next(refused, ""),
        files,
        tuple(sorted(lost_topics)),
        tuple(lost.groups()),
        tuple(lost.positions()),
        tuple(lost.delays()),
        tuple(lost.others()),
        tuple(lost.unknown()),
        bare=not of_a_broker and not of_files,
        unsettled=lost.unsettled(),
        databases=config_load.in_databases(layout, rules),
        cut_databases=cut,
        unserved=tuple(sorted(unserved)),
        unread=() if rules.databases else tuple((name, places[name].name) for name in stored),
    )


def _cut_databases(layout: Layout, rules: config_load.ConfigRules) -> tuple[tuple[str, str], ...]:
    """`ConfigStart.cut_databases`, without databases with which no broker starts."""
    found: list[tuple[str, str]] = []
    places = in_force(layout.config, layout.broker_config).databases if rules.databases else {}
    for name, path in places.items():
        loss = database_loss(path) if is_rocksdb(path) else None
        if loss is not None and loss.opens:
            fate = "are lost" if loss.sure else "may be lost"
            found.append((name, f"entries of config/{path.name} {fate} ({loss.text})"))
    return tuple(found)


def still_lost(before: ConfigStart, layout: Layout, profile: Profile) -> ConfigStart:
    """`before`, without what is back by now (topics and groups come back as new ones). Files made of a RocksDB lack
    what that had lost.
    """
    rules, databases = config_load.config_rules(profile), in_force(layout.config, layout.broker_config).databases
    back, opened = set[tuple[str, tuple[Any, ...]]](), set[str]()
    for file in before.files:
        if file.file == config_load.TIMER_CHECK:
            continue
        taken = config_load.load_table(layout, file.file, rules).taken
        if taken is not None and file.file in before.databases:
            opened.add(file.file)
        keys = entries_of(file.file, taken) if taken is not None else {}
        back |= {(file.file, key[1:]) for key in keys}
    offsets = next(
        iter({file.file for file in before.files} & {config_load.OFFSETS, config_load.LMQ_OFFSETS}), config_load.OFFSETS
    )

    def lacks(name: str, *key: Any) -> bool:
        return (name, key) not in back

    return before._replace(
        refuses="",
        lost_topics=tuple(t for t in before.lost_topics if lacks(config_load.TOPICS, t, None, None, None)),
        lost_groups=tuple(g for g in before.lost_groups if lacks(config_load.GROUPS, None, g, None, None)),
        lost_positions=tuple(
            p
            for p in before.lost_positions
            if lacks(offsets, p.topic, p.group, p.queue_id, None) and lacks(offsets, p.topic, p.group, None, None)
        ),
        lost_delays=tuple(d for d in before.lost_delays if lacks(config_load.DELAYS, None, None, None, d.delay_level)),
        lost_entries=tuple(
            (name, entry)
            for name, entry in before.lost_entries
            if entry not in {entry_text(key) for file, key in back if file == name}
        ),
        unnamed=tuple((name, text) for name, text in before.unnamed if name not in opened),
        cut_databases=(*(o for o in before.cut_databases if o[0] not in databases), *_cut_databases(layout, rules)),
    )


def default_settings_text(before: ConfigStart, left: ConfigStart | None) -> str:
    """Text of what is back with default settings, or "". left: not back; a repair completes only a cut RocksDB."""
    completed = {name for name, _ in before.cut_databases} if left is not None else set()
    both = zip(before.unsettled, (config_load.TOPICS, config_load.GROUPS), strict=True)
    topics, groups = (lost if name in completed or name not in before.databases else frozenset() for lost, name in both)
    if left is not None:
        topics, groups = topics - set(left.lost_topics), groups - set(left.lost_groups)
    counts = ((len(topics), "topic"), (len(groups), "group"))
    back = " and ".join(counted(count, what) for count, what in counts if count)
    return f"{back} came back with default settings: their old settings are lost" if back else ""


def files_in_use(layout: Layout, needed: tuple[str, ...]) -> tuple[str, ...]:
    """The files that a broker version loads. With LMQs, offsets have their own file, unless in a RocksDB."""
    config = layout.broker_config
    if config_load.OFFSETS in stand_ins(layout.config, config) or keeps_databases(layout):
        return needed
    lmq = config.get_bool("enableLmq")
    if "enableLmq" not in config:
        plain, own = (_has_any_version(layout.config, name) for name in (config_load.OFFSETS, config_load.LMQ_OFFSETS))
        lmq = own and not plain
    return tuple(config_load.LMQ_OFFSETS if lmq and name == config_load.OFFSETS else name for name in needed)


def _has_any_version(directory: Path, name: str) -> bool:
    return any((directory / (name + end)).exists() for end in ("", BACKUP, TEMPORARY))


def _file_start(one: config_load.LoadedConfig, entries: int) -> ConfigFileStart:
    has_content = one.main.there or bool(one.main.value)
    overwritten = has_content and one.start in (config_load.LoadAction.BACKUP, config_load.LoadAction.EMPTY)
    return ConfigFileStart(one.name, one.start, one.main.problem, entries, overwritten)
