"""Checks of files and databases of `config/`: whether they can be read, and what lies beside (I-140 … I-156, I-189).

`ConfigTables` has the tables as a broker reads them: the file, else its .bak, else a RocksDB. Whether a start loses
something is decided in `store/start/config`.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import Any, NamedTuple

from ...formats.config import BACKUP
from ...formats.consumer_offset import OFFSET_TABLE
from ...formats.json_table import DATA_VERSION
from ...formats.kinds import KINDS, Syntax
from ...formats.message_properties import RETRY_PREFIX
from ...formats.rocksdb_config import FORBIDDEN, KV_DATA_VERSION
from ..broker.profiles import Profile
from ..broker.snapshot import QueueId
from ..broker.system_topics import HALF_TOPIC, OP_TOPIC, is_system_topic
from ..counted import counted, listed
from ..disk.files import is_of_session
from ..disk.layout import Layout
from ..errors import Missing, StoreError, Unreadable, Unsupported
from ..findings.catalogue import Severity
from ..queues.rocksdb import RocksDb, is_rocksdb
from ..queues.rocksdb_copy import database_loss
from ..search.log_search import never_delivered
from ..search.store import StoreReader
from ..settings.generation import databases_are_newer
from ..settings.parse import is_int
from ..settings.read import FILES, TEMPORARY, ConfigFile, backup_note, read_if_there
from ..settings.rocksdb import ConfigForm, InForce, in_force, read_entries
from ..start import config_load
from ..start.config import ConfigFileStart, ConfigStart, config_start, files_in_use
from .context import VerifyContext, need_whole
from .queue_state import queue_bounds
from .register import Once, after, before

FAMILIES = frozenset({"default", KV_DATA_VERSION, FORBIDDEN})
"""Column families of each configuration database (spec 05, 5.4)."""
FAMILIES_5_4 = FAMILIES - {FORBIDDEN}
"""Since 5.4 a database has only the families that it uses; offsets have no version."""


class TableEntry(NamedTuple):
    """An entry of a table, and the path of the file that has it."""

    path: str
    values: dict[str, Any]


@dataclass
class ConfigTables:
    """All files of `config/`, read once.

    main, backup: files and their .bak by name, None if missing. rows: entries that a broker reads, by record type.
    force: which databases it reads, or does not though they are newer than the files. problems: of RocksDBs that cannot
    be read. families: their column families.
    """

    directory: Path
    force: InForce
    main: dict[str, ConfigFile | None] = field(default_factory=dict)
    backup: dict[str, ConfigFile | None] = field(default_factory=dict)
    rows: dict[str, list[TableEntry]] = field(default_factory=lambda: defaultdict(list))
    families: dict[str, frozenset[str]] = field(default_factory=dict)
    problems: dict[str, StoreError] = field(default_factory=dict)

    @classmethod
    def read(cls, layout: Layout, rules: config_load.ConfigRules) -> ConfigTables:
        """Read the `config` directory of a store; empty if it is missing. Raise Unreadable."""
        directory, force = layout.config, in_force(layout.config, layout.broker_config)
        if force.databases and not rules.databases and not databases_are_newer(layout):
            force = InForce(ConfigForm.FILES, True, {})
        found = cls(directory, force)
        for name, kind in FILES.items():
            if KINDS[kind].place != "config":
                continue
            found.main[name] = _read(directory / name, kind)
            found.backup[name] = _read(directory / (name + BACKUP), kind)
            if (taken := found.taken(name)) is not None:
                for record in taken.records():
                    found.rows[record["type"]].append(TableEntry(os.fspath(taken.path), record))
        if directory.is_dir():
            found._read_databases()
        return found

    def taken(self, name: str) -> ConfigFile | None:
        """Return what a broker reads: the file or its .bak, whichever is whole first, else whichever is there."""
        there = [file for file in (self.main.get(name), self.backup.get(name)) if file is not None]
        return next((file for file in there if file.problem is None), there[0] if there else None)

    def entries(self, record_type: str, scope_topic: str | None = None) -> Iterator[TableEntry]:
        """Yield the entries of one record type; with `scope_topic`, only entries of that topic or of none."""
        for row in self.rows[record_type]:
            if scope_topic is None or row.values.get("topic", scope_topic) == scope_topic:
                yield row

    def names(self, record_type: str, column: str) -> set[str]:
        """Return the values of one column of a record type."""
        return {row.values[column] for row in self.rows[record_type]}

    def _read_databases(self) -> None:
        for path in sorted(set(self.force.databases.values())):
            if not is_rocksdb(path):
                continue
            try:
                with RocksDb.open(path) as database:
                    self.families[path.name] = frozenset(database.column_families)
                    for entry in read_entries(database):
                        for record in entry.records:
                            self.rows[record["type"]].append(TableEntry(os.fspath(path), record))
            except (Missing, Unreadable, Unsupported) as error:
                self.problems[path.name] = error


def _read(path: Path, kind: str) -> ConfigFile | None:
    found = read_if_there(path, kind)
    if found is not None:
        need_whole([os.fspath(path)])
    return found


def config_tables(context: VerifyContext) -> ConfigTables:
    """Return the tables of this run, read once."""
    rules = config_load.config_rules(context.profile)
    return context.kept("config tables", lambda: ConfigTables.read(context.store.layout, rules))


class FileFault(NamedTuple):
    """A fault in a file. repair: the repair if it is not that of the catalogue."""

    path: str | Path
    text: str
    severity: Severity | None = None
    repair: str | None = None


def counted_by_file(
    moment: Callable[[str], Callable[[Once], Once]], code: str
) -> Callable[[Callable[[VerifyContext], Iterator[FileFault]]], Once]:
    """Register a check that yields faults. Faults alike become one finding: the first text, the count of all."""

    def register(check: Callable[[VerifyContext], Iterator[FileFault]]) -> Once:
        @wraps(check)
        def counting(context: VerifyContext) -> None:
            texts = defaultdict[tuple[str, Severity | None, str | None], list[str]](list)
            for path, text, severity, repair in check(context):
                texts[os.fspath(path), severity, repair].append(text)
            for (path, severity, repair), alike in texts.items():
                context.findings.add(code, path, alike[0], count=len(alike), severity=severity, repair=repair)

        return moment(code)(counting)

    return register


_VERSIONS_APART = 100
"""Normal number of changes between two writes of a file."""
_ONLY_USED_SINCE = "5.4"
_VERSIONED = ("topics", "subscriptionGroups")
_MADE_EMPTY = (config_load.FILTERS, config_load.ORDER)
"""Files of which a broker fills an empty table again when consumers come."""
_ASIDE = "mv {path} {aside}"
_RENAMED = config_load.TIMERS + TEMPORARY


def _is_checked(name: str) -> bool:
    """Return whether I-140 and I-141 check a file: statistics have I-134, other syntaxes than JSON no .bak."""
    kind = KINDS[FILES[name]]
    return name not in config_load.STATISTICS and kind.syntax is Syntax.JSON


@before("I-140")
def a_file_can_be_read(context: VerifyContext) -> None:
    tables, rules = config_tables(context), config_load.config_rules(context.profile)
    for name, main in tables.main.items():
        backup = tables.backup[name]
        for file in (main, backup):
            if file is not None and file.path.is_dir():
                text = "a directory of this name: a broker cannot write the file"
                context.findings.add("I-140", file.path, text, severity=Severity.ERROR, repair=_ASIDE)
        if not _is_checked(name) or (main is None and backup is None):
            continue
        if main is not None and main.larger and main.problem is not None:
            context.unread.append(f"config/{name}: {main.problem.reason}")
            continue
        if any(file is not None and file.problem is None for file in (main, backup)):
            continue
        file = main or backup
        assert file is not None and file.problem is not None
        if file.path.is_dir():
            continue
        instead = backup_note(main, tables.directory / name, FILES[name]) if main else f"there is no {name}"
        text = f"cannot be read at byte {file.problem.position}: {file.problem.reason}; {instead}"
        level = _level_unread(config_load.load_config(tables.directory, name, rules))
        context.findings.add("I-140", file.path, text, offset=file.problem.position, severity=level)


def _level_unread(loaded: config_load.LoadedConfig) -> Severity | None:
    """Return how bad it is that neither file nor .bak can be read; None if a broker does not start."""
    if loaded.start is config_load.LoadAction.REFUSES:
        return None
    new = not loaded.main.there and loaded.name in _MADE_EMPTY
    return Severity.WARNING if new else Severity.ERROR


@before("I-141")
def file_and_backup_agree(context: VerifyContext) -> None:
    tables = config_tables(context)
    for name, main in tables.main.items():
        backup = tables.backup[name]
        if not _is_checked(name) or main is None or main.larger or (main.problem and backup is None):
            continue
        if main.problem is not None:
            if backup is not None and backup.problem is None:
                text = f"cannot be read ({main.problem.reason}); a broker reads its .bak"
                context.findings.add("I-141", main.path, text, severity=Severity.WARNING)
        elif text := _odd_version(main, backup):
            context.findings.add("I-141", main.path, text)


def _odd_version(main: ConfigFile, backup: ConfigFile | None) -> str:
    own = _counter(main.value)
    other = _counter(backup.value) if backup is not None and backup.problem is None else None
    if own is None:
        return "no dataVersion, but its .bak has one" if other is not None else ""
    if own < 0:
        return f"dataVersion {own} is negative"
    if other is not None and not 0 <= own - other <= _VERSIONS_APART:
        return f"dataVersion {own}, that of its .bak {other}"
    return ""


def _counter(value: dict[Any, Any]) -> int | None:
    version = value.get(DATA_VERSION.member)
    counter = version.get("counter") if isinstance(version, dict) else None
    return counter if is_int(counter) else None


@before("I-147")
def nothing_is_left_of_a_write(context: VerifyContext) -> None:
    directory = context.store.layout.config
    names = sorted(os.listdir(directory)) if directory.is_dir() else []  # noqa: PTH208
    for name in names:
        if name.endswith(TEMPORARY):
            usual = context.crashed or name == _RENAMED
            text = f"left over from a write{' that a kill interrupted' if usual else ''}"
            level = Severity.INFO if usual else None
            context.findings.add("I-147", directory / name, text, severity=level)


@before("I-155")
def databases_can_be_opened(context: VerifyContext) -> None:
    tables = config_tables(context)
    _report_a_guess(context, tables)
    for name in sorted({path.name for path in tables.force.databases.values()}):
        path = tables.directory / name
        problem, families = tables.problems.get(name), tables.families.get(name)
        loss = None if context.live else database_loss(path)
        if loss is not None:
            severity = Severity.ERROR if families is not None and loss.opens else None
            mend = "config" if loss.manifest else ""
            context.findings.add("I-155", path, loss.sentence, severity=severity, repair=mend)
        elif isinstance(problem, Unsupported):
            context.unread.append(f"config/{name}: {problem.hint or problem.message}")
        elif problem is not None:
            context.findings.add("I-155", path, f"cannot be opened: {problem.message}")
        elif families is not None and (missing := _families(context, tables, name) - families):
            text = f"has no column family {', '.join(sorted(missing))}; a start makes it"
            context.findings.add("I-155", path, text, severity=Severity.INFO)
        elif families is None and _is_lost(context, name):
            text, file = "is no longer a RocksDB, but the other databases of config/ are", _imported_file(context, name)
            made = bool(file) and is_of_session(context.store.layout, file)
            if file:
                text = f"is no longer a RocksDB: a start makes a new one and imports {file}"
                text += "" if made else ", which may be older than the lost data"
            context.findings.add("I-155", path, text, severity=Severity.INFO if made else None)


def _report_a_guess(context: VerifyContext, tables: ConfigTables) -> None:
    """Report that files and databases are both there and nothing says which a broker reads. A broker with queues only
    in a RocksDB reads databases (spec 05, 5.4), one before 5.3 files.
    """
    force = tables.force
    if force.sure or context.store.layout.queues_for_rocksdb or not config_load.config_rules(context.profile).databases:
        return
    names = ", ".join(sorted({path.name for path in force.databases.values()}))
    others = ", ".join(force.others) or "files of JSON"
    text = (
        f"{names} beside {others}, and queues in files: only the broker's options say what it reads"
        f" (--broker-config FILE); here {names} is read, because it was written last"
    )
    context.findings.add("I-155", tables.directory, text, severity=Severity.WARNING, repair="")


def _families(context: VerifyContext, tables: ConfigTables, name: str) -> frozenset[str]:
    """Return the column families that a broker of the store's version makes in a database."""
    if not config_load.config_rules(context.profile).databases:
        return frozenset()
    if tables.force.form is not ConfigForm.SEPARATE:
        return frozenset({"default"})
    if context.profile.version < _ONLY_USED_SINCE:
        return FAMILIES
    return FAMILIES_5_4 if name in _VERSIONED else FAMILIES_5_4 - {KV_DATA_VERSION}


def _is_lost(context: VerifyContext, name: str) -> bool:
    """Return whether `config/` has other databases, while this one is missing or is not a RocksDB."""
    tables = config_tables(context)
    others = set(tables.families) | set(tables.problems)
    return bool(others) and name not in others


def _imported_file(context: VerifyContext, name: str) -> str:
    """Return the file that a start imports into a database that is gone, "" if it imports none."""
    layout, rules = context.store.layout, config_load.config_rules(context.profile)
    for file, path in config_tables(context).force.databases.items():
        taken = path.name == name and config_load.load_table(layout, file, rules).start is config_load.LoadAction.LOADS
        if taken and file not in config_load.in_databases(layout, rules):
            return f"{layout.config.name}/{file}"
    return ""


def config_start_of(context: VerifyContext) -> ConfigStart:
    """Return what a start makes of the configuration, computed once per run."""

    def found() -> ConfigStart:
        queues = [QueueId(queue.topic, queue.queue_id) for queue in context.store.queues]
        ends = {queue: both for queue in queues if (both := queue_bounds(context, queue)) is not None}
        undelivered = None if context.live else partial(never_delivered, context.store)
        return config_start(context.store.layout, context.profile, ends, undelivered)

    return context.kept(ConfigStart, found)


def used_topics(
    store: StoreReader, profile: Profile, tables: ConfigTables, unserved: Iterable[str], last: Iterable[int]
) -> frozenset[str]:
    """Return topics without an entry that were in use when the store was left, so that nobody deleted them: all, if the
    newest message is of one of them, so that topics.json is older than the log; else those of which a group has a
    position that would have gone with the topic. None where topics are copied from a master; and a broker makes retry
    topics for its groups.

    unserved: as of `ConfigStart`. last: positions of the last records of the log.
    """
    from ..inspect.own_topics import has_own_records

    bare = {topic for topic in unserved if not topic.startswith(RETRY_PREFIX)}
    bare -= tables.names("topic_config", "topic")
    if store.layout.copies_config or not bare:
        return frozenset()
    if profile.dispatch.any_queue:
        bare = {topic for topic in bare if has_own_records(store, topic)}
    if bare and _newest_topic(store, last) not in bare:
        gone_with_topic = config_load.config_rules(profile).positions_go_with_topic
        rows = tables.entries("consumer_offset") if gone_with_topic else ()
        bare &= {row.values["topic"] for row in rows if row.values.get("table") == OFFSET_TABLE}
    return frozenset(bare)


def _newest_topic(store: StoreReader, last: Iterable[int]) -> str:
    """Return the topic of the newest message of a client; "" if it is not among the last records of the log."""
    found = store.messages_at(sorted(last, reverse=True))
    return next((message.topic for message in found if not is_system_topic(message.topic)), "")


_TOPICS_NAMED = 3


def not_served(context: VerifyContext, topics: Collection[str]) -> str:
    """Return what is wrong if topics in use have no entry."""
    named = listed([*map(repr, sorted(topics))], _TOPICS_NAMED)
    bounds = [queue_bounds(context, QueueId(q.topic, q.queue_id)) for q in context.store.queues if q.topic in topics]
    messages = counted(sum(end - first for first, end in filter(None, bounds)), "message", form=",")
    text = f"no entry for {counted(len(topics), 'topic')} ({named}), so that no broker serves {messages}"
    return f"{text}; a slave gets the entries from its master"


@after("I-156")
def a_broker_takes_each_table(context: VerifyContext) -> None:
    if context.scope.topic is not None or not context.log.complete:
        return
    start = config_start_of(context)
    tables = config_tables(context)
    main = tables.main
    _report_databases(context, start)
    for file in start.files:
        there = main.get(file.file)
        unreadable = there is not None and there.problem is not None  # I-140 and I-141 report it
        if file.start is config_load.LoadAction.LOADS or file.file == config_load.TIMER_CHECK or unreadable:
            continue
        if file.start is config_load.LoadAction.EMPTY and file.file in start.databases:
            continue
        if fault := _fault_of(file, start, missing=there is None):
            text, severity = fault
            context.findings.add("I-156", context.store.layout.config / file.file, text, severity=severity)


def _report_databases(context: VerifyContext, start: ConfigStart) -> None:
    """Report databases that lack entries of the store, or that a start makes again, where no file has the entries."""
    force = config_tables(context).force
    reported = {name for name, _ in start.cut_databases}  # by I-155
    lost = start.databases & start.forgotten - reported if start.forgets else frozenset()
    for path in sorted({force.databases[name] for name in lost}):
        text = "is missing: a broker makes an empty one"
        text = "lacks entries that the rest of the store shows" if is_rocksdb(path) else text
        context.findings.add("I-156", path, text, repair="")


def _fault_of(file: ConfigFileStart, start: ConfigStart, *, missing: bool) -> tuple[str, Severity] | None:
    """Return (what a start does with a file that it does not load, how bad that is), None for nothing to report."""
    what = "is missing" if missing else f"is not accepted: {file.problem}"
    lost = file.file in start.forgotten and not start.bare
    if file.start is config_load.LoadAction.REFUSES:
        asked = file.file not in start.databases
        backup = ", and its .bak is not accepted either" if asked else ""
        return f"{what}{backup}: the broker does not start", Severity.FATAL
    harmless = Severity.INFO if file.file in config_load.STATISTICS else Severity.WARNING
    if file.start is config_load.LoadAction.BACKUP:
        more = ", which is older: entries are lost" if lost else ""
        return f"{what}; a broker reads its .bak{more}", Severity.ERROR if lost else harmless
    if lost:
        backup = "and so is its .bak" if missing else "nor is its .bak"
        return f"{what}, {backup}: a broker begins with an empty table", Severity.ERROR
    return None if missing else (f"{what}; a broker begins with an empty table", harmless)


@after("I-189")
def positions_of_transactions(context: VerifyContext) -> None:
    scope, store = context.scope, context.store
    asked = scope.topic in (None, HALF_TOPIC, OP_TOPIC) and not scope.quick
    if context.live or not asked or not context.log.complete or not store.queues.has_topic(HALF_TOPIC):
        return
    from ..inspect.transactions import stored_positions, transaction_queues  # only needed with transactions

    queues = transaction_queues(store)
    for text in queues.told(stored_positions(store)) if queues else ():
        database = in_force(store.layout.config, store.config).databases.get(config_load.OFFSETS)
        path = database or store.layout.config / files_in_use(store.layout, (config_load.OFFSETS,))[0]
        context.findings.add("I-189", path, text, repair="" if database else None)
