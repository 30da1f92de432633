"""Writing the checkpoint (spec/04-checkpoint-timer.md, 4.1; 7.11, step 7)."""

from __future__ import annotations

from pathlib import Path

from ...formats.checkpoint import FIELDS, PAGE_BYTES
from ...formats.fixed import numbers_of
from .checkpoint import Checkpoint
from .files import Files


def checkpoint_bytes(checkpoint: Checkpoint) -> bytes:
    """The fields as they lie at the beginning of the file."""
    return numbers_of(FIELDS).pack(*checkpoint)


def at_last_record(
    before: Checkpoint,
    *,
    store_timestamp: int,
    physical_offset: int,
    index_timestamp: int | None,
    fields: int,
) -> Checkpoint:
    """The checkpoint of a store whose queues and index are complete up to its last record.

    store_timestamp, physical_offset: of that record. index_timestamp: end time of the newest full
    index file, None keeps what was there. fields: how many fields the broker knows; the others
    stay as they were.
    """
    new = Checkpoint(
        physic_msg_timestamp=store_timestamp,
        logics_msg_timestamp=store_timestamp,
        index_msg_timestamp=before.index_msg_timestamp
        if index_timestamp is None
        else index_timestamp,
        master_flushed_offset=before.master_flushed_offset,
        confirm_phy_offset=physical_offset,
        logics_physical_offset=physical_offset,
    )
    return Checkpoint(*new[:fields], *before[fields:])


def write_checkpoint(files: Files, path: Path, checkpoint: Checkpoint) -> None:
    """Write the fields and flush them; a file that is missing or short becomes one page."""
    created = not path.exists()
    with files.open_or_create(path) as file:
        if file.size < PAGE_BYTES:
            file.truncate(PAGE_BYTES)
        file.pwrite(checkpoint_bytes(checkpoint), 0)
        file.sync()
    if created:
        files.sync_directory(path.parent)
