"""Where the next start after a crash begins to read the log (spec 7.3)."""

from __future__ import annotations

from typing import NamedTuple

from ..broker.load import load_files
from ..disk.snapshot import Snapshot
from ..errors import StoreError
from ..start.log import Switches, start_file
from .context import Scene


class Start(NamedTuple):
    """Log position where the start file begins, and why it is this one."""

    position: int
    reason: str


def start_of_recovery(scene: Scene) -> Start | None:
    """The start of the store's generation; None where it does not load, or is not known."""
    layout = scene.store.layout
    if layout.rocksdb_queues or layout.dledger is not None:
        return None
    try:
        snapshot = Snapshot.of(layout)
        loaded = load_files(snapshot.log, snapshot.log_file_bytes, scene.profile.load)
        if loaded.refusal is not None or not loaded.files:
            return None
        end, switches = scene.log.dispatched, Switches.of(scene.store.config)
        found = start_file(snapshot, loaded.files, scene.profile, end, switches)
    except StoreError:  # files that cannot be loaded are told by the layout
        return None
    return Start(loaded.files[found.number].start, found.reason)
