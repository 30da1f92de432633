"""What the queues of a store name, asked for many holes: the units themselves are the judge."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pytest

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.file_queue import MappedFileQueue
from mqstore.store.disk.layout import Layout, queue_directories
from mqstore.store.queues import references
from mqstore.store.queues.batches import BatchConsumeQueue
from mqstore.store.queues.read import ConsumeQueue, ConsumeQueues
from mqstore.store.queues.references import QueueReferences

from ...stores import config, unpack

_QUEUES = ("5.3.3-clean", "5.5.0-killed", "5.3.3-batchcq")


def _layout(name: str, work: Path) -> Layout:
    root = unpack(name, work)
    return Layout.open(root, BrokerConfig(config(name, root)))


def _units(layout: Layout) -> list[tuple[int, int]]:
    """Position and size of what units name."""
    found: list[tuple[int, int]] = []
    queues = ConsumeQueues(layout)
    for directory in queues:
        with queues.open(directory.topic, directory.queue_id) as queue:
            for _, units in queue.units(0, queue.summary().max_offset):
                found += zip(units["physical_offset"].tolist(), units["size"].tolist(), strict=True)
    for directory in queue_directories(layout.batch_consume_queue):
        with MappedFileQueue.open(directory.path) as files:
            batches = BatchConsumeQueue(directory.topic, directory.queue_id, files)
            each = [batches.unit(number) for number in range(batches.first, batches.stop)]
            found += [(unit.physical_offset, unit.size) for unit in each if unit is not None]
    return found


@pytest.mark.few(2)
@pytest.mark.parametrize("region", [1000, 50_000, 1 << 26])
@pytest.mark.parametrize("name", _QUEUES)
def test_every_record_is_named_and_nothing_else(
    name: str, region: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(references, "REGION_BYTES", region)
    monkeypatch.setattr(references, "_TOGETHER", 64)
    monkeypatch.setattr("mqstore.store.queues.units.WINDOW_UNITS", 5)
    layout = _layout(name, tmp_path)
    asked, units = QueueReferences(layout), _units(layout)
    Random(name).shuffle(units)
    for position, size in units[:400]:
        assert asked.names(position, position + size)
        assert asked.names(position, position + 10 * size)
        assert not asked.names(position, position + size - 1)
        assert not asked.names(position + 1, position + 10 * size)


def test_many_holes_open_a_queue_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, read = Counter[str](), Counter[str]()
    layout = _layout("5.3.3-clean", tmp_path)
    open_queue, units_of = ConsumeQueue.open, ConsumeQueue.units

    def counting(*arguments: object) -> ConsumeQueue:
        opened[f"{arguments[1]}/{arguments[2]}"] += 1
        return open_queue(*arguments)  # type: ignore[arg-type]

    def reading(self: ConsumeQueue, *place: int, reverse: bool = False) -> object:
        read[f"{self.topic}/{self.queue_id}"] += 1
        return units_of(self, *place, reverse=reverse)

    monkeypatch.setattr(ConsumeQueue, "open", counting)
    monkeypatch.setattr(ConsumeQueue, "units", reading)
    asked = QueueReferences(layout)
    for position in np.arange(0, 200_000, 77).tolist():
        asked.names(position, position + 500)
    assert len(opened) > 10
    assert max(opened.values()) == max(read.values()) == 1


def test_without_units_nothing_is_denied(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert QueueReferences(Layout.open(tmp_path)).names(0, 1000)
