"""The checkpoint: times and positions that nothing in the store reaches are lowered.

Too high a value lets the next start look at too little of the log (spec 04, 4.1; I-110 to I-113,
I-117). Values that are only old cost time, and stay. What is confirmed ends between two records.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...formats.checkpoint import FIELDS, PAGE_BYTES
from ..broker.snapshot import Snapshot
from ..disk.checkpoint import Checkpoint
from ..disk.compressed import read_regular
from ..disk.files import Edit, Phase
from ..index.compare import IndexFix, stored_files
from ..index.read import sizes_of
from ..log.commit_log import Batch, Extent, ExtentKind, record_behind
from ..plan.plan import Plan, checkpoint_edit
from ..queues.references import commit_log_of

_REST_CODES = ("I-110",)
_NEAR_BYTES = 8 << 20
"""Twice the largest message of a broker: a record that holds a position hardly begins farther in front."""
_INDEX = "index_msg_timestamp"
_BOUNDED = (
    "physic_msg_timestamp",
    "logics_msg_timestamp",
    _INDEX,
    "confirm_phy_offset",
    "logics_physical_offset",
)


def with_checkpoint(snapshot: Snapshot, plan: Plan, *, only_index: bool) -> Plan:
    """A plan that puts right what is wrong with it, too.

    only_index: nothing but the time of the index, which goes with the index files.
    """
    sound, path = plan.sound_checkpoint, snapshot.layout.checkpoint
    if sound is None:
        return plan
    if plan.index is not None:
        sound = sound._replace(index_msg_timestamp=_full_time(snapshot, plan.index))
    old = plan.checkpoint or Checkpoint(**snapshot.checkpoint)
    highest = sound._asdict() | {"confirm_phy_offset": plan.log_end}
    lowered = {
        # what the version does not know of is in `sound` as it was
        name: min(max(0, getattr(sound, name)), max(0, highest[name]))
        for name in ((_INDEX,) if only_index else _BOUNDED)
        if not 0 <= getattr(old, name) <= max(0, highest[name])
    }
    wiped = not any(old) and any(sound) and not only_index
    whole = path.exists() and path.stat().st_size == PAGE_BYTES
    if whole and not only_index and any(read_regular(path, PAGE_BYTES)[FIELDS.sizeof() :]):
        rest = PAGE_BYTES - FIELDS.sizeof()
        reason, at = "bytes behind the fields that are not zero", FIELDS.sizeof()
        zeros = Edit("write", str(path), reason, _REST_CODES, at, rest, phase=Phase.PAGE)
        plan = replace(plan, edits=[zeros, *plan.edits])
    if not only_index:
        lowered |= _flushed(snapshot, old, lowered)
    if wiped or lowered or not (whole or only_index or plan.checkpoint):
        new = sound if wiped else old._replace(**lowered)
        others = [e for e in plan.edits if e.path != str(path) or e.phase is Phase.PAGE]
        plan = replace(plan, checkpoint=new, edits=[*others, checkpoint_edit(path, new)])
    return plan


def _flushed(snapshot: Snapshot, old: Checkpoint, lowered: dict[str, int]) -> dict[str, int]:
    """The positions that are none: a negative one, and those in the middle of a record."""
    found = {"master_flushed_offset": 0} if old.master_flushed_offset < 0 else {}
    for name in ("confirm_phy_offset", "logics_physical_offset"):
        position = getattr(old, name)
        if position and name not in lowered:
            begin = _record_begin(snapshot, position)
            if begin != position:
                found[name] = begin
    return found


def _record_begin(snapshot: Snapshot, position: int) -> int:
    """Where the record or BLANK begins that a position lies in; the position where it is in none."""
    log = commit_log_of(snapshot.layout)
    file = log.queue.file_at(position)
    if file is None:
        return position
    near = record_behind(log, max(file.start, position - _NEAR_BYTES))
    start = near if near is not None and near <= position else file.start
    for item in log.scan(start, position + 1, crc=False, reuse=True):
        if isinstance(item, Batch) and item.position[0] <= position < item.end:
            row = int(np.searchsorted(item.position, position, side="right")) - 1
            return int(item.position[row])
        if isinstance(item, Extent) and item.kind is ExtentKind.BLANK and position < item.end:
            return item.position
    return position


def _full_time(snapshot: Snapshot, fix: IndexFix) -> int:
    """End time of the newest index file that stays and is full, 0 without one."""
    gone = {entry.path for entry in fix.gone}
    items = sizes_of(snapshot.layout).index_items.value
    times = (
        file.header.end_timestamp
        for file in stored_files(snapshot.index)
        if file.entry.path not in gone and file.header.index_count >= items
    )
    return max(times, default=0)
