"""What a plan does to the timer, so that a broker loads it: its log, and a wheel of a wrong length.

A wheel that is lost costs a broker all messages but those of the last log files (B33); it is made
anew from the whole log here, unless the broker reads the whole queue again anyway: then each message
would fire twice (B34). Entries that are gone are read again from the timer topic's queue by the broker
itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ...formats.blank import MAGIC_BLANK
from ...formats.timer_log import BLANK, BLANK_BYTES, UNIT_BYTES
from ...formats.timer_wheel import FILE_BYTES, SLOT_BYTES
from ..broker.snapshot import Entry, Snapshot
from ..counted import counted
from ..disk.checkpoint import TimerCheck, read_timer_check
from ..disk.edits import Edit
from ..queues.edits import last_byte
from ..queues.units import is_whole_file
from .start import entries_end, rebuilt_wheel

_LOG_CODES = ("I-126",)
_WHEEL_CODES = ("I-120",)


def timer_edits(snapshot: Snapshot) -> Iterator[Edit]:
    """The edits for a store whose broker has a timer. Raises Unreadable."""
    size = snapshot.timer_file_bytes
    kept: list[Entry] = []
    for entry in snapshot.timer_log:
        if is_whole_file(entry._replace(size=size), size) and entry.size:
            kept.append(entry)
        else:
            yield Edit("move", entry.path, "no file of the timer log", ("I-005",))
    while len(kept) > 1 and not _has_entry(snapshot, kept[-1]):
        entry = kept.pop()
        yield Edit("move", entry.path, "no entry is in it: a broker may not start", _LOG_CODES)
    for entry in kept:
        if entry.size != size:
            yield from _whole(snapshot, entry, size, last=entry is kept[-1])
    yield from _wheel_edits(snapshot, kept)


def _wheel_edits(snapshot: Snapshot, kept: list[Entry]) -> Iterator[Edit]:
    """A new wheel for one of a wrong length, and for one that is lost and that entries need."""
    wheel = snapshot.layout.timer_wheel
    there = wheel.exists()
    size = wheel.stat().st_size if there else 0
    if size == FILE_BYTES or (not size and not _needs_wheel(snapshot, kept)):
        return
    if there:
        reason = "a wheel of a wrong length: a broker does not start" if size else "an empty wheel"
        yield Edit("move", str(wheel), reason, _WHEEL_CODES)
    yield new_wheel(snapshot, kept)


def _needs_wheel(snapshot: Snapshot, kept: list[Entry]) -> bool:
    """Entries wait that no broker finds without a wheel."""
    check = read_timer_check(snapshot.layout.config / "timercheck") or TimerCheck()
    reads_all_again = check.master_timer_queue_offset <= 0
    return not reads_all_again and any(_has_entry(snapshot, entry) for entry in kept)


def _has_entry(snapshot: Snapshot, entry: Entry) -> bool:
    return entries_end(snapshot.bytes_of(entry)[:]) > 0


def _whole(snapshot: Snapshot, entry: Entry, size: int, *, last: bool) -> Iterator[Edit]:
    """Give a file its length; behind its last entry a BLANK leads on to the next file."""
    reason = f"{counted(entry.size, 'byte')}, not {size}: a broker does not start"
    end = entries_end(snapshot.bytes_of(entry)[:size]) // UNIT_BYTES * UNIT_BYTES
    yield Edit("truncate", entry.path, reason, ("I-003",), length=size)
    if (torn := min(entry.size, size) - end) > 0 and last_byte(entry, end) > end:
        yield Edit("write", entry.path, "an entry that is cut off", _LOG_CODES, end, torn)
    if not last and size - end >= BLANK_BYTES:
        blank = BLANK.build({"size": size - end, "prev_pos": 0, "magic": MAGIC_BLANK})
        yield Edit(
            "write", entry.path, "go on in the next file", _LOG_CODES, end, len(blank), blank
        )


def new_wheel(snapshot: Snapshot, kept: list[Entry]) -> Edit:
    """A wheel that names the entries of all files."""
    whole = replace(snapshot, timer_log=tuple(kept))
    slots = rebuilt_wheel(whole)
    used = np.flatnonzero(slots["time"])
    pieces = tuple((int(n) * SLOT_BYTES, slots[n].tobytes()) for n in used)
    path = str(snapshot.layout.timer_wheel)
    reason = f"{counted(len(used), 'tick')} of the timer log"
    return Edit("create", path, reason, _WHEEL_CODES, length=FILE_BYTES, pieces=pieces)
