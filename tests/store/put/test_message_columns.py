"""Messages as columns: constants, defaults, checksums of properties."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mqstore.formats.derive import Ragged
from mqstore.formats.message_properties import parse
from mqstore.formats.sys_flag import SysFlag
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import InvalidInput
from mqstore.store.put.bulk import append_columns
from mqstore.store.put.message_columns import columns_of as message_columns
from mqstore.store.put.new_message import NewMessage

from ..real_log import records_of
from .writing import NOW, TINY, messages, writer


def test_columns_with_constants_and_defaults(tmp_path: Path) -> None:
    with writer(tmp_path) as store:
        stored = store.append_columns({"topic": b"T", "body": Ragged.of([b"a", b"", b"c"]), "queue_id": 2, "flag": 7})
        assert len(append_columns(store, {"topic": b"T", "body": Ragged.of([])}).topic_id) == 0
    records = records_of(Layout.open(tmp_path, TINY))
    assert [(r.body, r.queue_id, r.flag, r.store_timestamp) for r in records] == [
        (body, 2, 7, NOW) for body in (b"a", b"", b"c")
    ]
    assert [row.physical_offset for row in stored.rows()] == [r.physical_offset for r in records]
    assert records[0].born_timestamp == NOW


def test_property_crc_on_request(tmp_path: Path) -> None:
    from mqstore.formats.message import MESSAGE
    from mqstore.formats.message_properties import crc_ok

    config = BrokerConfig({**TINY, "enabledAppendPropCRC": "true"})
    with writer(tmp_path, config=config) as store:
        store.append(NewMessage(b"T", b"a"))
        store.append(NewMessage(b"T", b"b", properties=b"a\1b"))
        store.append_columns(message_columns(messages(20)))
    records = records_of(Layout.open(tmp_path, config))
    assert [crc_ok(MESSAGE.build(record)) for record in records] == [True] * 22
    assert records[1].properties.startswith(b"a\1b\2__CRC32#\1")


@pytest.mark.parametrize(("version", "end"), [("4.3", b"\2"), ("5.1", b""), ("5.5", b"\2")])
def test_a_text_without_a_separator_at_its_end_gets_the_one_of_the_generation(
    version: str, end: bytes, tmp_path: Path
) -> None:
    """What `export` gives of a store of 5.1 comes without: alone among others it would be called torn."""
    texts = [b"a\1b\2", b"a\1b\2a\1b", b"", b"a\1b\2"]
    with writer(tmp_path, version) as store:
        store.append_columns({"topic": b"T", "body": Ragged.of([b""] * len(texts)), "properties": Ragged.of(texts)})
    found = [record.properties for record in records_of(Layout.open(tmp_path, TINY))]
    assert found == [b"a\1b\2", b"a\1b\2a\1b" + end, b"", b"a\1b\2"]


@pytest.mark.parametrize("value", [np.array([1.0, 2.0]), np.array([True, False]), np.array([1, 2], np.uint8), 3])
def test_whole_numbers_of_any_kind(value: object, tmp_path: Path) -> None:
    """As pandas gives them for a column that has holes."""
    with writer(tmp_path) as store:
        stored = store.append_columns({"topic": b"T", "body": Ragged.of([b"a", b"b"]), "flag": value})
    assert len(list(stored.rows())) == 2


@pytest.mark.parametrize("value", [np.array([1.5, 2.0]), np.array([np.nan, 1.0]), np.array([1 << 40, 0]), None, "7"])
def test_what_is_no_number_of_a_field(value: object, tmp_path: Path) -> None:
    with writer(tmp_path) as store, pytest.raises(InvalidInput, match="flag"):
        store.append_columns({"topic": b"T", "body": Ragged.of([b"a", b"b"]), "flag": value})


def test_a_half_message_that_was_written_again_names_the_first_one(tmp_path: Path) -> None:
    """Which has another number here, or did not come along."""
    named = [b"", b"a\x01b\2TRAN_PREPARED_QUEUE_OFFSET\x017\2", b"TRAN_PREPARED_QUEUE_OFFSET\x015\2c\x01d\2"]
    columns = {"topic": b"RMQ_SYS_TRANS_HALF_TOPIC", "body": Ragged.of([b"x"] * 3), "properties": Ragged.of(named)}
    with writer(tmp_path) as store:
        store.append_columns(columns | {"queue_offset": np.array([7, 8, 9])})
    records = records_of(Layout.open(tmp_path, TINY))
    assert [parse(r.properties).get("TRAN_PREPARED_QUEUE_OFFSET") for r in records] == [None, "0", "-1"]


_HALF = b"RMQ_SYS_TRANS_HALF_TOPIC"
_OP = b"RMQ_SYS_TRANS_OP_HALF_TOPIC"


def test_op_records_of_several_steps_name_the_half_messages_of_each(tmp_path: Path) -> None:
    """While the records of one step are on their way, the next one numbers its own behind them."""
    with writer(tmp_path) as store:
        for first in (10, 12):
            given = [first, first + 1, -1]
            columns = {"topic": Ragged.of([_HALF, _HALF, _OP]), "queue_offset": np.array([*given[:2], first // 2])}
            bodies = [b"", b"", b"%d,%d," % (first, first + 1)]
            store.append_ahead(columns | {"body": Ragged.of(bodies), "born_timestamp": NOW})
    found = [record.body for record in records_of(Layout.open(tmp_path, TINY)) if record.topic == _OP]
    assert found == [b"0,1,", b"2,3,"]


def test_check_points_of_a_queue_of_batches_stay_where_its_numbers_do(tmp_path: Path) -> None:
    """Each record there counts all of its messages."""
    batches = [
        NewMessage(b"B", b"", sys_flag=SysFlag.INNER_BATCH, properties=b"INNER_NUM\x013\2", queue_offset=3 * n)
        for n in range(2)
    ]
    fields = {"t": "B", "c": "g", "q": 0, "so": 3, "pt": NOW, "bn": "b", "it": 1, "n": 1, "bm": 0, "d": [0]}
    point = NewMessage(b"rmq_sys_REVIVE_LOG_c", json.dumps(fields).encode(), properties=b"TAGS\x01ck\2", queue_offset=0)
    with writer(tmp_path, "5.3") as store:
        store.append_columns(message_columns([*batches, point]))
        assert (store.copies.pop_records, store.queues.next_offsets["B", 0]) == (0, 6)
