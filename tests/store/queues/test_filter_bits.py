"""The bit maps of consumequeue_ext against those that real brokers wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mqstore.formats.consume_queue_ext import UNIT, UNIT_BYTES_MIN
from mqstore.store.broker import topics
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.file_queue import MappedFileQueue
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import InvalidInput, Unsupported
from mqstore.store.log.message import Message
from mqstore.store.queues.filter_bits import BloomFilter, ConsumerFilter, bit_maps, consumer_filters, read_filters
from mqstore.store.search.store import StoreReader

from ...stores import config_set, truth, unpack
from ..broker.batches import batch_of
from ..choices import each_of, stores_where

WITH_EXT = stores_where(lambda t: t["config"].get("enableCalcFilterBitMap") == "true")


name = each_of(WITH_EXT)


@pytest.fixture
def root(name: str, tmp_path: Path) -> Path:
    return unpack(name, tmp_path)


@pytest.fixture
def bloom(name: str, root: Path) -> BloomFilter:
    return BloomFilter.from_config(BrokerConfig().with_set(config_set(name, root)))


def _json(root: Path) -> Any:
    return topics.loads((root / "config/consumerFilter.json").read_text("utf-8"))


def _units(root: Path) -> Iterator[tuple[str, Message, Any]]:
    """Each unit of consumequeue_ext that a queue names: the queue's topic, the message, the unit."""
    with StoreReader(root) as store:
        for summary in store.queue_summaries:
            ext = root / "consumequeue_ext" / summary.topic / str(summary.queue_id)
            with store.queues.open(summary.topic, summary.queue_id) as queue:
                for offset in range(summary.min_offset, summary.max_offset):
                    unit = queue.unit(offset)
                    assert unit is not None
                    if unit.ext_address is None:
                        continue
                    with MappedFileQueue.open(ext) as files:
                        head = files.read(unit.ext_address, UNIT_BYTES_MIN)
                        size = UNIT.parse(head + bytes(32)).size
                        found = UNIT.parse(files.read(unit.ext_address, size))
                    yield summary.topic, store.message_at(unit.physical_offset), found


def bit_map(filters: Sequence[ConsumerFilter], bloom: BloomFilter, properties: Mapping[str, str]) -> bytes:
    """The bit map of one message, as a broker makes it."""
    if not filters:
        return b""
    number = 0
    for one in filters:
        if one.where is not None and one.where.matches(properties):
            for at in one.positions:
                number |= 1 << at
    return number.to_bytes(bloom.bytes, "little")


def test_every_bit_map(name: str, root: Path, bloom: BloomFilter) -> None:
    filters = consumer_filters(_json(root), bloom)
    units = list(_units(root))
    assert sum(unit.bit_map_size > 0 for _, _, unit in units) > 100
    for topic, message, unit in units:
        wanted = bit_map(filters.get(topic, []), bloom, message.properties)
        assert unit.bit_map == wanted, message.unique_key
        assert unit.msg_store_time == message.store_timestamp
    of_sql = [(message, unit) for topic, message, unit in units if topic == "sql"]
    batch = batch_of([message.raw_properties for message, _ in of_sql])
    columns = bit_maps(filters["sql"], bloom, batch)
    assert [row.tobytes() for row in columns] == [unit.bit_map for _, unit in of_sql]


def test_what_a_broker_looks_at(name: str, root: Path, bloom: BloomFilter) -> None:
    """No message that a consumer received is held back; what is, does not pass."""
    filters = {one.group: one for one in consumer_filters(_json(root), bloom)["sql"]}
    received = {f"sql_{what}": found["selected"] for what, found in truth(name)["filters"].items()}
    held_back = 0
    for topic, message, unit in _units(root):
        if topic != "sql":
            continue
        for group, one in filters.items():
            may = one.may_pass(unit.bit_map, unit.msg_store_time)
            assert may or message.unique_key not in received[group]
            held_back += not may
            assert one.may_pass(b"", unit.msg_store_time)
            assert one.may_pass(unit.bit_map, one.born_ms)
    assert held_back > 100


def test_positions_are_those_in_the_file(root: Path, bloom: BloomFilter) -> None:
    [filters] = consumer_filters(_json(root), bloom).values()
    assert len(filters) == 4
    for one in filters:
        assert bloom.positions(one.group, one.topic) == one.positions


def test_a_bloom_filter_of_other_size_forgets_all(root: Path) -> None:
    assert consumer_filters(_json(root), BloomFilter.of()) == {}


@pytest.mark.parametrize(("rate", "consumers"), [(0, 8), (100, 8), (20, 0), (20, 10**9)])
def test_no_bloom_filter(rate: int, consumers: int) -> None:
    with pytest.raises(InvalidInput):
        BloomFilter.of(rate, consumers)


def _file(**changes: Any) -> Any:
    data = {
        "bloomFilterData": {"bitNum": 112, "bitPos": [1, 2, 200 % 112]},
        "bornTime": 1,
        "expression": "a = 1",
        "expressionType": "SQL92",
    }
    return {"filterDataByTopic": {"T": {"groupFilterData": {"G": data | changes}}}}


def test_filters_that_set_no_bits() -> None:
    bloom = BloomFilter.of()
    empty = bytes(bloom.bits // 8)
    for changes in ({"expression": "a ="}, {"expression": None}, {"expressionType": "OTHER"}):
        filters = consumer_filters(_file(**changes), bloom)["T"]
        assert bit_map(filters, bloom, {"a": "1"}) == empty
        assert not bit_maps(filters, bloom, batch_of([{"a": "1"}])).any()
    filters = consumer_filters(_file(), bloom)["T"]
    assert bit_map(filters, bloom, {"a": "1"}) != empty == bit_map(filters, bloom, {"a": "x"})
    assert bit_map([], bloom, {"a": "1"}) == b""
    assert bit_maps([], bloom, batch_of([{}])).shape == (1, 0)
    assert bit_maps(filters, bloom, batch_of([{"a": "1"}])).dtype == np.uint8


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"filterDataByTopic": 5}',
        '{"filterDataByTopic": {"T": []}}',
        '{"filterDataByTopic": {"T": {"groupFilterData": {"G": 7}}}}',
        '{"filterDataByTopic": {"T": {"groupFilterData": {"G": {"bloomFilterData": "x"}}}}}',
        json.dumps(_file(bloomFilterData={"bitNum": 112, "bitPos": [1, 2, -3]})),
        json.dumps(_file(bloomFilterData={"bitNum": 112, "bitPos": [1, 2, "x"]})),
    ],
)
def test_a_file_of_another_form(text: str) -> None:
    with pytest.raises(InvalidInput):
        consumer_filters(json.loads(text), BloomFilter.of())


@pytest.mark.parametrize("text", ["{}", '{"filterDataByTopic": {"T": {"groupFilterData": {"G": null}}}}'])
def test_a_file_without_filters(text: str) -> None:
    assert consumer_filters(json.loads(text), BloomFilter.of()) == {}


_WHOLE, _TORN = '{"filterDataByTopic":{}}', '{"filterDataByTo'


@pytest.mark.parametrize(
    ("main", "backup", "found"),
    [
        (None, None, {}),
        (_WHOLE, None, {"filterDataByTopic": {}}),
        (_WHOLE, _TORN, {"filterDataByTopic": {}}),
        (_TORN, _WHOLE, {"filterDataByTopic": {}}),
        ("", _WHOLE, {"filterDataByTopic": {}}),
        ("7", _WHOLE, {"filterDataByTopic": {}}),
        (None, _WHOLE, {"filterDataByTopic": {}}),
        ("null", _WHOLE, {}),
        ("[" * 100_000, _WHOLE, {"filterDataByTopic": {}}),
        (_TORN, None, {}),
        (_TORN, _TORN, None),
        (None, _TORN, None),
        ("", _TORN, None),
    ],
)
def test_the_backup_counts_where_a_broker_reads_it(
    main: str | None, backup: str | None, found: dict[str, object] | None, tmp_path: Path
) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "commitlog").mkdir()
    layout = Layout.open(tmp_path)
    for name, text in (("consumerFilter.json", main), ("consumerFilter.json.bak", backup)):
        if text is not None:
            (layout.config / name).write_text(text)
    if found is not None:
        assert read_filters(layout) == found
        return
    with pytest.raises(Unsupported, match="not the JSON of a broker"):
        read_filters(layout)
