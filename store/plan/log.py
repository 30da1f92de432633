"""What a plan does to the commit log: where it is to end, and what lies behind that end.

The end is where the broker's own recovery ends, with three differences that keep the store the same
for every later start (spec 7.11): a record that names another position, behind the last good one,
is of an earlier life and no new message (B14); a torn record is not taken for data (B26); and what
a clean start would cut off next is cut off now, and told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ...formats.blank import BLANK, MAGIC_BLANK
from ..broker.load import LoadedFile
from ..broker.profiles import NormalStart, Profile
from ..disk.edits import Edit
from ..disk.file_queue import file_name
from ..disk.snapshot import Entry, Snapshot
from ..errors import Refused
from ..queues.edits import last_byte
from ..start.log import KEPT_FILES, LogWalk, Records
from ..start.simulate import Outcome

LARGEST_GAP = 1000
"""Log files that are missing in a row, and can be made anew."""


@dataclass(frozen=True)
class LogPlan:
    """The end of the log, and the edits that make it so.

    stale: old records lay behind it. tail_bytes: that are zeroed behind it. again: the good records
    behind it are no messages: others have their queue offsets.
    """

    start: int
    end: int
    stale: bool
    edits: list[Edit]
    tail_bytes: int
    again: bool = False


def plan_log(snapshot: Snapshot, outcome: Outcome) -> LogPlan:
    """Plan the log of a store whose files all load. Raises Unreadable."""
    files = [
        LoadedFile(int(e.name), snapshot.log_file_bytes, e) for e in snapshot.log if not e.directory
    ]
    number = outcome.start.number if outcome.start else 0
    end, stale = _end(snapshot, files, outcome, number)
    while True:
        number = _clean_start(files, outcome.profile, end)
        again, more_stale = _end(snapshot, files, outcome, number)
        if again >= end:
            break
        end, stale = again, stale or more_stale
    tail = list(tail_edits(snapshot, files, end, stale))
    edits = [*tail, *_missing_files(snapshot, files, end)]
    return LogPlan(files[0].start, end, stale, edits, written(tail))


def written(edits: Iterable[Edit]) -> int:
    """Bytes that edits write over."""
    return sum(edit.length for edit in edits if edit.kind == "write")


def _clean_start(files: list[LoadedFile], profile: Profile, end: int) -> int:
    """Number of the file that the start after the recovery begins with, a clean one.

    It may lie before the one that the checkpoint led to. Damage in between would be met there, so
    the plan has to end before it, too.
    """
    if profile.start.normal is NormalStart.LAST_THREE:
        return max(0, sum(file.start <= end for file in files) - KEPT_FILES)
    # no unit reaches into a file that begins at the end: it is never the newest one to begin with
    return max(0, sum(file.start < end for file in files) - 1)


def _end(
    snapshot: Snapshot, files: list[LoadedFile], outcome: Outcome, number: int
) -> tuple[int, bool]:
    """Where the walk from the file `number` on ends, without records of an earlier life."""
    while True:
        body = outcome.switches.body_check
        walk = LogWalk(snapshot, files, outcome.profile, crashed=False, body_check=body)
        own_end, foreign = -1, False
        for batch in walk.batches(number):
            assert isinstance(batch, Records)
            columns = batch.columns
            own = columns.ints("physical_offset") == columns.starts + batch.file.start
            last = int(np.flatnonzero(own)[-1]) if own.any() else -1
            if last >= 0:
                size = int(columns.ints("total_size")[last])
                own_end = batch.file.start + int(columns.starts[last]) + size
            foreign = last < len(own) - 1
        if not foreign:
            return walk.end, False
        if own_end >= 0:
            return own_end, True
        if number == 0:
            raise renamed(snapshot)
        number -= 1


def renamed(snapshot: Snapshot) -> Refused:
    """No record of the log names its own place."""
    return Refused(
        "all records name other positions: were the files renamed?",
        path=snapshot.layout.commit_log_directories[0],
        hint="give the files the names that their records tell",
    )


def tail_edits(
    snapshot: Snapshot, files: list[LoadedFile], end: int, stale: bool
) -> Iterator[Edit]:
    """What lies behind the end of the log is moved away, or zeroed in the file that it ends in."""
    size = snapshot.log_file_bytes
    for file in files:
        assert file.entry is not None
        if file.start > end or (file.start == end and stale and file is not files[0]):
            yield _move(file.entry)
        elif end < file.start + size:
            begin = end - file.start
            if _is_blank(snapshot, file.entry, begin):
                begin += BLANK.sizeof()
            last = last_byte(file.entry, begin)
            if last > begin:
                reason = "bytes behind the log end, where the next start would look for records"
                codes = ("I-054",) if stale else ("I-043",)
                yield Edit("write", file.entry.path, reason, codes, begin, last - begin)


def _move(entry: Entry) -> Edit:
    if last_byte(entry, 0) == 0:
        return Edit("remove", entry.path, "empty file behind the log end", ("I-007",))
    return Edit("move", entry.path, "behind the log end: the broker deletes it", ("I-042",))


def _is_blank(snapshot: Snapshot, entry: Entry, offset: int) -> bool:
    """The log ends at a BLANK without a next file: it stays."""
    head = snapshot.bytes_of(entry)[offset : offset + BLANK.sizeof()].tobytes()
    return len(head) == BLANK.sizeof() and BLANK.parse(head).magic_code == MAGIC_BLANK


def _missing_files(snapshot: Snapshot, files: list[LoadedFile], end: int) -> Iterator[Edit]:
    """A file missing in the middle is replaced by one BLANK, which every start walks over."""
    size = snapshot.log_file_bytes
    blank = BLANK.build({"total_size": size, "magic_code": MAGIC_BLANK})
    for before, after in pairwise(files):
        if after.start > end or before.entry is None:
            return
        gap = range(before.start + size, after.start, size)
        if len(gap) > LARGEST_GAP:
            raise Refused(
                f"{len(gap)} log files are missing", path=before.entry.path, hint="restore them"
            )
        directory = snapshot.layout.commit_log_directories[0]
        for start in gap:
            yield Edit(
                "create",
                str(directory / file_name(start)),
                "missing log file: its messages are lost already",
                ("I-002",),
                length=size,
                pieces=((0, blank),),
            )
