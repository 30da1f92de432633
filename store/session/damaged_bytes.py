"""Damaged ranges of the log as files in the session's folder, each named by its log position.

The journal has every byte that is changed, too, but in the order of its steps. Here somebody who
wants to look into a damaged range finds it as it was.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..disk.file_queue import MappedFileQueue, file_name
from ..disk.layout import Layout
from ..plan.losses import damaged_ranges

if TYPE_CHECKING:
    from ..disk.files import Files
    from ..plan.plan import Plan

DAMAGED = "damaged"
_WINDOW_BYTES = 1 << 20


def ranges_of(plan: Plan) -> list[tuple[int, int]]:
    """(position, size) of what a plan writes over: gaps, records that were cut, the torn end, what a replica replaces."""
    found = [(found.position, found.size) for found in damaged_ranges(plan.fills)]
    found += [(record.position, len(record.data)) for record in plan.cut]
    if plan.brought is not None:
        found += [(part.position, part.size) for part in plan.brought.parts]
    if plan.tail_bytes:
        found.append((plan.log_end, plan.tail_bytes))
    return sorted(found)


def keep_damaged(layout: Layout, plan: Plan, folder: Path, files: Files) -> None:
    """Write a file for each range that is not all zeros. Raises Unreadable, NoSpace."""
    made = folder / DAMAGED
    with layout.commit_log_files() as queue:
        for position, size in ranges_of(plan):
            stretches = _stretches(queue, position, position + size)
            if not stretches:
                continue
            files.make_directory(made)
            with files.create(made / file_name(position)) as target:
                target.truncate(size)
                for begin, end in stretches:
                    target.pwrite(queue.read(begin, end - begin), begin - position)
                target.sync()
    if made.exists():
        files.sync_directory(made)


def _stretches(queue: MappedFileQueue, begin: int, end: int) -> list[tuple[int, int]]:
    """Windows of [begin, end) in which something stands."""
    found = []
    at = begin
    while at < end:
        file = queue.file_at(at)
        if file is None:
            later = [f.start for f in queue.files if f.start > at]
            at = min([*later, end])
            continue
        behind = min(end, at + _WINDOW_BYTES, file.end)
        if any(queue.read(at, behind - at)):
            found.append((at, behind))
        at = behind
    return found
