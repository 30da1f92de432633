"""What a search reads: a progress bar, a refusal of a store without its log, a sentence if nothing was found."""

from __future__ import annotations

from ..store.counted import counted
from ..store.disk.layout import Layout
from ..store.search.store import StoreReader, Via
from .options import Common
from .progress import Progress
from .terminal import time_text

_WAYS = {Via.SCAN: "by scanning the log", Via.QUEUE: "named by queues", Via.INDEX: "named by the index"}


def scanning(store: StoreReader, common: Common) -> Progress:
    progress = common.progress("scanning", store.log_files.size)
    store.scanned = progress.advance
    return progress


def check_log(layout: Layout, common: Common) -> None:
    """Refuse a store that had a log and has none; warn if it has only a part. Raises Missing, Refused, Unreadable.

    Imports much: a search that is to be quick calls this only if it found nothing.
    """
    from ..store.broker.snapshot import lacks_log

    if lacks_log(layout):
        from ..store.plan.normalize import refuse_to_read

        refuse_to_read(layout, common.warn)


def searched_text(store: StoreReader, utc: bool) -> str:
    """One line: how many records were searched and how they were found, their store times, the index."""
    searched = store.searched
    parts = [f"{counted(searched.records[v], 'record')} {_WAYS[v]}" for v in searched.records]
    if not parts:
        units = counted(searched.units, "queue unit") if searched.units else "no queue unit"
        parts.append(f"{units} and no record")
    if searched.index_files:
        files = counted(searched.index_files, "index file")
        parts.append(f"{files} with {counted(searched.index_items, 'item')}")
    return f"searched {', '.join(parts)}; {_times(store, utc)}"


def _times(store: StoreReader, utc: bool) -> str:
    """The store times of the searched records, or of the first and the last of the log if none were searched."""
    first_ms, last_ms = store.searched.first_ms, store.searched.last_ms
    if first_ms is not None and last_ms is not None:
        return f"they were stored {time_text(first_ms, utc)} … {time_text(last_ms, utc)}"
    start = store.log_files.start
    first_ms, last_ms = store.store_time(start + store.payload_at(start)), store.log_end.store_timestamp
    if first_ms is None or last_ms is None:
        return "the log has no record"
    return f"the first record of the log was stored {time_text(first_ms, utc)}, the last {time_text(last_ms, utc)}"
