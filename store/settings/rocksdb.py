"""What the entries of a broker's RocksDB mean: queue units, configuration, timers, or bytes.

A database is told by its column families and the name of its directory (spec 02, 2.10; 04, 4.10;
05, 5.4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

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
from ...formats.json_table import DATA_VERSION, JsonTable
from ...formats.kinds import KINDS
from ..queues.rocksdb import RocksDb
from .parse import parse
from .read import entries

Schema: TypeAlias = "Construct[Any, Any]"
_DATA_VERSION = "kvDataVersion"
_TOPICS, _GROUPS, _OFFSETS = (
    KINDS[name].file for name in ("topics", "subscription-group", "consumer-offset")
)
SEPARATE = {_TOPICS: "topics", _GROUPS: "subscriptionGroups", _OFFSETS: "consumerOffsets"}
"""Of each file of `config/` the RocksDB that stands in its place."""
SINGLE, SECOND = "metadata", "rdb"
"""One for all of them: of useSingleRocksDBForAllConfigs, of configManagerVersion=v2."""
POSITIONS = "consumerOffset"
"""The column family of the one database that has positions of groups."""
_CONFIG: dict[str, tuple[str, JsonTable]] = {
    "topics": (_TOPICS, topics.TABLES[0]),
    "subscriptionGroups": (_GROUPS, subscription_group.TABLES[0]),
    "consumerOffsets": (_OFFSETS, consumer_offset.TABLES[0]),
}
"""Directory in `config/` → the file that it stands for, and the table whose entries it has."""
FAMILIES: dict[str, tuple[str, JsonTable]] = {
    "topic": (_TOPICS, topics.TABLES[0]),
    "subscriptionGroup": (_GROUPS, subscription_group.TABLES[0]),
    POSITIONS: (_OFFSETS, consumer_offset.TABLES[0]),
    "topicVersion": (_TOPICS, DATA_VERSION),
    "subscriptionGroupVersion": (_GROUPS, DATA_VERSION),
    "consumerOffsetVersion": (_OFFSETS, DATA_VERSION),
}
"""The same for the column families of the one database."""


class Entry(NamedTuple):
    """One entry with the records that it stands for, and the schemas of its bytes, if any.

    file: of `config/`, whose table it belongs to, "" for none.
    """

    family: str
    key: bytes
    value: bytes
    records: tuple[dict[str, Any], ...]
    key_schema: Schema | None = None
    value_schema: Schema | None = None
    file: str = ""


def read_entries(database: RocksDb) -> Iterator[Entry]:
    """All entries of all column families, in order of their keys. Raises Unreadable."""
    for family in database.column_families:
        reader = _reader(database, family)
        for key, value in database.items(family):
            found = reader(key, value)
            if found is None:
                found = Entry(family, key, value, (_bytes(family, key, value),))
            yield found


def as_bytes(database: RocksDb) -> Iterator[Entry]:
    """The same as plain bytes, whatever they mean. Raises Unreadable."""
    for family in database.column_families:
        for key, value in database.items(family):
            yield Entry(family, key, value, (_bytes(family, key, value),))


_Reader = Callable[[bytes, bytes], Entry | None]


def _reader(database: RocksDb, family: str) -> _Reader:
    """What reads the entries of a family; it answers None for what it does not know."""
    families = set(database.column_families)
    if rocksdb_consume_queue.BOUNDS in families:
        if family == rocksdb_consume_queue.UNITS:
            return _fields(
                family,
                "rocksdb_queue_unit",
                rocksdb_consume_queue.UNIT_KEY,
                rocksdb_consume_queue.UNIT,
            )
        return _bound
    if {rocksdb_store.TIMER, rocksdb_store.TRANSACTION} <= families:
        return _store(family) if family in _SCHEMAS else _unknown
    name = database.path.absolute().name
    if name == pop.KV_STORE and family == pop.KV_STATE:
        return _given_out
    if name in _CONFIG and family in (_OWN, _DATA_VERSION):
        file, table = _CONFIG[name]
        return _config(family, name, file, DATA_VERSION if family == _DATA_VERSION else table)
    if name == SINGLE and family in FAMILIES:
        return _config(family, name, *FAMILIES[family])
    return _second if name == SECOND and family == _OWN else _unknown


_OWN = "default"
_SCHEMAS: dict[str, tuple[str, Schema, Schema]] = {
    rocksdb_store.TIMER: ("rocksdb_timer", rocksdb_store.TIMER_KEY, rocksdb_store.TIMER_VALUE),
    rocksdb_store.TRANSACTION: (
        "rocksdb_transaction",
        rocksdb_store.TRANSACTION_KEY,
        rocksdb_store.TRANSACTION_VALUE,
    ),
    rocksdb_store.INDEX: ("rocksdb_index", rocksdb_store.INDEX_KEY, rocksdb_store.INDEX_VALUE),
}


def _store(family: str) -> _Reader:
    """Reads `rocksdbstore/`: entries, and rows that tell how far they go."""
    fields = _fields(family, *_SCHEMAS[family])

    def read(key: bytes, value: bytes) -> Entry | None:
        if rocksdb_store.is_text_key(key):
            position = _parsed(rocksdb_store.POSITION, value)
            if position is None:
                return None
            head = {"type": "rocksdb_position", "column_family": family, "name": key.decode()}
            record = {**head, **position}
            return Entry(family, key, value, (record,), None, rocksdb_store.POSITION)
        return fields(key, value) if family != rocksdb_store.INDEX else _index(key, value, fields)

    return read


def _index(key: bytes, value: bytes, fields: _Reader) -> Entry | None:
    """An index item: the name in its key is taken apart."""
    found = fields(key, value)
    if found is None:
        return None
    name = rocksdb_store.index_name(rocksdb_store.INDEX_KEY.parse(key).name)
    if name is None:
        return None
    (record,) = found.records
    del record["name"]
    texts = {
        field: part.decode("utf-8", "backslashreplace") if isinstance(part, bytes) else part
        for field, part in name._asdict().items()
    }
    return found._replace(records=({**record, **texts},))


def _unknown(key: bytes, value: bytes) -> None:
    return None


def _fields(family: str, record_type: str, key_schema: Schema, value_schema: Schema) -> _Reader:
    """Reads entries whose key and value are schemas."""

    def read(key: bytes, value: bytes) -> Entry | None:
        fields = (_parsed(key_schema, key), _parsed(value_schema, value))
        if fields[0] is None or fields[1] is None:
            return None
        record = {"type": record_type, **fields[0], **fields[1]}
        return Entry(family, key, value, (record,), key_schema, value_schema)

    return read


def _bound(key: bytes, value: bytes) -> Entry | None:
    """First and last entry of a queue, and how far the log was dispatched."""
    named = _parsed(rocksdb_consume_queue.BOUND_KEY, key)
    checkpoint = rocksdb_consume_queue.CHECKPOINT_TOPIC.decode()
    whole = named is not None and named["topic"] == checkpoint
    record_type = "rocksdb_dispatched" if whole else "rocksdb_queue_bound"
    schema = rocksdb_consume_queue.CHECKPOINT if whole else rocksdb_consume_queue.BOUND
    read = _fields(
        rocksdb_consume_queue.BOUNDS, record_type, rocksdb_consume_queue.BOUND_KEY, schema
    )
    return read(key, value)


def _config(family: str, directory: str, file: str, table: JsonTable) -> _Reader:
    """Reads entries that are a name and the JSON of what it names."""

    def read(key: bytes, value: bytes) -> Entry | None:
        parsed = parse(value)
        if parsed.problem:
            return None
        found: Any = parsed.value
        if table is not DATA_VERSION:
            # groups' offsets stand one level deeper than in the file
            inner = found.get(table.member, found) if table.value is not None else found
            found = {key.decode("utf-8", "replace"): inner}
        records = tuple(entries(table, found, {"file": directory}))
        return Entry(family, key, value, records, file=file)

    return read


def _given_out(key: bytes, value: bytes) -> Entry | None:
    """A message that a POP consumer has."""
    head, fields = _fields_of(pop.KV_KEY, key), pop.parse_kept(value)
    if head is None or fields is None:
        return None
    del head["name"]
    record = {"type": "rocksdb_pop", **head, **fields}
    return Entry(pop.KV_STATE, key, value, (record,), pop.KV_KEY)


_SECOND: dict[int, tuple[str, JsonTable]] = {
    rocksdb_config.TableId.CONSUMER_OFFSET: (_OFFSETS, consumer_offset.TABLES[0]),
    rocksdb_config.TableId.PULL_OFFSET: (_OFFSETS, consumer_offset.TABLES[1]),
    rocksdb_config.TableId.TOPIC: (_TOPICS, topics.TABLES[0]),
    rocksdb_config.TableId.SUBSCRIPTION_GROUP: (_GROUPS, subscription_group.TABLES[0]),
}


def _second(key: bytes, value: bytes) -> Entry | None:
    """An entry of the database of configManagerVersion=v2."""
    head = _fields_of(rocksdb_config.HEAD, key[: rocksdb_config.HEAD.sizeof()])
    if head is None or head["table_id"] not in _SECOND:
        return None
    file, table = _SECOND[head["table_id"]]
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
    return Entry(_OWN, key, value, records, *schemas, file)


def _version(value: bytes) -> Any:
    fields = _fields_of(rocksdb_config.VERSION, value)
    if fields is None:
        return None
    names = {"state_version": "stateVersion", "timestamp": "timestamp", "counter": "counter"}
    return {names[name]: number for name, number in fields.items()}


def _offset(key: bytes, value: bytes) -> Any:
    """As the file has it: topic@group → queue → offset."""
    of, offset = (
        _fields_of(rocksdb_config.OFFSET_KEY, key),
        _fields_of(rocksdb_config.OFFSET, value),
    )
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
    """Fields of exactly these bytes; None where they are not of this schema."""
    try:
        found = schema.parse(data)
        whole = schema.build(found) == data
    except ConstructError:
        return None
    return {name: found[name] for name in found if name[0] != "_"} if whole else None


def _parsed(schema: Schema, data: bytes) -> dict[str, Any] | None:
    """The same, texts as str, without lengths and separators."""
    found = _fields_of(schema, data)
    return found and {
        name: value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
        for name, value in found.items()
        if is_shown(name)
    }


def is_shown(name: str) -> bool:
    """Whether a record has a field of a key or value: not of lengths and separators."""
    return not name.startswith("before_") and not name.endswith("_length")


def _bytes(family: str, key: bytes, value: bytes) -> dict[str, Any]:
    return {
        "type": "rocksdb_entry",
        "column_family": family,
        "key": key.hex(),
        "value": value.hex(),
    }
