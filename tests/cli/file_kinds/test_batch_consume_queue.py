"""Batch consume queues with units that name no batch."""

from __future__ import annotations

from pathlib import Path

from mqstore.formats.batch_consume_queue import UNIT_BYTES

from ...stores import unpack
from .told import records, summary


def test_a_unit_of_zeros_between_others_is_told_as_invalid(tmp_path: Path) -> None:
    queue = unpack("5.3.3-batchcq", tmp_path) / "batchconsumequeue" / "BatchTopic" / "1"
    whole, told = records(queue), summary(queue)
    path = min(queue.iterdir())
    data = path.read_bytes()
    path.write_bytes(data[: 3 * UNIT_BYTES] + bytes(UNIT_BYTES) + data[4 * UNIT_BYTES :])
    found = records(queue)
    assert found[:3] + found[4:] == whole[:3] + whole[4:]
    assert (found[3]["number"], found[3]["size"], found[3]["state"]) == (3, 0, "invalid")
    assert summary(queue) == told
    assert [unit["number"] for unit in records(queue, at=28)] == [28, 29]
    assert records(queue, at=len(whole)) == []


def test_of_several_queues_there_are_sums(tmp_path: Path) -> None:
    """Without the first file of one of them its batches and messages are gone, no others."""
    queues = unpack("5.3.3-batchcq", tmp_path) / "batchconsumequeue"
    assert summary(queues) == {"batches": 60, "topics": 1, "queues": 2, "messages": 162, "highest_position": 235_228}
    one = queues / "BatchTopic" / "1"
    min(one.iterdir()).unlink()
    ends = summary(one)
    assert (ends["topic"], ends["queue_id"], ends["max_offset"]) == ("BatchTopic", 1, 71)
    assert summary(queues)["messages"] == 162 - ends["min_offset"]
    assert summary(queues)["batches"] == 30 + ends["batches"] == 30 + len(records(one))
