"""Sparse consume queues of compaction with zeros between their units, and with units that name nothing."""

from __future__ import annotations

from pathlib import Path

from mqstore.formats.sparse_consume_queue import END, UNIT, UNIT_BYTES

from .told import records, summary


def unit(number: int) -> bytes:
    fields = {"physical_offset": 300 * number, "size": 300, "tags_code": 0, "store_time": 1 + number}
    last = {"msg_base_offset": 10 + 5 * number, "batch_size": 1, "compacted_offset": -1, "reserved": 0}
    built: bytes = UNIT.build(fields | last)
    return built


def queue(folder: Path, *units: bytes) -> Path:
    path = folder / "compaction" / "compactionCq" / "t" / "0" / f"{0:020}"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(units).ljust(20 * UNIT_BYTES, b"\0"))
    return path.parent


def test_zeros_between_units_are_damage_and_what_names_nothing_is_marked(tmp_path: Path) -> None:
    path = queue(tmp_path, unit(0), bytes(UNIT_BYTES), unit(1), b"\xff" * UNIT_BYTES, unit(2), UNIT.build(END))
    found = records(path)
    assert [(row["position"] // UNIT_BYTES, row.get("state", row["type"])) for row in found] == [
        (0, "sparse_consume_queue_unit"),
        (1, "damage"),
        (2, "sparse_consume_queue_unit"),
        (3, "invalid"),
        (4, "sparse_consume_queue_unit"),
        (5, "end"),
    ]
    assert (found[1]["size"], found[1]["reason"]) == (UNIT_BYTES, "zeros between units")
    assert records(path, at=4 * UNIT_BYTES) == found[4:]
    assert summary(path) == {
        "topic": "t",
        "queue_id": 0,
        "min_offset": 10,
        "max_offset": 21,
        "messages": 3,
        "damaged_bytes": UNIT_BYTES,
    }


def test_of_several_queues_there_are_sums(tmp_path: Path) -> None:
    path = queue(tmp_path, unit(0), bytes(UNIT_BYTES), unit(1))
    other = path.with_name("1")
    other.mkdir()
    (other / f"{0:020}").write_bytes(unit(3))
    told = summary(path.parents[1])
    assert told == {"topics": 1, "queues": 2, "messages": 3, "damaged_bytes": UNIT_BYTES}
