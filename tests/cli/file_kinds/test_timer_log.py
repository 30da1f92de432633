"""The timer log with bytes between its units that are none."""

from __future__ import annotations

from pathlib import Path

from mqstore.formats.timer_log import BLANK, UNIT, UNIT_BYTES

from .told import records, summary


def unit(number: int) -> bytes:
    fields = {"size": UNIT_BYTES, "prev_pos": -1, "magic": 1, "curr_write_time": 1_795_210_953_000}
    last = {"delayed_time": 1000, "offset_py": 300 * number, "size_py": 300}
    built: bytes = UNIT.build({**fields, **last, "hash_code_of_real_topic": 7, "reserved": 0})
    return built


def test_what_is_no_unit_is_damage_and_reading_goes_on(tmp_path: Path) -> None:
    blank = BLANK.build({"size": 60, "prev_pos": 0, "magic": 0xCBD43194}).ljust(60, b"\0")
    path = tmp_path / "timerlog" / f"{0:020}"
    path.parent.mkdir()
    path.write_bytes(unit(0) + unit(1) + b"\xee" * UNIT_BYTES + unit(2) + blank)
    found = records(path.parent)
    assert [(row["type"], row["position"], row["size"]) for row in found] == [
        ("timer_log_unit", 0, UNIT_BYTES),
        ("timer_log_unit", UNIT_BYTES, UNIT_BYTES),
        ("damage", 2 * UNIT_BYTES, UNIT_BYTES),
        ("timer_log_unit", 3 * UNIT_BYTES, UNIT_BYTES),
        ("blank", 4 * UNIT_BYTES, 60),
    ]
    assert found[2]["reason"] == "not a unit" and "reason" not in found[4]
    assert [row["offset_py"] for row in records(path.parent, at=3 * UNIT_BYTES) if "offset_py" in row] == [600]
    assert summary(path.parent) == {"timer_log_units": 3, "blanks": 1, "damaged_ranges": 1}


def test_a_file_that_stands_alone_keeps_its_positions(tmp_path: Path) -> None:
    path = tmp_path / f"{4096:020}"
    path.write_bytes((unit(0) + unit(1)).ljust(4096, b"\0"))
    assert [row["position"] for row in records(path, "timer-log")] == [4096, 4096 + UNIT_BYTES]
