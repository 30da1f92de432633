"""A broker's recovery over a DLedger log, and what its leader dispatches then (spec 1.13; 7.12, B9).

After a crash it dispatches up to the first record that it does not take, and cuts the queues where it
thinks that the log ends: it adds up records without their entries. What lies behind the last committed
entry is dispatched once it has been committed again; what was cut before it stays without units.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ...formats.derive import Columns
from ..broker.load_rules import BodyCheck, LoadedFile, Refusal, truncate
from .dledger import records_of, recover_entries
from .log import start_file

if TYPE_CHECKING:
    from .simulate import Outcome


class Waiting(Protocol):
    """Units on their way to the queues; at the end of a block all are there."""

    def add(self, columns: Columns, behind: int | None) -> None:
        """What is dispatched for records."""

    def __enter__(self) -> object:
        """Begin a block."""

    def __exit__(self, *_: object) -> None:
        """Hand all units out."""


def recover_dledger(outcome: Outcome, waiting: Waiting) -> None:
    """DLedger's recovery, then the broker's, then what the leader dispatches. Raises Unreadable."""
    snapshot, files = outcome.snapshot, outcome.log.files
    found = recover_entries(snapshot, files)
    if isinstance(found, Refusal):
        outcome.refusal = found
        return
    outcome.dledger = found
    behind = _dispatched_after_crash(outcome, waiting, files) if snapshot.abort else None
    outcome.log_removed = truncate(files, found.end, snapshot.log_file_bytes)
    limit = found.end if behind is None else behind
    flushed = snapshot.abort and outcome.profile.queues.has_flushed_position
    reached = snapshot.checkpoint["logics_physical_offset"] if flushed else outcome.queues_end
    if reached >= limit:
        for queue in outcome.queues.values():
            queue.cut(limit)
    begin = found.committed if found.committed > 0 else files[0].start
    with waiting:
        for file in files:
            if file.start + file.wrote > begin:
                reput(outcome, waiting, file, begin, found.end)


def _dispatched_after_crash(
    outcome: Outcome, waiting: Waiting, files: list[LoadedFile]
) -> int | None:
    """Dispatch what lies behind the queues, from the file that the checkpoint names on.

    Returns where the broker thinks that the log ends. None: this version does not dispatch here.
    """
    snapshot, rules = outcome.snapshot, outcome.profile
    if not rules.start.dledger_dispatches:
        return None
    outcome.start = start_file(snapshot, files, rules, outcome.queues_end, outcome.switches)
    body, behind = outcome.switches.body_check, 0
    with waiting:
        for file in files[outcome.start.number :]:
            behind, ended = file.start, False
            for taken in records_of(snapshot, file, rules.record, body):
                if taken.columns is not None:
                    waiting.add(taken.columns, None)
                    behind += int(taken.columns.ints("total_size").sum())
                ended |= taken.ended
            if ended:
                break
    return behind


def reput(outcome: Outcome, waiting: Waiting, file: LoadedFile, begin: int, end: int) -> None:
    """Dispatch the entries of a file in [begin, end); from the first that fails on the rest is left out."""
    rules = outcome.profile.record
    inside = (max(0, begin - file.start), end - file.start)
    for taken in records_of(outcome.snapshot, file, rules, BodyCheck.NONE, *inside):
        if taken.columns is not None:
            waiting.add(taken.columns, None)
