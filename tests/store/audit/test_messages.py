"""Messages wait for others of their queue, and keep nothing else of their batches."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mqstore.formats.consume_queue import UNIT_BYTES
from mqstore.store.audit import messages
from mqstore.store.audit.messages import IN_FRONT, MISPLACED
from mqstore.store.broker.dispatch import dispatch
from mqstore.store.broker.dispatch_record import OWN_QUEUES
from mqstore.store.disk.layout import Layout
from mqstore.store.log.batch import Batch
from mqstore.store.queues import start_rocksdb
from mqstore.store.recover.recovery import analyze
from mqstore.store.search.store import StoreReader

from ... import stores

_ROUNDS = 20
_BYTES_OF_MESSAGE = 7 * 8
_BYTES_OF_BATCH = 2048
"""Python's own for seven arrays and more."""


def test_messages_that_wait_keep_no_columns_of_their_batches(tmp_path: Path) -> None:
    pending = messages._PendingMessages()
    with StoreReader(stores.unpack("5.3.3-clean", tmp_path)) as store:
        tracemalloc.start()
        batches = 0
        for _ in range(_ROUNDS):
            for item in store.log.scan(reuse=True):
                if isinstance(item, Batch):
                    pending.add(item, dispatch(item, OWN_QUEUES))
                    batches += 1
            del item
        count, held = pending.count, tracemalloc.get_traced_memory()[0]
        del pending  # what else grows meanwhile, as Python's table of names may, is none of it
        held -= tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
    assert count > _ROUNDS
    assert held > count * _BYTES_OF_MESSAGE / 2
    most = count * _BYTES_OF_MESSAGE + batches * _BYTES_OF_BATCH
    assert held < most, f"{held:,} bytes for {count:,} messages of {batches} batches"


@pytest.mark.parametrize("times", [1, 2])
def test_each_queue_is_known_to_be_in_a_row_or_not(times: int, tmp_path: Path) -> None:
    """What is found of all queues at once is what each finds of itself: twice the same log is none."""
    pending = messages._PendingMessages()
    with StoreReader(stores.unpack("5.3.3-clean", tmp_path)) as store:
        for _ in range(times):
            for item in store.log.scan(reuse=True):
                if isinstance(item, Batch):
                    pending.add(item, dispatch(item, OWN_QUEUES))
    queues = list(pending.take())
    found = [each.in_a_row for each in queues]
    assert found == [each.replace().in_a_row for each in queues]
    assert all(found) is (times == 1) and len(found) > 2


def test_a_far_name_of_a_queue_file_is_not_walked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number in a name may be any: what lies between has no unit."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    queue = root / "consumequeue" / "logs" / "0"
    (queue / f"{1000:020d}").rename(queue / f"{9_000_000_000_000:020d}")
    windows = start_rocksdb.queue_windows

    def few(*asked: Any) -> Iterator[Any]:
        for number, window in enumerate(windows(*asked)):
            assert number < 3, "every window up to the far name"
            yield window

    monkeypatch.setattr(start_rocksdb, "queue_windows", few)
    assert analyze(Layout.open(root), "5.3.3").prediction.invisible.messages == 41


def test_a_unit_in_front_of_its_queue_offset_is_told_apart(tmp_path: Path) -> None:
    """The queue lacks one unit, and all behind it are one place too low."""
    root, lost = stores.unpack("5.3.3-clean", tmp_path), 5
    path = next((root / "consumequeue/orders/0").iterdir())
    units = path.read_bytes()
    path.write_bytes((units[: lost * UNIT_BYTES] + units[(lost + 1) * UNIT_BYTES :]).ljust(len(units), b"\0"))
    shares = analyze(Layout.open(root), "5.3").prediction.invisible
    found = {share.reason.partition(" (")[0]: share for share in shares}
    assert found.keys() == {MISPLACED, IN_FRONT}
    assert (found[MISPLACED].first_offset, found[MISPLACED].messages) == (lost, 1)
    assert found[IN_FRONT].first_offset == lost + 1
    assert found[IN_FRONT].messages == found[IN_FRONT].last_offset - lost > 1
