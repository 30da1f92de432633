"""Why no record can be read at a place that was asked for, or that the index names.

Before the log's start it has expired, behind its end it was cut off or never there; between the two
nothing begins there, or the bytes are damaged: what a scan says of the place.
"""

from __future__ import annotations

from ..log.commit_log import Batch, ExtentKind
from ..search.store import Store
from .answer import Evidence, Judgement, Verdict
from .locate import Gone

_BEFORE = 64 << 10
"""A scan begins so far before the place, at the start of its file at the earliest."""
_DAMAGED = (ExtentKind.DAMAGE, ExtentKind.MISSING)


def judgement_of(store: Store, gone: Gone) -> Judgement | None:
    """What is to be said of the place; None where a whole record lies across it, and where nothing shows
    that there ever was one. Raises Unreadable.
    """
    position = gone.position
    facts = tuple(
        Evidence(
            "an index item names the place, by the hash of its key"
            if gone.by_key
            else "a unit names the place",
            where,
        )
        for where in gone.named_by
    )
    if position is None:
        return _of_queue(store, gone)
    log = store.log_files
    start, end = log.start, store.log_end.position
    if position < start:
        reason = f"it has expired: the log begins at {start}"
        return Judgement(
            Verdict.GONE, reason, (*facts, Evidence(f"the log begins at {start}", "commitlog"))
        )
    if position >= end:
        if not gone.named_by:
            return None
        reason = f"it was cut off: the log ends at {end}"
        return Judgement(
            Verdict.GONE, reason, (*facts, Evidence(f"the log ends at {end}", "commitlog"))
        )
    what = _at(store, position)
    if what is None:
        return None
    fact = Evidence(what, f"commitlog at {position}")
    return Judgement(Verdict.UNREADABLE, "its record cannot be read", (*facts, fact))


def _of_queue(store: Store, gone: Gone) -> Judgement | None:
    """Of a place in a queue, whose unit or record is not there."""
    address = gone.address
    if address is None or address.topic is None or address.queue_offset is None:
        return None
    for summary in store.queue_summaries:
        if (summary.topic, summary.queue_id) == (address.topic, address.queue_id):
            break
    else:
        return None
    name, offset = f"{address.topic}/{address.queue_id}", address.queue_offset
    if offset < summary.min_offset:
        fact = Evidence(f"{name} begins at {summary.min_offset}", "consumequeue")
        return Judgement(Verdict.GONE, "it has expired", (fact,))
    if offset >= summary.max_offset:
        return None
    return Judgement(
        Verdict.UNREADABLE, "the queue leads to no record", (Evidence(gone.why, name),)
    )


def _at(store: Store, position: int) -> str | None:
    """What lies at a place of the log; None where it is inside a whole record."""
    file = store.log_files.file_at(position)
    if file is None:
        return "a file of the log is missing"
    for item in store.log.scan(max(file.start, position - _BEFORE), position + 1, crc=False):
        if isinstance(item, Batch):
            inside = (item.position <= position) & (
                position < item.position + item.columns.ints("total_size")
            )
            if inside.any() and position not in item.position.tolist():
                return None
        elif item.position <= position < item.end:
            return f"{item.kind.value}: {item.reason}" if item.reason else item.kind.value
    return "no record begins here"
