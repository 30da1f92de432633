"""Every byte vector of the specification through the schemas, both ways, and its arithmetic."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import construct as c
import numpy as np
import pytest

from mqstore.formats import (
    batch_consume_queue,
    blank,
    checkpoint,
    consume_queue,
    consume_queue_ext,
    dledger,
    index_file,
    message_properties,
    sparse_consume_queue,
    timer_check,
    timer_log,
    timer_wheel,
)
from mqstore.formats.derive import Ragged, decode, dtype_of, encode, spans
from mqstore.formats.hashing import crc31, index_hash, java_hash, tags_code
from mqstore.formats.message import MAGIC_V1, MAGIC_V2, MESSAGE, SysFlag
from mqstore.formats.message_id import unique_key
from mqstore.formats.quick import message_id, parse_message_id

VECTORS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("vectors.json").read_bytes())

#: kind → schema, name in vectors.json → ours
FIXED: dict[str, tuple[c.Construct[Any, Any], dict[str, str]]] = {
    "blank": (blank.BLANK, {"total": "total_size", "magic": "magic_code"}),
    "cq": (consume_queue.UNIT, {"phyOffset": "physical_offset", "size": "size", "tagsCode": "tags_code"}),
    "bcq": (
        batch_consume_queue.UNIT,
        {
            "phyOffset": "physical_offset",
            "size": "size",
            "tagsCode": "tags_code",
            "storeTime": "store_time",
            "msgBaseOffset": "msg_base_offset",
            "batchSize": "batch_size",
            "compactedOffset": "compacted_offset",
            "reserved": "reserved",
        },
    ),
    "index_header": (
        index_file.HEADER,
        {
            "beginTs": "begin_timestamp",
            "endTs": "end_timestamp",
            "beginPhy": "begin_physical_offset",
            "endPhy": "end_physical_offset",
            "hashSlotCount": "hash_slot_count",
            "indexCount": "index_count",
        },
    ),
    "index_item": (
        index_file.ITEM,
        {"keyHash": "key_hash", "phyOffset": "physical_offset", "timeDiff": "time_diff", "prevIndex": "previous"},
    ),
    "checkpoint": (
        checkpoint.FIELDS,
        {
            "physicMsgTimestamp": "physic_msg_timestamp",
            "logicsMsgTimestamp": "logics_msg_timestamp",
            "indexMsgTimestamp": "index_msg_timestamp",
            "masterFlushedOffset": "master_flushed_offset",
            "confirmPhyOffset": "confirm_phy_offset",
            "logicsPhysicalOffset": "logics_physical_offset",
        },
    ),
    "timerlog": (
        timer_log.UNIT,
        {
            "size": "size",
            "prevPos": "prev_pos",
            "magic": "magic",
            "currWriteTime": "curr_write_time",
            "delayedTime": "delayed_time",
            "offsetPy": "offset_py",
            "sizePy": "size_py",
            "topicHash": "hash_code_of_real_topic",
            "reserved": "reserved",
        },
    ),
    "timerblank": (timer_log.BLANK, {"size": "size", "zero": "prev_pos", "magic": "magic"}),
    "slot": (
        timer_wheel.SLOT,
        {"time": "time", "firstPos": "first_pos", "lastPos": "last_pos", "num": "num", "magic": "magic"},
    ),
    "timercheck": (
        timer_check.FIELDS,
        {
            "lastReadTimeMs": "last_read_time_ms",
            "lastTimerLogFlushPos": "last_timer_log_flush_pos",
            "lastTimerQueueOffset": "last_timer_queue_offset",
            "masterTimerQueueOffset": "master_timer_queue_offset",
            "stateVersion": "state_version",
            "timestamp": "timestamp",
            "counter": "counter",
        },
    ),
}
RECORD = {
    "bodyCRC": "body_crc",
    "queueId": "queue_id",
    "flag": "flag",
    "queueOffset": "queue_offset",
    "physicalOffset": "physical_offset",
    "sysFlag": "sys_flag",
    "bornTimestamp": "born_timestamp",
    "bornPort": "born_host.port",
    "storeTimestamp": "store_timestamp",
    "storePort": "store_host.port",
    "reconsumeTimes": "reconsume_times",
    "preparedTransactionOffset": "prepared_transaction_offset",
}
RECORD_BYTES: dict[str, tuple[str, Callable[[str], bytes]]] = {
    "bornIp": ("born_host.ip", bytes.fromhex),
    "storeIp": ("store_host.ip", bytes.fromhex),
    "bodyHex": ("body", bytes.fromhex),
    "topic": ("topic", str.encode),
    "properties": ("properties", str.encode),
}
DLEDGER = {
    "magic": "magic",
    "size": "size",
    "index": "index",
    "term": "term",
    "pos": "pos",
    "channel": "channel",
    "chainCrc": "chain_crc",
    "bodyCrc": "body_crc",
    "bodyLen": "body_length",
}
EXT = {"size": "size", "tagsCode": "tags_code", "msgStoreTime": "msg_store_time", "bitMapSize": "bit_map_size"}


def of_kind(*kinds: str) -> list[Any]:
    return [pytest.param(v, id=v["name"]) for v in VECTORS if v["kind"] in kinds]


def at(record: Any, path: str) -> Any:
    """A member of a construct Container by dotted path."""
    for name in path.split("."):
        record = record[name]
    return record


def tree(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted paths to nested dicts, as construct builds from."""
    nested: dict[str, Any] = {}
    for path, value in flat.items():
        *outer, name = path.split(".")
        inner = nested
        for part in outer:
            inner = inner.setdefault(part, {})
        inner[name] = value
    return nested


def test_every_kind_is_covered() -> None:
    covered = {*FIXED, "record", "dledger", "cqext", "index_slots"}
    assert {vector["kind"] for vector in VECTORS} == covered
    assert len(VECTORS) == 47


@pytest.mark.parametrize("vector", of_kind(*FIXED))
def test_fixed_layouts(vector: dict[str, Any]) -> None:
    schema, names = FIXED[vector["kind"]]
    data = bytes.fromhex(vector["hex"])[: schema.sizeof()]
    assert set(vector["fields"]) == set(names)
    ours = {names[name]: value for name, value in vector["fields"].items()}
    parsed = schema.parse(data)
    assert {name: parsed[name] for name in ours} == ours
    assert schema.build(ours) == data
    record = np.frombuffer(data, dtype_of(schema))[0]
    assert {name: int(record[name]) for name in ours} == ours
    assert {span.path: span.value for span in spans(schema, data)} == ours
    columns = {name: np.array([value], np.int64) for name, value in ours.items()}
    assert encode(schema, columns).buffer.tobytes() == data


@pytest.mark.parametrize("vector", of_kind("blank", "timercheck", "checkpoint"))
def test_fixed_layouts_hold_the_whole_vector_or_a_filler(vector: dict[str, Any]) -> None:
    """Behind the 8 bytes of a BLANK anything may stand; nothing else has a rest."""
    schema, _ = FIXED[vector["kind"]]
    data = bytes.fromhex(vector["hex"])
    if vector["kind"] == "blank":
        assert len(data) == vector["fields"]["total"]
    else:
        assert len(data) == schema.sizeof()


@pytest.mark.parametrize("vector", of_kind("record"))
def test_records(vector: dict[str, Any]) -> None:
    data, fields = bytes.fromhex(vector["hex"]), vector["fields"]
    assert set(fields) == {*RECORD, *RECORD_BYTES, "version"}
    ours = {RECORD[name]: fields[name] for name in RECORD}
    ours |= {path: convert(fields[name]) for name, (path, convert) in RECORD_BYTES.items()}
    ours["magic_code"] = {1: MAGIC_V1, 2: MAGIC_V2}[fields["version"]]
    parsed = MESSAGE.parse(data)
    assert parsed.total_size == len(data)
    assert {path: at(parsed, path) for path in ours} == ours
    assert MESSAGE.build(tree(ours)) == data
    columns = decode(MESSAGE, np.frombuffer(data, np.uint8), np.zeros(1, np.int64))
    assert columns.ok[0]
    assert columns.ends[0] == len(data)
    assert {path: columns[path][0] for path in ours} == ours
    as_columns = {
        path: Ragged.of([value]) if isinstance(value, bytes) else np.array([value]) for path, value in ours.items()
    }
    assert encode(MESSAGE, as_columns).buffer.tobytes() == data
    taken = {span.path: span.value for span in spans(MESSAGE, data)}
    assert {path: taken[path] for path in ours if ours[path] != b""} == {
        path: value for path, value in ours.items() if value != b""
    }


@pytest.mark.parametrize("vector", of_kind("record"))
def test_checksums_of_records(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    record = MESSAGE.parse(data)
    assert record.body_crc == (crc31(record.body) if record.body else 0)
    expected = True if message_properties.CRC32.encode() in record.properties else None
    assert message_properties.crc_ok(data) is expected
    if expected:
        before = data[: -message_properties.CRC_ITEM_BYTES]
        assert before + message_properties.crc_item(before) == data
    if record.sys_flag & 0x701 == SysFlag.COMPRESSED | SysFlag.ZSTD:
        assert record.body.startswith(bytes.fromhex("28b52ffd"))


@pytest.mark.parametrize("vector", of_kind("dledger"))
def test_dledger_entries(vector: dict[str, Any]) -> None:
    """The vector is the head of an entry; its body is one record."""
    data, fields = bytes.fromhex(vector["hex"]), vector["fields"]
    body = bytes(fields["bodyLen"])
    ours = {DLEDGER[name]: value for name, value in fields.items()}
    parsed = dledger.ENTRY.parse(data + body)
    assert {name: parsed[name] for name in ours} == ours
    assert dledger.ENTRY.build({**ours, "body": body}) == data + body
    assert len(data) == dledger.HEADER_BYTES


@pytest.mark.parametrize("vector", of_kind("cqext"))
def test_ext_units(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    ours = {EXT[name]: value for name, value in vector["fields"].items()}
    parsed = consume_queue_ext.UNIT.parse(data)
    assert {name: parsed[name] for name in ours} == ours
    assert consume_queue_ext.UNIT.build({**ours, "bit_map": b""}) == data
    assert len(data) == consume_queue_ext.UNIT_BYTES_MIN
    with_map = consume_queue_ext.UNIT.build({**ours, "bit_map": b"\x80" * 8})
    assert consume_queue_ext.UNIT.parse(with_map).size == len(with_map) == 28


@pytest.mark.parametrize("vector", of_kind("index_slots"))
def test_index_slots(vector: dict[str, Any]) -> None:
    data, fields = bytes.fromhex(vector["hex"]), vector["fields"]
    slots = c.Array(len(fields), index_file.SLOT)
    values = [fields[f"s{i}"] for i in range(len(fields))]
    assert [slot.item for slot in slots.parse(data)] == values
    assert slots.build([{"item": value} for value in values]) == data
    assert np.frombuffer(data, dtype_of(index_file.SLOT))["item"].tolist() == values


def test_ext_address() -> None:
    """Vector cq_unit_ext_addr: the unit at place 20 of the stream (spec 2.3)."""
    address = next(v for v in VECTORS if v["name"] == "cq_unit_ext_addr")["fields"]["tagsCode"]
    assert address == 20 + consume_queue_ext.ADDRESS_BASE
    assert address <= consume_queue.EXT_ADDRESS_MAX


def test_sparse_end() -> None:
    """Vector compaction_cq_end (spec 2.8)."""
    data = bytes.fromhex(next(v for v in VECTORS if v["name"] == "compaction_cq_end")["hex"])
    assert sparse_consume_queue.UNIT.build(sparse_consume_queue.END) == data


def test_magic_codes() -> None:
    """Spec README, "Magic constants"."""
    key = (1880681586 + 8) & 0xFFFFFFFF
    assert MAGIC_V1 ^ key == 0xAABBCCDD
    assert blank.MAGIC_BLANK ^ key == 0xBBCCDDEE
    signed = [magic - (1 << 32) for magic in (MAGIC_V1, MAGIC_V2, blank.MAGIC_BLANK)]
    assert signed == [-626843481, -626843477, -875286124]


def test_sizes_of_default_files() -> None:
    """Spec README, "Default sizes"."""
    assert index_file.file_size(5_000_000, 20_000_000) == 420_000_040
    assert index_file.items_of(420_000_040, 5_000_000) == 20_000_000
    assert 300_000 * consume_queue.UNIT_BYTES == 6_000_000
    assert 300_000 * batch_consume_queue.UNIT_BYTES == 13_800_000
    assert timer_wheel.FILE_BYTES == 38_707_200
    last = 104_857_600 - (104_857_600 - timer_log.BLANK_BYTES) % timer_log.UNIT_BYTES
    last -= timer_log.BLANK_BYTES + timer_log.UNIT_BYTES
    assert last == timer_log.UNIT_BYTES * 2_016_491


def test_hashes_of_the_examples() -> None:
    """Spec 2.3, 2.7, 3.2, 4.6."""
    assert tags_code("TagA") == 0x27A807
    assert tags_code("TB") == 2670
    assert tags_code("") == tags_code(None) == 0
    assert java_hash("polygenelubricants") == -(1 << 31)
    assert index_hash("TopicA", "k1") == 1903240649
    assert (1903240649 % 5_000_000, 1903240649 % 10) == (3240649, 9)
    assert index_hash("TopicA", "ck") == 1903240839
    assert index_hash("logs", "T#TagB") == 622242773
    assert java_hash("TopicT") == -1784167131
    assert crc31(b"hello") == 0x3610A686
    assert crc31(b"7-7000\n8-8000\n") == 773307083


def test_hash_without_an_absolute_value_becomes_zero() -> None:
    """|-2^31| does not fit: the item gets 0 (spec 3.2)."""
    text = "polygenelubricants"
    for cut in range(len(text)):
        topic, key = text[:cut], text[cut:]
        assert index_hash(topic, key) == abs(java_hash(f"{topic}#{key}"))
    # "#" is 35; a topic and key whose joined hash is -2^31, found by solving for the first unit
    start = (-(1 << 31) - java_hash("\0#k")) * pow(31 * 31, -1, 1 << 32) % (1 << 32)
    digits = [start % 31]
    while start := start // 31:
        digits.append(start % 31)
    topic = "".join(chr(digit) for digit in reversed(digits))
    assert java_hash(f"{topic}#k") == -(1 << 31)
    assert index_hash(topic, "k") == 0


def test_ids_of_the_examples() -> None:
    """Spec 1.8."""
    ip = bytes([192, 168, 0, 9])
    assert message_id(ip, 10911, 0xDD) == "C0A8000900002A9F00000000000000DD"
    assert parse_message_id("C0A8000900002A9F00000000000000AE") == (ip, 10911, 174)
    v6 = bytes.fromhex("20010DB8000000000000000000000002")
    assert message_id(v6, 10911, 0x121) == v6.hex().upper() + "00002A9F0000000000000121"
    client = bytes.fromhex("FD000000000000000000000000000002")
    key = "FD000000000000000000000000000002167A5FFD2B276382A76D0000"
    assert unique_key(client, 5754, 0x5FFD2B27, 1669506925, 0) == key
    month = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp() * 1000)
    assert month + 1669506925 == 1795160706925
