"""What a broker's start makes of `config/`, and what is lost by it (spec 05, 5.2).

Each file is loaded as `config_load` says. What a table had is proved by what can still be read of the
file and its .bak, by the queues (a topic with messages needs an entry) and by topics of groups. What
nothing proves, and what a broker writes all the time, is named as not known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..broker.profiles import Profile
from ..counted import counted
from ..disk.layout import Layout
from ..settings.read import BACKUP, TEMPORARY
from .config_databases import load_databases
from .config_load import Loaded, Start, load_config
from .config_lost import Lost, LostDelay, LostPosition, Ranges, Signs, entries_of, entry_text
from .config_rules import DELAYS, GROUPS, LIGHT_OFFSETS, OFFSETS, TIMER_CHECK, TOPICS, config_rules


@dataclass(frozen=True)
class ConfigFileStart:
    """One file. problem: why it is not taken itself, "" for nothing. overwritten: what it has is gone
    with the writes that follow a start.
    """

    file: str
    start: Start
    problem: str
    entries: int
    overwritten: bool

    def to_json(self) -> dict[str, Any]:
        """Fields of the JSON."""
        return {
            "file": f"config/{self.file}",
            "outcome": str(self.start),
            "problem": self.problem or None,
            "entries": self.entries,
            "overwritten": self.overwritten,
        }


@dataclass(frozen=True)
class ConfigStart:
    """The start of one generation on one `config/`.

    refuses: why there is no start, "" where there is one; lost is then what no file has. unnamed: of which files something is lost that
    nothing names, and what, in words. unsettled: topics and groups that are lost with all that was set for them. bare: this is a log with its queues, and no sign says that it ever had a configuration: what
    is lost is told, and is not harm.
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

    @property
    def unknown(self) -> tuple[str, ...]:
        """What is lost and cannot be named, in words."""
        return tuple(text for _, text in self.unnamed)

    @property
    def loses(self) -> bool:
        """Something of the configuration is forgotten or goes back."""
        named = self.lost_topics or self.lost_groups or self.lost_positions
        return bool(named or self.lost_delays or self.lost_entries or self.unknown)

    @property
    def forgets(self) -> bool:
        """A start is made, and forgets what the store had."""
        return self.loses and not self.bare and not self.refuses

    @property
    def harmful(self) -> bool:
        """There is no start, or one that forgets what the store had."""
        return bool(self.refuses) or self.forgets

    @property
    def forgotten(self) -> frozenset[str]:
        """Files of which something is lost."""
        offsets = {file.file for file in self.files} & {OFFSETS, LIGHT_OFFSETS}
        named = (
            (self.lost_topics, {TOPICS}),
            (self.lost_groups, {GROUPS}),
            (self.lost_positions, offsets),
            (self.lost_delays, {DELAYS}),
        )
        found = {name for lost, names in named if lost for name in names}
        return frozenset(found | {name for name, _ in (*self.lost_entries, *self.unnamed)})

    @property
    def backups(self) -> tuple[str, ...]:
        """Files whose .bak is taken."""
        return tuple(file.file for file in self.files if file.start is Start.BACKUP)

    @property
    def sentence(self) -> str:
        """What is lost, for somebody who has no time; "" for nothing."""
        parts = (
            (self.lost_topics, "topic is no longer served", "topics are no longer served"),
            (self.lost_groups, "group is forgotten", "groups are forgotten"),
            (self.lost_positions, "position of a group is lost", "positions of groups are lost"),
            (self.lost_delays, "delay level begins again", "delay levels begin again"),
            (self.lost_entries, "other entry is lost", "other entries are lost"),
        )
        known = (counted(len(lost), one, several) for lost, one, several in parts if lost)
        return ", ".join(filter(None, (*known, *self.unknown)))

    def to_json(self) -> dict[str, Any]:
        """Fields of the JSON."""
        return {
            "refuses": self.refuses or None,
            "bare": self.bare,
            "files": [file.to_json() for file in self.files],
            "lost_topics": list(self.lost_topics),
            "lost_groups": list(self.lost_groups),
            "lost_positions": [lost._asdict() for lost in self.lost_positions],
            "lost_delays": [lost._asdict() for lost in self.lost_delays],
            "lost_entries": [
                {"file": f"config/{name}", "entry": entry} for name, entry in self.lost_entries
            ],
            "unknown": list(self.unknown),
        }


def config_start(layout: Layout, profile: Profile, queues: Ranges) -> ConfigStart:
    """Predict it. queues: (min, max) offset of each queue, of light ones too. Raises Unreadable."""
    rules = config_rules(profile)
    needed = _in_use(layout, rules.needed)
    with_timer = profile.timer is not None and _has_timer(layout)
    names = (*needed, *(rules.needed_by_timer if with_timer else ()))
    loaded = {
        name: load_config(layout.config, name, rules) for name in (*names, *rules.passed_over)
    }
    loaded |= {name: one for name, one in load_databases(layout.config).items() if name in loaded}
    refused = (
        one.reason
        for name, one in loaded.items()
        if one.start is Start.REFUSES and (name in names or one.main.dies or one.backup.dies)
    )
    files = tuple(_file_start(one) for one in loaded.values())
    if with_timer:
        files += (_timer_check(layout.config),)
    signs = Signs(layout, queues)
    lost = Lost(loaded, queues, signs.of_a_broker)
    return ConfigStart(
        profile.version,
        next(refused, ""),
        files,
        tuple(lost.topics()),
        tuple(lost.groups()),
        tuple(lost.positions()),
        tuple(lost.delays()),
        tuple(lost.others()),
        tuple(lost.unknown()),
        bare=not signs.of_a_broker and not signs.of_files,
        unsettled=lost.unsettled(),
    )


def still_lost(before: ConfigStart, layout: Layout, profile: Profile) -> ConfigStart:
    """What a start would have lost and is not back now. Topics and groups come back as new ones."""
    rules = config_rules(profile)
    back = set[tuple[str, tuple[Any, ...]]]()
    for file in before.files:
        if file.file == TIMER_CHECK:
            continue
        taken = load_config(layout.config, file.file, rules).taken
        keys = entries_of(file.file, taken) if taken is not None else {}
        back |= {(file.file, key[1:]) for key in keys}
    offsets = next(iter({file.file for file in before.files} & {OFFSETS, LIGHT_OFFSETS}), OFFSETS)

    def lacks(name: str, *key: Any) -> bool:
        return (name, key) not in back

    return replace(
        before,
        refuses="",
        lost_topics=tuple(t for t in before.lost_topics if lacks(TOPICS, t, None, None, None)),
        lost_groups=tuple(g for g in before.lost_groups if lacks(GROUPS, None, g, None, None)),
        lost_positions=tuple(
            p
            for p in before.lost_positions
            if lacks(offsets, p.topic, p.group, p.queue_id, None)
            and lacks(offsets, p.topic, p.group, None, None)
        ),
        lost_delays=tuple(
            d for d in before.lost_delays if lacks(DELAYS, None, None, None, d.delay_level)
        ),
        lost_entries=tuple(
            (name, entry)
            for name, entry in before.lost_entries
            if entry not in {entry_text(key) for file, key in back if file == name}
        ),
    )


def back_unsettled(before: ConfigStart, left: ConfigStart | None) -> str:
    """Topics and groups that came back with default settings, in words; "" for none. left: what did not."""
    topics, groups = before.unsettled
    if left is not None:
        topics, groups = topics - set(left.lost_topics), groups - set(left.lost_groups)
    counts = ((len(topics), "topic"), (len(groups), "group"))
    back = " and ".join(counted(count, what) for count, what in counts if count)
    return f"{back} came back with default settings: those they had are lost" if back else ""


def _in_use(layout: Layout, needed: tuple[str, ...]) -> tuple[str, ...]:
    """The files of a generation; with light queues their offsets are in a file of their own."""
    config = layout.broker_config
    light = config.get_bool("enableLmq")
    if "enableLmq" not in config:
        plain, own = (_is_there(layout.config, name) for name in (OFFSETS, LIGHT_OFFSETS))
        light = own and not plain
    return tuple(LIGHT_OFFSETS if light and name == OFFSETS else name for name in needed)


def _is_there(directory: Path, name: str) -> bool:
    return any((directory / (name + end)).exists() for end in ("", BACKUP, TEMPORARY))


def _has_timer(layout: Layout) -> bool:
    return layout.timer_wheel.exists() or layout.timer_log.exists()


def _timer_check(directory: Path) -> ConfigFileStart:
    """A broker takes what bytes there are, and zeros for the others; its own losses tell the rest."""
    there = (directory / TIMER_CHECK).exists()
    start = Start.LOADS if there else Start.EMPTY
    return ConfigFileStart(TIMER_CHECK, start, "" if there else "missing", 0, overwritten=False)


def _file_start(one: Loaded) -> ConfigFileStart:
    taken = one.taken
    entries = len(entries_of(one.name, taken)) if taken else 0
    problem = one.main.problem
    there = one.main.there or bool(one.main.value)
    overwritten = there and one.start in (Start.BACKUP, Start.EMPTY)
    return ConfigFileStart(one.name, one.start, problem, entries, overwritten)
