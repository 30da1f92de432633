"""Queues and index rebuilt from the log of a real store: the broker's bytes again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mqstore.store.broker.dispatch import Units, dispatch_columns
from mqstore.store.broker.dispatch_record import Dispatching
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import queue_directories, queue_directory
from mqstore.store.index.read import Geometry
from mqstore.store.index.write import IndexWriter
from mqstore.store.queues.write import QueueWriter, unit_bytes

from ...stores import NAMES, config, truth
from ..real_log import columns_of, layout_of

# A store that was cleanly shut down and never restarted, with queues in plain files. A batch queue
# lies in a directory of its own; the units of others carry addresses in consumequeue_ext.
PLAIN = [
    name
    for name in NAMES
    if truth(name)["exit"] == "clean"
    and truth(name)["expected_verdict"] == "clean"
    and "before" not in truth(name)
    and not any(word in name for word in ("dledger", "rocksdb", "expired"))
]
WITHOUT_EXT = [name for name in PLAIN if "cqext" not in name]


def number(options: dict[str, str], *names: str) -> int:
    return next(int(options[name]) for name in names if name in options)


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()
    }


def write_queues(units: Units, topics: list[str], target: Path, file_size: int) -> None:
    rows: dict[tuple[int, int], list[int]] = {}
    keys = zip(units.topic_id.tolist(), units.queue_id.tolist(), strict=True)
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    for (topic_id, queue_id), mine in rows.items():
        part = units.take(np.array(mine))
        data = b"".join(map(unit_bytes, part.physical_offset.tolist(), part.size.tolist(), part.tags_code.tolist()))
        directory = queue_directory(target, topics[topic_id], queue_id)
        first = int(part.queue_offset[0])
        assert part.queue_offset.tolist() == list(range(first, first + len(part)))
        QueueWriter(Files(), directory, file_size, None).append(first, data)


@pytest.mark.few(8)
@pytest.mark.parametrize("name", WITHOUT_EXT)
def test_queues_byte_by_byte(name: str, store: Callable[[str], Path], tmp_path: Path) -> None:
    root = store(name)
    layout = layout_of(name, root)
    options = config(name, root)
    file_size = number(options, "mappedFileSizeConsumeQueue", "mapedFileSizeConsumeQueue")
    slashes = name.startswith("4.9")
    found = dispatch_columns(columns_of(layout), Dispatching(index_tags=False, slash_names=slashes))
    target = tmp_path / "queues"
    batch_topics = {queue.topic for queue in queue_directories(layout.batch_consume_queue)}
    plain = [topic not in batch_topics for topic in found.topics]
    units = found.units.take(np.array(plain)[found.units.topic_id])
    write_queues(units, found.topics, target, file_size)
    assert contents(target) == contents(layout.consume_queue)


@pytest.mark.few(8)
@pytest.mark.parametrize("name", PLAIN)
def test_index_byte_by_byte(name: str, store: Callable[[str], Path], tmp_path: Path) -> None:
    root = store(name)
    layout = layout_of(name, root)
    options = config(name, root)
    version = truth(name)["broker_version"]
    found = dispatch_columns(columns_of(layout), Dispatching(index_tags=version >= "5.4"))
    geometry = Geometry(number(options, "maxHashSlotNum"), number(options, "maxIndexNum"))
    writer = IndexWriter(Files(), tmp_path / "index", geometry, count_every_put=version.startswith("4.3"))
    writer.append(found.items, found.count)
    writer.sync()
    mine, theirs = contents(tmp_path / "index"), contents(layout.index)
    assert list(mine.values()) == list(theirs.values())
