"""Queue to log: all units of a queue in order, those that no message of the log has claimed most.

What is decided first is where a queue ends: behind its last unit that counts. Units behind it are
dead, whatever they name (docs/invariants.md, I-062); a broker that has cut its log leaves them there.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...formats.consume_queue import UNIT_BYTES
from ..columns.ordered import Ranges
from ..queues.units import Units, is_pre_fill, is_valid
from .context import Scene, covered_of
from .queue_resolve import are_rolled_back, resolve
from .queue_state import QueueCheck, Queues

_BEHIND_AT_ONCE = 256
"""Units behind the end that are looked at, in each window."""
_NO_END = np.iinfo(np.int64).max
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class QueuePass:
    """One queue from its first unit to its last.

    live_end: queue offset behind the last unit that counts, -1 without one. real: how many units
    name a record. ends_pre_filled: the last valid unit is none of them. beyond, behind: units at
    the end that reach behind the log's end, and that lie behind the last message of the queue.
    first_file_gone: all records of the first file are expired.
    """

    def __init__(self, scene: Scene, queues: Queues, check: QueueCheck) -> None:
        self._scene = scene
        self._check = check
        self._queues = queues
        self._reader = check.reader
        log = scene.log
        self._whole = log.complete and not scene.scope.quick and not scene.live
        self._log_start, self._log_end = log.start, log.end
        self._next = log.next_offset.get(check.queue) if self._whole else None
        # units behind the last message that was read may be dead, or their messages are to come
        seen = log.next_offset.get(check.queue, 0)
        self._known_end = _NO_END if log.complete else seen
        self.live_end = -1
        self.real = 0
        self.ends_pre_filled = False
        self.first_file_gone = False
        self.beyond = Ranges()
        self.behind = Ranges()
        self._invalid = Ranges()
        self._last_position = -1
        self._in_log = False
        self._expected = check.reader.first_offset

    @property
    def dead(self) -> list[tuple[int, int]]:
        """Ranges of units behind the end."""
        return sorted(self.beyond.ranges() + self.behind.ranges())

    def run(self) -> None:
        """Look at all units."""
        for first, units in self._reader.windows():
            for hole in self._reader.unwritten(self._expected, first):
                self._invalid.add_range(*hole)  # as invalid as zeros that are written
            self._window(first, units)
            self._expected = first + len(units)

    def _window(self, first: int, units: Units) -> None:
        offsets = np.arange(first, first + len(units), dtype=np.int64)
        positions = units["physical_offset"].astype(np.int64)
        ends = positions + units["size"]
        valid = is_valid(units)
        filled = is_pre_fill(units)
        real = valid & ~filled
        self._note_first_file(offsets, valid, positions)
        matched = self._check.right.has(offsets) | self._check.elsewhere.has(offsets)
        matched &= real
        beyond = real & ~matched & (ends > self._log_end) if self._whole else np.zeros_like(real)
        behind = np.zeros_like(real)
        if self._next is not None:
            behind = real & ~matched & ~beyond & (offsets >= self._next)
        live = real & ~beyond & ~behind
        self._pre_fill(offsets, filled, real)
        if valid.any():
            self.ends_pre_filled = bool(filled[np.flatnonzero(valid)[-1]])
        self.real += int(real.sum())
        unknown = self._settle(offsets, live, ~valid, beyond, behind)
        self._order(offsets, positions, live)
        if self._scene.scope.quick:
            return
        unknown |= live & ~matched
        unknown &= offsets < self._known_end
        unknown &= (positions >= self._log_start) & self._read(offsets, positions)
        unknown |= self._rolled_back(behind, units)
        if unknown.any():
            resolve(self._scene, self._reader, offsets[unknown], units[unknown])

    def _read(self, offsets: Ints, positions: Ints) -> Flags:
        """bool[n]: the pass has been there; or an earlier run, which could not judge the unit yet."""
        read = covered_of(self._scene).has(positions)
        scope = self._scene.scope
        if scope.earlier is not None and scope.start is not None:
            judged = scope.earlier.next_offset.get(self._check.queue, 0)
            read |= (offsets >= judged) & (positions < scope.start)
        return read

    def _rolled_back(self, behind: Flags, units: Units) -> Flags:
        """bool[n]: units behind the end whose record is there and is of this queue, rolled back.

        Those are not what a cut has left: a message became a rollback, the last one of its queue.
        """
        found = np.zeros(len(units), np.bool_)
        rows = np.flatnonzero(behind)[:_BEHIND_AT_ONCE]
        if len(rows):
            found[rows] = are_rolled_back(self._scene, self._check.queue, units[rows])
        return found

    def _settle(
        self, offsets: Ints, live: Flags, invalid: Flags, beyond: Flags, behind: Flags
    ) -> Flags:
        """Report what lies before the last live unit and does not count; keep what lies behind it.

        Returns bool[n]: units behind the messages of the queue that are not at its end.
        """
        last = int(np.flatnonzero(live)[-1]) if live.any() else -1
        before = np.arange(len(offsets)) <= last
        if last >= 0:
            self._invalid.add(offsets[invalid & before])
            self.beyond.add(offsets[beyond & before])
            self._report_inside("I-061", self._invalid, "names nothing, but units follow")
            text = f"reaches beyond the log's end {self._log_end}, but units follow"
            self._report_inside("I-067", self.beyond, text)
            self._invalid, self.beyond, self.behind = Ranges(), Ranges(), Ranges()
            self.live_end = int(offsets[last]) + 1
        self._invalid.add(offsets[invalid & ~before])
        self.beyond.add(offsets[beyond & ~before])
        self.behind.add(offsets[behind & ~before])
        return behind & before

    def _report_inside(self, code: str, wrong: Ranges, text: str) -> None:
        for first, end in wrong.ranges():
            self._reader.report_range(self._scene.findings, code, first, end, text)

    def _pre_fill(self, offsets: Ints, filled: Flags, real: Flags) -> None:
        """Pre-fill units stand only before the first real one, and only in the first file (I-071)."""
        if not filled.any():
            return
        seen = np.cumsum(real) + self.real > 0
        files = self._reader.files.files
        wrong = filled & seen
        if files:
            wrong |= filled & (offsets * UNIT_BYTES >= files[0].end)
        rows = offsets[wrong]
        queue = self._check.queue
        self._reader.report(
            self._scene.findings,
            "I-071",
            rows,
            lambda row: f"{queue} unit {rows[row]} fills a front, but it is not in the front",
        )

    def _order(self, offsets: Ints, positions: Ints, live: Flags) -> None:
        """Units rise (I-066); one below the log's start behind one in the log hides others (I-068)."""
        rows = np.flatnonzero(live)
        if not len(rows):
            return
        where = positions[rows]
        before = np.append(np.int64(self._last_position), where[:-1])
        queue, start = self._check.queue, self._log_start
        wrong = where <= before
        fallen = offsets[rows[wrong]]
        pairs = np.stack([where[wrong], before[wrong]], axis=1)
        self._reader.report(
            self._scene.findings,
            "I-066",
            fallen,
            lambda row: (
                f"{queue} unit {fallen[row]} names {pairs[row][0]}, the one before it"
                f" {pairs[row][1]}: units must rise"
            ),
        )
        inside = where >= start
        seen = np.append(np.bool_(self._in_log), inside[:-1])
        hiding = offsets[rows[~inside & np.logical_or.accumulate(seen)]]
        self._reader.report(
            self._scene.findings,
            "I-068",
            hiding,
            lambda row: (
                f"{queue} unit {hiding[row]} names what is before the log's start {start},"
                " units before it do not"
            ),
        )
        self._in_log = self._in_log or bool(inside.any())
        self._last_position = int(where[-1])

    def _note_first_file(self, offsets: Ints, valid: Flags, positions: Ints) -> None:
        """Whether the last unit of the first file names a record that is expired."""
        files = self._reader.files.files
        if not files:
            return
        at = files[0].end // UNIT_BYTES - 1 - int(offsets[0])
        if 0 <= at < len(offsets) and valid[at]:
            self.first_file_gone = int(positions[at]) < self._log_start
