"""Which known bug of brokers hides messages that stay in the log (spec 07, 7.12).

A message is hidden because its unit is missing, wrong, or below the queue's min offset. Why the start
leaves it so follows from the exit, the generation, and what lies in its queue's directory.

Known bugs of brokers, by the numbers that findings, cases and predictions name (spec 07, 7.12).
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from functools import cache
from pkgutil import get_data
from typing import NamedTuple

import numpy as np

from ...formats.consume_queue import PRE_FILL
from ..audit.messages import HIDDEN, Share, Tally
from ..broker.profiles import MinOffset, ReputStart
from ..broker.snapshot import QueueId
from ..disk.file_queue import MappedFile, MappedFileQueue
from ..queues.references import commit_log_of
from ..queues.units import FileUnits, is_pre_fill, is_valid
from ..start.log import LAST_LOOKED_AT
from ..start.simulate import Outcome


class BrokerBug(NamedTuple):
    """One bug. words: a few, for a reason; "" where no reason names it. codes: findings with it."""

    code: str
    versions: str
    trigger: str
    effect: str
    mends: str
    codes: tuple[str, ...]
    words: str = ""


@cache
def bugs() -> dict[str, BrokerBug]:
    """Every bug by its number, in order."""
    data = get_data(__package__, "bugs.toml")
    assert data is not None
    rows = tomllib.loads(data.decode("utf-8"))
    return {
        code: BrokerBug(code=code, **{**row, "codes": tuple(row["codes"])})
        for code, row in rows.items()
    }


_PRE_FILL_END = PRE_FILL["physical_offset"] + PRE_FILL["size"]


def with_bugs(outcome: Outcome, invisible: Tally) -> Tally:
    """The shares, each with the bug that it is due to behind its reason. Raises Unreadable."""
    if not invisible.shares or outcome.refusal is not None:
        return invisible
    named = Tally()
    judge = _Judge(outcome, invisible)
    for share in invisible:
        bug = judge.bug_of(share)
        reason = f"{share.reason} ({bug}: {bugs()[bug].words})" if bug else share.reason
        named.shares[share.queue, reason] = replace(share, reason=reason)
    return named


class _Judge:
    """What is looked up once for all shares."""

    def __init__(self, outcome: Outcome, invisible: Tally) -> None:
        self._outcome = outcome
        self._crashed = outcome.snapshot.abort
        self._log = commit_log_of(outcome.snapshot.layout)
        self._start_time = self._time_at(outcome.scan_start)
        self._at_end = self._message_at(outcome.queues_end)
        #: When the first hidden message of each queue was stored: later ones are shifted by it.
        self._first: dict[QueueId, int] = {}
        for share in invisible:
            first = share.first_store_timestamp
            self._first[share.queue] = min(first, self._first.get(share.queue, first))

    def bug_of(self, share: Share) -> str:
        """The number of a bug, "" where the files are damaged and no broker's rule is at fault."""
        if self._outcome.stores.reads(share.queue):
            return "B41" if not self._outcome.stores.files else "B43"
        if share.reason == HIDDEN:
            linear = self._outcome.profile.queues.min_offset is MinOffset.LINEAR
            return "" if linear else "B23"
        ends_filled = self._ends_with_pre_fill(share.queue)
        reput = self._outcome.profile.dispatch.reput
        if self._outcome.queues_end >= _PRE_FILL_END and reput is ReputStart.QUEUES_END:
            return "B3"
        if ends_filled:
            return "B22"
        looked_back = self._outcome.start and self._outcome.start.reason == LAST_LOOKED_AT
        older = self._first[share.queue] < self._start_time
        if older and (self._crashed or looked_back):
            return "B25" if looked_back else "B19"
        return "" if self._crashed else self._after_a_clean_exit(share)

    def _after_a_clean_exit(self, share: Share) -> str:
        if any(e.size for e in self._outcome.snapshot.batch_queues.get(share.queue, ())):
            return ""
        if not self._units(share.queue).files.files:
            return "B2"
        queue, offset = self._at_end
        dispatch = self._outcome.profile.dispatch
        if dispatch.when_clean and queue == share.queue and share.first_offset >= offset:
            return "B1"
        if self._reaches(share):
            return ""
        silent = not dispatch.when_clean and dispatch.reput is not ReputStart.QUEUES_END
        return "B1" if silent else "B2"

    def _reaches(self, share: Share) -> bool:
        """The queue on disk has a unit at or behind the last of these messages."""
        last = self._units(share.queue).last()
        return last is not None and last[0] >= share.last_offset

    def _units(self, queue: QueueId) -> FileUnits:
        entries = self._outcome.snapshot.queues.get(queue, ())
        there = [
            e
            for e in entries
            if not e.directory and e.name.isascii() and e.name.isdigit() and e.size
        ]
        files = [MappedFile(entry.path, int(entry.name), entry.size) for entry in there]
        return FileUnits(MappedFileQueue((), files, 0, []))

    def _ends_with_pre_fill(self, queue: QueueId) -> bool:
        """The last unit of the queue is one that only takes room."""
        last = self._units(queue).last(is_valid)
        return last is not None and bool(is_pre_fill(last[1])[0])

    def _time_at(self, position: int) -> int:
        """Store time of the record at a position, 0 without one."""
        found = self._log.records(np.array([position], np.int64))
        return int(found.columns.ints("store_timestamp")[0]) if len(found) else 0

    def _message_at(self, position: int) -> tuple[QueueId | None, int]:
        """Queue and queue offset of the message at a position."""
        found = self._log.records(np.array([position], np.int64)) if position >= 0 else None
        if found is None or not len(found):
            return None, -1
        columns = found.columns
        topic = columns.ragged("topic")[0].decode("utf-8", "surrogateescape")
        queue = QueueId(topic, int(columns.ints("queue_id")[0]))
        return queue, int(columns.ints("queue_offset")[0])
