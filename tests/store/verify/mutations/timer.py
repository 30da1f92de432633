"""Damage to the timer: wheel, timer log, timercheck (group F)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from mqstore.formats.timer_check import FIELDS
from mqstore.formats.timer_log import BLANK_BYTES, MAGIC_DELETE, MAGIC_MAX, UNIT, UNIT_BYTES
from mqstore.formats.timer_wheel import FILE_BYTES, SLOT, SLOT_BYTES, SLOTS
from mqstore.store.broker.system_topics import TIMER_TOPIC
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.context import Scope, VerifyContext
from mqstore.store.verify.timer_log import TimerFiles

from . import NOW_MS, on
from .edit import overwrite, records, set_field

CLEAN = ("5.3.3-timer-clean", "5.1.4-timer-clean", "5.5.0-timer-clean")
KILLED = ("5.3.3-timer-killed", "5.1.4-timer-killed", "5.5.0-timer-killed")
_NO_PREVIOUS = -1
_METRICS = ("timermetrics", "transactionMetrics")


class Timer:
    """The timer's files of a store, as they are before they are damaged."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.wheel = store / "timerwheel"
        self.check_path = store / "config" / "timercheck"
        with StoreReader(store) as opened:
            self._files = TimerFiles(VerifyContext(opened, Scope(), NOW_MS))
            self.log, self.check = self._files.log, self._files.check
            self.entries, self.slots = self.log.entries, self._files.slots
            self.ticks = self._files.ticks
        self.log_files = sorted((store / "timerlog").iterdir())

    def in_use(self) -> list[int]:
        """Rows of the slots that are still to be read, of times well ahead."""
        first = self.ticks.of(self.check.last_read_time_ms) + 2
        return np.flatnonzero(self.slots.time >= first).tolist()

    def chain(self, row: int) -> list[int]:
        """The rows of the entries of a slot, newest first."""
        found, at = [], int(self.slots.last[row])
        while at != _NO_PREVIOUS:
            (number,), (known,) = self.entries.at(np.array([at], np.int64))
            assert known
            found.append(int(number))
            at = int(self.entries.previous[number])
        return found

    def set_slot(self, row: int, name: str, value: int) -> str:
        """A field of a slot."""
        number = int(self.slots.number[row])
        return f"slot {number}: " + set_field(self.wheel, number * SLOT_BYTES, SLOT, name, value)

    def place(self, row: int) -> tuple[Path, int]:
        """File and offset of an entry."""
        position = int(self.entries.position[row])
        file = next(f for f in self.log.files if f.start <= position < f.end)
        return Path(file.path), position - file.start

    def set_entry(self, row: int, name: str, value: int) -> str:
        """A field of an entry."""
        return set_field(*self.place(row), UNIT, name, value)

    def set_check(self, name: str, value: int) -> str:
        """A field of timercheck."""
        return set_field(self.check_path, 0, FIELDS, name, value)

    def delay(self, row: int) -> int:
        """`delayed_time` of an entry."""
        path, offset = self.place(row)
        data = path.read_bytes()[offset : offset + UNIT_BYTES]
        found: int = UNIT.parse(data).delayed_time
        return found


@on(*CLEAN)
def i_120(store: Path, random: Random) -> str:
    """The wheel has another length."""
    size = random.choice([random.randrange(1, FILE_BYTES), FILE_BYTES + random.randrange(1, 99)])
    os.truncate(store / "timerwheel", size)
    return f"timerwheel of {size} bytes"


@on(*CLEAN, *KILLED)
def i_121(store: Path, random: Random) -> str:
    """A slot has the time of another slot."""
    timer = Timer(store)
    row = random.randrange(len(timer.slots.time))
    time = int(timer.slots.time[row])
    return timer.set_slot(row, "time", time + random.choice([-1, 1]) * random.randrange(1, SLOTS))


@on(*CLEAN, *KILLED)
def i_122(store: Path, random: Random) -> str:
    """A slot leads to no entry, or in the wrong order."""
    timer = Timer(store)
    row = random.choice(timer.in_use())
    first, last = int(timer.slots.first[row]), int(timer.slots.last[row])
    behind = timer.log.end + random.randrange(9) * UNIT_BYTES
    inside = random.randrange(1, UNIT_BYTES)
    name, value = random.choice(
        [
            ("last_pos", behind),
            ("last_pos", last + inside),
            ("first_pos", last + UNIT_BYTES * random.randrange(1, 9)),
            ("first_pos", -random.randrange(1, 1000)),
            ("first_pos", first + inside),
        ]
    )
    return timer.set_slot(row, name, value)


@on(*CLEAN)
def i_123(store: Path, random: Random) -> str:
    """A chain goes in a circle, ends early, or leads to no entry."""
    timer = Timer(store)
    chain = timer.chain(random.choice(timer.in_use()))
    row = random.choice(chain)
    position = int(timer.entries.position[row])
    links = [position, position + UNIT_BYTES * random.randrange(1, 9), position - 1]
    if row != chain[-1]:
        links.append(_NO_PREVIOUS)
    links = [link for link in links if link != int(timer.entries.previous[row])]
    return timer.set_entry(row, "prev_pos", random.choice([p for p in links if p >= -1]))


@on(*CLEAN, *KILLED)
def i_124(store: Path, random: Random) -> str:
    """An entry of a chain is due in another tick."""
    timer = Timer(store)
    row = random.choice(timer.chain(random.choice(timer.in_use())))
    change = random.choice([-1, 1]) * random.randrange(2_000, 50_000)
    return timer.set_entry(row, "delayed_time", timer.delay(row) + change)


@on(*CLEAN)
def i_125(store: Path, random: Random) -> str:
    """A slot counts wrongly."""
    timer = Timer(store)
    row = random.choice(timer.in_use())
    change = random.choice([-1, 1]) * random.randrange(1, 1000)
    return timer.set_slot(row, "num", int(timer.slots.num[row]) + change)


@on(*CLEAN, *KILLED)
def i_126(store: Path, random: Random) -> str:
    """An entry in the middle is zeros or noise, or a file has no BLANK."""
    timer = Timer(store)
    path, offset = timer.place(random.randrange(len(timer.entries.position) - 1))
    kind = random.choice(["zeros", "noise", "blank"])
    if kind == "zeros":
        overwrite(path, offset, bytes(UNIT_BYTES))
        return f"{path.name} @{offset}: zeros"
    if kind == "noise":
        overwrite(path, offset, random.randbytes(UNIT_BYTES))
        return f"{path.name} @{offset}: noise"
    path = random.choice(timer.log_files[:-1])
    size = path.stat().st_size
    offset = size - (size - BLANK_BYTES) % UNIT_BYTES - BLANK_BYTES
    overwrite(path, offset, bytes(size - offset))
    return f"{path.name}: no BLANK at {offset}"


@on(*CLEAN, *KILLED)
def i_127(store: Path, random: Random) -> str:
    """An entry has an unknown magic, something reserved, or a link forward."""
    timer = Timer(store)
    row = random.randrange(len(timer.entries.position))
    position = int(timer.entries.position[row])
    edits: list[Callable[[], str]] = [
        lambda: timer.set_entry(row, "magic", random.randrange(MAGIC_MAX + 1, 1 << 31)),
        lambda: timer.set_entry(row, "reserved", random.randrange(1, 1 << 60)),
        lambda: timer.set_entry(row, "prev_pos", position + random.randrange(1 << 20)),
        lambda: timer.set_entry(row, "prev_pos", -random.randrange(2, 1 << 20)),
    ]
    return random.choice(edits)()


@on(*CLEAN, *KILLED)
def i_128(store: Path, random: Random) -> str:
    """An entry whose tick was not read yet names another place, size or topic."""
    timer = Timer(store)
    entries = timer.entries
    row = random.choice(np.flatnonzero(entries.tick_ms >= timer.check.last_read_time_ms).tolist())
    column, name = random.choice(
        [
            (entries.offset_py, "offset_py"),
            (entries.size_py, "size_py"),
            (entries.topic_hash, "hash_code_of_real_topic"),
        ]
    )
    return timer.set_entry(row, name, int(column[row]) + random.choice([-1, 1, 7, 4096]))


@on(*CLEAN, *KILLED)
def i_129(store: Path, random: Random) -> str:
    """An entry is due at another time than its record, or cancels where that does not."""
    timer = Timer(store)
    row = random.choice(np.flatnonzero(~timer.entries.rolled).tolist())
    if random.random() < 0.5:
        return timer.set_entry(row, "magic", int(timer.entries.magic[row]) ^ MAGIC_DELETE)
    change = random.choice([-1, 1]) * random.randrange(1, 1 << 20)
    return timer.set_entry(row, "delayed_time", timer.delay(row) + change)


@on(*CLEAN)
def i_130(store: Path, random: Random) -> str:
    """timercheck is ahead of the timer log, or inside an entry."""
    timer = Timer(store)
    ahead = timer.log.end + random.randrange(1, 1 << 30)
    inside = random.randrange(timer.log.end // UNIT_BYTES - 1) * UNIT_BYTES
    file = next(f for f in timer.log.files if f.start <= inside < f.end)
    inside = file.start + (inside - file.start) // UNIT_BYTES * UNIT_BYTES
    return timer.set_check("last_timer_log_flush_pos", random.choice([ahead, inside + random.randrange(1, 20), -7]))


@on(*CLEAN, *KILLED)
def i_131(store: Path, random: Random) -> str:
    """An offset of timercheck is behind the queue's end, negative, or 0; or the timer is lost."""
    timer = Timer(store)
    if random.random() < 0.2:
        shutil.rmtree(store / "timerlog")
        timer.wheel.unlink()
        timer.check_path.unlink()
        return "wheel, log and timercheck are gone"
    name = random.choice(["last_timer_queue_offset", "master_timer_queue_offset"])
    return timer.set_check(name, random.choice([0, -1, random.randrange(1000, 1 << 40)]))


@on(*CLEAN)
def i_132(store: Path, random: Random) -> str:
    """The timer has read the future, or part of a tick."""
    timer = Timer(store)
    read_ms = timer.check.last_read_time_ms
    # ahead of the clock of this machine, too, which repairs go by
    ahead = NOW_MS // 1000 * 1000 + random.randrange(1 << 28, 1 << 29) * 1000
    return timer.set_check("last_read_time_ms", random.choice([ahead, read_ms + random.randrange(1, 1000)]))


@on(*CLEAN, *KILLED)
def i_133(store: Path, random: Random) -> str:
    """A slot in use is empty, or the whole wheel."""
    timer = Timer(store)
    if random.random() < 0.2:
        os.truncate(timer.wheel, 0)
        os.truncate(timer.wheel, FILE_BYTES)
        return "the wheel is zeros"
    row = _of_a_message(timer, random)
    number = int(timer.slots.number[row])
    overwrite(timer.wheel, number * SLOT_BYTES, bytes(SLOT_BYTES))
    return f"slot {number}: zeros"


def _of_a_message(timer: Timer, random: Random) -> int:
    """A slot in use that some message read before timercheck was written waits in."""
    fitting = [row for row in timer.in_use() if int(timer.slots.first[row]) < timer.check.last_timer_log_flush_pos]
    return random.choice(fitting)


@on("5.3.3-timer-clean", "5.1.4-timer-clean", "5.5.0-timer-clean", "5.3.3-pop")
def i_134(store: Path, random: Random) -> str:
    """timermetrics counts below zero, or is cut."""
    there = sorted(path for path in (store / "config").iterdir() if path.name in _METRICS)
    path = random.choice(there)
    text = path.read_bytes()
    if path.name == "timermetrics" and random.random() < 0.5:
        content: dict[str, Any] = json.loads(text)
        content["timingCount"]["any"] = {"count": -random.randrange(1, 99), "timeStamp": 1}
        path.write_text(json.dumps(content))
        return "a negative count"
    cut = random.randrange(1, len(text) - 1)
    path.write_bytes(text[:cut])
    return f"{path.name} cut at {cut}"


@on("5.3.3-timer-killed", "5.1.4-timer-killed", "5.5.0-timer-killed")
def i_135(store: Path, random: Random) -> str:
    """The log has expired, the timer log has not."""
    timer = Timer(store)
    first, *rest = sorted((store / "commitlog").iterdir())
    first.unlink()
    start = int(rest[0].name)
    file = timer.log.files[0]
    row = int(np.searchsorted(timer.entries.position, file.end)) - 1
    if random.random() < 0.9:
        timer.set_entry(row, "offset_py", random.randrange(start))
    return f"{first.name} of the log removed"


@on("5.3.3-timer-clean", "5.5.0-timer-clean")
def i_136(store: Path, random: Random) -> str:
    """A cancel message names nothing."""
    marker = b"TIMER_DEL_UNIQKEY\x01"
    cancels = [p for p in records(store) if p.topic == TIMER_TOPIC and marker in p.bytes()]
    place = random.choice(cancels)
    at = place.bytes().index(marker) + len(marker) + random.randrange(20)
    old = place.bytes()[at]
    new = random.choice([byte for byte in b"abcXYZ0189" if byte != old])
    overwrite(place.path, place.offset + at, bytes([new]))
    return f"record at {place.position}: byte {at} of the key it cancels"


@on(*CLEAN)
def i_137(store: Path, random: Random) -> str:
    """Two entries of chains in use name one record."""
    timer = Timer(store)
    rows = [r for slot in timer.in_use() for r in timer.chain(slot) if not timer.entries.deletes[r]]
    one, other = random.sample(rows, 2)
    return timer.set_entry(other, "offset_py", int(timer.entries.offset_py[one]))
