"""`put` makes timer log and wheel as the real TimerMessageStore of 5.x does with the same queue."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mqstore.formats.derive import dtype_of
from mqstore.formats.timer_check import FIELDS, PAGE_BYTES
from mqstore.formats.timer_log import UNIT, UNIT_BYTES
from mqstore.store.disk.checkpoint import read_timer_check
from mqstore.store.disk.file_queue import MappedFileQueue
from mqstore.store.timer.read import TimerRange, TimerUnits, timer_log, timer_wheel
from tests import stores, timer_precision
from tests.cli.datadriven import run_here
from tests.slices import SEED, rng

from .brokers import Broker
from .conftest import Judge
from .served import Row, as_broker, loaded, put

pytestmark = pytest.mark.interop

FIVE = ("5.1.4", "5.3.3", "5.4.0", "5.5.0", "5.5.1")
FAST = "5.3.3"
LOG_FILE = 12 * UNIT_BYTES + 30
CONFIG: dict[str, Any] = {
    "mappedFileSizeCommitLog": 1 << 18,
    "mappedFileSizeConsumeQueue": 4000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2000,
    "mappedFileSizeTimerLog": LOG_FILE,
    "timerWheelEnable": True,
}
#: A broker brings its wheel to the file every second, and not when it stops.
FLUSHED = {"do": "wait", "ms": 1_500}
ROLL_WINDOW_MS = 2 * 86_400 * 1_000


def message(number: int, out_ms: int, **more: str) -> Row:
    """As a broker stores a message that is due at `out_ms`."""
    times = {"TIMER_OUT_MS": str(out_ms), "UNIQ_KEY": f"{number:032X}"}
    real = {"REAL_TOPIC": ("orders", "заказы")[number % 2], "REAL_QID": "1"}
    return {"type": "message", "topic": "rmq_sys_wheel_timer", "body": f"m{number}", "properties": times | real | more}


def random_messages(version: str, count: int = 60) -> list[Row]:
    """Few ticks with many messages, far ones that are rolled, cancels."""
    chance, now = rng(f"timer {version}"), int(time.time()) * 1000
    ticks = [now + 1_000 * chance.randrange(3_600, 7_200) for _ in range(8)]
    ticks += [now + ROLL_WINDOW_MS + 90_000_000, now + 2 * ROLL_WINDOW_MS + 10_000]
    found = []
    for number in range(count):
        more = {"TIMER_DEL_UNIQKEY": f"{number - 1:032X}"} if chance.random() < 0.2 else {}
        found.append(message(number, chance.choice(ticks), **more))
    return found


def units(root: Path) -> list[TimerUnits | TimerRange]:
    """The timer log."""
    return list(timer_log(MappedFileQueue.open(root / "timerlog", LOG_FILE)))


def content(root: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], list[Row]]:
    """Units of the log and slots of the wheel by due time; what is no unit in the log.

    Rolled messages are due some time after they were enqueued: there the clock decides the slot,
    not the message. It is taken out of units and slots.
    """
    parts = units(root)
    log = np.concatenate([p.units for p in parts if isinstance(p, TimerUnits)]).copy()
    blanks = [p._asdict() for p in parts if isinstance(p, TimerRange) and p.kind != "zeros"]
    rolled = log["magic"] & 2 != 0
    due = log["curr_write_time"] + log["delayed_time"]
    ends = {int(tick) for tick in due[rolled] // 1000}
    log["delayed_time"][~rolled] = 0
    log["prev_pos"] = np.where(rolled, 0, log["prev_pos"])
    log["curr_write_time"] = np.where(rolled, 0, due)
    slots = np.concatenate([part.slots for part in timer_wheel(root / "timerwheel")]).copy()
    slots["time"] = [0 if int(tick) in ends else tick for tick in slots["time"]]
    keep = slots["time"] != 0
    return log, slots[keep], blanks


def check(root: Path) -> Row:
    """The fields of timercheck."""
    found = FIELDS.parse((root / "config" / "timercheck").read_bytes())
    return {name: value for name, value in found.items() if name.endswith(("pos", "offset"))}


@pytest.fixture(params=[FAST, *(pytest.param(v, marks=pytest.mark.slow) for v in FIVE if v != FAST)])
def five(request: pytest.FixtureRequest, oracle: Any) -> Judge:
    """The judge of each version that has a timer."""
    judge: Judge = oracle(request.param)
    return judge


def assert_same(theirs: Path, ours: Path) -> None:
    """The same log, wheel and checkpoint but for the clock."""
    left, right = content(theirs), content(ours)
    for name in UNIT_NAMES:
        assert left[0][name].tolist() == right[0][name].tolist(), f"{name}, seed {SEED}"
    assert left[1].tolist() == right[1].tolist(), f"slots, seed {SEED}"
    assert left[2] == right[2]
    position = "last_timer_log_flush_pos"
    left_check, right_check = check(theirs), check(ours)
    flushed = left_check.pop(position), right_check.pop(position)
    assert left_check == right_check
    assert flushed[0] <= flushed[1], "a broker flushes one file of the log a second"


UNIT_NAMES = dtype_of(UNIT).names or ()


def test_the_brokers_timer_log_and_wheel(five: Judge, tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    messages = random_messages(five.version)
    config = CONFIG | {"timerWheelEnable": False}
    put(theirs, messages, config, *as_broker(five.version))
    assert not (theirs / "timerlog").exists()
    loaded(five, theirs, CONFIG, FLUSHED)
    put(ours, messages[:25], CONFIG, *as_broker(five.version))
    put(ours, messages[25:], CONFIG)
    assert_same(theirs, ours)


@pytest.mark.slow
def test_the_broker_finds_nothing_left_to_do(five: Judge, tmp_path: Path) -> None:
    root = tmp_path / "store"
    messages = random_messages(five.version)
    put(root, messages, CONFIG, *as_broker(five.version))
    before, done = content(root), check(root)
    answer = loaded(five, root, CONFIG, {"do": "timer"})
    state = answer["steps"][0]
    assert state["queue_offset"] == len(messages)
    assert state["log_end"] == done["last_timer_log_flush_pos"]
    after = content(root)
    assert before[0].tolist() == after[0].tolist()
    assert before[1].tolist() == after[1].tolist()
    keys = {e["message"] for slot in state["slots"] for e in slot["chain"]}
    assert keys == {row["properties"]["UNIQ_KEY"] for row in messages}


@pytest.mark.slow
@pytest.mark.parametrize("mended", [True, False])
def test_what_was_filed_before_a_kill_is_not_filed_again(mended: bool, five: Judge, tmp_path: Path) -> None:
    """timercheck of some moment before it; as it lies, a start files all behind it once more."""
    root, messages, killed_at = tmp_path / "store", random_messages(five.version), 25
    put(root, messages, CONFIG, *as_broker(five.version))
    before, path = content(root)[0], root / "config" / "timercheck"
    known = read_timer_check(path)
    assert known is not None
    old = known._replace(last_timer_queue_offset=killed_at, master_timer_queue_offset=killed_at)
    path.write_bytes(old.to_bytes().ljust(PAGE_BYTES, b"\0"))
    (root / "abort").touch()
    if mended:
        options = [f"--set={name}={value}" for name, value in CONFIG.items()]
        done = run_here(["recover", str(root), *options, "--apply", "--yes"])
        assert done.code == 0 and read_timer_check(path) == known, done.stdout + done.stderr
    answer = loaded(five, root, CONFIG, FLUSHED, {"do": "timer"})
    assert answer["steps"][1]["queue_offset"] == len(messages)
    filed = len(before) if mended else 2 * len(before) - killed_at
    assert len(content(root)[0]) == filed


@pytest.mark.slow
def test_broker_and_put_take_turns(five: Judge, tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    messages = random_messages(five.version, 90)
    off = CONFIG | {"timerWheelEnable": False}
    put(ours, messages[:30], off, *as_broker(five.version))
    loaded(five, ours, CONFIG, FLUSHED)
    put(ours, messages[30:60], CONFIG)
    shutil.copytree(ours, theirs)
    for root, config in ((theirs, off), (ours, CONFIG)):
        put(root, messages[60:], config)
    loaded(five, theirs, CONFIG, FLUSHED)
    assert_same(theirs, ours)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["5.1.4-100ms-clean", "5.1.4-100ms-killed", "5.5.0-timer-killed"])
def test_what_no_start_reads_any_more_is_delivered(name: str, tmp_path: Path) -> None:
    """Stores that were left longer ago than their wheel reaches back: all that waited comes, once."""
    of_precision = name in timer_precision.NAMES
    root = (timer_precision if of_precision else stores).unpack(name, tmp_path)
    chosen = timer_precision.config(name, root) if of_precision else stores.config_set(name, root)
    options = [f"--set={option}" for option in chosen]

    def view() -> Row:
        found: Row = json.loads(run_here(["inspect", str(root), "--timers", *options, "--format", "json"]).stdout)
        return found

    assert view()["never"] or run_here(["verify", str(root), *options]).code == 1
    done = run_here(["recover", str(root), *options, "--apply", "--yes"])
    assert done.code == 0, done.stdout + done.stderr
    before = view()
    waits = before["pending"] + before["rolled"]
    assert waits >= 22 and not before["never"]
    broker = Broker(name[:5], root, dict(option.split("=", 1) for option in chosen))
    broker.consume({"alarms": "*", "alarms-2": "*"})
    broker.received(before["delivered"] + waits, seconds=60)
    broker.stop()
    after = view()
    assert (after["delivered"], after["never"]) == (before["delivered"] + waits, 0)
