"""Compaction logs; `cli/dump_log.py` prints their records."""

from __future__ import annotations

from typing import Any

from ...store.inspect.recognise import Recognised
from ...store.log.commit_log import Batch
from ...store.search.queue_search import is_usual
from ..dump_log import open_logs
from ..options import Common


def summary(what: Recognised, common: Common) -> dict[str, Any]:
    """Count records and damage of all logs, without the bodies' CRCs; for one log also its ends."""
    messages, damaged, times, ends = 0, 0, list[int](), list[int]()
    logs = open_logs(what, common)
    for log in logs:
        end = log.min_offset
        for item in log.scan(crc=False, reuse=True):
            if isinstance(item, Batch):
                messages += len(item)
                column = item.columns.ints("store_timestamp")
                times += [int(column.min()), int(column.max())]
                end = item.end
            elif item.kind.value in ("damage", "missing", "torn_tail"):
                damaged += 0 if is_usual(log, item) else item.size
        ends.append(end)
        log.queue.close()
    one = {"log_start": logs[0].min_offset, "log_end": ends[0]} if len(logs) == 1 else {}
    return {
        "logs": len(logs),
        **one,
        "messages": messages,
        "damaged_bytes": damaged,
        "first_store_timestamp": min(times, default=None),
        "last_store_timestamp": max(times, default=None),
    }
