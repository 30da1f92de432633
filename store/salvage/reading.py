"""The records of a run once more, window by window."""

from __future__ import annotations

from collections.abc import Iterator

from ...formats.commit_log import PLAIN
from ...formats.derive.ragged import Ints
from ..log.log_items import WINDOW_BYTES
from ..log.window import Window, walk
from .grade import LARGEST_RECORD
from .runs import Run
from .source import Sources


def windows_of(run: Run, sources: Sources) -> Iterator[tuple[Window, Ints, int]]:
    """Windows in a buffer that is used again, the bytes where whole records begin, and where they end.

    Ends early where the source is not any more what it was. Raises Unreadable.
    """
    at, buffer, need = run.at, bytearray(0), WINDOW_BYTES
    while at < run.at_end:
        size = min(need, run.at_end - at)
        if len(buffer) < size:
            buffer = bytearray(size)
        got = sources[run.source].read(memoryview(buffer)[:size], at)
        window = Window(buffer, got, at + run.shift)
        starts, stop = walk(window, PLAIN)
        if len(starts):
            yield window, starts, stop
            at, need = at + stop, WINDOW_BYTES
        elif got < run.at_end - at and need < LARGEST_RECORD:
            need = LARGEST_RECORD
        else:
            return
