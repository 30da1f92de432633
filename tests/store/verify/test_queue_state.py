"""Readers of queues, and what a check keeps of what it has seen right."""

from __future__ import annotations

import os
from array import array
from pathlib import Path
from random import Random

import numpy as np
import pytest

from mqstore.store.audit.verified import QueueRange
from mqstore.store.broker.snapshot import QueueId
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.queues.read import ConsumeQueue
from mqstore.store.queues.units import LARGEST_OFFSET
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.queue_state import QueueCheck, QueueReader
from mqstore.store.verify.run import verify

from ... import slices
from ...packing import pack_below
from ...stores import config, unpack
from .mutations import Mutation, copied, mutations, original, verified

pytestmark = pytest.mark.long

CLEAN = "5.3.3-clean"


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where stores are unpacked and damaged."""
    return tmp_path_factory.mktemp("queues")


def test_an_impossible_queue_offset_in_a_record_costs_no_memory(work: Path) -> None:
    root = original(CLEAN, work)
    with StoreReader(root, BrokerConfig(config(CLEAN, root))) as store:
        opened = ConsumeQueue.open(store.layout, "logs", 0)
    reader = QueueReader(QueueId("logs", 0), "", opened)
    far = [3, LARGEST_OFFSET, -1, 1 << 62, 2, LARGEST_OFFSET + 1]
    found = reader.lookup(np.array(far, np.int64))
    assert [bool(size) for size in found["size"]] == [True, False, False, False, True, False]


def test_a_queue_that_is_not_there_has_no_units(tmp_path: Path) -> None:
    reader = QueueReader(QueueId("t", 0), os.fspath(tmp_path), None)
    assert not reader.exists and list(reader.windows()) == []
    assert reader.lookup(np.arange(3))["size"].tolist() == [0, 0, 0]
    assert reader.place(4) == (os.fspath(tmp_path), None)


def test_messages_in_a_row_go_on() -> None:
    def both(more: QueueRange) -> QueueRange | None:
        check = QueueCheck(QueueReader(QueueId("t", 0), "", None), array("q"))
        check.note_row(row)
        check.note_row(more)
        return check.row

    row = QueueRange(0, 4, 100, 400, 10)
    assert both(QueueRange(4, 6, 500, 600, 20)) == QueueRange(0, 6, 100, 600, 20)
    for first, position in ((5, 500), (3, 500), (4, 400)):
        assert both(QueueRange(first, 6, position, 600, 20)) == row


_DAMAGED = [each for each in mutations().values() if each.group in {"consume_queue", "commit_log"}]


@pytest.mark.few(8)
@pytest.mark.parametrize("mutation", _DAMAGED, ids=str)
def test_nothing_is_missed_in_units_that_are_not_read_again(
    mutation: Mutation, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = mutation.stores[0]
    damaged = copied(original(name, work), work)
    mutation.mutate(damaged, Random(f"{slices.SEED} {mutation.code} row"))
    found = verified(name, damaged).findings
    monkeypatch.setattr(QueueCheck, "note_row", lambda *_: None)
    assert verified(name, damaged).findings == found


@pytest.mark.parametrize("how", ["gzip", "zstd"])
def test_units_in_a_rocksdb_are_read_beside_a_compressed_log(how: str, tmp_path: Path) -> None:
    """What is told is the file that no broker reads, and nothing of the queues."""
    root = unpack("5.3.3-rocksdb", tmp_path)
    with StoreReader(root) as store:
        plain = verify(store)
    packed = pack_below([root / "commitlog"], how)
    with StoreReader(root) as store:
        found = verify(store)
    assert [(one.code, one.path) for one in found.findings if one.code == "I-005"] == [
        ("I-005", str(path)) for path in packed
    ]
    assert {one.code for one in found.findings} - {one.code for one in plain.findings} == {"I-005"}
    assert found.records == plain.records
