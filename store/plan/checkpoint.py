"""The end of a repair as edits: the checkpoint, and `abort` last of all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...formats.checkpoint import FIELDS, PAGE_BYTES
from ...formats.fixed import numbers_of
from ..broker.profiles import Profile
from ..disk.checkpoint import Checkpoint
from ..disk.edits import Edit
from ..disk.snapshot import Snapshot

_REASON = "times and positions of a complete store"
_CODES = ("I-111", "I-113")


def checkpoint_edit(path: Path, checkpoint: Checkpoint) -> Edit:
    """The edit that leaves `checkpoint` at `path`: its fields written, or a whole new file."""
    data = numbers_of(FIELDS).pack(*checkpoint)
    if path.exists() and path.stat().st_size == PAGE_BYTES:
        return Edit("write", str(path), _REASON, _CODES, 0, len(data), data)
    return Edit("create", str(path), _REASON, _CODES, length=PAGE_BYTES, pieces=((0, data),))


def ending(snapshot: Snapshot, checkpoint: Checkpoint) -> Iterator[Edit]:
    """The last edits: a checkpoint that differs from that of the store, and no `abort`."""
    if checkpoint != Checkpoint(**snapshot.checkpoint):
        yield checkpoint_edit(snapshot.layout.checkpoint, checkpoint)
    if snapshot.abort:
        reason = "the store is in order: the next start is a clean one"
        yield Edit("remove", str(snapshot.layout.abort), reason, ("I-009",))


def new_checkpoint(
    old: Checkpoint, profile: Profile, last_record: int, last_timestamp: int, index_time: int
) -> Checkpoint:
    """The checkpoint of a complete store (spec 7.11, step 7); fields of later versions stay."""
    confirm, flushed = old.confirm_phy_offset, old.logics_physical_offset
    position = max(0, last_record)
    return old._replace(
        physic_msg_timestamp=last_timestamp,
        logics_msg_timestamp=last_timestamp,
        index_msg_timestamp=index_time,
        confirm_phy_offset=position if profile.queues.has_confirm_offset else confirm,
        logics_physical_offset=position if profile.queues.has_flushed_position else flushed,
    )
