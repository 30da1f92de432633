"""Writing consumequeue_ext: bit maps of real stores, ends of files, what cannot be gone on with.

That the bytes are those of a broker is tested in tests/interop/test_ext.py.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from mqstore.formats.consume_queue_ext import ADDRESS_BASE, END, END_OF_FILE
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.file_queue import MappedFileQueue
from mqstore.store.errors import Refused, Unsupported
from mqstore.store.log.batch import Batch, messages
from mqstore.store.put.message_columns import columns_of
from mqstore.store.put.new_message import NewMessage
from mqstore.store.put.writer import StoreWriter, WriterOptions
from mqstore.store.queues.ext import ExtUnits, ext_units
from mqstore.store.search.store import StoreReader
from tests.stores import config_set, unpack

SIZES = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "400",
    "enableConsumeQueueExt": "true",
    "mappedFileSizeConsumeQueueExt": "130",
}


def config(**more: str) -> BrokerConfig:
    return BrokerConfig().with_set([f"{k}={v}" for k, v in (SIZES | more).items()])


def write(root: Path, new: list[NewMessage], settings: BrokerConfig, **options: Any) -> None:
    with StoreWriter.open(root, settings, WriterOptions(**options)) as writer:
        writer.append_columns(columns_of(new))
        writer.sync()


def units(root: Path, topic: str, size: int, queue_id: int = 0) -> list[tuple[int, ...]]:
    """(position, tags code, time, bit map) of each unit of a queue."""
    found: list[Any] = []
    with MappedFileQueue.open(root / "consumequeue_ext" / topic / str(queue_id), size) as files:
        for part in ext_units(files):
            if isinstance(part, ExtUnits):
                columns = part.columns
                found += zip(
                    part.position.tolist(),
                    columns.ints("tags_code").tolist(),
                    columns.ints("msg_store_time").tolist(),
                    columns.ragged("bit_map").tolist(),
                    strict=True,
                )
    return found


def test_bit_maps_of_a_real_store(tmp_path: Path) -> None:
    name = "4.9.7-cqext"
    theirs, ours = unpack(name, tmp_path), tmp_path / "ours"
    settings = BrokerConfig().with_set([item for item in config_set(name, theirs) if not item.startswith("storePath")])
    size = settings.size("mappedFileSizeConsumeQueueExt")[0]
    with StoreReader(theirs) as store:
        batches = (item for item in store.log.scan() if isinstance(item, Batch))
        sent = [message for batch in batches for message in messages(batch)]
    new = [
        NewMessage(
            m.raw_topic,
            m.stored_body,
            queue_id=m.queue_id,
            sys_flag=m.sys_flag,
            properties=m.raw_properties,
            store_timestamp=m.store_timestamp,
        )
        for m in sent
    ]
    write(ours, [NewMessage(b"first", b"")], settings, as_broker="4.9")
    shutil.copy(theirs / "config" / "consumerFilter.json", ours / "config")
    write(ours, new, settings)
    queues = {(m.topic, m.queue_id) for m in sent}
    compared = 0
    for topic, queue_id in queues:
        wanted = units(theirs, topic, size, queue_id)
        assert units(ours, topic, size, queue_id) == wanted, (topic, queue_id)
        compared += len([unit for unit in wanted if unit[3]])
    assert compared > 100


def test_one_by_one_and_by_columns(tmp_path: Path) -> None:
    """Queue units name the units of ext; a file without room ends with a mark."""
    new = [NewMessage(b"T", b"x", properties=b"TAGS\x01a\x02", store_timestamp=n + 1) for n in range(20)]
    write(tmp_path / "columns", new, config())
    with StoreWriter.open(tmp_path / "single", config()) as writer:
        for message in new:
            writer.append(message)
        writer.sync()
    both = [units(tmp_path / way, "T", 130) for way in ("columns", "single")]
    assert both[0] == both[1]
    assert [position for position, *_ in both[0]] == [n // 6 * 130 + n % 6 * 20 for n in range(20)]
    with StoreReader(tmp_path / "single") as store, store.queues.open("T", 0) as queue:
        for number, (position, *_) in enumerate(both[0]):
            unit = queue.unit(number)
            assert unit is not None and unit.tags_code == position + ADDRESS_BASE
            assert unit.ext_address == position
    first = tmp_path / "single" / "consumequeue_ext" / "T" / "0" / f"{0:020d}"
    assert first.read_bytes()[120:122] == END.build({"size": END_OF_FILE})


def test_damage_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "s", [NewMessage(b"T", b"x")] * 3, config())
    path = tmp_path / "s" / "consumequeue_ext" / "T" / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[60:90] = b"\x13" * 30
    path.write_bytes(data)
    with pytest.raises(Refused, match="damaged"):
        write(tmp_path / "s", [NewMessage(b"T", b"y")], config())
    assert not (tmp_path / "s" / "abort").exists()
    write(tmp_path / "s", [NewMessage(b"other", b"y")], config())


def test_filters_that_are_no_json(tmp_path: Path) -> None:
    settings = config(enableCalcFilterBitMap="true")
    write(tmp_path / "s", [NewMessage(b"T", b"x")], settings)
    for name in ("consumerFilter.json", "consumerFilter.json.bak"):
        (tmp_path / "s" / "config" / name).write_text("{[")
    with pytest.raises(Unsupported):
        write(tmp_path / "s", [NewMessage(b"T", b"y")], settings)
