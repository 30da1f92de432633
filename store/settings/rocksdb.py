"""The meaning of entries in a broker's RocksDB: queue units, files of `config/`, timers, or plain bytes.

A database is recognized by its column families and the name of its directory (spec 02, 2.10; 04, 4.10; 05, 5.4). For
`config/` there are five forms: JSON files, a RocksDB for each of three tables, one RocksDB for all tables, that of
configManagerVersion=v2, and leftovers of an earlier form. Only the broker's options tell which one it uses; without
them the one written last is assumed. `rocksdbstore/` tells which transactions are open and which timers wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from construct import Construct, ConstructError

from ...formats import (
    consumer_offset,
    pop,
    rocksdb_config,
    rocksdb_consume_queue,
    rocksdb_store,
    subscription_group,
    topics,
)
from ...formats.derive.ragged import Ints
from ...formats.hashing import utf8
from ...formats.json_table import DATA_VERSION, STATE_VERSION, JsonTable
from ...formats.kinds import KINDS
from ...formats.lmq_consumer_offset import LMQ_OFFSET_TABLE
from ...formats.pop import KV_STATE
from ...formats.rocksdb_config import FORBIDDEN, KV_DATA_VERSION
from ..broker.system_topics import LMQ_PREFIX
from ..disk.broker_conf import CONFIG_V2, CONFIG_VERSION, ROCKSDB_STORE_TYPE
from ..disk.layout import KV_STORE, Layout, was_rocksdb
from ..errors import Unreadable
from ..queues.rocksdb import RocksDb, is_rocksdb
from ..queues.rocksdb_copy import has_rows
from .parse import entries, parse

Schema: TypeAlias = "Construct[Any, Any]"
_TOPICS, _GROUPS, _OFFSETS = (KINDS[name].file for name in ("topics", "subscription-group", "consumer-offset"))
SEPARATE = {_TOPICS: "topics", _GROUPS: "subscriptionGroups", _OFFSETS: "consumerOffsets"}
"""File of `config/` → directory of the RocksDB that replaces it."""
SINGLE, SECOND = "metadata", "rdb"
"""Directories of one RocksDB for all tables: of useSingleRocksDBForAllConfigs, of configManagerVersion=v2."""
POSITIONS = "consumerOffset"
"""The column family of the single database that has offsets of groups."""
_TABLES = {_TOPICS: topics.TABLES[0], _GROUPS: subscription_group.TABLES[0], _OFFSETS: consumer_offset.TABLES[0]}
"""File of `config/` → table that the entries of a RocksDB belong to."""
_BY_DIRECTORY = {directory: file for file, directory in SEPARATE.items()}
_BY_FAMILY = {"topic": _TOPICS, "subscriptionGroup": _GROUPS, POSITIONS: _OFFSETS}
FAMILIES: dict[str, tuple[str, JsonTable]] = {
    **{name: (file, _TABLES[file]) for name, file in _BY_FAMILY.items()},
    **{f"{name}Version": (file, DATA_VERSION) for name, file in _BY_FAMILY.items()},
}
"""Column family of the single database → (file that it replaces, table that its entries belong to)."""


class RocksdbEntry(NamedTuple):
    """One entry, the records that it stands for, and the schemas of its bytes, if any.

    file: of `config/`, whose table it belongs to; "" for none.
    """

    family: str
    key: bytes
    value: bytes
    records: tuple[dict[str, Any], ...]
    key_schema: Schema | None = None
    value_schema: Schema | None = None
    file: str = ""


def read_entries(database: RocksDb) -> Iterator[RocksdbEntry]:
    """Yield all entries of all column families, in key order. Raises Unreadable."""
    for family in database.column_families:
        reader = _reader(database, family)
        for key, value in _items(database, family):
            found = reader(key, value)
            if found is None:
                found = RocksdbEntry(family, key, value, (_bytes(family, key, value),))
            yield found


def _items(database: RocksDb, family: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows of a family that a broker reads: of a family with a data version only the row at the version's
    key; an older row, which nothing reads, may be damaged. Raises Unreadable.
    """
    versions = {KV_DATA_VERSION, *(name for name, (_, table) in FAMILIES.items() if table is DATA_VERSION)}
    there = family in versions & {*database.column_families}
    value = database.get(family, rocksdb_config.VERSION_ROW) if there else None
    yield from database.items(family) if value is None else [(rocksdb_config.VERSION_ROW, value)]


def as_bytes(database: RocksDb) -> Iterator[RocksdbEntry]:
    """Yield all entries as plain bytes, whatever they mean. Raises Unreadable."""
    for family in database.column_families:
        for key, value in database.items(family):
            yield RocksdbEntry(family, key, value, (_bytes(family, key, value),))


_Reader = Callable[[bytes, bytes], RocksdbEntry | None]


def _reader(database: RocksDb, family: str) -> _Reader:
    """The function that reads entries of a family; it returns None for an entry that it does not know."""
    families = set(database.column_families)
    if rocksdb_consume_queue.BOUNDS in families:
        if family == rocksdb_consume_queue.UNITS:
            return _fields(family, "rocksdb_queue_unit", rocksdb_consume_queue.UNIT_KEY, rocksdb_consume_queue.UNIT)
        return _bound
    if {rocksdb_store.TIMER, rocksdb_store.TRANSACTION} <= families:
        return _store_reader(family) if family in _SCHEMAS else _unknown
    name = database.path.absolute().name
    if name == KV_STORE and family == pop.KV_STATE:
        return _pop_entry
    if name in _BY_DIRECTORY and family in (_MAIN, KV_DATA_VERSION):
        file = _BY_DIRECTORY[name]
        return _config_reader(family, name, file, DATA_VERSION if family == KV_DATA_VERSION else _TABLES[file])
    if name == SINGLE and family in FAMILIES:
        return _config_reader(family, name, *FAMILIES[family])
    return _version_2_entry if name == SECOND and family == _MAIN else _unknown


_MAIN = "default"
_SCHEMAS: dict[str, tuple[str, Schema, Schema]] = {
    rocksdb_store.TIMER: ("rocksdb_timer", rocksdb_store.TIMER_KEY, rocksdb_store.TIMER_VALUE),
    rocksdb_store.TRANSACTION: ("rocksdb_transaction", rocksdb_store.TRANSACTION_KEY, rocksdb_store.TRANSACTION_VALUE),
    rocksdb_store.INDEX: ("rocksdb_index", rocksdb_store.INDEX_KEY, rocksdb_store.INDEX_VALUE),
}


def _store_reader(family: str) -> _Reader:
    """A reader for `rocksdbstore/`: entries, and rows that tell how far they go."""
    fields = _fields(family, *_SCHEMAS[family])

    def read(key: bytes, value: bytes) -> RocksdbEntry | None:
        if rocksdb_store.is_text_key(key):
            position = _parsed(rocksdb_store.POSITION, value)
            if position is None:
                return None
            head = {"type": "rocksdb_position", "column_family": family, "name": key.decode()}
            record = {**head, **position}
            return RocksdbEntry(family, key, value, (record,), None, rocksdb_store.POSITION)
        return fields(key, value) if family != rocksdb_store.INDEX else _index(key, value, fields)

    return read


def _index(key: bytes, value: bytes, fields: _Reader) -> RocksdbEntry | None:
    """An index item, with the name in its key split into parts."""
    found = fields(key, value)
    if found is None:
        return None
    name = rocksdb_store.index_name(rocksdb_store.INDEX_KEY.parse(key).name)
    if name is None:
        return None
    (record,) = found.records
    del record["name"]
    return found._replace(records=({**record, **_texts(name._asdict())},))


def _unknown(key: bytes, value: bytes) -> None:
    return None


def _fields(family: str, record_type: str, key_schema: Schema, value_schema: Schema) -> _Reader:
    """A reader for entries whose key and value have schemas."""

    def read(key: bytes, value: bytes) -> RocksdbEntry | None:
        fields = (_parsed(key_schema, key), _parsed(value_schema, value))
        if fields[0] is None or fields[1] is None:
            return None
        record = {"type": record_type, **fields[0], **fields[1]}
        return RocksdbEntry(family, key, value, (record,), key_schema, value_schema)

    return read


def _bound(key: bytes, value: bytes) -> RocksdbEntry | None:
    """First and last entry of a queue, or how far the log was dispatched."""
    named = _parsed(rocksdb_consume_queue.BOUND_KEY, key)
    checkpoint = rocksdb_consume_queue.CHECKPOINT_TOPIC.decode()
    whole = named is not None and named["topic"] == checkpoint
    record_type = "rocksdb_dispatched" if whole else "rocksdb_queue_bound"
    schema = rocksdb_consume_queue.CHECKPOINT if whole else rocksdb_consume_queue.BOUND
    read = _fields(rocksdb_consume_queue.BOUNDS, record_type, rocksdb_consume_queue.BOUND_KEY, schema)
    return read(key, value)


def _config_reader(family: str, directory: str, file: str, table: JsonTable) -> _Reader:
    """A reader for entries whose key is a name and whose value is JSON."""

    def read(key: bytes, value: bytes) -> RocksdbEntry | None:
        parsed = parse(value)
        if parsed.problem:
            return None
        found: Any = parsed.value
        if table is not DATA_VERSION:
            # groups' offsets are one level deeper than in the file
            inner = found.get(table.member, found) if table.value is not None else found
            found = {key.decode("utf-8", "replace"): inner}
        records = tuple(entries(table, found, {"file": directory}))
        return RocksdbEntry(family, key, value, records, file=file)

    return read


def _pop_entry(key: bytes, value: bytes) -> RocksdbEntry | None:
    """A message that a POP consumer has."""
    head, fields = _fields_of(pop.KV_KEY, key), pop.parse_kept(value)
    if head is None or fields is None:
        return None
    del head["name"]
    record = {"type": "rocksdb_pop", **head, **fields}
    return RocksdbEntry(pop.KV_STATE, key, value, (record,), pop.KV_KEY)


_VERSION_2_TABLES: dict[int, tuple[str, JsonTable]] = {
    rocksdb_config.TableId.CONSUMER_OFFSET: (_OFFSETS, _TABLES[_OFFSETS]),
    rocksdb_config.TableId.PULL_OFFSET: (_OFFSETS, consumer_offset.TABLES[1]),
    rocksdb_config.TableId.TOPIC: (_TOPICS, _TABLES[_TOPICS]),
    rocksdb_config.TableId.SUBSCRIPTION_GROUP: (_GROUPS, _TABLES[_GROUPS]),
}


def _version_2_entry(key: bytes, value: bytes) -> RocksdbEntry | None:
    """An entry of the database of configManagerVersion=v2."""
    head = _fields_of(rocksdb_config.HEAD, key[: rocksdb_config.HEAD.sizeof()])
    if head is None or head["table_id"] not in _VERSION_2_TABLES:
        return None
    file, table = _VERSION_2_TABLES[head["table_id"]]
    if head["record_prefix"] == rocksdb_config.RecordPrefix.DATA_VERSION:
        schemas, found = (rocksdb_config.VERSION_KEY, rocksdb_config.VERSION), _version(value)
        table = DATA_VERSION
    elif file == _OFFSETS:
        schemas, found = (rocksdb_config.OFFSET_KEY, rocksdb_config.OFFSET), _offset(key, value)
    else:
        schemas, found = (rocksdb_config.ENTRY_KEY, rocksdb_config.ENTRY), _named(key, value)
    if found is None:
        return None
    records = tuple(entries(table, found, {"file": SECOND}))
    return RocksdbEntry(_MAIN, key, value, records, *schemas, file)


def _version(value: bytes) -> Any:
    fields = _fields_of(rocksdb_config.VERSION, value)
    if fields is None:
        return None
    names = {"state_version": STATE_VERSION, "timestamp": "timestamp", "counter": "counter"}
    return {names[name]: number for name, number in fields.items()}


def _offset(key: bytes, value: bytes) -> Any:
    """An offset in the form of the file: topic@group → queue → offset."""
    of, offset = (_fields_of(rocksdb_config.OFFSET_KEY, key), _fields_of(rocksdb_config.OFFSET, value))
    if of is None or offset is None:
        return None
    topic, group = (of[name].decode("utf-8", "replace") for name in ("topic", "group"))
    return {f"{topic}@{group}": {str(of["queue_id"]): offset["offset"]}}


def _named(key: bytes, value: bytes) -> Any:
    of, entry = _fields_of(rocksdb_config.ENTRY_KEY, key), _fields_of(rocksdb_config.ENTRY, value)
    if of is None or entry is None or entry["serialization_type"] != rocksdb_config.JSON:
        return None
    parsed = parse(entry["content"])
    return None if parsed.problem else {of["name"].decode("utf-8", "replace"): parsed.value}


def _fields_of(schema: Schema, data: bytes) -> dict[str, Any] | None:
    """Fields of exactly these bytes; None if they do not match the schema."""
    try:
        found = schema.parse(data)
        whole = schema.build(found) == data
    except ConstructError:
        return None
    return {name: found[name] for name in found if name[0] != "_"} if whole else None


def _parsed(schema: Schema, data: bytes) -> dict[str, Any] | None:
    """`_fields_of` with texts as str, without lengths and separators."""
    found = _fields_of(schema, data)
    return found and _texts({name: value for name, value in found.items() if is_shown(name)})


def _texts(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v.decode("utf-8", "backslashreplace") if isinstance(v, bytes) else v for k, v in fields.items()}


def is_shown(name: str) -> bool:
    """Whether a record shows a field of a key or value: not lengths and separators."""
    return not name.startswith("before_") and not name.endswith("_length")


def _bytes(family: str, key: bytes, value: bytes) -> dict[str, Any]:
    return {"type": "rocksdb_entry", "column_family": family, "key": key.hex(), "value": value.hex()}


_STORE_TYPE = "storeType"
_KIND_OF = {kind.file: name for name, kind in KINDS.items()}
_ONE_FOR_ALL = "useSingleRocksDBForAllConfigs"


class ConfigForm(StrEnum):
    """Where topics, groups and offsets of groups are."""

    FILES = "files"
    SEPARATE = "separate databases"
    SINGLE = "one database"
    SECOND = "one database, version 2"


_DIRECTORY_NAMES: Mapping[ConfigForm, Mapping[str, str]] = {
    ConfigForm.SEPARATE: SEPARATE,
    ConfigForm.SINGLE: dict.fromkeys(SEPARATE, SINGLE),
    ConfigForm.SECOND: dict.fromkeys(SEPARATE, SECOND),
}


class InForce(NamedTuple):
    """The form that the next start reads.

    sure: an option says so, or no other form exists. databases: file → directory of the RocksDB that replaces it, even
    if missing or broken. others: existing directories of other forms.
    """

    form: ConfigForm
    sure: bool
    databases: dict[str, Path]
    others: tuple[str, ...] = ()


def in_force(config: Path, options: Mapping[str, str] | None = None) -> InForce:
    """The form used for a `config` directory, which need not exist, with these options of the broker."""
    there = {form: _databases(config, form) for form in _DIRECTORY_NAMES}
    found = [form for form, databases in there.items() if databases]
    asked = _asked_for(options or {})
    form = asked or max(found, key=lambda form: written_ns(there[form].values()), default=ConfigForm.FILES)
    others = {path.name for each in found if each is not form for path in there[each].values()}
    beside = bool(found) and any((config / name).is_file() for name in SEPARATE)
    sure = asked is not None or not (others or beside)
    # for the second version files are never read instead
    databases = _directories(config, asked) if asked is ConfigForm.SECOND else there.get(form, {})
    return InForce(form, sure, databases, tuple(sorted(others)))


def stand_ins(config: Path, options: Mapping[str, str] | None = None) -> dict[str, Path]:
    """File → RocksDB that a broker reads instead; only those that exist."""
    databases = in_force(config, options).databases
    return {name: path for name, path in databases.items() if is_rocksdb(path)}


def keeps_databases(layout: Layout) -> bool:
    """Whether a broker has each table in a RocksDB, existing or not. It imports a file that was written more often, but
    never that of LMQs, whatever enableLmq says (spec 5.4).
    """
    form = in_force(layout.config, layout.broker_config).form
    return form in (ConfigForm.SEPARATE, ConfigForm.SINGLE) or (form is ConfigForm.FILES and layout.queues_for_rocksdb)


def counter_of(value: Mapping[Any, Any]) -> int | None:
    """How often a table was written by its dataVersion; 0 without one; None for a value that no broker starts with."""
    version = value.get(DATA_VERSION.member, {})
    counter = version.get("counter", 0) if isinstance(version, dict) else None
    try:
        return None if counter is None else int(counter)
    except (TypeError, ValueError):
        return None


def in_one_table(value: Mapping[Any, Any]) -> dict[Any, Any]:
    """The content of lmqConsumerOffset.json in the form of consumerOffset.json: each group from the table in which a
    broker looks for it; the only offset of an LMQ group becomes that of queue 0.
    """
    tables = (value.get(name) for name in (consumer_offset.OFFSET_TABLE, LMQ_OFFSET_TABLE))
    own, lmq = (table if isinstance(table, dict) else {} for table in tables)
    rows = {key: row for key, row in own.items() if not _of_lmq_group(key)}
    rows |= {key: {0: offset} for key, offset in lmq.items() if _of_lmq_group(key)}
    rest = {key: inner for key, inner in value.items() if key != LMQ_OFFSET_TABLE}
    return {**rest, consumer_offset.OFFSET_TABLE: rows}


def _of_lmq_group(key: Any) -> bool:
    return str(key).rpartition("@")[2].startswith(LMQ_PREFIX)


def rows_of(path: Path, file: str) -> list[dict[str, Any]]:
    """Records in a RocksDB that belong to the table of a file. Raises Unsupported, Unreadable."""
    with RocksDb.open(path) as database:
        return [row for entry in read_entries(database) if entry.file == file for row in entry.records]


def table_of(path: Path, file: str) -> dict[str, Any]:
    """The whole content of the file that a RocksDB (one of three, or one for all) replaces: the JSON of every entry,
    queue ids as numbers, dataVersion if the database has it.

    Raises Unsupported, Unreadable, also for an entry that is not JSON.
    """
    table, *more = (one.member for one in KINDS[_KIND_OF[file]].tables)
    content: dict[str, Any] = {table: {}}
    with RocksDb.open(path) as database:
        for family in database.column_families:
            member = _member(path.name, family, file)
            for key, value in _items(database, family) if member else ():
                parsed = parse(value)
                if parsed.problem or not isinstance(parsed.value, dict):
                    raise Unreadable(f"an entry is not JSON: {parsed.problem}", path=path)
                name, entry = key.decode("utf-8", "surrogateescape"), parsed.value
                if member == DATA_VERSION.member:
                    content[member] = entry
                    continue
                if table == consumer_offset.OFFSET_TABLE:
                    entry = {int(queue): at for queue, at in entry.get(table, entry).items()}
                content.setdefault(member or table, {})[name] = entry
    if subscription_group.FORBIDDEN_TABLE in more:
        content.setdefault(subscription_group.FORBIDDEN_TABLE, {})
    return content


def _member(directory: str, family: str, file: str) -> str | None:
    """The member of a file to which the entries of a column family belong, None if none do."""
    if directory == SINGLE:
        single = FAMILIES.get(family)
        return single[1].member if single and single[0] == file else None
    members = [table.member for table in KINDS[_KIND_OF[file]].tables]
    found = {_MAIN: members[0], KV_DATA_VERSION: DATA_VERSION.member, FORBIDDEN: subscription_group.FORBIDDEN_TABLE}
    return found[family] if found.get(family) in members else None


def _asked_for(options: Mapping[str, str]) -> ConfigForm | None:
    """The form that these options ask for, None if they do not tell."""
    if options.get(CONFIG_VERSION, "").lower() == CONFIG_V2:
        return ConfigForm.SECOND
    store_type = options.get(_STORE_TYPE)
    if store_type is None:
        return None
    if store_type != ROCKSDB_STORE_TYPE:
        return ConfigForm.FILES
    single = options.get(_ONE_FOR_ALL)
    if single is None and CONFIG_VERSION not in options:
        return None
    return ConfigForm.SINGLE if (single or "").lower() == "true" else ConfigForm.SEPARATE


def _directories(config: Path, form: ConfigForm) -> dict[str, Path]:
    return {file: config / name for file, name in _DIRECTORY_NAMES[form].items()}


def _databases(config: Path, form: ConfigForm) -> dict[str, Path]:
    """Directories of a form if at least one is, or was, a RocksDB, else none."""
    places = _directories(config, form)
    there = any(is_rocksdb(path) or was_rocksdb(path) for path in places.values())
    return places if there else {}


def written_ns(paths: Iterable[Path]) -> int:
    """When a file in these directories was last written, in ns since 1970."""
    times = [
        file.stat().st_mtime_ns for path in set(paths) if path.is_dir() for file in path.iterdir() if file.is_file()
    ]
    return max(times, default=0)


assert set(SEPARATE) <= {kind.file for kind in KINDS.values()}


def transaction_is_open(path: Path, position: int) -> bool | None:
    """Whether the half message at a log position is kept for a check; None if the RocksDB at `path` does not exist.

    Raises Unreadable, Unsupported.
    """
    if not is_rocksdb(path):
        return None
    with RocksDb.open(path) as database:
        start = rocksdb_store.POSITION.build({"value": position})
        key, _ = next(database.items(rocksdb_store.TRANSACTION, start), (b"", b""))
        return key.startswith(start)


def transactions_kept(path: Path) -> dict[int, bytes]:
    """Log position that a half message is to have → its unique key, for all that are kept for a check. Raises
    Unreadable, Unsupported.
    """
    with RocksDb.open(path) as database:
        keys = [key for key, _ in database.items(rocksdb_store.TRANSACTION) if not rocksdb_store.is_text_key(key)]
    rows = map(rocksdb_store.TRANSACTION_KEY.parse, (key for key in keys if len(key) > _NUMBER_BYTES))
    return {int(row.physical_offset): row.name[1:].partition(b"@")[2] for row in rows}  # a topic contains no @


def timer_due(path: Path, unique_key: str) -> int | None:
    """When the timer of a message fires, in ms; None if the RocksDB at `path` has none.

    All entries are read, since they are ordered by time. Raises Unreadable, Unsupported.
    """
    if not unique_key or not is_rocksdb(path):
        return None
    wanted = utf8(unique_key)
    with RocksDb.open(path) as database:
        for key, _ in database.items(rocksdb_store.TIMER):
            if key.endswith(wanted) and not rocksdb_store.is_text_key(key):
                found = rocksdb_store.TIMER_KEY.parse(key)
                if found.unique_key == wanted:
                    return int(found.delay_time)
    return None


def read_whole(path: Path, stopped: Callable[[], str] = str) -> str:
    """Read all timers, transactions or POP records of `rocksdbstore/` or `kvStore/` to find unreadable ones; return why
    that was cut off, "" if it was not. Raises Unreadable, Unsupported, NoSpace.

    Entries of the index are not read: there may be as many as messages. path: of the RocksDB. stopped: called now and
    then, returns why to end, "" to go on.
    """
    with RocksDb.open(path) as database:
        for family in (rocksdb_store.TIMER, rocksdb_store.TRANSACTION, KV_STATE):
            keys, start = [b""], b""
            while keys and not stopped():
                keys, _ = database.stretch(family, start, _ROWS_AT_ONCE)
                start = keys[-1] + b"\0" if keys else start
    return stopped()


_ROWS_AT_ONCE = 1 << 12
"""Rows that are read at once."""


class TimersKept(NamedTuple):
    """The timers in a RocksDB, int64[n] each. due_ms: when each fires. queue_offset: where a broker continues to read
    the timer topic's queue. delivered_ms: time up to which timers were delivered, None if unknown. unread: the RocksDB
    cannot be read, its timers are unknown.
    """

    due_ms: Ints
    position: Ints
    size: Ints
    queue_offset: int = 0
    delivered_ms: int | None = None
    unread: bool = False

    def read_ms(self, now_ms: int) -> int:
        """Time from which on a broker that starts at `now_ms` delivers timers (spec 04, 4.10)."""
        if self.delivered_ms is None:
            return (now_ms - _LOOKED_BACK_MS) // 1000 * 1000
        return self.delivered_ms if self.delivered_ms > 0 else _NEVER_MS


_LOOKED_BACK_MS = 10_000
_NEVER_MS = 1 << 62


def timers_kept(path: Path) -> TimersKept | None:
    """All timers in the RocksDB at `path`, None if no broker ever kept one there. Takes some 100 bytes per timer.

    Raises Unreadable, Unsupported.
    """
    if not is_rocksdb(path) or not has_rows(path):
        return None
    rows: list[tuple[int, int, int]] = []
    marks: dict[bytes, int] = {}
    with RocksDb.open(path) as database:
        for key, value in database.items(rocksdb_store.TIMER):
            if rocksdb_store.is_text_key(key):
                if len(value) == rocksdb_store.POSITION.sizeof():
                    marks[key] = int(rocksdb_store.POSITION.parse(value).value)
            elif len(key) > _NUMBER_BYTES and len(value) == rocksdb_store.TIMER_VALUE.sizeof():
                found = rocksdb_store.TIMER_VALUE.parse(value)
                due = rocksdb_store.TIMER_KEY.parse(key).delay_time
                rows.append((int(due), int(found.physical_offset), int(found.size)))
    if not rows and not marks:
        return None
    due_ms, position, size = np.array(rows, np.int64).reshape(-1, 3).T
    offset = marks.get(rocksdb_store.TIMER_QUEUE_OFFSET, 0)
    return TimersKept(due_ms, position, size, offset, marks.get(rocksdb_store.TIMER_DELIVERED))


_NUMBER_BYTES = rocksdb_store.POSITION.sizeof()
