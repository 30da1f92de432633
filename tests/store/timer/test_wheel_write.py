"""Enqueuing timer messages: when it is left to the broker, and a kill at every step.

That log and wheel are those of a broker is tested in tests/interop/test_timer.py.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from mqstore.formats.timer_log import MAGIC_DELETE, MAGIC_ROLL, UNIT_BYTES
from mqstore.formats.timer_wheel import SLOT_BYTES, SLOTS
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.checkpoint import TimerCheck, read_timer_check
from mqstore.store.disk.file_queue import MappedFileQueue
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.put.message_columns import columns_of
from mqstore.store.put.new_message import NewMessage
from mqstore.store.put.writer import StoreWriter, WriterOptions
from mqstore.store.timer.read import TimerUnits, timer_log, timer_wheel
from mqstore.store.timer.wheel import NONE, Slot, Ticks, TimerWriter, Wheel

from ...stores import unpack
from ..put.faults import CountingFiles, Killed, KilledFiles

NOW_MS = 1_800_000_000_123
LOG_FILE = 5 * UNIT_BYTES + 20
SIZES = ["mappedFileSizeCommitLog=65536", "mappedFileSizeConsumeQueue=400", f"mappedFileSizeTimerLog={LOG_FILE}"]
ON = BrokerConfig().with_set(SIZES)
OFF = BrokerConfig().with_set([*SIZES, "timerWheelEnable=false"])


def timed(out_ms: int, *, cancels: bool = False) -> NewMessage:
    """A message of the timer topic."""
    text = f"TIMER_OUT_MS\x01{out_ms}\x02REAL_TOPIC\x01orders\x02REAL_QID\x010\x02"
    text += "TIMER_DEL_UNIQKEY\x01x\x02" if cancels else ""
    return NewMessage(b"rmq_sys_wheel_timer", b"", properties=text.encode())


def write(root: Path, new: list[NewMessage], config: BrokerConfig = ON) -> None:
    with StoreWriter.open(root, config, WriterOptions("5.3"), clock=lambda: NOW_MS) as writer:
        writer.append_columns(columns_of(new))
        writer.sync()


def log_units(root: Path) -> list[TimerUnits]:
    files = MappedFileQueue.open(root / "timerlog", LOG_FILE)
    return [part for part in timer_log(files) if isinstance(part, TimerUnits)]


def entries(root: Path) -> list[int]:
    """Position in the commit log of each entry of the timer log, in order."""
    return [int(p) for part in log_units(root) for p in part.units["offset_py"]]


def chains(root: Path) -> Counter[int]:
    """How often each message is in the wheel, by its position in the commit log."""
    found = {int(p): u for part in log_units(root) for p, u in zip(*part, strict=True)}
    count: Counter[int] = Counter()
    for part in timer_wheel(root / "timerwheel"):
        for last in part.slots["last_pos"].tolist():
            while last != -1:
                count[int(found[last]["offset_py"])] += 1
                last = int(found[last]["prev_pos"])
    return count


def enqueue(root: Path, files: Files) -> int:
    layout = Layout.open(root, ON)
    return TimerWriter(files, layout, 12, lambda: NOW_MS).enqueue()


MESSAGES = [timed(NOW_MS + 60_000 * (1 + n % 3), cancels=n == 7) for n in range(12)]


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    """A store with twelve timer messages that no timer has read."""
    write(tmp_path / "store", MESSAGES, OFF)
    assert not (tmp_path / "store" / "timerlog").exists()
    return tmp_path / "store"


@pytest.mark.slow
@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)], ids=["some steps", "every step"])
def test_a_kill_at_a_step_loses_nothing(every: int, waiting: Path, tmp_path: Path) -> None:
    counting = CountingFiles()
    whole = Path(shutil.copytree(waiting, tmp_path / "whole"))
    assert enqueue(whole, counting) == len(MESSAGES)
    wanted = chains(whole)
    assert set(wanted.values()) == {1} and len(wanted) == len(MESSAGES)
    for at in range(0, len(counting.steps), every):
        root = Path(shutil.copytree(waiting, tmp_path / f"{at}"))
        with pytest.raises(Killed):
            enqueue(root, KilledFiles(at))
        enqueue(root, Files())
        change = counting.steps[at]
        assert set(entries(root)) == set(wanted), f"step {at}, {change}"
        if (root / "timerwheel").exists() and change[0] != "write":
            assert chains(root) == wanted, f"step {at}, {change}"


def test_a_message_that_is_due_is_the_brokers(tmp_path: Path) -> None:
    root = tmp_path / "store"
    later = [timed(NOW_MS + 5_000), timed(NOW_MS - 5_000), timed(NOW_MS + 9_000)]
    write(root, later)
    check = read_timer_check(root / "config" / "timercheck")
    assert check is not None
    assert check.last_timer_queue_offset == check.master_timer_queue_offset == 1
    assert check.last_read_time_ms == NOW_MS - NOW_MS % 1_000
    assert len(entries(root)) == 1
    write(root, [timed(NOW_MS + 9_000)])
    assert len(entries(root)) == 1, "what comes behind it waits, too"


def test_a_timer_that_had_nothing_begins_to_read_now(tmp_path: Path) -> None:
    """It may have stood still for long: nothing is delivered again. What a start has to deliver keeps its time."""
    old_ms = NOW_MS - NOW_MS % 1_000 - 30 * 86_400_000
    for name, new, read_ms in (
        ("one", MESSAGES[:1], NOW_MS - NOW_MS % 1_000),
        ("due", [*MESSAGES[:1], timed(old_ms + 5_000)], old_ms),
    ):
        root = tmp_path / name
        write(root, [NewMessage(b"orders", b"x")])
        (root / "config").mkdir(exist_ok=True)
        (root / "config" / "timercheck").write_bytes(TimerCheck(last_read_time_ms=old_ms).to_bytes())
        write(root, new)
        check = read_timer_check(root / "config" / "timercheck")
        assert check is not None and check.last_read_time_ms == read_ms
        assert len(entries(root)) == 1


@pytest.mark.parametrize("harm", ["no check", "no wheel", "short wheel", "noise in the log"])
def test_a_timer_in_disorder_is_left_to_the_broker(harm: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    write(root, MESSAGES[:7])
    paths = {
        "no check": root / "config" / "timercheck",
        "no wheel": root / "timerwheel",
        "short wheel": root / "timerwheel",
        "noise in the log": root / "timerlog" / f"{LOG_FILE:020d}",
    }
    path = paths[harm]
    if harm.startswith("no "):
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] if "short" in harm else b"\x55" * LOG_FILE)
    timer = ("timerwheel", "timerlog", "config/timercheck")
    files = [f for name in timer for f in [root / name, *(root / name).glob("*")] if f.is_file()]
    before = {file: file.read_bytes() for file in files}
    write(root, MESSAGES[7:])
    assert {file: file.read_bytes() for file in files} == before
    assert path.exists() == (not harm.startswith("no "))


def test_ticks_and_rolling(tmp_path: Path) -> None:
    ticks = Ticks(100, 600)
    assert ticks.delay(59_999, 0) == (59_999, False)
    assert ticks.delay(60_000, 0) == (30_000, True), "enough time for the next round"
    assert ticks.delay(79_999, 0) == (30_000, True)
    assert ticks.delay(80_000, 0) == (60_000, True)
    assert Ticks.of_store(Layout.of(tmp_path)) == Ticks()
    odd = BrokerConfig().with_set(["timerPrecisionMs=250", "timerRollWindowSlot=1"])
    assert Ticks.of_store(Layout.of(tmp_path, odd)) == Ticks(200, SLOTS // 2 - 60), "as `setTimerPrecisionMs`"


def slots_of(log: Iterable[TimerUnits]) -> dict[int, Slot]:
    """The slots by number that the entries of a timer log make, in its order.

    A later tick takes a slot from an earlier one; num counts all entries, delivered ones, too.
    """
    ticks, empty = Ticks(), Slot(0, 0, 0, 0, 0)
    wheel = Wheel(ticks, lambda _: empty)
    for part in log:
        names = ("curr_write_time", "delayed_time", "magic")
        columns = (part.units[name].tolist() for name in names)
        for position, written, delay, magic in zip(part.position.tolist(), *columns, strict=True):
            slot = wheel.slot(ticks.of(written + delay))
            first = position if slot.first_pos == NONE else slot.first_pos
            step = -1 if magic & MAGIC_DELETE else 1
            wheel.put(Slot(slot.time, first, position, slot.num + step, slot.magic))
    return wheel.changed


@pytest.mark.parametrize("name", ["5.3.3-timer-clean", "5.5.0-timer-clean"])
def test_a_lost_wheel_is_rebuilt_from_a_real_log(name: str, tmp_path: Path) -> None:
    """Every slot of the real wheel whose entries the log still has, but for its count."""
    root = unpack(name, tmp_path)
    log = MappedFileQueue.open(root / "timerlog")
    units = [part for part in timer_log(log) if isinstance(part, TimerUnits)]
    made = slots_of(units)
    parts = list(timer_wheel(root / "timerwheel"))
    numbers = np.concatenate([part.number for part in parts]).tolist()
    slots = np.concatenate([part.slots for part in parts])
    real = {n: Slot(*slot.tolist()) for n, slot in zip(numbers, slots, strict=True)}
    assert made.keys() == real.keys()
    for number, slot in real.items():
        assert made[number]._replace(num=0) == slot._replace(num=0), number
        assert len(slot.to_bytes()) == SLOT_BYTES
    assert any(int(unit["magic"]) & MAGIC_ROLL for part in units for unit in part.units)
