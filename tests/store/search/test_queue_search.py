"""Searches in queues that have holes: what can be read is found, whatever lies around it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.formats.consume_queue import UNIT
from mqstore.store.disk.layout import no_topic
from mqstore.store.errors import NotFound
from mqstore.store.queues.read import first_at
from mqstore.store.search.find import find
from mqstore.store.search.selection import Selection, TimeRange
from mqstore.store.search.store import StoreReader

from ... import stores
from .searched import Notes, positions

UNIT_BYTES = UNIT.sizeof()
TOPIC, QUEUE = "logs", 0


def at(folder: Path, position: int) -> tuple[Path, int]:
    """The file of a folder that holds a position, and the byte in it."""
    file = max((path for path in folder.iterdir() if int(path.name) <= position), key=lambda path: int(path.name))
    return file, position - int(file.name)


def zero(folder: Path, position: int, size: int) -> None:
    file, offset = at(folder, position)
    with file.open("r+b") as out:
        out.seek(offset)
        out.write(bytes(size))


def lose_units(root: Path, numbers: list[int]) -> None:
    """Zero some units of the queue."""
    for number in numbers:
        zero(root / "consumequeue" / TOPIC / str(QUEUE), number * UNIT_BYTES, UNIT_BYTES)


def lose_records(root: Path, numbers: list[int]) -> None:
    """Zero the records that some units name."""
    for number in numbers:
        file, offset = at(root / "consumequeue" / TOPIC / str(QUEUE), number * UNIT_BYTES)
        unit = UNIT.parse(file.read_bytes()[offset:])
        zero(root / "commitlog", unit.physical_offset, unit.size)


@pytest.mark.parametrize("lose", [lose_units, lose_records])
@pytest.mark.parametrize("lost", [[45], [44, 45, 46], [0, 22, 45, 67], list(range(10, 80)), list(range(91))])
def test_times_of_a_queue_with_holes(lose: Callable[[Path, list[int]], None], lost: list[int], tmp_path: Path) -> None:
    """Every message that can be read is found by its time, as by a filter over all of them."""
    root = stores.unpack("4.9.7-clean", tmp_path)
    lose(root, lost)
    with StoreReader(root) as store:
        every = list(find(store, Selection(TOPIC, QUEUE)))
        assert len(every) == 91 - len(lost)
        times = sorted({one.message.store_timestamp for one in every})
        for time_ms in [0, *times[::7], *(each + 1 for each in times[-2:])]:
            since = find(store, Selection(TOPIC, QUEUE, times=TimeRange(since_ms=time_ms)))
            assert positions(since) == [o.message.position for o in every if o.message.store_timestamp >= time_ms]
            until = find(store, Selection(TOPIC, QUEUE, times=TimeRange(until_ms=time_ms)))
            assert positions(until) == [o.message.position for o in every if o.message.store_timestamp < time_ms]


def test_a_long_hole_is_not_read_unit_by_unit(tmp_path: Path) -> None:
    """How often a record is asked for its time goes with the logarithm of the queue."""
    root = stores.unpack("4.9.7-clean", tmp_path)
    asked: list[int] = []

    def never(position: int) -> None:
        asked.append(position)

    with StoreReader(root) as store, store.queues.open(TOPIC, QUEUE) as queue:
        summary = store.queue_summary(queue)
        assert first_at(queue, summary, 1, never) == (summary.min_offset, summary.max_offset)
    assert len(asked) < 20


def places(name: str, topic: str, queue_id: int | None = None) -> list[int]:
    """Where the messages of a topic, or of one queue of it, lie in the log of a store."""
    own = (r for r in stores.messages(name) if r["topic"] == topic and queue_id in (None, r["queue_id"]))
    return [record["physical_offset"] for record in own]


@pytest.mark.parametrize("configured", [True, False])
def test_a_topic_with_a_directory_but_no_queue_in_it(configured: bool, tmp_path: Path) -> None:
    """It has no queues, as one without a directory: the log is scanned."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    shutil.rmtree(root / "consumequeue" / TOPIC / str(QUEUE))
    for path in () if configured else (root / "config").glob("topics.json*"):
        path.unlink()
    why = (
        "is in topics.json, but has no consume queues" if configured else "has a directory, but no consume queues in it"
    )
    notes = Notes()
    with StoreReader(root) as store:
        for queue_id in (None, QUEUE):
            notes.clear()
            found = find(store, Selection(TOPIC, queue_id), note=notes)
            assert (positions(found), notes) == (places("5.3.3-clean", TOPIC), [f"{TOPIC} {why}: scanning the log"])


def test_the_name_that_was_asked_for_is_never_suggested(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-clean", tmp_path)
    (root / "consumequeue" / "order").mkdir()
    with pytest.raises(NotFound, match="no such topic: order") as raised:
        raise no_topic(root / "consumequeue", "order")
    assert raised.value.hint == "did you mean orders?"


def test_directories_of_batch_and_compaction_queues_without_a_queue(tmp_path: Path) -> None:
    """The queues are elsewhere."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    for folder in ("batchconsumequeue", "compaction/compactionCq"):
        (root / folder / TOPIC).mkdir(parents=True)
    notes = Notes()
    with StoreReader(root) as store:
        assert store.layout.compaction_queues == root / "compaction/compactionCq"
        assert (positions(find(store, Selection(TOPIC), note=notes)), notes) == (places("5.3.3-clean", TOPIC), [])
