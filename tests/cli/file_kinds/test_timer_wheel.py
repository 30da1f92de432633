"""The timer wheel: slots that were used, all of them, and what they add up to."""

from __future__ import annotations

from pathlib import Path

from mqstore.formats.timer_wheel import SLOT, SLOT_BYTES

from .told import records, summary


def wheel(folder: Path, slots: dict[int, bytes], count: int) -> Path:
    path = folder / "timerwheel"
    path.write_bytes(b"".join(slots.get(number, bytes(SLOT_BYTES)) for number in range(count)))
    return path


def slot(time: int, number: int) -> bytes:
    built: bytes = SLOT.build({"time": time, "first_pos": 0, "last_pos": 52, "num": number, "magic": 0})
    return built


def test_slots_that_hold_nonsense_are_shown_as_they_are(tmp_path: Path) -> None:
    """A slot with less than no messages is counted so; a slot that is cut is none."""
    path = wheel(tmp_path, {3: slot(1_795_210_954, -2), 7: slot(-1, 5)}, 10)
    path.write_bytes(path.read_bytes() + b"\xff" * 9)
    found = records(path, "timer-wheel")
    assert [(row["slot"], row["time"], row["num"]) for row in found] == [(3, 1_795_210_954, -2), (7, -1, 5)]
    assert summary(path, "timer-wheel") == {
        "slots_used": 2,
        "messages": 3,
        "first_tick": -1,
        "last_tick": 1_795_210_954,
    }
    assert [row["slot"] for row in records(path, "timer-wheel", at=4)] == [7]
    assert [row["slot"] for row in records(path, "timer-wheel", at=4, raw=True)] == list(range(4, 10))


def test_of_a_wheel_that_never_turned_there_is_nothing(tmp_path: Path) -> None:
    path = wheel(tmp_path, {}, 10)
    assert records(path, "timer-wheel") == []
    assert summary(path, "timer-wheel") == {"slots_used": 0, "messages": 0, "first_tick": None, "last_tick": None}
