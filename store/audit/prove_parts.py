"""Proving a whole log, a part on each core."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from ..disk.byte_reader import reading_rate
from ..disk.workers import Forked
from ..log.commit_log import Batch, CommitLog
from ..log.splits import record_behind, used_bytes
from .prove import Proof
from .verified import SoundLog

_PART_BYTES = 32 << 20
"""A smaller part is not worth a process."""


def prove_log(proof: Proof, jobs: int = 1, tell: Callable[[int], None] | None = None) -> SoundLog:
    """What of the log is in order. Raises Unreadable.

    tell: called with the log position reached. jobs: processes that work at the same time.
    """

    def part(begin: int, end: int, tell: Callable[[int], None] | None = None) -> SoundLog:
        prover = proof.at(begin)
        for item in proof.log.scan(begin, end, reuse=True):
            if tell is not None and isinstance(item, Batch):
                tell(item.end)
            prover.see(item)
        return prover.done()

    return in_parts(proof.log, part, jobs, tell)


def in_parts(
    log: CommitLog,
    part: Callable[[int, int, Callable[[int], None] | None], SoundLog],
    jobs: int,
    tell: Callable[[int], None] | None = None,
) -> SoundLog:
    """Give each of `jobs` processes a part of the log; what they find together.

    part: looks at the log between two positions. Raises Unreadable.
    """
    bounds = _bounds(log, 1 if reading_rate() else jobs)  # several would read more
    with ExitStack() as stack:
        children = [
            stack.enter_context(Forked(partial(part, begin, end, None)))
            for begin, end in bounds[1:]
        ]
        sound = part(*bounds[0], _of_all(bounds, tell))
        for child, (begin, end) in zip(children, bounds[1:], strict=True):
            found = child.result() or part(begin, end, tell)
            sound = found.after(sound)
            if tell is not None:
                tell(sound.items[-1].end if sound.items else end)
    return sound


def _of_all(
    bounds: list[tuple[int, int]], tell: Callable[[int], None] | None
) -> Callable[[int], None] | None:
    """Tells how far all are, who got as far as the first one of them."""
    begin, end = bounds[0][0], bounds[-1][1]
    return tell and (lambda reached: tell(min(end, begin + (reached - begin) * len(bounds))))


def _bounds(log: CommitLog, jobs: int) -> list[tuple[int, int]]:
    """Parts of about the same size, each from the beginning of a record on: (begin, end)."""
    begins, files = [log.min_offset], log.files
    end = files[-1].start + used_bytes(log, files[-1]) if files else log.min_offset
    if any(file.compressed for file in files):  # in the middle of one nobody begins
        jobs = 1
    count = max(1, min(jobs, (end - begins[0]) // _PART_BYTES))
    for part in range(1, count):
        found = record_behind(log, begins[0] + (end - begins[0]) * part // count)
        if found is not None and found > begins[-1]:
            begins.append(found)
    return list(zip(begins, [*begins[1:], log.max_file_end], strict=True))
