"""A queue whose offsets the broker has given twice: it was lost, and counted from 0 again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mqstore.formats.message import MESSAGE
from mqstore.store.disk.layout import Layout
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.put.new_message import NewMessage
from mqstore.store.recover.recovery import analyze

from ..put.test_producer_transaction import log_of
from ..put.writing import NOW, TINY, writer
from ..recover.recovered import record_bytes
from .narrow import overwrite

LOG_FILE = 4096
LIVES, COUNT = 2, 5


@pytest.mark.parametrize("version", ["4.9", "5.5"])
@pytest.mark.parametrize("policy", Policy)
def test_the_first_record_of_the_log_has_its_unit_too(version: str, policy: Policy, tmp_path: Path) -> None:
    """Made again, the queue has all messages in the order of the log."""
    with writer(tmp_path, version) as store:
        for number in range(LIVES * COUNT):
            store.append(NewMessage(b"orders", b"body", store_timestamp=NOW + number * 1000))
    for message in list(log_of(tmp_path, TINY))[COUNT:]:
        record = record_bytes(tmp_path, LOG_FILE, message.position, message.total_size)
        values = {**MESSAGE.parse(record), "queue_offset": message.queue_offset - COUNT}
        overwrite(tmp_path / "commitlog", LOG_FILE, message.position, MESSAGE.build(values))
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / "consumequeue").mkdir()
    found = analyze(Layout.open(tmp_path, TINY), version, options=RecoveryOptions(policy))
    assert found.plan is not None
    (queue,) = found.plan.queues
    assert (queue.min_offset, queue.max_offset) == (0, LIVES * COUNT)
    assert found.plan.completed == LIVES * COUNT
