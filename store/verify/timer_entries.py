"""The entries of the timer log and the slots of the wheel, as columns (spec 04, 4.5 and 4.6)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, wraps

import numpy as np
import numpy.typing as npt

from ...formats.timer_log import UNIT_BYTES
from ...formats.timer_wheel import FILE_BYTES
from ..broker.delay_level import TIMER_TOPIC
from ..broker.snapshot import Bytes, FileBytes
from ..columns.rows import Rows
from ..disk.checkpoint import TimerCheck, read_timer_check
from ..disk.file_queue import MappedFile, MappedFileQueue
from ..timer.entries import TimerEntries
from ..timer.read import TimerRange, TimerUnits, timer_log, timer_wheel
from ..timer.wheel import Ticks
from .context import Scene
from .register import Once, after
from .unreadable import need_whole

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass
class TimerLog:
    """The log as it lies. ranges: what is no entry. end: behind the last entry."""

    files: list[MappedFile]
    entries: TimerEntries = field(init=False)
    ranges: list[TimerRange] = field(default_factory=list)
    end: int = 0

    @property
    def start(self) -> int:
        """Where the first file begins."""
        return self.files[0].start if self.files else 0

    def file_of(self, position: int) -> MappedFile | None:
        """The file that has the position."""
        return next((file for file in self.files if file.start <= position < file.end), None)

    def aligned(self, positions: Ints) -> Flags:
        """bool[n]: on the boundary of a unit of its file, or in no file."""
        starts = np.array([file.start for file in self.files], np.int64)
        at = np.searchsorted(starts, positions, side="right") - 1
        inside = (at >= 0) & (len(starts) > 0)
        begin = starts[np.maximum(at, 0)] if len(starts) else np.zeros(len(positions), np.int64)
        found: Flags = ~inside | ((positions - begin) % UNIT_BYTES == 0)
        return found


@dataclass(frozen=True)
class Slots(Rows):
    """n slots of the wheel that were ever used."""

    number: Ints
    time: Ints
    first: Ints
    last: Ints
    num: Ints


class TimerFiles:
    """The timer's files of a store, each read when it is asked for."""

    def __init__(self, scene: Scene) -> None:
        self._layout = scene.store.layout
        self.check_path = self._layout.config / "timercheck"
        self.wheel_path = self._layout.timer_wheel

    @cached_property
    def there(self) -> bool:
        """Some of them exist."""
        return self.wheel_path.exists() or self.has_check or bool(self.log.files)

    @property
    def has_check(self) -> bool:
        """`timercheck` is there."""
        return self.check_path.exists()

    @cached_property
    def check(self) -> TimerCheck:
        """timercheck; zeros without one."""
        return read_timer_check(self.check_path) or TimerCheck()

    @cached_property
    def wheel_bytes(self) -> int:
        """Length of the wheel, 0 without one."""
        return self.wheel_path.stat().st_size if self.wheel_path.exists() else 0

    @cached_property
    def slots(self) -> Slots:
        """Those with a time; none where the file is no wheel.

        timercheck is read before the wheel and the wheel before the log: while a broker writes,
        what is read later is at least as new.
        """
        _ = self.check
        parts: list[Slots] = []
        if self.wheel_bytes == FILE_BYTES:
            for number, slots in self.read_wheel():
                used = np.flatnonzero(slots["time"])  # most of a wheel is empty
                names = ("time", "first_pos", "last_pos", "num")
                columns = [number[used], *(slots[name][used].astype(np.int64) for name in names)]
                parts.append(Slots(*columns))
            need_whole([os.fspath(self.wheel_path)])
        return Slots.concat(parts)

    def read_wheel(self) -> Iterator[tuple[Ints, npt.NDArray[np.void]]]:
        """(numbers, slots) of the wheel, in windows. Raises Unreadable."""
        return timer_wheel(self.wheel_path)

    def open_log(self) -> MappedFileQueue:
        """The files of the timer log. Raises Unreadable."""
        size, origin = self._layout.broker_config.size("mappedFileSizeTimerLog")
        file_bytes = size if origin != "default" else None
        return MappedFileQueue.open(self._layout.timer_log, file_bytes)

    def content(self, path: str) -> Bytes | FileBytes:
        """The bytes of one of the files, by slices. Raises Unreadable."""
        return FileBytes(path)

    @cached_property
    def ticks(self) -> Ticks:
        """The wheel's unit of time."""
        return Ticks.of_store(self._layout)

    @cached_property
    def log(self) -> TimerLog:
        """All entries. Raises Unreadable, UnreadableRange. Memory: 64 bytes for each."""
        parts: list[TimerEntries] = []
        with self.open_log() as files:
            log = TimerLog(list(files.files))
            for item in timer_log(files):
                if isinstance(item, TimerUnits):
                    parts.append(TimerEntries.of(*item))
                else:
                    log.ranges.append(item)
        need_whole(file.path for file in log.files)
        log.entries = TimerEntries.concat(parts)
        log.end = log.entries.end
        return log


def timer_files(scene: Scene) -> TimerFiles:
    """The timer's files of this run."""
    return scene.kept("timer files", lambda: TimerFiles(scene))


def of_timer(*codes: str) -> Callable[[Once], Once]:
    """As `after`, of a check that has nothing to do where another topic is asked for."""

    def register(check: Once) -> Once:
        @wraps(check)
        def limited(scene: Scene) -> None:
            if scene.scope.topic in (None, TIMER_TOPIC):
                check(scene)

        return after(*codes)(limited)

    return register
