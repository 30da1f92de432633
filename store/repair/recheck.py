"""The second look at a store, once its repair was carried out.

As a rule all is planned again, and the plan is to be empty. Queues and index that were made of a log
in order are compared with the plan instead: what was written, and nothing else, is what they hold.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ..disk.byte_reader import opened, read
from ..disk.checkpoint import read_checkpoint
from ..disk.edits import Edit
from ..disk.layout import Layout
from ..disk.snapshot import Snapshot
from ..index.compare import index_files
from ..plan.plan import Plan
from .parts import Part, part_of
from .repair import Repair, examine

_MADE = {Part.QUEUE, Part.INDEX, Part.CHECKPOINT}


def examine_again(
    found: Repair, tell: Callable[[int], None] | None = None, jobs: int | None = None
) -> Repair:
    """The store now that `found.plan` was carried out. Writes nothing. Raises as `examine`."""
    layout = Layout.open(found.layout.root, found.layout.broker_config)
    request, plan = found.request, found.plan
    parts = {part_of(layout, Path(edit.path)) for edit in plan.edits}
    if plan.items is None or found.interrupted or not parts <= _MADE:
        return examine(layout, request.choice, request.version, request.made_ms, tell, jobs)
    left = [edit for edit in plan.edits if not _is_done(edit, layout, plan)]
    return Repair(layout, request, replace(plan, edits=left))


def _is_done(edit: Edit, layout: Layout, plan: Plan) -> bool:
    """A file holds what the plan says. Raises Unreadable."""
    if edit.kind == "rebuild":
        headers = index_files(Snapshot.of(layout)).headers
        there = sum(header.index_count - 1 for header in headers)
        return there == sum(len(batch.key_hash) for batch in plan.items or ())
    path = Path(edit.path)
    if edit.kind in ("move", "remove"):
        return not path.exists()
    if path == layout.checkpoint:  # made anew, full index files lift one of its times
        written, wanted = read_checkpoint(path), plan.checkpoint
        return written is not None and wanted is not None and written[:2] == wanted[:2]
    pieces = edit.pieces if edit.data is None else ((edit.offset, edit.data),)
    with opened(path) as descriptor:
        whole = edit.kind != "create" or os.fstat(descriptor).st_size == edit.length
        return whole and all(
            read(descriptor, len(data), offset, str(path)) == data for offset, data in pieces
        )
