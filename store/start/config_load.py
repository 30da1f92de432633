"""What a broker takes of one file of `config/` and its .bak (spec 05, 5.2), by version.

A load takes the file; if that is missing, empty or refused, the .bak; without a .bak an empty table, which the next
write puts over the file. If file and .bak are refused, there is no start. The text is read as `parse` does; then the
tables must have the shape of the manager's fields, whether they are in files or in a RocksDB (spec 05, 5.4). Versions
refuse different texts, also sound ones: `config_rules` has what was measured with the managers of the releases that
`profiles` names. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from ...formats import timer_check
from ...formats.config import BACKUP
from ...formats.consumer_offset import GROUP_TOPIC_MAP, OFFSET_TABLE
from ...formats.json_table import DATA_VERSION
from ...formats.kinds import KINDS
from ...formats.subscription_group import SUBSCRIPTION_GROUP_TABLE
from ...formats.topics import TOPIC_CONFIG_TABLE, TOPIC_FILTER_TYPE
from ..broker.profiles import Profile
from ..disk.layout import Layout, was_rocksdb
from ..errors import Missing, StoreError, Unreadable, Unsupported
from ..queues.rocksdb import is_rocksdb
from ..settings.generation import databases_are_newer
from ..settings.parse import TOO_DEEP, Grammar, ParsedConfig, misfits, parse
from ..settings.read import FILES, ConfigFile, read_content
from ..settings.rocksdb import SECOND, SEPARATE, counter_of, in_force, in_one_table, keeps_databases, rows_of, table_of

TOPICS, GROUPS = KINDS["topics"].file, KINDS["subscription-group"].file
OFFSETS, LMQ_OFFSETS = KINDS["consumer-offset"].file, KINDS["lmq-consumer-offset"].file
DELAYS, FILTERS, MODES = (KINDS[kind].file for kind in ("delay-offset", "consumer-filter", "message-request-mode"))
ORDER, MAPPING = KINDS["consumer-order-info"].file, KINDS["topic-queue-mapping"].file
TIMERS, TRANSACTIONS = KINDS["timer-metrics"].file, KINDS["transaction-metrics"].file
TIMER_CHECK, TIERED = timer_check.FILE, KINDS["tiered-store-metadata"].file
STATISTICS = frozenset({TIMERS, TRANSACTIONS})
"""Counts that a broker makes again."""


class ConfigRules(NamedTuple):
    """How one broker version loads `config/`. Names are those of files."""

    #: if the load of one is refused, there is no start; in the order of loading
    needed: tuple[str, ...]
    #: the same if there is a timer
    needed_by_timer: tuple[str, ...] = ()
    #: loaded, but a failure is ignored
    passed_over: tuple[str, ...] = ()
    #: the same, if the file exists
    if_there: tuple[str, ...] = ()
    #: a text of only blanks is an empty table
    blank_is_empty: frozenset[str] = frozenset()
    #: a JSON text of no characters ("") is an empty table
    no_text_is_empty: frozenset[str] = frozenset()
    #: an empty list instead of an object is an empty table
    list_is_empty: bool = True
    #: a table of `null` is refused
    null_refused: frozenset[str] = frozenset()
    #: a table of `null` is taken, and each use of it fails
    null_fails: frozenset[str] = frozenset()
    #: a table of "" counts as `null`; elsewhere it is refused
    no_text_is_null: frozenset[str] = frozenset()
    #: the file must have its table
    table_needed: frozenset[str] = frozenset()
    #: by files, types that are refused as dataVersion
    version_refused: tuple[tuple[frozenset[str], tuple[type, ...]], ...] = ()
    #: deviations from JSON that the parser accepts
    grammar: Grammar = Grammar.FASTJSON
    #: a member that is not a table of the file, and has numbers as keys, is refused
    strange_numbers_refused: bool = False
    #: types accepted for the topics of a group, () if the version does not note them
    topics_of_group: tuple[type, ...] = ()
    #: a text that is none of a field's constants is refused
    strange_constants_refused: bool = False
    #: a deeply nested value ends the start, whatever the .bak has
    deep_ends_start: bool = False
    #: topics, groups and positions may be in a RocksDB
    databases: bool = False
    #: who deletes a topic deletes the positions of groups in it (since 5.0, cleanOffsetByTopic)
    positions_go_with_topic: bool = False

    @property
    def known(self) -> tuple[str, ...]:
        return (*self.needed, *self.needed_by_timer, *self.passed_over)


_OF_4 = (TOPICS, OFFSETS, GROUPS, FILTERS, DELAYS)
_OF_5 = (TOPICS, MAPPING, OFFSETS, GROUPS, FILTERS, ORDER, DELAYS)
_NULL_4 = frozenset({TOPICS, GROUPS, DELAYS})
_NULL_5 = _NULL_4 | {MAPPING, TIMERS, TRANSACTIONS, ORDER}
_ALL_TYPES = (str, type(None), list, int)
_LISTS = (list, type(None))
_OFFSET_FILES = frozenset({OFFSETS, LMQ_OFFSETS, DELAYS})
_METRICS = frozenset({MAPPING, TIMERS, TRANSACTIONS})

_BLANK_4_3 = frozenset(_OF_4)
_BLANK_4_9 = frozenset({TOPICS, OFFSETS, LMQ_OFFSETS, FILTERS, DELAYS})
_BLANK_5 = frozenset({TOPICS, GROUPS, FILTERS, ORDER, MAPPING, MODES, DELAYS, TIMERS, TRANSACTIONS})

_4_9 = ConfigRules(
    _OF_4,
    blank_is_empty=_BLANK_4_9,
    no_text_is_empty=_BLANK_4_9,
    null_refused=_NULL_4,
    version_refused=((frozenset({TOPICS}), _ALL_TYPES),),
)
_5_1 = ConfigRules(
    _OF_5,
    (TIMERS,),
    (MODES,),
    (TIERED,),
    blank_is_empty=_BLANK_5,
    no_text_is_empty=_BLANK_5,
    null_refused=_NULL_5,
    null_fails=frozenset({OFFSETS}),
    no_text_is_null=frozenset({OFFSETS, LMQ_OFFSETS}),
    table_needed=frozenset({MAPPING}),
    version_refused=((_METRICS | {TOPICS}, _ALL_TYPES), (_OFFSET_FILES, (str, int))),
    topics_of_group=_LISTS,
    positions_go_with_topic=True,
)
_FASTJSON_2 = ConfigRules(
    _OF_5,
    (TIMERS,),
    (MODES, TRANSACTIONS),
    (TIERED,),
    no_text_is_empty=_BLANK_5,
    list_is_empty=False,
    null_refused=_NULL_5,
    null_fails=frozenset({OFFSETS}),
    no_text_is_null=frozenset({OFFSETS, LMQ_OFFSETS, FILTERS, MODES}),
    table_needed=frozenset({MAPPING}),
    version_refused=((_METRICS | {TOPICS, GROUPS}, _ALL_TYPES), (_OFFSET_FILES, (str, int, list))),
    topics_of_group=(*_LISTS, dict, str),
    grammar=Grammar.FASTJSON_2,
    strange_numbers_refused=True,
    deep_ends_start=True,
    databases=True,
    positions_go_with_topic=True,
)

RULES: dict[str, ConfigRules] = {
    "4.3": _4_9._replace(strange_constants_refused=True, blank_is_empty=_BLANK_4_3, no_text_is_empty=_BLANK_4_3),
    "4.9": _4_9,
    "5.1": _5_1,
    "5.3": _5_1._replace(
        passed_over=(MODES, TRANSACTIONS),
        version_refused=((_METRICS | {TOPICS, GROUPS}, _ALL_TYPES), (_OFFSET_FILES, (str, int))),
        databases=True,
    ),
    # 5.4.0 refuses the pullOffsetTable of 5.5; stores of 5.5 are often guessed to be of either
    **dict.fromkeys(("5.4", "5.5", "5.5.1"), _FASTJSON_2),
}


def config_rules(profile: Profile) -> ConfigRules:
    return RULES[profile.version]


_VERSION = DATA_VERSION.member
_STACK = "nested so deep that the broker dies (StackOverflowError)"
_FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG", "")
_COUNTER = "counter"
_NO_COUNTER = f"{_COUNTER} of {_VERSION} is null"
_BLANKS = b" \t\r\n"


class LoadAction(StrEnum):
    """What a start does with a file: takes the file or its .bak, begins with an empty table, or ends."""

    LOADS = "loads"
    BACKUP = "backup"
    EMPTY = "empty"
    REFUSES = "refuses"


@dataclass(frozen=True)
class Text:
    """One file as a broker reads it. value: what can be read; of a broken file the part before the fault.

    problem: why it is not taken, "" if it is. there: it has at least one byte; present: it exists. deep: nested so deep
    that a recursive parser runs out of stack. fails: it is taken, and each use of its table fails. unseen: its content
    cannot be read here. dies: the problem kills whoever reads it. odd: what is not JSON in it, and is accepted.
    nameless: it has no table, but members of unknown names. late: the refused part stands behind the table, which is
    already taken. passed_by: it is not taken whatever it has; problem is then a sentence. open: as in ParsedConfig.
    """

    there: bool
    value: dict[Any, Any] = field(default_factory=dict)
    problem: str = ""
    deep: bool = False
    present: bool = True
    fails: bool = False
    unseen: bool = False
    dies: bool = False
    odd: str = ""
    nameless: bool = False
    late: bool = False
    passed_by: bool = False
    open: tuple[Any, ...] = ()


_UNSEEN, _NO_FILE = Text(there=True, unseen=True), Text(there=False, present=False)


class LoadedConfig(NamedTuple):
    """The outcome of one load. dies: what kills the broker in it, "" if nothing does. newer: what a RocksDB has that
    this broker does not read. older_than: its name if something older is taken, "" otherwise.
    """

    name: str
    start: LoadAction
    main: Text
    backup: Text
    dies: str = ""
    newer: Text = _NO_FILE
    older_than: str = ""

    @property
    def taken(self) -> Text | None:
        """The file or the .bak, None if neither is taken."""
        return {LoadAction.LOADS: self.main, LoadAction.BACKUP: self.backup}.get(self.start)

    @property
    def reason(self) -> str:
        """Why the start ends, or the file is not taken; "" if it is."""
        name = f"config/{self.name}"
        if self.start is LoadAction.LOADS:
            return ""
        if self.main.passed_by:
            return f"{name} is not taken: {self.main.problem}"
        if self.dies:
            return f"{name}: {self.dies}"
        if self.start is LoadAction.REFUSES and not self.backup.there:  # of a RocksDB in place of the file
            return self.main.problem
        why = f"{name} cannot be read ({self.main.problem})"
        if self.start is LoadAction.BACKUP:
            return why
        if not self.backup.there:
            return f"{why} and there is no {BACKUP}"
        return f"{why}, nor its {BACKUP} ({self.backup.problem})"


def load_config(directory: Path, name: str, rules: ConfigRules) -> LoadedConfig:
    """Load one file of a `config` directory, which need not exist."""
    main = read_text(directory / name, rules)
    if main.there and not main.problem:
        return LoadedConfig(name, LoadAction.LOADS, main, read_text(directory / (name + BACKUP), rules))
    backup = read_text(directory / (name + BACKUP), rules)
    if dies := _dies(main, rules):
        return LoadedConfig(name, LoadAction.REFUSES, main, backup, dies)
    if not backup.there and main.late:
        return LoadedConfig(name, LoadAction.LOADS, replace(main, problem=""), backup)
    if not backup.there:
        return LoadedConfig(name, LoadAction.EMPTY, main, backup)
    if backup.problem:
        return LoadedConfig(name, LoadAction.REFUSES, main, backup, _dies(backup, rules))
    taken = replace(backup, value=_merged_rows(name, main, backup)) if main.late else backup
    return LoadedConfig(name, LoadAction.BACKUP, main, taken)


def _dies(text: Text, rules: ConfigRules) -> str:
    """What kills a broker that reads the text, "" if nothing does."""
    if text.dies:
        return text.problem
    return _STACK if text.deep and rules.deep_ends_start else ""


def _merged_rows(name: str, main: Text, backup: Text) -> dict[Any, Any]:
    """The content of the .bak, with the rows that were taken of the file before it was refused."""
    table = KINDS[FILES[name]].tables[0].member
    parts = (text.value.get(table) for text in (main, backup))
    rows = {key: row for part in parts if isinstance(part, dict) for key, row in part.items()}
    return {**backup.value, table: rows}


def read_text(path: Path, rules: ConfigRules) -> Text:
    """Read a file or a .bak as it is; a file that cannot be opened counts as broken."""
    try:
        content = read_content(path)
    except Missing:
        return Text(there=False, problem="missing", present=False)
    except StoreError as error:
        return Text(there=True, problem=error.message)
    name = path.name.removesuffix(BACKUP)
    if content.larger:  # too large to read: nothing shows that it is broken
        return Text(there=True, unseen=True)
    if content.problem:
        parsed = parse(content.data)
        value = parsed.value if isinstance(parsed.value, dict) else {}
        return Text(not content.empty, value, content.problem, dies=content.dies, open=parsed.open)
    return judge(name, content.data, rules)


def judge(name: str, data: bytes, rules: ConfigRules) -> Text:
    """Read the bytes of a file of this name."""
    if not data:
        return Text(there=False, problem="empty")
    if not data.strip(_BLANKS) and name in rules.blank_is_empty:
        return Text(there=True)
    plain = parsed = parse(data)
    if plain.problem and not plain.whole:
        parsed = parse(data, rules.grammar)
    value = parsed.value if isinstance(parsed.value, dict) else {}
    if rules.grammar is Grammar.FASTJSON:
        value = _named_alike(name, value)
    if parsed.problem and not _is_empty_table(name, parsed, rules):
        deep = parsed.problem == TOO_DEEP and isinstance(parsed.value, dict)
        return Text(True, value, parsed.problem, deep, open=parsed.open)
    problem = "" if parsed.problem else _misfit(name, value, rules) or _strange_numbers(name, parsed, rules)
    fails = not problem and _fails(name, value, rules)
    nameless = KINDS[FILES[name]].tables[0].member not in value
    nameless = nameless and not _known_members(name).issuperset(value)
    odd = "" if problem or plain.whole else plain.problem
    late = problem == _NO_COUNTER and name != GROUPS
    return Text(True, value, problem, fails=fails, odd=odd, nameless=nameless, late=late)


def _named_alike(name: str, value: dict[Any, Any]) -> dict[Any, Any]:
    """The value with members renamed to tables: fastjson ignores case if no member has the exact name."""
    own = {table.member.lower(): table.member for table in KINDS[FILES[name]].tables}
    others = {key: own.get(str(key).lower(), key) for key in value}
    if all(key == other or other in value for key, other in others.items()):
        return value
    return {key if others[key] in value else others[key]: inner for key, inner in value.items()}


def _strange_numbers(name: str, parsed: ParsedConfig, rules: ConfigRules) -> str:
    """Why fastjson2 refuses a text: it cannot skip an unknown member with numbers as keys. "" if it does not."""
    if not rules.strange_numbers_refused:
        return ""
    strange = sorted(str(member) for member in parsed.numbered - _known_members(name))
    return f"{strange[0]} is no table, and has keys that are numbers" if strange else ""


def _known_members(name: str) -> set[Any]:
    return {GROUP_TOPIC_MAP, *(table.member for table in KINDS[FILES[name]].tables)}


def as_proof(name: str, text: Text) -> Text:
    """The text, with its table under the right name if one letter of the name is wrong."""
    table = KINDS[FILES[name]].tables[0]
    if table.member in text.value:
        return text
    strange = [key for key in text.value if key not in _known_members(name)]
    alike = [
        key for key in strange if _one_letter_off(str(key), table.member) and not any(misfits(table, text.value[key]))
    ]
    if len(alike) != 1:
        return text
    return replace(text, value={**text.value, table.member: text.value[alike[0]]})


def _one_letter_off(name: str, other: str) -> bool:
    wrong = sum(letter != expected for letter, expected in zip(name, other, strict=False))
    return len(name) == len(other) and wrong == 1


def _fails(name: str, value: dict[Any, Any], rules: ConfigRules) -> bool:
    tables = [table.member for table in KINDS[FILES[name]].tables[:1]]
    none = (None, "") if name in rules.no_text_is_null else (None,)
    return name in rules.null_fails and any(value.get(name, 0) in none for name in tables)


def _is_empty_table(name: str, parsed: ParsedConfig, rules: ConfigRules) -> bool:
    """Whether the text counts as an object of defaults: `null`, and for some parsers an empty list or text."""
    if not parsed.whole:
        return False
    if parsed.value == "":
        return name in rules.no_text_is_empty
    return parsed.value is None or (parsed.value == [] and rules.list_is_empty)


def _misfit(name: str, value: dict[Any, Any], rules: ConfigRules) -> str:
    """Why the manager of this file refuses a whole text, "" if it takes it."""
    for table in KINDS[FILES[name]].tables:
        if table.member == _VERSION:
            continue
        entry, member = value.get(table.member), table.member
        if member not in value:
            if name in rules.table_needed:
                return f"no {member}"
        elif entry is None or (entry == "" and name in rules.no_text_is_null):
            if name in rules.null_refused:
                return f"{member} is null"
        elif misfit := next(misfits(table, entry), None):
            return misfit.text
    noted = value.get(GROUP_TOPIC_MAP, {}) if name in (OFFSETS, LMQ_OFFSETS) else {}
    if text := _misfit_topics(noted, rules):
        return text
    if rules.strange_constants_refused and (text := next(_strange_constants(name, value), "")):
        return text
    if _VERSION not in value:
        return ""
    version = value[_VERSION]
    refused = [kinds for names, kinds in rules.version_refused if name in names]
    needed = refused and name not in (OFFSETS, LMQ_OFFSETS) and isinstance(version, dict)
    if needed and version.get(_COUNTER, 0) in (None, ""):
        return _NO_COUNTER
    return _misfit_version(version, tuple(chain.from_iterable(refused)))


def _misfit_topics(topics: Any, rules: ConfigRules) -> str:
    """Why a broker refuses the topics of each group, which it notes beside the offsets; "" if it does not."""
    if not rules.topics_of_group or (topics in (None, "") and str in rules.topics_of_group):
        return ""
    if not isinstance(topics, dict):
        return f"{GROUP_TOPIC_MAP} is no object"
    wrong = any(not isinstance(one, rules.topics_of_group) for one in topics.values())
    return f"an entry of {GROUP_TOPIC_MAP} is no list" if wrong else ""


def _strange_constants(name: str, value: dict[Any, Any]) -> Iterator[str]:
    for table in KINDS[FILES[name]].tables:
        rows = value.get(table.member)
        for row in rows.values() if isinstance(rows, dict) and table.levels else ():
            filter_type = row.get(TOPIC_FILTER_TYPE) if isinstance(row, dict) else None
            if isinstance(filter_type, str) and filter_type not in _FILTER_TYPES:
                yield f"{TOPIC_FILTER_TYPE} of an entry of {table.member} is unknown"


def _misfit_version(version: Any, refused: tuple[type, ...]) -> str:
    if isinstance(version, refused):
        return f"{_VERSION} is no object"
    misfit = next(misfits(DATA_VERSION, version), None) if refused and isinstance(version, dict) else None
    return misfit.text if misfit else ""


def load_databases(layout: Layout, rules: ConfigRules) -> dict[str, LoadedConfig]:
    """The tables that a broker does not take from files alone, by file name. Nothing is written."""
    found = {name: _in_its_place(layout, name, rules) for name in SEPARATE}
    return {name: one for name, one in found.items() if one is not None}


def in_databases(layout: Layout, rules: ConfigRules) -> frozenset[str]:
    """Files whose tables are, or have to be, in a RocksDB, unless it is gone, made again, and a file can stand in."""
    places = in_force(layout.config, layout.broker_config).databases if rules.databases else {}
    return frozenset(name for name in places if _of_database(name, places, rules) is not None)


def load_table(layout: Layout, name: str, rules: ConfigRules) -> LoadedConfig:
    """What a start takes in place of one file: its RocksDB, or the file with its .bak."""
    return _in_its_place(layout, name, rules) or load_config(layout.config, name, rules)


def request_modes(layout: Layout, rules: ConfigRules) -> dict[tuple[str, str], str]:
    """(group, topic) → `POP` or `PULL`, by messageRequestMode.json."""
    taken = load_config(layout.config, MODES, rules).taken
    rows = ConfigFile(layout.config / MODES, FILES[MODES], taken.value if taken is not None else {}).records()
    good = (row for row in rows if row["type"] == "message_request_mode" and "problem" not in row)
    return {(row["group"], row["topic"]): str(row.get("mode", "")) for row in good}


def _in_its_place(layout: Layout, name: str, rules: ConfigRules) -> LoadedConfig | None:
    """What a start takes from a RocksDB, or by way of one, instead of a file; None if it takes the file alone."""
    return layout.once(lambda _: _taken_of_database(layout, name, rules), (_in_its_place, name, rules))


def _taken_of_database(layout: Layout, name: str, rules: ConfigRules) -> LoadedConfig | None:
    if not rules.databases:
        return _not_read(layout, name, rules)
    stored = _of_database(name, in_force(layout.config, layout.broker_config).databases, rules)
    refused = stored is not None and stored.start is LoadAction.REFUSES
    if refused or not keeps_databases(layout):
        return stored
    return _merged_with_file(layout, name, stored, rules)


def _merged_with_file(
    layout: Layout, name: str, stored: LoadedConfig | None, rules: ConfigRules
) -> LoadedConfig | None:
    """The table of a broker with RocksDBs. If the file has the greater counter, the broker takes its positions alone,
    or its topics and groups over those of the RocksDB; it never reads the .bak. stored: what the RocksDB gives, None if
    it does not exist: its counter is then 0.
    """
    file, table = load_config(layout.config, name, rules), KINDS[FILES[name]].tables[0].member
    text, counter = file.main, counter_of(file.main.value)
    own = 0 if stored is None else counter_of(stored.main.value)
    if text.unseen:
        return stored
    if text.there and (text.problem or counter is None):
        what = text.problem or _NO_COUNTER
        why = f"config/{name} cannot be read ({what}): with a RocksDB a broker does not read its {BACKUP}"
        return LoadedConfig(name, LoadAction.REFUSES, replace(text, problem=why), _NO_FILE)
    if (counter or 0) > (own or 0) and not (stored is not None and stored.main.unseen and name != OFFSETS):
        if stored is not None and name != OFFSETS:
            rows = {**stored.main.value.get(table, {}), **(text.value.get(table) or {})}
            text = replace(text, value={**text.value, table: rows})
        return LoadedConfig(name, LoadAction.LOADS, text, _NO_FILE if stored is None else stored.main)
    if stored is not None:
        return stored
    proof = file.backup if text.there or name != OFFSETS else _other_proof(layout, file.backup, rules)
    if not (text.value.get(table) or proof.value.get(table)):
        return None
    why = "a broker with a RocksDB imports the file only if the counter of its dataVersion is above 0, but "
    why += f"it is {counter}" if text.there else f"it is {text.problem}"
    return LoadedConfig(name, LoadAction.EMPTY, replace(text, problem=why, passed_by=True), proof)


def _other_proof(layout: Layout, backup: Text, rules: ConfigRules) -> Text:
    """Other proof of how far groups have come: the .bak, or the file of a broker with LMQs in files."""
    if backup.there:
        return backup
    lmq = load_config(layout.config, LMQ_OFFSETS, rules).taken
    return backup if lmq is None else replace(lmq, value=in_one_table(lmq.value))


def _of_database(name: str, directories: Mapping[str, Path], rules: ConfigRules) -> LoadedConfig | None:
    """What a start takes from a RocksDB instead of a file, None if there is no RocksDB."""
    path = directories.get(name)
    if path is None:
        return None
    if is_rocksdb(path):
        return _load_rows(name, path)
    if was_rocksdb(path):
        return _refused(name, f"the RocksDB {path.name} has no file CURRENT")
    second = path.name == SECOND  # a broker makes it new, whatever files there are
    if path.is_file() and (second or any(map(is_rocksdb, directories.values()))):
        return _refused(name, f"{path.name} is a file, not a RocksDB")
    empty = replace(_NO_FILE, problem=f"the RocksDB {path.name} is missing")
    return LoadedConfig(name, LoadAction.EMPTY, empty, _NO_FILE) if second else None


def _not_read(layout: Layout, name: str, rules: ConfigRules) -> LoadedConfig | None:
    """What a broker that cannot read a RocksDB has instead of its content, which is forgotten: an empty table, or that
    of an older file or .bak. None if there is no RocksDB, or it is the older one.
    """
    path = in_force(layout.config, layout.broker_config).databases.get(name)
    if path is None or not is_rocksdb(path):
        return None
    loaded = load_config(layout.config, name, rules)
    older = loaded.taken is not None and not loaded.taken.unseen and databases_are_newer(layout, name)
    if loaded.start is not LoadAction.EMPTY and not older:
        return None
    try:
        positions = rows_of(path, name) if name == OFFSETS else []
        kept = table_of(path, name) if path.name != SECOND else _content(name, positions)
    except (Missing, Unreadable, Unsupported):
        kept = {}
    loaded = loaded._replace(newer=replace(_NO_FILE, value=kept))
    if older:  # beside a whole file and the RocksDB, the .bak proves nothing
        backup = _NO_FILE if loaded.taken is loaded.main else loaded.backup
        return loaded._replace(backup=backup, older_than=path.name)
    problem = f"{loaded.main.problem}: this broker does not read the RocksDB {path.name}"
    return loaded._replace(main=replace(loaded.main, problem=problem))


def _refused(name: str, problem: str) -> LoadedConfig:
    return LoadedConfig(name, LoadAction.REFUSES, Text(there=True, problem=problem), _NO_FILE)


def _load_rows(name: str, path: Path) -> LoadedConfig:
    try:
        rows = rows_of(path, name)
    except Unsupported:
        return LoadedConfig(name, LoadAction.LOADS, _UNSEEN, _NO_FILE)
    except (Missing, Unreadable) as error:
        return _refused(name, f"the RocksDB {path.name} cannot be opened: {error.message}")
    if name == GROUPS and path.name == SECOND and not _groups(rows):
        # groups that a broker made by itself are not stored there (store 5.5.1-config-v2)
        return LoadedConfig(name, LoadAction.LOADS, _UNSEEN, _NO_FILE)
    return LoadedConfig(name, LoadAction.LOADS, Text(there=True, value=_content(name, rows)), _NO_FILE)


def _groups(rows: list[dict[str, Any]]) -> list[str]:
    return [row["group"] for row in rows if row["type"] == "subscription_group"]


def _content(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The rows as the file of this name would have them, restricted to keys, offsets and attributes."""
    tables: dict[str, dict[str, Any]] = {OFFSET_TABLE: {}}
    if name == TOPICS:
        topics = [row for row in rows if row["type"] == "topic_config"]
        tables = {TOPIC_CONFIG_TABLE: {row["topic"]: {"attributes": row.get("attributes")} for row in topics}}
    elif name == GROUPS:
        tables = {SUBSCRIPTION_GROUP_TABLE: {group: {} for group in _groups(rows)}}
    for row in rows:
        if row["type"] == "data_version":
            tables[_VERSION] = {_COUNTER: row[_COUNTER]}
        elif row["type"] == "consumer_offset":
            table = tables.setdefault(row["table"], {})
            place = table.setdefault(f"{row['topic']}@{row['group']}", {})
            place[str(row["queue_id"])] = int(row["offset"])
    return dict(tables)
