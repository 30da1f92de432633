"""The checkpoint: times and positions that nothing in the store reaches are lowered.

Too high a value lets the next start look at too little of the log (spec 04, 4.1; I-110 to I-113,
I-117). Values that are only old cost time, and stay.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...formats.checkpoint import PAGE_BYTES
from ..checkpoint import Checkpoint
from ..recovery.checkpoint_edit import checkpoint_edit
from ..recovery.edits import Edit
from ..recovery.plan import Plan
from ..recovery.snapshot import Snapshot

_BOUNDED = (
    "physic_msg_timestamp",
    "logics_msg_timestamp",
    "index_msg_timestamp",
    "confirm_phy_offset",
    "logics_physical_offset",
)


def checkpoint_edits(snapshot: Snapshot, plan: Plan) -> Iterator[Edit]:
    """Where something is wrong: one edit. plan: that of the whole store."""
    sound, path = plan.sound_checkpoint, snapshot.layout.checkpoint
    if sound is None:
        return
    old = Checkpoint(**snapshot.checkpoint)
    highest = sound._asdict() | {"confirm_phy_offset": plan.log_end}
    lowered = {
        name: getattr(sound, name)
        for name in _BOUNDED
        if not 0 <= getattr(old, name) <= max(0, highest[name])
    }
    whole = path.exists() and path.stat().st_size == PAGE_BYTES
    if lowered or not whole:
        yield checkpoint_edit(path, old._replace(**lowered))
