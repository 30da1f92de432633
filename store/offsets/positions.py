"""Positions of consumer groups and of delay levels, from `config/` (spec 05, 5.3 and 5.4).

An offset names the next message to consume; for one group it names the last one (`next_offset`). Files are read
whatever they contain; `start.config_load` decides which of file, .bak and RocksDB a broker loads. Other files of
config/ tell which groups exist, and which consume by POP. `clamp` moves offsets that lie outside of their queues into
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ...formats.config import BACKUP
from ...formats.consumer_offset import OFFSET, OFFSET_TABLE, OFFSET_TABLES, PULL_OFFSET_TABLE, steps_to_next
from ...formats.kinds import KINDS
from ...formats.lmq_consumer_offset import LMQ_OFFSET_TABLE
from ..broker.profiles import profile_of
from ..broker.snapshot import QueueId
from ..broker.system_topics import LMQ_PREFIX, SCHEDULE_TOPIC, is_system_group
from ..counted import counted
from ..disk.layout import Layout
from ..errors import Missing, Unreadable, Unsupported, did_you_mean
from ..search.selection import matches
from ..settings.parse import is_int
from ..settings.read import FILES, ConfigFile, config_files, read_config_file
from ..settings.rocksdb import InForce, in_force, keeps_databases, rows_of, stand_ins
from ..start.config import files_in_use
from ..start.config_load import (
    DELAYS,
    GROUPS,
    LMQ_OFFSETS,
    OFFSETS,
    LoadAction,
    LoadedConfig,
    config_rules,
    load_table,
    request_modes,
)

CONSUMED, PULLED, LMQ, DELAYED = "offset", "pull", "lmq", "delay"
TABLES = (CONSUMED, PULLED, LMQ, DELAYED)
"""The kinds of positions, of groups and of delay levels."""
_DELAY, _VERSION = "delay_offset", "data_version"
_MEMBERS = {
    ("consumer_offset", OFFSET_TABLE): CONSUMED,
    ("consumer_offset", PULL_OFFSET_TABLE): PULLED,
    ("consumer_offset", LMQ_OFFSET_TABLE): LMQ,
    (_DELAY, OFFSET_TABLE): DELAYED,
}
_OF_DATABASES = (CONSUMED, PULLED)
MEMBER_OF = {name: member for (_, member), name in _MEMBERS.items()}
"""By table, its member in the file."""


class Position(NamedTuple):
    """The offset of a group in a queue. table: one of `TABLES`. group: "" for a delay level. offset: as in the file.

    file: its name in `config/`. backup: the offset in the .bak, None if that has none.
    """

    table: str
    group: str
    topic: str
    queue_id: int
    offset: int
    file: str
    backup: int | None = None

    @property
    def key(self) -> tuple[str, str, str, int]:
        """Table, group, topic and queue id: unique in a store."""
        return self.table, self.group, self.topic, self.queue_id

    @property
    def next_offset(self) -> int:
        """The next message for the group."""
        return self.offset + steps_to_next(self.group)

    @property
    def is_read(self) -> bool:
        """Whether a broker reads this table for this group: lmqConsumerOffset.json has one table for groups with LMQ
        names, and one for all others, whatever the topic is.
        """
        if self.file.removesuffix(BACKUP) != LMQ_OFFSETS or self.table not in (CONSUMED, LMQ):
            return True
        return (self.table == LMQ) == self.group.startswith(LMQ_PREFIX)


class Only(NamedTuple):
    """Selects positions. group, topic: names or patterns, None for all."""

    group: str | None = None
    topic: str | None = None

    def has(self, key: tuple[str, str, int]) -> bool:
        """Whether a position with this group, topic and queue is selected."""
        return (self.group is None or matches(key[0], self.group)) and (
            self.topic is None or matches(key[1], self.topic)
        )

    def hint(self, positions: Iterable[Position], otherwise: str = "") -> str:
        """A similar group if none is selected of these positions, or else a similar topic; `otherwise` if none is."""
        groups, topics = set[str](), set[str]()
        for row in positions:
            groups.add(row.group)
            topics.add(row.topic)
        for wanted, names in ((self.group, groups - {""}), (self.topic, topics)):
            if wanted is not None and not any(matches(name, wanted) for name in names):
                return did_you_mean(wanted, names, otherwise)
        return otherwise


class StoredPositions(NamedTuple):
    """The positions in a file or a RocksDB, and what of it cannot be read. counter: how often it was written, None if
    unknown.
    """

    path: Path
    positions: list[Position]
    problems: list[str]
    counter: int | None = None


@dataclass
class Positions:
    """The positions that the next start of a broker loads. notes: remarks about their files, for operators.

    unsure: why it is unknown which of two sources a broker loads, "" if it is known. lacking: some positions that a
    broker loads are not here.
    """

    rows: list[Position] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unsure: str = ""
    lacking: bool = False


def every_file(config: Path, tables: Iterable[str] = TABLES) -> Iterator[StoredPositions]:
    """Each file of `config/` with positions of these tables, as it is, without .bak files. Raises Unreadable."""
    wanted = frozenset(tables)
    for kind, path, plain in config_files(config):
        if path.name == plain and tables_of(kind) & wanted:
            yield entries_of(path, kind, wanted)
    database = stand_ins(config).get(OFFSETS)
    if database is not None and not wanted.isdisjoint(_OF_DATABASES):
        yield entries_of_database(database, wanted)


def tables_of(kind: str | None) -> frozenset[str]:
    """The tables that a file of this kind can have; None: a RocksDB."""
    if kind is None:
        return frozenset(_OF_DATABASES)
    members = ((table.record_type, table.member) for table in KINDS[kind].tables)
    return frozenset(_MEMBERS[each] for each in members if each in _MEMBERS)


def entries_of(path: Path, kind: str, tables: Iterable[str] = TABLES) -> StoredPositions:
    """The positions in a JSON file, as far as it can be read. Raises Missing, Unreadable."""
    wanted, file = frozenset(tables), read_config_file(path, kind)
    found, problems, counter = [], list[str](), None
    for record in file.records():
        name = _MEMBERS.get((record["type"], record.get("table", "")))
        counter = record.get("counter") if record["type"] == _VERSION else counter
        if "problem" in record:
            problems.append(f"{record['name']}: {record['problem']}")
        elif name in wanted:
            found.append(_position(name or "", record, path.name))
    if file.problem is not None and not file.problem.noted:
        problems.append(f"{file.problem.reason} at byte {file.problem.position}")
    return StoredPositions(path, _without_missing(found), problems, counter)


def entries_of_database(path: Path, tables: Iterable[str] = TABLES) -> StoredPositions:
    """The positions in a RocksDB, or the problem if it cannot be read."""
    wanted = frozenset(tables)
    try:
        rows = rows_of(path, OFFSETS)
    except (Missing, Unreadable, Unsupported) as error:
        return StoredPositions(path, [], [error.message])
    named = [(_MEMBERS.get((row["type"], row.get("table", "")), ""), row) for row in rows]
    found = [_position(name, row, path.name) for name, row in named if name in wanted]
    counters = [row.get("counter") for row in rows if row["type"] == _VERSION]
    return StoredPositions(path, _without_missing(found), [], next(iter(counters), None))


def _without_missing(found: list[Position]) -> list[Position]:
    """Only positions that a broker does not treat as missing."""
    return [one for one in found if one.next_offset >= 0]


def _position(table: str, record: dict[str, Any], file: str) -> Position:
    if record["type"] == _DELAY:
        topic, queue_id = SCHEDULE_TOPIC, record["delay_level"] - 1
        return Position(table, "", topic, queue_id, record["offset"], file)
    queue_id = record.get("queue_id", 0)  # an LMQ has no queue id
    return Position(table, record["group"], record["topic"], queue_id, record["offset"], file)


def positions_of(layout: Layout, version: str) -> Positions:
    """The positions that a broker of this generation loads at its start; from a file that it does not load, those that
    can be read, with a note. Raises Unreadable.
    """
    found, rules = Positions(), config_rules(profile_of(version))
    names = offset_files(layout)
    force = in_force(layout.config, layout.broker_config)
    if OFFSETS in stand_ins(layout.config, layout.broker_config):
        _add_database(found, layout, force.databases[OFFSETS], load_table(layout, OFFSETS, rules))
        if force.others and not force.sure:
            _note_two_databases(found, force)
    for name in names:
        _add_file(found, layout.config / name, load_table(layout, name, rules))
    if {OFFSETS, LMQ_OFFSETS} <= set(names):
        text = f"config/ has {OFFSETS} and {LMQ_OFFSETS}: a broker reads one of them"
        found.notes.append(f"{text}; --set enableLmq=true or false tells which one")
    return found


def _note_two_databases(found: Positions, force: InForce) -> None:
    taken = force.databases[OFFSETS].name
    found.unsure = f"config/ has the databases {taken} and {', '.join(force.others)}"
    found.lacking = True
    options = "--set configManagerVersion=…, storeType=… or useSingleRocksDBForAllConfigs=…"
    shown = f"shown are those of {taken}, written last"
    found.notes.append(f"{found.unsure}; {shown}; {options} tells which one a broker reads")


def offset_files(layout: Layout) -> tuple[str, ...]:
    """Names of the files with positions that a broker reads; both files of groups if nothing tells which."""
    if OFFSETS in stand_ins(layout.config, layout.broker_config):
        return (DELAYS,)
    if keeps_databases(layout):
        return OFFSETS, DELAYS
    both = all((layout.config / name).exists() for name in (OFFSETS, LMQ_OFFSETS))
    if both and "enableLmq" not in layout.broker_config:
        return OFFSETS, LMQ_OFFSETS, DELAYS
    return files_in_use(layout, (OFFSETS, DELAYS))


def _add_database(found: Positions, layout: Layout, path: Path, loaded: LoadedConfig) -> None:
    """Add the RocksDB's positions, or those of the file if written more often: a broker imports it (spec 5.4)."""
    file = layout.config / OFFSETS
    database, beside = entries_of_database(path), _entries_if_any(file, FILES[OFFSETS])
    own = {row.key: row for row in database.positions}
    others = {row.key: row for row in beside.positions if row.table == CONSUMED}
    found.notes += [f"config/{path.name}: {problem}" for problem in database.problems]
    found.lacking |= bool(database.problems)
    differs = any(key not in own or own[key].offset != row.offset for key, row in others.items())
    text = f"config/{OFFSETS} exists, too, and has other positions"
    decided = in_force(layout.config, layout.broker_config).sure or layout.queues_for_rocksdb
    if differs and (database.problems or not decided):
        found.unsure = f"{text}; it is not known which of them a broker reads"
        found.lacking = True
        found.notes.append(f"{found.unsure}: shown are those of the RocksDB {path.name}")
    elif loaded.start is LoadAction.REFUSES and not database.problems:
        found.notes.append(f"{loaded.reason}: no broker starts with it")
        found.lacking = True
    elif keeps_databases(layout) and (beside.counter or 0) > (database.counter or 0):
        missing = len(own.keys() - others.keys())
        if differs or missing:
            alone = counted(missing, "position that only the RocksDB has", "positions that only the RocksDB has")
            besides = f", without {alone}" if missing else ""
            found.notes.append(f"{text}: it was written more often, so a broker imports it{besides}")
        own = others
    elif differs:
        found.notes.append(f"{text}: shown are those of the RocksDB {path.name}")
    found.rows += own.values()


def _add_file(found: Positions, path: Path, loaded: LoadedConfig) -> None:
    backup, kind = path.with_name(path.name + BACKUP), FILES[path.name]
    main = _entries_if_any(path, kind)
    older = _entries_if_any(backup, kind)
    rows = older.positions if loaded.start is LoadAction.BACKUP else main.positions
    if loaded.start is LoadAction.LOADS:
        before = {row.key: row.offset for row in older.positions}
        rows = [row._replace(backup=before.get(row.key)) for row in rows]
        found.notes += [f"config/{path.name}: {problem}" for problem in main.problems]
        found.lacking |= bool(main.problems)
    elif loaded.start is LoadAction.BACKUP:
        found.notes.append(f"{loaded.reason}: a broker reads {backup.name}, which is shown here")
    elif loaded.start is LoadAction.REFUSES:
        rows = rows or older.positions
        found.notes.append(f"{loaded.reason}: no broker starts with it")
        found.lacking = True
    elif loaded.main.present or loaded.main.passed_by:
        rows = rows or older.positions
        shown = "; shown are those that can be read" if rows else ""
        found.notes.append(f"{loaded.reason}: a broker begins without positions{shown}")
        found.lacking = True
    read = [row for row in rows if row.is_read]
    if len(read) < len(rows):
        what = counted(len(rows) - len(read), "position is", "positions are")
        found.notes.append(f"config/{path.name}: {what} in a table that brokers do not read for this group")
    found.rows += read


def _entries_if_any(path: Path, kind: str) -> StoredPositions:
    return entries_of(path, kind) if path.exists() else StoredPositions(path, [], [])


@dataclass(frozen=True)
class KnownGroups:
    """The configured groups. subscribed: names, None if no table can be read. modes: request mode by (group, topic)."""

    subscribed: frozenset[str] | None = None
    modes: dict[tuple[str, str], str] = field(default_factory=dict)

    def knows(self, group: str) -> bool | None:
        """Whether the group has an entry or needs none; None if unknown."""
        if self.subscribed is None:
            return None
        return group in self.subscribed or is_system_group(group) or group.startswith(LMQ_PREFIX)

    def mode(self, group: str, topic: str) -> str:
        """`pop` or `pull` as in messageRequestMode.json, "" without an entry."""
        return self.modes.get((group, topic), "").lower()


def groups_of(layout: Layout, version: str) -> KnownGroups:
    """The groups that a broker of this generation loads. Raises Unreadable."""
    rules = config_rules(profile_of(version))
    text = load_table(layout, GROUPS, rules).taken
    subscribed = None
    if text is not None and text.present and not text.unseen:
        rows = ConfigFile(layout.config / GROUPS, FILES[GROUPS], text.value).records()
        kind = KINDS[FILES[GROUPS]].tables[0].record_type
        subscribed = frozenset(row["group"] for row in rows if row["type"] == kind and "problem" not in row)
    return KnownGroups(subscribed, request_modes(layout, rules))


Json = dict[Any, Any]
Ranges = Mapping[QueueId, tuple[int, int]]
_TABLE, _LMQ_TABLE = MEMBER_OF[CONSUMED], MEMBER_OF[LMQ]
_DIGITS = 10
"""Most digits of a queue id or delay level."""
_NEVER = (0, 0)
"""The range of a queue that never had a message."""


class Clamped(NamedTuple):
    """An offset that was outside of its queue. group: "" for a delay level. after: None if it was removed."""

    group: str
    queue: QueueId
    before: int
    after: int | None


class Bounds(NamedTuple):
    """What offsets are compared with.

    ranges: (min, max) offset of each queue. topics: those the broker knows. levels: the number of delay levels, None if
    unknown. from_zero: the log still has every message that was ever stored.
    """

    ranges: Ranges
    topics: frozenset[str]
    levels: int | None
    from_zero: bool

    def of(self, queue: QueueId, *, known: bool) -> tuple[int, int] | None:
        """The range of a queue, None if unknown. known: the queue may exist."""
        found = self.ranges.get(queue)
        return _NEVER if found is None and known and self.from_zero else found


def clamp(name: str, content: Json, bounds: Bounds) -> Iterator[Clamped]:
    """Move the offsets in the content of this file into their queues, in place."""
    lmq = content.get(_LMQ_TABLE)
    if isinstance(lmq, dict):
        yield from _clamp_lmq(lmq, bounds)
    if name == DELAYS and isinstance(table := content.get(_TABLE), dict):
        yield from _clamp_delays(table, bounds)
    for member in OFFSET_TABLES if name in (OFFSETS, LMQ_OFFSETS) else ():
        if isinstance(table := content.get(member), dict):
            yield from _clamp_groups(table, bounds)


def _clamp_groups(table: Json, bounds: Bounds) -> Iterator[Clamped]:
    """Positions of groups: by topic@group, then by queue."""
    for key, row in table.items():
        topic, _, group = str(key).rpartition("@")
        if isinstance(row, dict):
            for place in list(row):
                if (number := _number(place)) is None:
                    continue
                queue = QueueId(topic, number)
                ends = bounds.of(queue, known=topic in bounds.topics)
                yield from _clamp_one(group, row, place, queue, ends)


def _clamp_lmq(table: Json, bounds: Bounds) -> Iterator[Clamped]:
    for key in list(table):
        topic, _, group = str(key).rpartition("@")
        if not group.startswith(LMQ_PREFIX):  # no broker reads it
            continue
        queue, lmq = QueueId(topic, 0), topic.startswith(LMQ_PREFIX)
        if not lmq and queue not in bounds.ranges and is_int(table[key]):
            yield Clamped(group, queue, table.pop(key), None)
            continue
        yield from _clamp_one(group, table, key, queue, bounds.of(queue, known=lmq))


def _clamp_delays(table: Json, bounds: Bounds) -> Iterator[Clamped]:
    for key in list(table):
        if (level := _number(key)) is None or not is_int(table[key]):
            continue
        queue = QueueId(SCHEDULE_TOPIC, level - 1)
        exists = bounds.levels is not None and 1 <= level <= bounds.levels
        cannot_be = level < 1 or (bounds.levels is not None and not exists)
        if cannot_be and queue not in bounds.ranges:
            yield Clamped("", queue, table.pop(key), None)
            continue
        yield from _clamp_one("", table, key, queue, bounds.of(queue, known=exists))


def _clamp_one(group: str, row: Json, key: Any, queue: QueueId, ends: tuple[int, int] | None) -> Iterator[Clamped]:
    """Clamp one offset of a row. ends: None if it is only known that no queue begins below 0."""
    offset = row[key]
    if not is_int(offset):
        return
    if ends is None and is_beyond(offset):
        yield Clamped(group, queue, row.pop(key), None)
        return
    bounds = bounds_of(group, *ends) if ends else bounds_of(group, 0, max(0, offset + steps_to_next(group)))
    clamped = inside(offset, *bounds)
    if clamped != offset:
        row[key] = clamped
        yield Clamped(group, queue, offset, clamped)


def bounds_of(group: str, first: int, end: int) -> tuple[int, int]:
    """The lowest and highest offset that a group may have in a queue from first to end."""
    steps = steps_to_next(group)
    return first - steps, end - steps


def inside(offset: int, lowest: int, highest: int) -> int:
    """The offset, or the bound that it exceeds."""
    return min(max(offset, lowest), highest)


def is_beyond(offset: Any) -> bool:
    """Whether it is an integer outside of the range that brokers read."""
    return is_int(offset) and not OFFSET.holds(offset)


def _number(key: Any) -> int | None:
    """A key that is a number, with quotes or without, as a broker accepts both."""
    if isinstance(key, str):
        return int(key) if len(key) <= _DIGITS and key.isascii() and key.isdecimal() else None
    return key if is_int(key) else None
