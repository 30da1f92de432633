"""Units and items of a part of a log: what has no place in a file is damage, all else is a row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mqstore.pipeline.log_part import FileKey
from mqstore.pipeline.log_units import LogReader
from mqstore.store.disk.file_queue import LARGEST_START
from mqstore.store.disk.files import Files
from mqstore.store.log.commit_log import Split

from ..store.made_log import MadeLog
from .queue_parts import STORE, UNITS_PER_FILE


def reader_of(log: MadeLog, folder: Path) -> LogReader:
    """Reads a made log, whose store has an index."""
    log.write(folder / "store" / "commitlog")
    store = replace(STORE, root=str(folder / "store"), stop=log.end, index_slots=5, index_items=10)
    return LogReader(store, folder / "out", Files())


@pytest.mark.parametrize(
    "odd",
    [
        {"topic": b"a/../../b"},
        {"topic": b"..", "queue_offset": 3},
        {"topic": b"a\0b"},
        {"topic": b"T", "queue_id": -1},
        {"topic": b"T", "queue_offset": -1},
        {"topic": b"T", "queue_offset": LARGEST_START // 20 + 1},
    ],
)
def test_what_a_damaged_record_names_is_no_file(odd: dict[str, bytes | int], tmp_path: Path) -> None:
    """The others of its queue are there, and the index has all keys."""
    log = MadeLog(1 << 13)
    fields = {"queue_offset": 0, "properties": b"KEYS\1k\2"}
    places = [log.append(b"x", **{**fields, "topic": b"T"}), log.append(b"y", **{**fields, **odd})]
    places.append(log.append(b"z", **{**fields, "topic": b"T", "queue_offset": UNITS_PER_FILE}))
    part, found = reader_of(log, tmp_path).read(Split(0, log.end))
    assert part.rows["physical_offset"].tolist() == [places[0], places[2]]
    assert part.places == {FileKey("T", 0, 0): (0, 1), FileKey("T", 0, 1): (1, 2)}
    assert [row["position"] for row in found.damage] == [places[1]]
    assert part.items["physical_offset"].tolist() == places and found.items == 3
    assert found.last_record == places[2]
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []


def test_parts_together_are_the_whole_log(tmp_path: Path) -> None:
    """Cut at any record; what nothing of can be read is told, with its place."""
    log = MadeLog(1 << 12)
    places = [log.append(b"x" * 50, topic=b"T", queue_offset=n) for n in range(60)]
    hole = (places[20], places[23])
    for at in range(hole[0], hole[1]):
        log.files[at // log.file_size][at % log.file_size] = 0xEE
    left = [place for place in places if not hole[0] <= place < hole[1]]
    for cut in (0, places[10], places[21] + 5, places[30] + 1, log.end):
        reader = reader_of(log, tmp_path)
        parts = [reader.read(Split(*ends)) for ends in ((0, cut), (cut, log.end))]
        assert [at for part, _ in parts for at in part.rows["physical_offset"].tolist()] == left
        damage = [(row["position"], row["size"]) for _, found in parts for row in found.damage]
        assert damage == [(hole[0], hole[1] - hole[0])], cut
