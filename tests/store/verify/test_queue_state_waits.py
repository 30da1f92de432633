"""Delay levels that only several messages show: the same wherever the batches and parts of the log begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.formats.message_properties import format_properties
from mqstore.store.broker.system_topics import SCHEDULE_TOPIC
from mqstore.store.put.new_message import NewMessage
from mqstore.store.search.store import StoreReader
from mqstore.store.verify import log_pass

from .apart import APART, CUT, SIZES, told, written


@pytest.fixture(autouse=True)
def _short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_pass, "CUT_BYTES", CUT)


def _waiting(level: int) -> NewMessage:
    text = {"DELAY": str(level), "REAL_TOPIC": "orders", "REAL_QID": "0"}
    properties = format_properties(text)
    return NewMessage(SCHEDULE_TOPIC.encode(), b"w", queue_id=level - 1, properties=properties)


@pytest.mark.few(1)
@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_levels_of_a_broker_are_known_by_messages_far_apart(tmp_path: Path, jobs: int) -> None:
    """No part of the log has two messages that wait 7 s."""
    root = written(tmp_path / "own", [_waiting(1), *APART, _waiting(1), *APART, _waiting(1)])
    assert told(root, "I-065", jobs) == []


@pytest.mark.few(1)
@pytest.mark.parametrize("jobs", [1, 3])
def test_a_message_that_waits_as_no_other_does_is_told(tmp_path: Path, jobs: int) -> None:
    mixed = [_waiting(2), *APART, _waiting(1), *APART, _waiting(1), _waiting(2), _waiting(2)]
    root = written(tmp_path / "mixed", mixed)
    queue = root / "consumequeue" / SCHEDULE_TOPIC / "1"
    with StoreReader(root, SIZES) as store, store.queues.open(SCHEDULE_TOPIC, 1) as opened:
        unit = opened.unit(0)
    assert unit is not None
    file = next(queue.iterdir())
    data = file.read_bytes()
    old, new = ((unit.tags_code + more).to_bytes(8) for more in (0, 3000))
    file.write_bytes(data.replace(old, new, 1))
    found = told(root, "I-065", jobs)
    assert [finding.offset for finding in found] == [data.index(old) // 20 * 20]
