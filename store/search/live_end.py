"""Where a log ends that may be written meanwhile: before the first record that is not whole yet."""

from __future__ import annotations

import time

from ..disk.layout import Layout
from .follow import Follower
from .store import Store

_PATIENCE_S = 2.0
"""A log that has not moved for so long may have a hole with records behind it."""
_GIVE_UP_S = 5.0
_POLL_S = 0.1
_RECENT_MS = 60_000
"""A log whose last record is older is not one in which a record is half written."""


class LiveEnd:
    """Where a log ends that may be written, asked again and again. Raises StoreError."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        with Store(layout.root, layout.broker_config) as store:
            end, files = store.log_end.position, store.log_files
            file = files.file_at(max(files.start, end - 1)) if files.files else None
        self._follower = Follower(layout, file.start if file else end, lambda _: None)
        self._since, self._seen = time.monotonic(), -1
        self._looked_behind = False

    def position(self) -> int:
        """Behind the last whole record."""
        while self._follower.poll() is not None:
            pass
        now, at = time.monotonic(), self._follower.position
        if at != self._seen:
            self._since, self._seen, self._looked_behind = now, at, False
        elif not self._looked_behind and now - self._since >= _PATIENCE_S:
            self._looked_behind = True
            if self._follower.skip():
                return self.position()
        return self._follower.position

    def settled(self) -> int:
        """The same, behind damage, too: what is no record may be one that is being written."""
        with Store(self._layout.root, self._layout.broker_config) as store:
            end = store.log_end.position
        while self.position() < end and time.monotonic() < self._since + _GIVE_UP_S:
            time.sleep(_POLL_S)
        return self._follower.position


def end_of(layout: Layout) -> int:
    """Behind the last whole record of a log now. Raises StoreError."""
    with Store(layout.root, layout.broker_config) as store:
        end = store.log_end
    now_ms = time.time_ns() // 1_000_000
    if end.store_timestamp is None or abs(now_ms - end.store_timestamp) > _RECENT_MS:
        return end.position
    # records that a broker has cut off may follow the end: a follower would take them
    return min(end.position, LiveEnd(layout).settled())
