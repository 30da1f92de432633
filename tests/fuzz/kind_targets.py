"""Targets of the kinds of files beside log, queues and index: config, databases, ext, batch queues."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from mqstore.cli.json_text import dumps
from mqstore.formats import (
    batch_consume_queue,
    dledger_index,
    rocksdb_consume_queue,
    rocksdb_store,
    sparse_consume_queue,
    tiered_index,
)
from mqstore.store.disk.checkpoint import TimerCheck
from mqstore.store.disk.file_queue import MappedFileQueue
from mqstore.store.log.commit_log import index_units, is_valid
from mqstore.store.output.escaped import DANGEROUS
from mqstore.store.queues.batches import BatchConsumeQueue, SparseUnits, sparse_units, summary_of
from mqstore.store.queues.ext import ExtUnits, ext_unit, ext_units
from mqstore.store.queues.filter_bits import BloomFilter, bit_maps, consumer_filters
from mqstore.store.queues.rocksdb import RocksDb
from mqstore.store.settings import parse
from mqstore.store.settings.read import FILES, read_config_file, summaries_of
from mqstore.store.settings.rocksdb import read_entries
from mqstore.store.tiered.segments import (
    index_items,
    items,
    odd_slots,
    open_index_files,
    open_segments,
    read_index,
    read_index_file,
)

from ..store.broker.batches import batch_of
from .file_targets import in_files
from .target import cut, files, target

_CONFIG_NAMES = tuple(sorted(FILES))


@target
def config_kinds(data: bytes) -> None:
    """A file of config/ by its number: its records and what is said of the folder."""
    if not data:
        return
    name = _CONFIG_NAMES[data[0] % len(_CONFIG_NAMES)]
    with files({name: data[1:], f"{name}.bak": data[: len(data) // 2]}) as root:
        found = read_config_file(root / name, FILES[name])
        for record in found.records():
            assert re.search(DANGEROUS, dumps(record)) is None
        assert found.problem is None or 0 <= found.problem.position < len(data)
        assert list(summaries_of(root))


@target
def config_text(data: bytes) -> None:
    """Broken JSON gives what stands before; the place of the problem is in the text."""
    found = parse.parse(data)
    assert 0 <= found.position <= len(data)
    assert found.problem or isinstance(found.value, dict)


@target
def filters(data: bytes) -> None:
    """consumerFilter.json: filters, and the bit map of a message."""
    parsed = parse.parse(data).value
    bloom = BloomFilter.of()
    for topic in consumer_filters(parsed if isinstance(parsed, dict) else {}, bloom).values():
        assert bit_maps(topic, bloom, batch_of([{"a": "1"}])).shape == (1, bloom.bits // 8)
        for one in topic:
            one.may_pass(data, 0)


@target
def ext(data: bytes) -> None:
    """Units of consumequeue_ext: every byte told once, each unit found by its place."""
    content = in_files("ext", data, 1)
    with files(content) as root, MappedFileQueue.open(root / "ext") as queue:
        told = 0
        for item in ext_units(queue):
            if isinstance(item, ExtUnits):
                told += int(item.columns.ints("size").sum())
                for at in item.position.tolist():
                    assert ext_unit(queue, at) is not None
            else:
                told += item.size
        assert told == sum(map(len, content.values()))


@target
def batch_queue(data: bytes) -> None:
    """A batch queue: its ends, a search by offset and by time."""
    content = in_files("queue", data, batch_consume_queue.UNIT_BYTES)
    with files(content) as root, MappedFileQueue.open(root / "queue") as stream:
        queue = BatchConsumeQueue("T", 0, stream)
        found = queue.summary()
        for _, units in queue.units(queue.first, queue.stop):
            assert len(units)
        for offset in (found.min_offset, found.max_offset, 0, 1 << 62):
            unit = queue.find(offset)
            assert unit is None or unit.msg_base_offset <= offset
        queue.offset_at(1_700_000_000_000)


@target
def sparse_queue(data: bytes) -> None:
    """A sparse queue: each byte that is not zero is in one unit or told as none."""
    content = in_files("queue", data, sparse_consume_queue.UNIT_BYTES)
    with files(content) as root, MappedFileQueue.open(root / "queue") as stream:
        told = 0
        for part in sparse_units(stream):
            if isinstance(part, SparseUnits):
                told += len(part.units) * sparse_consume_queue.UNIT_BYTES
            else:
                assert part.size > 0
                told += part.size
        assert told <= sum(file.size for file in stream.files)
        found = summary_of(stream)
        assert found.units * sparse_consume_queue.UNIT_BYTES + found.damaged_bytes <= told


@target
def dledger_units(data: bytes) -> None:
    """The index of a DLedger log: a number occurs once, a valid unit names itself."""
    content = in_files("index", data, dledger_index.UNIT_BYTES)
    with files(content) as root, MappedFileQueue.open(root / "index") as stream:
        last = -1
        for part in index_units(stream):
            assert int(part.number[0]) > last
            last = int(part.number[-1])
            assert (part.units["index"] == part.number)[is_valid(part)].all()


@target
def tiered_items(data: bytes) -> None:
    """A segment of the tiered index: no more items than there is room for."""
    with files({"segment": data}) as root, open_segments(root / "segment") as stream:
        index = read_index(stream, stream.files[0])
        found = sum(len(part.number) for part in items(stream, index))
        assert found <= index.room <= len(data) // tiered_index.ITEM_BYTES


@target
def tiered_index_items(data: bytes) -> None:
    """An index file of the tiered store that is not compacted: the same, numbers in their order."""
    with files({"1795475357513": data}) as root, open_index_files(root) as stream:
        index, last = read_index_file(stream, stream.files[0]), 0
        for part in index_items(stream, index):
            assert int(part.number[0]) > last
            last = int(part.number[-1])
        assert last <= index.items <= len(data) // tiered_index.ITEM_BYTES
        odd_slots(stream, index)


@target
def timer_check(data: bytes) -> None:
    """Any length."""
    found = TimerCheck.from_bytes(data)
    assert TimerCheck.from_bytes(found.to_bytes()) == found


class _Entries:
    """A database that has one entry in each family."""

    def __init__(self, path: str, families: tuple[str, ...], entry: tuple[bytes, bytes]) -> None:
        self.path = Path(path)
        self.column_families = families
        self._entry = entry

    def items(self, family: str) -> Iterator[tuple[bytes, bytes]]:
        """The entry."""
        yield self._entry


_DATABASES = (
    ("consumequeue", (rocksdb_consume_queue.UNITS, rocksdb_consume_queue.BOUNDS)),
    ("store", (rocksdb_store.TIMER, rocksdb_store.TRANSACTION, rocksdb_store.INDEX)),
    ("topics", ("default", "kvDataVersion")),
    ("subscriptionGroups", ("default", "kvDataVersion")),
    ("consumerOffsets", ("default", "kvDataVersion")),
    ("unknown", ("default",)),
)


@target
def rocksdb_entries(data: bytes) -> None:
    """Keys and values of every database that there is."""
    key, value = cut(data, 2)
    for path, families in _DATABASES:
        database: Any = _Entries(path, families, (key, value))
        for entry in read_entries(cast(RocksDb, database)):
            assert (entry.key, entry.value) == (key, value)
            for record in entry.records:
                assert re.search(DANGEROUS, dumps(record)) is None
