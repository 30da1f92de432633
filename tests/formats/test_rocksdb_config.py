"""Keys and values of the configuration in one RocksDB: real bytes both ways."""

from __future__ import annotations

from typing import Any

import pytest
from construct import Construct
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats import rocksdb_config as formats
from mqstore.formats.rocksdb_config import RecordPrefix, TableId

from ..stores import truth

ROWS = [
    (bytes.fromhex(key), bytes.fromhex(value))
    for key, value in truth("5.5.1-config-v2")["rocksdb"]["config/rdb"]["default"]
]
NAMES = st.binary(max_size=80)


def schemas_of(key: bytes) -> tuple[Construct[Any, Any], Construct[Any, Any]]:
    """What key and value of an entry are."""
    head = formats.HEAD.parse(key)
    if head.record_prefix == RecordPrefix.DATA_VERSION:
        return formats.VERSION_KEY, formats.VERSION
    if head.table_id in (TableId.CONSUMER_OFFSET, TableId.PULL_OFFSET):
        return formats.OFFSET_KEY, formats.OFFSET
    return formats.ENTRY_KEY, formats.ENTRY


@pytest.mark.parametrize(("key", "value"), ROWS, ids=[key.hex()[:16] for key, _ in ROWS])
def test_real_entries_are_read_and_built(key: bytes, value: bytes) -> None:
    for schema, data in zip(schemas_of(key), (key, value), strict=True):
        assert schema.build(schema.parse(data)) == data


def test_all_kinds_of_entries_are_there() -> None:
    heads = [formats.HEAD.parse(key) for key, _ in ROWS]
    assert {head.table_prefix for head in heads} == {1}
    kinds = {(TableId(head.table_id), RecordPrefix(head.record_prefix)) for head in heads}
    written = (TableId.CONSUMER_OFFSET, TableId.PULL_OFFSET, TableId.TOPIC)
    assert kinds == {(table, kind) for table in written for kind in RecordPrefix}


def test_a_position_as_a_broker_writes_it() -> None:
    """`rg` has read TopicA-1 up to 6: the bytes of a real 5.5.1."""
    key, value = formats.position_key(b"rg", b"TopicA", 1), formats.position_value(6)
    assert (key.hex(), value.hex()) == ("0100010200027267010006546f706963410100000001", "0000000000000006")
    assert (key, value) in ROWS


@given(NAMES, NAMES, st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1))
def test_any_position(group: bytes, topic: bytes, queue_id: int, offset: int) -> None:
    found = formats.OFFSET_KEY.parse(formats.position_key(group, topic, queue_id))
    assert (found.group, found.topic, found.queue_id) == (group, topic, queue_id)
    assert formats.OFFSET.parse(formats.position_value(offset)).offset == offset
