"""Checks of the chain of records and where it ends (docs/invariants.md, I-020 … I-022, I-040 … I-043, I-054).

The scan says what lies between records; these checks add the code, and what a broker does there.

The entries around the records of a DLedger log, and their index (docs/invariants.md, I-052, I-053).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...formats.commit_log import DLEDGER, Frame
from ...formats.derive.ragged import Flags, Ints
from ...formats.dledger_index import UNIT_BYTES
from ...formats.dledger_state import COMMITTED_INDEX, END_INDEX
from ..counted import counted
from ..disk.file_queue import MappedFile, MappedFileQueue
from ..findings.catalogue import Severity
from ..findings.findings import Details
from ..log.batch import Extent, ExtentKind
from ..log.commit_log import index_units
from ..log.message import Mark, tombstones
from ..log.scan import WINDOW_BYTES, Fault, LogItems
from ..start.dledger import entry_number, entry_rules, heads_of, member_fields
from .context import Mergeable, Records, VerifyContext, of_record
from .register import after, of_extents, of_records, of_stale

_CODES = {Fault.NO_ROOM: "I-040", Fault.NO_MAGIC: "I-020", Fault.BAD_SIZE: "I-021", Fault.UNEVEN: "I-022"}
_SAME_BATCH = ("queue_id", "born_timestamp", "store_timestamp")
_BATCH_ROWS = 4096
"""Number of records behind a BLANK that may have come as one batch."""


@dataclass
class Chain(Mergeable):
    """What lies before the next record.

    end: log position behind the last item. open: a range without records; what follows decides whether it is damage.
    damage: begin of the first damage at which a broker ends the log; -1 without. lost: some range that was passed may
    have had records. blank: the BLANK directly before. mended: a tombstone is directly before, which closed a hole.
    """

    end: int | None = None
    open: Extent | None = None
    damage: int = -1
    lost: bool = False
    blank: Extent | None = None
    mended: bool = False

    def follows(self, context: VerifyContext, records: Records) -> bool:
        """Return whether the records come directly behind the last item; if not, the run did not read those between."""
        first = int(records.position[0])
        return self.end is not None and first - context.store.payload_at(first) == self.end

    def can_merge(self, exported: Chain) -> bool:
        """Return whether nothing in front of the part makes a difference to what is in it."""
        return not (self.open or self.damage >= 0 or self.lost or self.blank)

    def merge(self, context: VerifyContext, exported: Chain) -> None:
        """Continue behind the last item of the part."""
        self.end, self.blank, self.mended = exported.end, exported.blank, exported.mended


def chain_of(context: VerifyContext) -> Chain:
    """Return the chain of a run: what comes before the records that are checked now."""
    return context.kept(Chain, lambda: Chain(damage=context.log.damage))


@of_extents("I-020", "I-021", "I-022", "I-040", "I-041", "I-043")
def no_record(context: VerifyContext, extent: Extent) -> None:
    chain, kind = chain_of(context), extent.kind
    _report_open(context, chain)
    chain.end = extent.end
    if kind is ExtentKind.BLANK:
        _note_blank(context, chain, extent)
    elif kind is ExtentKind.MISSING:
        chain.lost, chain.blank = True, None
    elif kind is ExtentKind.DAMAGE:
        chain.open, chain.lost, chain.blank = extent, True, None
    elif kind is ExtentKind.TORN_TAIL:
        torn(context, extent)
    elif kind is ExtentKind.STALE_BYTES:
        text = f"bytes behind the end of the log that are not a record: {extent.reason}"
        context.log_finding("I-043", extent.position, extent.size, text)


def _note_blank(context: VerifyContext, chain: Chain, extent: Extent) -> None:
    chain.blank = extent
    dead = "dead records" in extent.reason
    if extent.reason and not dead:
        text = f"BLANK at {extent.position}: {extent.reason}; brokers do not look at it"
        context.log_finding("I-040", extent.position, extent.size, text, severity=Severity.WARNING)


def _report_open(context: VerifyContext, chain: Chain, *, is_last: bool = False) -> None:
    """Report the open range as damage. is_last: nothing follows it."""
    if chain.open is not None:
        _report_damage(context, chain.open, is_last=is_last)
        if chain.damage < 0:
            chain.damage = context.log.damage = chain.open.position
        chain.open = None


@after("I-020", "I-021", "I-022", "I-040")
def damage_at_the_end(context: VerifyContext) -> None:
    """Report damage that nothing follows, unless a run that continues sees it again."""
    chain, stopped_at = chain_of(context), context.log.stopped_at
    if chain.open is not None and (stopped_at is None or chain.open.position < stopped_at):
        _report_open(context, chain, is_last=True)


def _report_damage(context: VerifyContext, extent: Extent, *, is_last: bool) -> None:
    file = context.store.log_files.file_at(extent.position)
    if file is None or extent.unread:  # I-015 reports it
        return
    items, at = LogItems(context.store.log, file), extent.position - file.start
    if items.blank(at) is not None:
        text = f"a BLANK at {extent.position}, but {extent.reason.replace('a BLANK', 'it')}"
        context.log_finding("I-041", extent.position, extent.size, text, severity=Severity.ERROR)
        return
    code = _CODES[items.fault(at)[0]]
    again, more = (context.again, context.behind_the_end) if is_last else ("", {})
    text = f"no record at {extent.position}: {extent.reason}{again}"
    if code != "I-040" and extent.end >= file.end and not _has_blank(items, file, at):
        tail = f"{file.path.rsplit('/', 1)[-1]} does not end with a BLANK"
        context.log_finding("I-040", extent.position, extent.size, tail, **more)
    context.log_finding(code, extent.position, extent.size, text, **more)


def _has_blank(items: LogItems, file: MappedFile, at: int) -> bool:
    """Return whether somewhere behind byte `at` a BLANK names the rest of the file."""
    frame: Frame = items.frame
    magic = (frame.blank_magic).to_bytes(4, "big")
    begin = max(at, file.size - WINDOW_BYTES)
    window = items.peek(begin, file.size - begin)
    found = window.data.find(magic)
    while found >= 0:
        start = begin + found - frame.magic_offset
        blank = items.blank(start) if start >= at else None
        if blank is not None and not blank.reason:
            return True
        found = window.data.find(magic, found + 1)
    return False


def torn(context: VerifyContext, extent: Extent) -> None:
    """Report a last record that is not whole: the log ends before it, and except on a slave its message is lost.

    A killed broker leaves no torn record, since it writes to the page cache; a loss of power does.
    """
    file = context.store.log_files.file_at(extent.position)
    if file is None:
        return
    fault, _ = LogItems(context.store.log, file).fault(extent.position - file.start)
    why = "torn by the crash" if context.crashed else "although the last stop was in order"
    text = f"the last record, at {extent.position}, is not complete, {why}: {extent.reason}{context.again}"
    more: Details = {"severity": Severity.ERROR} | context.behind_the_end
    context.log_finding(_CODES[fault], extent.position, extent.size, text, **more)


@of_records("I-021", "I-041")
def room_for_a_blank(context: VerifyContext, records: Records) -> None:
    chain = chain_of(context)
    position, size = int(records.position[-1]), int(records.columns.ints("total_size")[-1])
    file = context.store.log_files.file_at(position)
    if file is not None and not file.compressed:
        frame = context.store.log.frame_of(file)
        if position + size > file.end - frame.spare:
            text = f"record at {position}: its size {size} leaves no room for a BLANK{_hint_of_a_cut_file(context)}"
            context.log_finding("I-021", position, size, text)
    blank = chain.blank
    if blank is not None and chain.follows(context, records) and file is not None:
        needed = _bytes_needed(records, context.store.log.frame_of(file))
        if needed <= blank.size:
            text = f"a BLANK at {blank.position}, but there was room for the next record of {needed} bytes"
            level = Severity.INFO if chain.mended or _begins_file(context, blank) else None
            context.log_finding("I-041", blank.position, blank.size, text, severity=level)


def _hint_of_a_cut_file(context: VerifyContext) -> str:
    """Return a hint if the file may have been cut: it is the only one, and its length is not configured."""
    option = "mappedFileSizeCommitLog"
    if len(context.store.log_files.files) > 1 or context.store.layout.broker_config.size(option)[1] == "configuration":
        return ""
    return f"; if the file was cut, name its original length: --set {option}=BYTES"


def _begins_file(context: VerifyContext, blank: Extent) -> bool:
    """Return whether a BLANK begins a file: no broker writes such a BLANK; a recovery closed a lost file with it."""
    file = context.store.log_files.file_at(blank.position)
    return file is not None and blank.position == file.start


def _is_tombstone(records: Records, row: int) -> bool:
    if records.ints("store_host.port")[row]:  # most records are none, and this number shows it
        return False
    return bool(tombstones(records.columns.take(np.array([row])))[0])


def _bytes_needed(records: Records, frame: Frame) -> int:
    """Return the number of bytes that a broker needed for the first record, or for the batch that it came in."""
    some = slice(0, _BATCH_ROWS)
    same = np.ones(len(records.position[some]), np.bool_)
    for name in _SAME_BATCH:
        column = records.columns.ints(name)[some]
        same &= column == column[0]
    same &= records.topics.ids[some] == records.topics.ids[0]
    count = len(same) if same.all() else int(np.argmin(same))
    sizes = records.ints("total_size")[:count]
    return int(sizes.sum()) + frame.payload * (count if frame.payload else 0) + frame.spare


@of_records("I-042", "I-054")
def behind_the_end(context: VerifyContext, records: Records) -> None:
    """Report good records behind the place where the recovery of a broker ends the log."""
    chain = chain_of(context)
    _report_open(context, chain)
    if chain.damage >= 0:
        first, end, damage = int(records.position[0]), records.batch.end, chain.damage

        def lost(count: int) -> str:
            good, them = counted(count, "good record"), "it" if count == 1 else "them"
            return f"{good} from {first} on, behind the damage at {damage}: a start that reads it gives {them} up"

        context.log_finding("I-042", first, end - first, lost, count=len(records))
    chain.end, chain.blank = records.batch.end, None
    chain.mended = _is_tombstone(records, -1)


@of_stale("I-042", "I-043", "I-054")
def not_of_this_log(context: VerifyContext, records: Records) -> None:
    """Report whole records behind the end: given up by an earlier start, or of an earlier life of the files."""
    chain, mark = chain_of(context), records.batch.mark
    first, end = int(records.position[0]), records.batch.end
    if mark is Mark.DEAD_TAIL and chain.open is not None:
        rest, chain.open = chain.open, None
        text = f"the end of the log, with the rest of a record that a start cut off: {rest.reason}"
        context.log_finding("I-043", rest.position, rest.size, text)
    elif mark is not Mark.EMBEDDED:
        _report_open(context, chain)
    if mark is Mark.DEAD_TAIL:

        def text_of(count: int) -> str:
            return f"{counted(count, 'whole record')} from {first} on that a broker's start gave up"

        context.log_finding("I-042", first, end - first, text_of, count=len(records), severity=Severity.INFO)
    elif mark is Mark.EARLIER_LIFE:
        _report_earlier_life(context, first, end, len(records), int(records.columns.ints("physical_offset")[0]))
    if mark is not Mark.EMBEDDED:
        chain.end, chain.blank = end, None


def _report_earlier_life(context: VerifyContext, first: int, end: int, count: int, own: int) -> None:
    """Report records of an earlier life. own: the position that the first of them names."""

    def text(count: int) -> str:
        return counted(
            count,
            f"record from {first} on that names another position ({own} …): the next start takes it for a new message",
            f"records from {first} on that name other positions ({own} …): the next start takes them for new messages",
        )

    context.log_finding("I-054", first, end - first, text, count=count)


@after("I-041")
def blank_at_the_end(context: VerifyContext) -> None:
    """Report a BLANK at the end of the log, unless the run ended early: the next file has no record."""
    blank = chain_of(context).blank
    if blank is not None and context.log.stopped_at is None and not context.live and not blank.reason:
        text = f"the log ends with a BLANK, at {blank.position}: the next file has no record"
        context.log_finding("I-041", blank.position, blank.size, text, severity=Severity.INFO)


_INDEX = "index"


@dataclass
class _Entries:
    """What was read of the entries: position, size and term of each, and the last one."""

    first: int | None = None
    index: int | None = None
    term: int = -1
    #: Log position behind the last entry.
    end: int = 0
    position: list[Ints] = field(default_factory=list)
    size: list[Ints] = field(default_factory=list)
    term_of: list[Ints] = field(default_factory=list)
    #: The numbers do not increase by one: the index cannot be compared.
    broken: bool = False


@of_records("I-052")
def entries(context: VerifyContext, records: Records) -> None:
    file = context.store.log_files.file_at(int(records.position[0]))
    if file is None or context.store.log.frame_of(file) is not DLEDGER:
        return
    heads = heads_of(records.columns)
    state = context.kept(_Entries, _Entries)
    index, term, size = (heads[name].astype(np.int64) for name in ("index", "term", "size"))
    position = records.position - DLEDGER.payload
    skipped = not context.log.complete and int(position[0]) != state.end
    first = state.index is None or skipped  # the run has not read a part of the log
    whole = size == records.ints("total_size") + DLEDGER.payload
    _report_entries(context, records, ~whole, "it does not hold exactly one record: size", size)
    last = -1 if first or state.index is None else state.index
    for rule in entry_rules(heads, position, last, state.term):
        wrong = ~rule.kept & (whole | (rule.field != "body_length"))  # not twice for one wrong size
        _report_entries(context, records, wrong, f"{rule.why}: {rule.field}", heads[rule.field])
        state.broken |= rule.field == "index" and bool(wrong.any())
    state.first = int(index[0]) if state.first is None else state.first
    state.index, state.term = int(index[-1]), int(term[-1])
    state.end = int(records.ends[-1])
    state.position.append(position)
    state.size.append(size)
    state.term_of.append(term)


def _report_entries(context: VerifyContext, records: Records, wrong: Flags, text: str, values: Ints) -> None:
    begins = records.position - DLEDGER.payload
    message = of_record(begins, text, values, "entry")
    context.log_rows("I-052", wrong, begins, records.ends, message)


@after("I-053")
def index_of_entries(context: VerifyContext) -> None:
    directory = context.store.layout.dledger
    if directory is None or context.live:
        return
    state = context.kept(_Entries, _Entries)
    if state.first is None or state.broken or not context.read_at_once:
        return
    wanted = {
        "pos": np.concatenate(state.position),
        "size": np.concatenate(state.size),
        "term": np.concatenate(state.term_of),
    }
    end = state.first + len(wanted["pos"])
    seen = np.zeros(end - state.first, np.bool_)
    with MappedFileQueue.open(directory.parent / _INDEX) as files:
        for part in index_units(files):
            inside = (part.number >= state.first) & (part.number < end)
            number, units = part.number[inside], part.units[inside]
            rows = number - state.first
            wrong = units["index"] != number
            for name, column in wanted.items():
                wrong |= units[name] != column[rows]
            seen[rows] = True
            for at in np.flatnonzero(wrong).tolist():
                text = f"unit {number[at]} of the DLedger index does not name its entry"
                _report_unit(context, files, int(number[at]), text)
            for number_behind in part.number[part.number >= end].tolist()[:1]:
                text = f"the DLedger index continues behind the last entry, {end - 1}{_rest(context)}"
                _report_unit(context, files, number_behind, text, **context.behind_the_end)
        for row in np.flatnonzero(~seen)[:1].tolist():
            text = f"entry {state.first + row} has no unit in the DLedger index"
            _report_unit(context, files, state.first + row, text)
    _check_state(context, directory.parent, end - 1)


def _rest(context: VerifyContext) -> str:
    return "; the leader sends the rest again, if still there" if context.again else ""


def _report_unit(context: VerifyContext, files: MappedFileQueue, number: int, text: str, **more: Any) -> None:
    file = files.file_at(number * UNIT_BYTES)
    path = file.path if file else os.fspath(files.directories[0])
    offset = number * UNIT_BYTES - (file.start if file else 0)
    context.findings.add("I-053", path, text, offset=offset, length=UNIT_BYTES, **more)


def _check_state(context: VerifyContext, directory: Path, last: int) -> None:
    """Check that committedIndex ≤ endIndex ≤ number of the last entry."""
    fields = member_fields(directory)
    if not fields:
        return
    end, committed = (str(fields.get(name, "")) for name in (END_INDEX, COMMITTED_INDEX))
    numbers = [entry_number(text) for text in (committed, end)]
    wrong = None in numbers or not -1 <= numbers[0] <= numbers[1]  # type: ignore[operator]
    if wrong or numbers[1] > last:  # type: ignore[operator]
        text = f"committedIndex {committed!r}, endIndex {end!r}, the last entry is {last}"
        again, more = ("", {}) if wrong else (_rest(context), context.behind_the_end)
        context.findings.add("I-053", directory / "checkpoint", text + again, **more)
