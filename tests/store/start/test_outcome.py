"""Units on their way to the queues of a broker, and what stops them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mqstore.formats.derive import Columns
from mqstore.store.broker.load_rules import LoadedFile, LoadedFiles
from mqstore.store.broker.profiles import profile_of
from mqstore.store.broker.snapshot import QueueId, Snapshot
from mqstore.store.disk.layout import Layout
from mqstore.store.start.log import Switches
from mqstore.store.start.outcome import RETRY_SECONDS, Outcome, PendingUnits, UndispatchableRecord

from ..broker.batches import batch_of

FURTHER = Switches(multi_dispatch=True)


def started(root: Path, switches: Switches = FURTHER) -> Outcome:
    """A broker without anything."""
    return Outcome(profile_of("5.3"), Snapshot.of(Layout.of(root)), switches, LoadedFiles([], [], []))


def columns(*properties: dict[str, str], topic: bytes = b"T", **fields: Any) -> Columns:
    """Records with these properties, one behind the other, in queue 3 at 7."""
    return batch_of(properties, topic=topic, **fields).columns


def named(names: str, offsets: str) -> dict[str, str]:
    return {"INNER_MULTI_DISPATCH": names, "INNER_MULTI_QUEUE_OFFSET": offsets}


def test_a_number_that_is_none_stops_the_dispatch_at_its_record(tmp_path: Path) -> None:
    """Where a broker looks at numbers of further queues; what came before is in its queue."""
    records = columns(named("%LMQ%a", "5"), named("%LMQ%a", "x"))
    position = int(records.ints("physical_offset")[1])
    outcome = started(tmp_path)
    with pytest.raises(UndispatchableRecord) as stopped, PendingUnits(outcome) as waiting:
        waiting.add(columns({}), None)
        waiting.add(records, None)
    assert stopped.value.reason == f"NumberFormatException in the dispatch of the record at {position}"
    assert outcome.queues.keys() == {QueueId("T", 3)}
    plain = started(tmp_path, Switches(multi_dispatch=False))
    with PendingUnits(plain) as waiting:
        waiting.add(records, None)
    assert plain.queues.keys() == {QueueId("T", 3)}


def test_only_records_behind_a_position_are_dispatched(tmp_path: Path) -> None:
    records = columns({}, {}, {})
    positions = records.ints("physical_offset").tolist()
    for behind, left in ((None, positions), (positions[0], positions[1:]), (positions[-1], [])):
        outcome = started(tmp_path)
        with PendingUnits(outcome) as waiting:
            waiting.add(records, behind)
        assert outcome.queues.keys() == ({QueueId("T", 3)} if left else set())
        for queue in outcome.queues.values():
            assert queue.lookup(np.array([7], np.int64))["physical_offset"].tolist() == left[:1]


def test_a_topic_that_no_file_can_have_costs_half_a_minute_a_unit(tmp_path: Path) -> None:
    """A damaged name with a zero in it: the broker tries thirty times, and goes on without."""
    outcome = started(tmp_path)
    with PendingUnits(outcome) as waiting:
        waiting.add(columns({}, {}, topic=b"a\0b"), None)
    assert outcome.delay_seconds == 2 * RETRY_SECONDS
    assert outcome.queue(QueueId("a\0b", 3)).max_offset == 0


def test_the_ends_of_a_log_are_those_of_its_files(tmp_path: Path) -> None:
    outcome = started(tmp_path)
    assert (outcome.log_start, outcome.log_end) == (0, 0)
    outcome.log.files.extend([LoadedFile(300, 100, None), LoadedFile(400, 30, None)])
    assert (outcome.log_start, outcome.log_end) == (300, 430)


def test_a_queue_is_of_the_type_of_its_topic(tmp_path: Path) -> None:
    """And no queue of batches where the generation knows none."""
    (tmp_path / "config").mkdir()
    table = '{"topicConfigTable":{"B":{"attributes":{"queue.type":"BatchCQ"}}}}'
    (tmp_path / "config" / "topics.json").write_text(table)
    of_5, of_4 = started(tmp_path), started(tmp_path)
    of_4.profile = profile_of("4.9")
    kinds = [type(outcome.new_queue(QueueId(topic, 0))).__name__ for outcome in (of_5, of_4) for topic in "BT"]
    assert kinds == ["BatchQueueState", "QueueState", "QueueState", "QueueState"]
