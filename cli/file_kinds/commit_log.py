"""The commit log (plain, of DLedger, tiered), or a file of it; `cli/dump_log.py` prints its records."""

from __future__ import annotations

from typing import Any

from ...store.inspect.recognise import Recognised
from ...store.log.commit_log import Batch
from ..dump_log import open_log
from ..options import Common


def summary(what: Recognised, common: Common) -> dict[str, Any]:
    """Count records and damage and find the first and last time. Scans the whole log, without the bodies' CRCs."""
    log = open_log(what, common)
    messages, damaged, reasons = 0, 0, dict[str, int]()
    times: list[int] = []
    end = log.min_offset
    with common.progress("walking", log.queue.size) as progress:
        for item in log.scan(crc=False, reuse=True):
            if isinstance(item, Batch):
                messages += len(item)
                column = item.columns.ints("store_timestamp")
                times = [times[0] if times else int(column[0]), int(column[-1])]
                end = item.end
                progress.advance(end - int(item.position[0]))
                continue
            progress.advance(item.size)
            reasons[item.kind.value] = reasons.get(item.kind.value, 0) + 1
            damaged += item.size if item.kind.value in ("damage", "missing", "torn_tail") else 0
    first, last = times or (None, None)
    return {
        "log_start": log.min_offset,
        "log_end": end,
        "messages": messages,
        "damaged_bytes": damaged,
        "extents": [f"{count} {kind}" for kind, count in reasons.items()],
        "first_store_timestamp": first,
        "last_store_timestamp": last,
    }
