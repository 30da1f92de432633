"""The timer log and the wheel against what the Java classes read, and with damage."""

from __future__ import annotations

import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from mqstore.formats.timer_log import UNIT, UNIT_BYTES
from mqstore.formats.timer_wheel import SLOT, SLOT_BYTES, SLOTS
from mqstore.store.disk.file_queue import MappedFileQueue
from mqstore.store.disk.layout import Layout
from mqstore.store.timer.read import WINDOW_UNITS, TimerRange, TimerUnits, timer_log, timer_wheel, wheel_at_rest

from ...stores import ALL, NAMES, truth, unpack

STORES = tuple(
    name if name in NAMES else pytest.param(name, marks=pytest.mark.slow)
    for name in ALL
    if "timer_files" in truth(name)
)


def _scan(store: Path, start: int | None = None) -> tuple[dict[int, dict[str, int]], list[TimerRange]]:
    """Units by position, and everything else."""
    units: dict[int, dict[str, int]] = {}
    ranges: list[TimerRange] = []
    with MappedFileQueue.open(store / "timerlog") as files:
        for part in timer_log(files, start):
            if isinstance(part, TimerUnits):
                names = part.units.dtype.names or ()
                rows = (dict(zip(names, row, strict=True)) for row in part.units.tolist())
                units.update(zip(part.position.tolist(), rows, strict=True))
            else:
                ranges.append(part)
    return units, ranges


@pytest.mark.parametrize("name", STORES)
def test_every_slot_and_every_entry_of_its_chain(name: str, tmp_path: Path) -> None:
    """As the classes of the broker follow them."""
    store = unpack(name, tmp_path)
    units, ranges = _scan(store)
    assert {part.kind for part in ranges} <= {"blank", "zeros"}
    slots: dict[int, tuple[int, ...]] = {}
    for part in timer_wheel(store / "timerwheel"):
        slots.update(zip(part.number.tolist(), part.slots.tolist(), strict=True))
    for slot in truth(name)["timer_files"]["slots"]:
        _, first, last, num, _ = slots[slot["index"]]
        assert (first, last, num) == (slot["first_pos"], slot["last_pos"], slot["num"])
        for entry in slot["chain"]:
            unit = units[entry["pos"]]
            assert unit["prev_pos"] == entry["prev_pos"]
            assert unit["offset_py"] == entry["offset_py"]
            assert unit["size_py"] == entry["size_py"]
            assert unit["magic"] == entry["magic"]
            assert unit["hash_code_of_real_topic"] == entry["hash_of_topic"]


def test_damage_ends_at_the_next_unit(tmp_path: Path) -> None:
    """Reported once; the units behind it come, the BLANK too."""
    store = unpack("5.3.3-timer-clean", tmp_path)
    before, ranges = _scan(store)
    file = min((store / "timerlog").iterdir())
    with file.open("r+b") as stream:
        stream.seek(3 * UNIT_BYTES)
        stream.write(b"\xaa" * (2 * UNIT_BYTES))
    after, damaged = _scan(store)
    lost = {3 * UNIT_BYTES, 4 * UNIT_BYTES}
    assert after == {place: unit for place, unit in before.items() if place not in lost}
    assert damaged == [TimerRange("damage", 3 * UNIT_BYTES, 2 * UNIT_BYTES), *ranges]
    file.write_bytes(file.read_bytes()[:-1])
    assert _scan(store)[0] == after


def test_from_a_position(tmp_path: Path) -> None:
    """The first unit at or behind it."""
    store = unpack("5.3.3-timer-clean", tmp_path)
    whole, _ = _scan(store)
    assert min(_scan(store, 1)[0]) == UNIT_BYTES
    assert _scan(store, UNIT_BYTES)[0] == {k: v for k, v in whole.items() if k}
    assert _scan(store, max(whole) + 1)[0] == {}


@pytest.mark.parametrize("size", [0, 1, UNIT_BYTES - 1, UNIT_BYTES])
def test_short_files(size: int, tmp_path: Path) -> None:
    """Of any length, zeros or noise."""
    log = tmp_path / "timerlog"
    log.mkdir()
    for noise, kind in ((0, "zeros"), (0xEE, "damage")):
        (log / f"{0:020d}").write_bytes(bytes([noise]) * size)
        units, ranges = _scan(tmp_path)
        assert units == {}
        assert ranges == ([TimerRange(kind, 0, size)] if size else [])


def test_a_wheel_of_any_length(tmp_path: Path) -> None:
    """Whole slots only; unused ones on request; from a number on."""
    path = tmp_path / "wheel"
    slot = SLOT.build({"time": 5, "first_pos": 0, "last_pos": 0, "num": 1, "magic": 0})
    path.write_bytes(bytes(3 * SLOT_BYTES) + slot + b"?" * 5)
    assert [part.number.tolist() for part in timer_wheel(path)] == [[3]]
    assert [part.number.tolist() for part in timer_wheel(path, unused=True)] == [[0, 1, 2, 3]]
    assert [part.number.tolist() for part in timer_wheel(path, 4)] == []
    assert SLOTS == 2 * 7 * 24 * 3600
    assert UNIT.sizeof() == UNIT_BYTES


def test_a_wheel_at_rest_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = unpack("5.5.0-timer-clean", tmp_path)
    layout, path = Layout.open(root), root / "timerwheel"
    read = Mock(side_effect=timer_wheel)
    monkeypatch.setattr("mqstore.store.timer.read.timer_wheel", read)

    def numbers() -> list[int]:
        return [number for part in wheel_at_rest(layout) for number in part.number.tolist()]

    used = [number for part in timer_wheel(path) for number in part.number.tolist()]
    assert numbers() == numbers() == used and read.call_count == 1
    with path.open("r+b") as file:
        file.seek(SLOT_BYTES * (SLOTS - 1))
        file.write(bytes(SLOT_BYTES - 1) + b"\1")
    assert numbers() == numbers() == [*used, SLOTS - 1] and read.call_count == 2
    monkeypatch.setattr("mqstore.store.timer.read._KEPT_SLOTS", len(used))
    time.sleep(0.02)  # more than a tick of the clock that files have their times from
    path.touch()
    assert numbers() == numbers() and read.call_count == 4, "a wheel in full use is not kept"


def test_slots_without_holes_are_found(tmp_path: Path) -> None:
    """In a file without holes, wherever the only byte of a slot is."""
    path, count = tmp_path / "wheel", 3 * WINDOW_UNITS
    places = [0, SLOT_BYTES - 1, SLOT_BYTES * WINDOW_UNITS - 5, SLOT_BYTES * (count - 1) + 17]
    data = bytearray(SLOT_BYTES * count)
    for place in places:
        data[place] = 1
    path.write_bytes(data)
    found = [number for part in timer_wheel(path) for number in part.number.tolist()]
    assert found == sorted({place // SLOT_BYTES for place in places})
