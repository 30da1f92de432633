"""Index items that a start deletes and does not make again (spec 3.4; 07, B19)."""

from __future__ import annotations

from ..index.files import Geometry, IndexFile
from ..start.simulate import Outcome


def index_items_lost(outcome: Outcome) -> int:
    """Items of deleted files whose records lie before the place where the recovery begins: these
    records are not dispatched again, so no key finds them any more. Raises Unreadable.
    """
    sizes = outcome.snapshot.layout.sizes
    geometry = Geometry(sizes.index_slots.value, sizes.index_items.value)
    lost = 0
    for header in outcome.index.deleted:
        if header.begin_physical_offset >= outcome.scan_start:
            continue
        if header.end_physical_offset < outcome.scan_start:
            lost += max(0, header.index_count - 1)
            continue
        with IndexFile(header.entry.path, geometry) as file:
            for _, items in file.columns():
                lost += int((items["physical_offset"] < outcome.scan_start).sum())
    return lost
