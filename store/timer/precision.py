"""timerPrecisionMs, the length of a slot of the timer wheel, as the store shows it (spec 04, 4.6).

A slot of the wheel has the number of its tick, counted from 1970: how long a tick is, is what makes
the time of the timer of it. Without a wheel all times of the timer are multiples: those that its log and
timercheck have from the clock, and TIMER_OUT_MS.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ...formats.message_properties import TIMER_OUT_MS
from ...formats.timer_wheel import FILE_BYTES
from ..broker.delay_level import TIMER_TOPIC
from ..counted import counted
from ..disk.checkpoint import read_timer_check
from ..disk.file_queue import MappedFileQueue
from ..errors import NotFound, StoreError
from .read import TimerUnits, timer_log, timer_wheel

if TYPE_CHECKING:
    from ..disk.layout import Layout

DEFAULT_MS = 1_000
PRECISIONS_MS = (100, 200, 500, 1_000)
"""Those that a broker has: whatever its configuration says becomes one of them."""
_SLOTS_ENOUGH = 4_096
_ENTRIES_ENOUGH = 4_096
_MESSAGES_ENOUGH = 64
_NEAR = 1.4
"""Times of a timer are that near to its clock, by quotient: precisions lie farther apart."""
_MOST = 0.8
"""Share of the times that are multiples: a few of them may be damaged."""
_BY_CHANCE = {1_000: 8, 500: 3, 200: 3, 100: 1}
"""With fewer different times they may be multiples of it by chance."""


_DIGITS_MAX = 15
"""Of a time in ms."""


class Shown(NamedTuple):
    """A precision, and what in the store shows it."""

    precision_ms: int
    by: str


def taken_by_a_broker(asked_ms: int) -> int:
    """What a broker makes of a `timerPrecisionMs`: the next lower one that it has, 100 at least.

    >>> [taken_by_a_broker(ms) for ms in (2000, 500, 250, 1)]
    [1000, 500, 200, 100]
    """
    return max((p for p in PRECISIONS_MS if p <= asked_ms), default=PRECISIONS_MS[0])


def precision_of(layout: Layout) -> int:
    """timerPrecisionMs as configured, else as the store shows it. Raises InvalidInput for no number."""
    asked = layout.broker_config.get_int("timerPrecisionMs")
    if asked is not None:
        return taken_by_a_broker(asked)
    shown = shown_precision(layout)
    return DEFAULT_MS if shown is None else shown.precision_ms


@lru_cache(maxsize=16)
def shown_precision(layout: Layout) -> Shown | None:
    """The precision that a store shows; None where it does not.

    A file that cannot be read shows nothing: whoever reads it for its own sake says so.
    """
    times = list(_clock_times(layout))
    return _by_slots(layout, times) or _by_multiples([*times, *_out_times(layout)])


def _by_slots(layout: Layout, times: list[int]) -> Shown | None:
    """By the slots of the wheel that lie where their tick belongs."""
    import numpy as np

    from .entries import is_in_place

    ticks: list[int] = []
    try:
        status = layout.timer_wheel.stat()
        if status.st_size != FILE_BYTES:
            return None
        for numbers, slots in timer_wheel(layout.timer_wheel):
            time = slots["time"].astype(np.int64)
            ticks += time[(time > 0) & is_in_place(numbers, time)].tolist()
            if len(ticks) >= _SLOTS_ENOUGH:
                break
    except (StoreError, OSError):
        return None
    now_ms = sorted(times)[len(times) // 2] if times else status.st_mtime * 1000
    agree = {p: sum(1 / _NEAR < tick * p / now_ms < _NEAR for tick in ticks) for p in PRECISIONS_MS}
    best = max(agree, key=lambda precision: agree[precision])
    if not agree[best]:
        return None
    count = agree[best]
    return Shown(best, f"{counted(count, 'slot')} of timerwheel")


def _by_multiples(times: list[int]) -> Shown | None:
    """The largest of which the times are multiples, so many that it is no chance.

    Of few times that are no multiples of the default the largest is taken all the same.
    """
    different = set(times)
    for precision_ms in reversed(PRECISIONS_MS):
        fits = sum(time % precision_ms == 0 for time in different)
        if different and fits >= _MOST * len(different):
            enough = fits >= _BY_CHANCE[precision_ms] or precision_ms < DEFAULT_MS
            return Shown(precision_ms, f"{counted(fits, 'time')} of the timer") if enough else None
    return None


def _clock_times(layout: Layout) -> Iterator[int]:
    """Times in ms that the timer has from its clock: when it wrote entries, how far it had read."""
    try:
        check = read_timer_check(layout.config / "timercheck")
        if check is not None and check.last_read_time_ms > 0:
            yield check.last_read_time_ms
        with MappedFileQueue.open(layout.timer_log) as files:
            yield from islice(_written(files), _ENTRIES_ENOUGH)
    except (StoreError, OSError):
        return


def _written(files: MappedFileQueue) -> Iterator[int]:
    """Write times of entries, those of the newest file first."""
    for file in reversed(files.files):
        for part in timer_log(files, file.start):
            if not isinstance(part, TimerUnits):
                continue
            if part.position[0] >= file.end:
                break
            yield from {int(time) for time in part.units["curr_write_time"].tolist() if time > 0}


def _out_times(layout: Layout) -> Iterator[int]:
    """TIMER_OUT_MS of some of the newest messages of the timer topic."""
    from ..log.one_record import read_message
    from ..queues.read import ConsumeQueue

    if layout.rocksdb_queues or not (layout.consume_queue / TIMER_TOPIC).is_dir():
        return
    try:
        with layout.commit_log_files() as log, ConsumeQueue.open(layout, TIMER_TOPIC, 0) as queue:
            for unit in islice(queue.newest(), _MESSAGES_ENOUGH):
                try:
                    text = read_message(log, unit.physical_offset).properties.get(TIMER_OUT_MS, "")
                except NotFound:
                    continue
                if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX:
                    yield int(text)
    except (StoreError, OSError):
        return
