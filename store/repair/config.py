"""Repair config/: from the .bak of a broken file, from its readable rest, and from what the store proves (spec 05;
I-140).

Entries that contradict their own key, or that no broker writes, are corrected: a broker looks up the key, so names
inside an entry follow it. What an entry lacks comes from the store: a topic has as many queues as its messages need
(I-142 to I-144, I-149, I-154). A topic without an entry may have been deleted, and one with more queues than its
entry says may have got fewer (I-076, I-150): this is corrected if a repair of config/ alone is asked for, or if
topics.json is damaged or lacks topics in use. Offsets of consumers, LMQs and delay levels, also of consumers in a
RocksDB, are brought inside their queues (I-077, I-144, I-146, I-152): a queue that provably never had a message ends at
0, and what names no queue is removed. Positions of transactions follow their topics (I-189), those of compaction their
queues (I-165). Everything else stays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from ...formats.config import BACKUP
from ...formats.consumer_filter import FILTER_DATA_BY_TOPIC, GROUP_FILTER_DATA
from ...formats.consumer_offset import OFFSET_TABLE, OFFSET_TABLES
from ...formats.json_table import CONSUMER_GROUP, DATA_VERSION, JsonTable
from ...formats.kinds import KINDS, Syntax
from ...formats.message_request_mode import FILE as MODES_FILE
from ...formats.message_request_mode import MESSAGE_REQUEST_MODE_MAP
from ...formats.position_checkpoint import FILE as POSITION_CHECKPOINT
from ...formats.position_checkpoint import QUEUE_OFFSET_MAP
from ...formats.subscription_group import GROUP_NAME, SUBSCRIPTION_GROUP_TABLE
from ...formats.topics import READ_QUEUE_NUMS, TOPIC_CONFIG_TABLE, TOPIC_NAME, WRITE_QUEUE_NUMS
from ..broker.profiles import Profile, WriterProfile
from ..broker.snapshot import QueueId, Snapshot
from ..broker.system_topics import LMQ_PREFIX, SCHEDULE_TOPIC, TRANSACTION_POSITIONS, group_of_topic, is_system_topic
from ..broker.topics import BATCH_QUEUES, CLEANUP_POLICY, COMPACTED, QUEUE_TYPE, json_bytes, new_topic, read_json
from ..counted import counted
from ..disk.file_queue import start_of
from ..disk.files import Edit
from ..disk.layout import Layout, queue_directories
from ..errors import InvalidInput, Unreadable, one_line
from ..inspect.own_topics import has_own_records
from ..inspect.transactions import TransactionPositions, transaction_queues
from ..offsets.move import clamped_in_database
from ..offsets.positions import LMQ, MEMBER_OF, Bounds, Clamped, Ranges, clamp, is_beyond
from ..search.log_search import never_delivered
from ..search.store import StoreReader
from ..settings.options import options_of
from ..settings.parse import is_int, misfits, numbers, with_numbers, without_damaged_row
from ..settings.read import FILES, read_config_file
from ..settings.rocksdb import SEPARATE, counter_of, in_force, keeps_databases, table_of
from ..start import config_load
from ..start.config import ConfigStart, config_start, lone_position
from ..tiered.segments import with_serial
from ..verify.config_entries import MODES, PERM_MOST
from ..verify.config_files import ConfigTables, used_topics

_SHOWN_CHARS = 60
"""Most characters shown of a name or value."""
_QUEUE_NUMBERS = (READ_QUEUE_NUMS, WRITE_QUEUE_NUMS)
_SINGLE_NUMBERS = frozenset({"perm", *_QUEUE_NUMBERS})  # numbers of a topic that are corrected one by one


class Proven(NamedTuple):
    """What the store proves. highest: topic → its highest queue id. unserved: topics with queues that need an entry.
    topics, groups: known names. lost_groups: groups that something names and a start would not load. attributes: topic
    → attributes shown by its files. queues: all queues. as_queues: topics get what their queues show.
    """

    highest: Mapping[str, int]
    unserved: frozenset[str]
    topics: frozenset[str]
    groups: frozenset[str]
    lost_groups: frozenset[str]
    attributes: Mapping[str, Json]
    queues: frozenset[QueueId]
    profile: WriterProfile
    as_queues: bool

    def topic(self, topic: str) -> Json:
        entry = new_topic(topic, self.highest[topic], self.profile)
        return {**entry, "attributes": self.attributes[topic]} if topic in self.attributes else entry

    def of_file(self, loaded: config_load.LoadedConfig, gone: frozenset[str]) -> Proven:
        """What counts for a file: all, if it has lost entries."""
        lost = loaded.name in gone or loaded.start is not config_load.LoadAction.LOADS
        return self._replace(as_queues=self.as_queues or lost)


def _repair_topics(content: Json, proven: Proven) -> Iterator[tuple[str, str]]:
    table = content.get(TOPIC_CONFIG_TABLE)
    if not isinstance(table, dict):
        return
    for topic, entry in table.items():
        if not isinstance(entry, dict):
            continue
        fresh = new_topic(topic, proven.highest.get(topic, 0), proven.profile)
        wrong = {misfit.key for misfit in misfits(KINDS[FILES[config_load.TOPICS]].tables[0], {topic: entry})}
        if entry.get(TOPIC_NAME, topic) != topic:
            yield "I-142", _set(entry, topic, TOPIC_NAME, topic)
        perm = entry.get("perm", 0)
        if "perm" in wrong or (is_int(perm) and not 0 <= perm <= PERM_MOST):
            yield "I-142", _set(entry, topic, "perm", fresh["perm"])
        counts = [-1 if column in wrong else entry.get(column, 1) for column in _QUEUE_NUMBERS]
        sound = [n for n in counts if is_int(n) and n > 0]
        for column, count in zip(_QUEUE_NUMBERS, counts, strict=True):
            if is_int(count) and count <= 0:
                most = max([*sound, proven.highest.get(topic, -1) + 1])
                yield "I-142", _set(entry, topic, column, most or fresh[column])
        needed = proven.highest.get(topic, -1) + 1 if proven.as_queues else 0
        if topic in proven.topics and all(is_int(n := entry.get(c, 1)) and n < needed for c in _QUEUE_NUMBERS):
            yield "I-076", _set(entry, topic, _QUEUE_NUMBERS[0], needed)
    for topic in sorted(proven.unserved - set(table)) if proven.as_queues else ():
        table[topic] = proven.topic(topic)
        yield "I-150", f"{_short(topic)}: it has queues but no entry"


def _repair_groups(content: Json, _proven: Proven) -> Iterator[tuple[str, str]]:
    table = content.get(SUBSCRIPTION_GROUP_TABLE)
    for group, entry in table.items() if isinstance(table, dict) else ():
        if isinstance(entry, dict) and entry.get(GROUP_NAME, group) != group:
            yield "I-143", _set(entry, group, GROUP_NAME, group)


def _repair_filters(content: Json, _proven: Proven) -> Iterator[tuple[str, str]]:
    topics = content.get(FILTER_DATA_BY_TOPIC)
    for topic, entry in topics.items() if isinstance(topics, dict) else ():
        groups = entry.get(GROUP_FILTER_DATA) if isinstance(entry, dict) else None
        for group, data in groups.items() if isinstance(groups, dict) else ():
            for column, own in (("topic", topic), (CONSUMER_GROUP.name, group)):
                if isinstance(data, dict) and data.get(column, own) != own:
                    yield "I-149", _set(data, f"{topic} {group}", column, own)


def _repair_modes(content: Json, _proven: Proven) -> Iterator[tuple[str, str]]:
    """Correct a mode to one of the two valid ones, else remove the entry: a broker uses its default then, as now."""
    topics = content.get(MESSAGE_REQUEST_MODE_MAP)
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
                what = f"mode {_short(mode)} removed, so the default holds"
                yield "I-154", f"{_short(topic)} {_short(group)}: {what}"


def _repair_offsets(content: Json, proven: Proven) -> Iterator[tuple[str, str]]:
    """A key is topic@group; a key without @ is split if known names allow exactly one way."""
    table = content.get(OFFSET_TABLE)
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
            yield "I-144", f"{_short(text)}: names no topic and group, {what}"


def _set(entry: Json, key: str, column: str, value: Any) -> str:
    before, entry[column] = entry.get(column), value
    return f"{_short(key)}: {column} {_short(before)} -> {_short(value)}"


def _short(value: Any) -> str:
    """Return a value of a file on one line, cut to a readable length."""
    text = one_line(str(value))
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}… ({len(text)} characters)"


_FILES: dict[str, Callable[[Json, Proven], Iterator[tuple[str, str]]]] = {
    config_load.TOPICS: _repair_topics,
    config_load.GROUPS: _repair_groups,
    config_load.FILTERS: _repair_filters,
    MODES_FILE: _repair_modes,
    config_load.OFFSETS: _repair_offsets,
}

Json = dict[Any, Any]
_UNPROVEN = {
    config_load.TOPICS: "created new: permission, order, message type and other attributes are lost",
    config_load.GROUPS: "created new: retries, modes and other settings are lost",
}
"""What nothing proves of an entry made new."""
_LISTED = 3
"""Entries of a file that are listed one by one."""
_OFFSET_CODES = {config_load.OFFSETS: "I-144", config_load.DELAYS: "I-146", config_load.LMQ_OFFSETS: "I-152"}
Mended = tuple[str, str]


@dataclass
class ConfigRepair:
    edits: list[Edit] = field(default_factory=list)
    clamped: list[Clamped] = field(default_factory=list)


def config_repair(
    snapshot: Snapshot, ranges: Ranges, profile: Profile, writer: WriterProfile, *, as_queues: bool = False
) -> ConfigRepair:
    """Plan the repair. ranges: (min, max) offset per queue; a log without files begins at 0. as_queues: topics get what
    their queues show, also where topics.json may be right without it. Raises Unreadable.
    """
    made, layout, rules = ConfigRepair(), snapshot.layout, config_load.config_rules(profile)
    tables = ConfigTables.read(layout, rules)
    databases = config_load.load_databases(layout, rules)
    with StoreReader(layout) as store:
        start = config_start(layout, profile, ranges, partial(never_delivered, store))
    proven = _proven(snapshot, tables, start, ranges, profile, writer, as_queues=as_queues)
    gone = frozenset() if start.bare else start.forgotten - start.databases
    if config_load.TOPICS in start.databases or layout.copies_config:  # not read, or replaced by those of the master
        proven = proven._replace(unserved=frozenset())
    from_zero = not snapshot.log or any(start_of(entry.name) == 0 for entry in snapshot.log)
    delays = {
        QueueId(SCHEDULE_TOPIC, lost.delay_level - 1): lost.before or 0 for lost in start.lost_delays if lost.skips
    }
    reached = {queue: (min(ranges[queue][0], end), end) for queue, end in delays.items()}
    bounds = Bounds({**ranges, **reached}, proven.topics, _delay_levels(layout, from_zero), from_zero)
    completed = dict(_completing(layout, rules, start, proven, databases))
    made.edits += completed.values()
    for name, kind in sorted(FILES.items()):
        path = layout.config / name
        if KINDS[kind].syntax is not Syntax.JSON or path.is_dir() or name in completed:
            continue
        stored = databases.get(name)
        loaded = config_load.load_config(layout.config, name, rules)
        loads = loaded.start is config_load.LoadAction.LOADS
        counted_in = name in SEPARATE and keeps_databases(layout)
        uncounted = counted_in and loads and loaded.main.there and counter_of(loaded.main.value) is None
        beside = counted_in and loaded.main.there and (uncounted or not loads)
        if stored is not None and stored.start is config_load.LoadAction.REFUSES and not beside:
            continue  # the broker reads the RocksDB, or does not start
        if stored is not None and (
            stored.older_than or (stored.start is config_load.LoadAction.EMPTY and name not in start.databases)
        ):
            loaded = stored
        content, reason = _content(loaded, path, gone, proven)
        if content is None:
            continue
        if (reason or uncounted) and counted_in:
            reason = reason or "a counter that a broker accepts"
            _set_counter(content, stored, alone=name not in start.databases)
        whole = list(_whole_numbers(name, {member: content.get(member) for member in (*OFFSET_TABLES, MEMBER_OF[LMQ])}))
        moved = list(clamp(name, content, bounds))
        mended = _FILES[name](content, proven.of_file(loaded, gone)) if name in _FILES else ()
        repaired = [*whole, *mended, *_move_transactions(name, content, layout, reason)]
        reasons = [reason, counted(len(moved), "wrong offset") if moved else ""]
        reasons += [what for _, what in repaired[:_LISTED]]
        reasons += [counted(len(repaired) - _LISTED, "more entry", "more entries")] if len(repaired) > _LISTED else []
        if any(reasons):
            data = json_bytes(content)
            if not config_load.judge(name, data, rules).problem:
                made.edits.append(_edit(path, data, reasons, moved, repaired))
                made.clamped += moved
    edits, moved = clamped_in_database(layout, bounds)
    made.edits += edits
    made.clamped += moved
    return made


def _last_records(store: StoreReader) -> Iterator[int]:
    """Yield the positions of the last record of each queue, and of those behind them. Raises Unreadable."""
    try:
        queues = store.queue_summaries
    except Unreadable:  # the log alone tells
        queues = []
    yield from (queue.last_position for queue in queues if queue.last_position is not None)
    start, _ = store.near_the_end(queues)
    for batch in store.good_records(start, store.log_end.position) if start is not None else ():
        yield from batch.position.tolist()


def _completing(
    layout: Layout,
    rules: config_load.ConfigRules,
    start: ConfigStart,
    proven: Proven,
    databases: Mapping[str, config_load.LoadedConfig],
) -> Iterator[tuple[str, Edit]]:
    """Yield the files, by name, that complete a RocksDB of config/ that has lost topics or groups: a broker adds their
    entries to the RocksDB, as their counter is above its own (spec 5.4).
    """
    cut = {name for name, _ in start.cut_databases} if keeps_databases(layout) else set()
    places = in_force(layout.config, layout.broker_config).databases
    for name, lost, what in (
        (config_load.TOPICS, start.lost_topics, "topic"),
        (config_load.GROUPS, start.lost_groups, "group"),
    ):
        text, stored = config_load.load_config(layout.config, name, rules).main, databases.get(name)
        broken = (text.there and text.problem) or stored is None or stored.start is not config_load.LoadAction.LOADS
        if name not in cut or not lost or broken:
            continue
        content, kept = with_numbers(text.value), table_of(places[name], name)
        own, table = counter_of(kept) or 0, KINDS[FILES[name]].tables[0].member
        content[table] = {**_table(content, table), **kept[table]}
        count = _add_proven(name, content, proven)
        version = {**kept.get(DATA_VERSION.member, {}), **content.get(DATA_VERSION.member, {})}
        content[DATA_VERSION.member] = {**version, "counter": max(counter_of(content) or 0, own) + 1}
        reason = f"adds {counted(count, what)} to the RocksDB {places[name].name} ({_UNPROVEN[name]})"
        if count and not config_load.judge(name, data := json_bytes(content), rules).problem:
            yield name, Edit.create(layout.config / name, data, reason, ("I-150",))


def _set_counter(content: Json, stored: config_load.LoadedConfig | None, *, alone: bool) -> None:
    """Set the counter by which a broker with a RocksDB imports the file: at least 1 if `alone`, 0 after a refusal."""
    counter = counter_of(content) or 0
    if alone:
        counter = max(counter, 1)
    elif stored is not None and stored.start is config_load.LoadAction.REFUSES:
        counter = 0
    version = content.get(DATA_VERSION.member)
    content[DATA_VERSION.member] = {**(version if isinstance(version, dict) else {}), "counter": counter}


def _whole_numbers(name: str, table: Json, place: str = "") -> Iterator[Mended]:
    """Rewrite offsets as integers: a broker reads `true`, 1.5 and "3" as numbers, other readers do not."""
    for key, value in table.items() if name in _OFFSET_CODES else ():
        if isinstance(value, dict):
            yield from _whole_numbers(name, value, f"{place}{_short(key)} ")
        elif not is_int(value) and is_int(number := numbers(value)):
            table[key] = number
            yield _OFFSET_CODES[name], f"{place}{_short(key)}: {_short(value)} -> {number}"


def _move_transactions(name: str, content: Json, layout: Layout, anew: str) -> Iterator[Mended]:
    """Correct positions that contradict half messages and op records; add lost ones to a file made `anew`."""
    if name not in (config_load.OFFSETS, config_load.LMQ_OFFSETS) or not isinstance(
        table := content.get(OFFSET_TABLE), dict
    ):
        return
    rows = [row if isinstance(row := table.get(key), dict) else {} for key in TRANSACTION_POSITIONS]
    at = TransactionPositions(*(row.get("0", row.get(0)) for row in rows))
    if not anew and at == (None, None):
        return
    with StoreReader(layout) as store:  # positions behind the end of a queue are corrected by `clamp`
        queues = transaction_queues(store, reached_too=False)
    if queues and ((anew and None in at) or queues.told(at)):
        for key, before, after in zip(TRANSACTION_POSITIONS, at, queues.fitting(), strict=True):
            if before != after:
                table[key] = {0: after}
                yield "I-189", f"{key}: {'none' if before is None else before} -> {after}"


def _delay_levels(layout: Layout, from_zero: bool) -> int | None:
    """Return the number of delay levels; None if the option cannot be read, or is not given and the log does not begin
    at 0: then all messages of a level may be gone.
    """
    try:
        option = options_of(layout).delay_levels
    except InvalidInput:
        return None
    return len(option.value) if from_zero or option.is_given else None


def _edit(path: Path, data: bytes, reasons: list[str], moved: list[Clamped], repaired: list[Mended]) -> Edit:
    codes = {code for code, _ in repaired} | ({_OFFSET_CODES[path.name]} if moved else set())
    reason = "; ".join(filter(None, reasons))
    codes = codes if codes and not reasons[0] else {"I-140", *codes}
    return Edit.create(path, data, reason, tuple(sorted(codes)))


def _proven(
    snapshot: Snapshot,
    tables: ConfigTables,
    start: ConfigStart,
    ranges: Ranges,
    profile: Profile,
    writer: WriterProfile,
    *,
    as_queues: bool,
) -> Proven:
    """Collect what queues, log and config/ show of topics and groups, lost groups included. Raises Unreadable."""
    highest: dict[str, int] = {}
    for queue in ranges:
        if not queue.topic.startswith(LMQ_PREFIX):
            highest[queue.topic] = max(highest.get(queue.topic, 0), queue.queue_id)
    known = tables.names("topic_config", "topic")
    there = {queue.topic for queue in queue_directories(snapshot.layout.consume_queue)}
    unserved = {topic for topic in there & set(highest) if not is_system_topic(topic)}
    with StoreReader(snapshot.layout) as store:
        if profile.dispatch.any_queue:
            unserved = {topic for topic in unserved - known if has_own_records(store, topic)}
        as_queues = as_queues or bool(used_topics(store, profile, tables, start.unserved, _last_records(store)))
    return Proven(
        highest,
        frozenset(unserved),
        frozenset(known),
        frozenset(tables.names("subscription_group", "group")),
        frozenset(start.lost_groups),
        _attributes(snapshot),
        frozenset(ranges),
        writer,
        as_queues,
    )


def _attributes(snapshot: Snapshot) -> dict[str, Json]:
    """Return the attributes that directories show of topics: batch queues, compaction."""
    batches = snapshot.batch_topics | {queue.topic for queue in snapshot.batch_queues}
    found: dict[str, Json] = {topic: {QUEUE_TYPE: BATCH_QUEUES} for topic in batches}
    for queue in queue_directories(snapshot.layout.compaction_queues):
        found.setdefault(queue.topic, {})[CLEANUP_POLICY] = COMPACTED
    return found


def _content(
    loaded: config_load.LoadedConfig, path: Path, gone: frozenset[str], proven: Proven
) -> tuple[Json | None, str]:
    """Return the new content of a file, and why it is rewritten, "" if it can stay. gone: files that lose entries."""
    content: Json | None
    name, backup = loaded.name, path.with_name(path.name + BACKUP)
    if loaded.start is config_load.LoadAction.LOADS and name not in gone:
        if loaded.main.odd:
            return with_numbers(loaded.main.value), f"rewritten as a broker does: {loaded.main.odd}"
        content = read_json(path)
        if content is not None or loaded.main.value:
            return content, ""
    if loaded.start is config_load.LoadAction.EMPTY and name not in gone and not (path.exists() or backup.exists()):
        return None, ""
    content = {}
    if loaded.start is config_load.LoadAction.BACKUP and not loaded.older_than:
        content = read_json(backup) or {}
    kept, removed = 0, list[str]()
    for parts, text in product((False, True), (loaded.newer, loaded.backup, loaded.main)):
        kept += _merge(name, content, _fitting(name, text, content, removed, parts=parts))
    if name == config_load.TIERED and (content := with_serial(content)) is None:
        return None, ""
    whole = bool(loaded.older_than) and loaded.taken is loaded.main
    anew = (name in gone and not whole) or loaded.taken is None
    count = _add_proven(name, content, proven) if anew else 0
    table = KINDS[FILES[name]].tables[0].member
    content.setdefault(table, {})
    problem = loaded.main.problem or ("entries are missing" if name in gone else "it has no table")
    why, new = "; ".join((problem, *removed[:_LISTED])), ""
    if count:
        new = f" ({counted(count, 'entry', 'entries')}: {_UNPROVEN[name]})"
    if loaded.older_than:
        taken = "" if whole else f"taken from {backup.name}, "
        why = "; ".join(("written later, and this broker does not read it", *removed[:_LISTED]))
        return content, f"{taken}with what the RocksDB {loaded.older_than} has besides{new}: {why}"
    if loaded.start is config_load.LoadAction.BACKUP:
        besides = f", and {counted(kept + count, 'entry', 'entries')} that it lacks" if kept + count else ""
        return content, f"taken from {backup.name}{besides}{new}: {why}"
    proved = f"{counted(count, 'entry', 'entries')} that the store proves"
    proved += f" ({_UNPROVEN[name]})" if count else ""
    origin = f"what can still be read of it{f', and {proved}' if count else ''}"
    return content, f"{origin if loaded.main.there or kept else f'rebuilt, with {proved}'}: {why}"


def _fitting(name: str, text: config_load.Text, content: Json, removed: list[str], *, parts: bool) -> Json:
    """Return the readable entries, of tables of the file, that a broker takes. parts: also valid parts of entries that
    `content` lacks; the parts left out are added to `removed`.
    """
    found, text = dict[Any, Any](), config_load.as_proof(name, text)
    tables = {table.member: table for table in KINDS[FILES[name]].tables}
    for member, table in tables.items():
        if not isinstance(rows := text.value.get(member), dict):
            continue
        if name in (config_load.TIERED, config_load.MAPPING) and text.open[:1] == (member,):
            rows = without_damaged_row(rows, text.open[1:], len(table.levels))
        rows = with_numbers(rows)
        if table.levels:
            mine = content.get(member)
            own = dict(_entries(name, table, rows, mine if isinstance(mine, dict) else {}, removed, parts=parts))
            if lone := lone_position(own):
                removed += [] if parts else [f"{lone} removed: the other position of transactions is lost"]
                del own[lone]
            found[member] = own
        else:  # about the whole file, not its entries
            others = [misfit.key for misfit in misfits(table, rows)]
            found[member] = {k: v for k, v in rows.items() if k not in others and v not in (None, "")}
    plain = {member: value for member, value in text.value.items() if not isinstance(value, dict | list | None)}
    return {member: value for member, value in plain.items() if member not in tables} | found


def _entries(
    name: str, table: JsonTable, rows: Json, mine: Json, removed: list[str], *, parts: bool
) -> Iterator[tuple[Any, Any]]:
    """Yield the rows of one table as `_fitting`. mine: the rows that it has already."""
    for key, row in rows.items():
        one = {key: row}
        wrong = list(misfits(table, one))
        for _, holder, column in wrong if parts else ():
            known = mine.get(key) if holder is not one and table.value else mine
            lacks = not isinstance(known, dict) or (column if table.value else key) not in known
            if column in _SINGLE_NUMBERS or (lacks and "Offset" in name and is_beyond(holder[column])):
                continue
            place = _short(key) if holder is one else f"{_short(key)}: {_short(column)}"
            lost = _short(holder.pop(column))
            removed += [f"{place} {lost} taken out"] if lacks else []
        if not wrong or (parts and one.get(key)):
            yield key, one[key]


def _merge(name: str, content: Json, more: Json) -> int:
    """Add missing rows, and take the higher one of two offsets. Return the number of changes."""
    changed = 0
    for member, rows in more.items():
        if not isinstance(rows, dict):
            content[member] = rows if _is_lower(content.get(member), rows) else content[member]
            continue
        table = content.setdefault(member, {})
        if not isinstance(table, dict):
            table = content[member] = {}
        for key, row in rows.items():
            mine = table.get(key)
            if mine is None:
                table[key] = row
                changed += member != DATA_VERSION.member
            elif isinstance(mine, dict) and isinstance(row, dict) and "Offset" in name:
                higher = {q: o for q, o in row.items() if _is_lower(mine.get(q), o)}
                mine.update(higher)
                changed += bool(higher)
            elif "Offset" in name and member != DATA_VERSION.member and _is_lower(mine, row):
                table[key] = row
                changed += 1
    return changed


def _is_lower(mine: Any, other: Any) -> bool:
    return mine is None or (isinstance(mine, int) and isinstance(other, int) and mine < other)


def _add_proven(name: str, content: Json, proven: Proven) -> int:
    """Add topics with their queues, and groups with a retry topic. Return the number of entries added."""
    if name == config_load.TOPICS:
        member, found = TOPIC_CONFIG_TABLE, {topic: proven.topic(topic) for topic in sorted(proven.highest)}
    elif name == config_load.GROUPS:
        groups = {group_of_topic(queue.topic) for queue in proven.queues} | proven.lost_groups
        member, found = SUBSCRIPTION_GROUP_TABLE, {group: {GROUP_NAME: group} for group in sorted(groups - {""})}
    else:
        return 0
    table = _table(content, member)
    missing = {key: entry for key, entry in found.items() if key not in table}
    table.update(missing)
    return len(missing)


def _table(content: Json, name: str) -> Json:
    """Return a table of a file; anything else in its place is replaced by an empty table."""
    if not isinstance(content.get(name), dict):
        content[name] = {}
    table: Json = content[name]
    return table


def compaction_positions(
    layout: Layout, ranges: Mapping[QueueId, tuple[int, int]], anew: Collection[QueueId]
) -> Iterator[Edit]:
    """Yield the edit after which position-checkpoint (the file, its .bak or its readable rest) names no offset that its
    queue does not have. anew: queues to compact again from the beginning.
    """
    path = layout.compaction_log.parent / POSITION_CHECKPOINT
    if not path.is_file():
        return
    content, reasons = read_json(path), list[str]()
    backup = path.with_name(path.name + BACKUP)
    if content is None and backup.is_file():
        content, reasons = read_json(backup), [f"taken from {backup.name}: the file cannot be read"]
    if content is None:
        readable = read_config_file(path, path.name).value.get(QUEUE_OFFSET_MAP)
        rows = readable if isinstance(readable, dict) else {}
        known = {name: offset for name, offset in rows.items() if isinstance(offset, int)}
        reasons = ["what can still be read of it: the file is damaged"]
        content = {"empty": not known, QUEUE_OFFSET_MAP: known}
    table = content.get(QUEUE_OFFSET_MAP)
    if not isinstance(table, dict):
        return
    highest: Mapping[str, int] = {f"{queue.topic}_{queue.queue_id}": bounds[1] - 1 for queue, bounds in ranges.items()}
    wrong = {
        name: highest[name]
        for name, offset in table.items()
        if name in highest and isinstance(offset, int) and offset > max(highest[name], 0)
    }
    if wrong:
        table.update(wrong)
        reasons.append(f"{counted(len(wrong), 'position')} behind the end of their queue")
    again = [name for queue in anew if (name := f"{queue.topic}_{queue.queue_id}") in table]
    if again:
        for name in again:
            del table[name]
        reasons.append(f"{counted(len(again), 'queue')} to be compacted again")
    if reasons:
        yield Edit.create(path, json_bytes(content), "; ".join(reasons), ("I-165",))
