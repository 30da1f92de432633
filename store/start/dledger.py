"""What a start does to a DLedger log: DLedger's recovery, then the broker's on top of it (spec 1.13, 7.12 B9).

DLedger looks at entries and never into a record. It walks the last three files (or from an earlier one if the index
does not fit), and cuts at the first entry that does not follow. After a crash the broker dispatches up to the first
record that it does not take; then it starts to dispatch once more at the end of the last committed entry, by the
member's checkpoint. This module assumes a single node, which leads.

A broker that recovers after a crash cuts the queues at a wrong log end: it adds up records without their entries. What
lies behind the last committed entry is dispatched when it is committed again; what was cut before it gets no units.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...formats.commit_log import DLEDGER
from ...formats.derive import Columns, dtype_of
from ...formats.derive.ragged import Bytes, Flags, Ints, Structs, overlapping
from ...formats.dledger import BLANK, HEAD, HEADER_BYTES, MAGIC_BLANK, MAGIC_ENTRY
from ...formats.dledger_index import FILE_BYTES, UNIT, UNIT_BYTES
from ...formats.dledger_state import COMMITTED_INDEX, END_INDEX
from ..broker.load_rules import BodyCheck, LoadedFile, Refusal, check, truncate
from ..broker.profiles import RecordRules
from ..broker.snapshot import Snapshot, list_entries
from ..counted import counted
from ..disk.byte_reader import Closing
from ..disk.file_queue import MappedFileQueue
from ..log.commit_log import WINDOW_UNITS, index_units
from ..log.window import Window
from ..log.window import walk as follow
from ..settings.read import read_if_there
from .log import start_file
from .outcome import DLedgerStart, Outcome, PendingUnits

_HEAD = dtype_of(HEAD)
_UNIT = dtype_of(UNIT)
_WINDOW_BYTES = 8 << 20
#: So many files at the end are walked.
_WALKED_FILES = 3


class DledgerEntries(NamedTuple):
    """Consecutive entries of one file. file_start: log position of the file. starts: bytes of the file where they
    begin, int64[n]. heads: of the entries.
    """

    file_start: int
    starts: Ints
    heads: Structs
    buffer: Bytes
    #: Byte of the file where `buffer` begins.
    offset: int

    @property
    def positions(self) -> Ints:
        """Log positions where the entries begin, int64[n]."""
        return self.starts + self.file_start


class DledgerIndexFile(Closing):
    """The index as a start finds it; units are read when needed."""

    def __init__(self, snapshot: Snapshot) -> None:
        directory = index_directory(snapshot)
        self.entries = list_entries(directory)
        self._queue = MappedFileQueue.open(directory)

    @property
    def refusal(self) -> Refusal | None:
        """Why DLedger does not load the index files, None if it does."""
        for entry in self.entries:
            if entry.directory or entry.size != FILE_BYTES:
                what = "a directory" if entry.directory else counted(entry.size, "byte")
                return Refusal("dledger-index-length", f"{_EXITS}: {what}", entry.path)
        return None

    def units(self, first: int, count: int) -> Structs:
        """Units from number `first` on; fewer at the end of the files, none if the files are not loaded."""
        count = 0 if self.refusal else count
        data = self._queue.read(first * UNIT_BYTES, count * UNIT_BYTES) if count > 0 else b""
        return np.frombuffer(data, _UNIT, len(data) // UNIT_BYTES)

    def following(self, first: int, end: int, file_bytes: int) -> Structs:
        """Units from number `first` on that follow one another, the first of them right behind log position `end`."""
        parts = [np.zeros(0, _UNIT)]
        while True:
            part = self.units(first, WINDOW_UNITS)
            begins, sizes = (part[name].astype(np.int64) for name in ("pos", "size"))
            before = np.append(end, begins + sizes)[:-1]
            good = (part["index"] == first + np.arange(len(part))) & (part["magic"] == MAGIC_ENTRY)
            good &= (sizes > HEADER_BYTES) & ((begins == before) | (begins == -(-before // file_bytes) * file_bytes))
            count = len(part) if good.all() else int(good.argmin())
            parts.append(part[:count])
            if not count or count < len(part):
                return np.concatenate(parts)
            first, end = first + count, int(begins[-1] + sizes[-1])

    def last_byte(self, first: int) -> int:
        """Byte behind the last unit from number `first` on that is not all zeros."""
        behind = first * UNIT_BYTES
        for part in index_units(self._queue, first):
            behind = (int(part.number[-1]) + 1) * UNIT_BYTES
        return behind

    def close(self) -> None:
        self._queue.close()


_EXITS = "Load file failed, this usually indicates fatal error (System.exit)"


def index_directory(snapshot: Snapshot) -> str:
    assert snapshot.layout.dledger is not None
    return str(snapshot.layout.dledger.parent / "index")


def refusal_of_files(snapshot: Snapshot, files: list[LoadedFile]) -> Refusal | None:
    """Why DLedger does not begin its recovery: by names and lengths alone."""
    with DledgerIndexFile(snapshot) as index:
        if index.refusal:
            return index.refusal
    for before, after in pairwise(files):
        if after.start != before.start + snapshot.log_file_bytes and after.entry:
            reason = "check data file order failed before recovery"
            return Refusal("dledger-hole", f"DLedgerException: {reason}", after.entry.path)
    return None


def recover_entries(snapshot: Snapshot, files: list[LoadedFile]) -> DLedgerStart | Refusal:
    """Simulate DLedger's recovery of its loaded files. Raises Unreadable."""
    size = snapshot.log_file_bytes
    if refusal := refusal_of_files(snapshot, files):
        return refusal
    with DledgerIndexFile(snapshot) as index:
        found = _walk_entries(snapshot, files, index)
        if files[-1].start - found.end > size:
            reason = "The processOffset is too small, you should check it manually (System.exit)"
            assert files[0].entry is not None
            return Refusal("dledger-too-small", reason, files[0].entry.path)
        found.committed = _committed(snapshot, files, found, index)
        return found


def _walk_entries(snapshot: Snapshot, files: list[LoadedFile], index: DledgerIndexFile) -> DLedgerStart:
    number = _first_file(snapshot, files, index)
    found = DLedgerStart(files[number].start)
    term = -1
    while True:
        file, blank = files[number], False
        found.end = file.start
        for part in following_entries(_content(snapshot, file), file.start, found.last, term):
            if isinstance(part, str):
                found.reason, blank = part, part == _BLANK_WITHOUT_NEXT
                break
            _compare_with_index(part, index, found)
            found.last, term = (int(part.heads[name][-1]) for name in ("index", "term"))
            found.end = found.last_end = file.start + int(part.starts[-1] + part.heads["size"][-1])
        if not blank:
            return found
        found.end = file.start + snapshot.log_file_bytes
        number += 1
        if number >= len(files):
            return found


_BLANK_WITHOUT_NEXT = "a BLANK closes the file, and there is no next one"
_ZEROS = "nothing but zeros follows"


class FileContent(Protocol):
    """Bytes of a file: `content[begin:end]` are uint8[end - begin]."""

    def __len__(self) -> int: ...
    def __getitem__(self, part: slice) -> Bytes: ...


def _content(snapshot: Snapshot, file: LoadedFile) -> FileContent:
    assert file.entry is not None
    return snapshot.bytes_of(file.entry)


def entries_of(content: FileContent, start: int) -> Iterator[DledgerEntries | str]:
    """Yield the entries of a file from its first byte on, in windows, then the reason why they end.

    start: log position of the file.
    """
    offset = 0
    reach = _WINDOW_BYTES
    while True:
        data = content[offset : min(len(content), offset + reach)]
        starts, stop = follow(Window(bytearray(data), len(data), 0), DLEDGER)
        if len(starts):
            heads = overlapping(data, _HEAD)[starts]
            yield DledgerEntries(start, starts + offset, heads, data, offset)
            offset, reach = offset + int(stop), _WINDOW_BYTES
            continue
        head = overlapping(data, _HEAD)[:1]
        larger = len(head) and int(head["magic"][0]) == MAGIC_ENTRY and int(head["size"][0]) > len(data)
        if larger and offset + len(data) < len(content):
            reach *= 4
            continue
        yield _why_no_entry(data)
        return


def _why_no_entry(data: Bytes) -> str:
    if len(data) < BLANK.sizeof():
        return "the file ends"
    head = BLANK.parse(data[: BLANK.sizeof()].tobytes())
    if head.magic == MAGIC_BLANK:
        return _BLANK_WITHOUT_NEXT
    return _ZEROS if head.size == 0 else "there is no entry"


def following_entries(
    content: FileContent, start: int, last: int = -1, term: int = -1
) -> Iterator[DledgerEntries | str]:
    """Yield the entries of a file that DLedger takes, then why it takes no more. last, term: as of `entry_rules`."""
    for part in entries_of(content, start):
        if isinstance(part, str):
            yield part
            return
        count, why = _count_following(part, last, term)
        if count:
            yield part._replace(starts=part.starts[:count], heads=part.heads[:count])
            last, term = (int(part.heads[name][count - 1]) for name in ("index", "term"))
        if why:
            yield why
            return


def heads_of(columns: Columns) -> Structs:
    """The heads of the entries around records in `columns`."""
    return overlapping(columns.ragged("body").buffer, _HEAD)[columns.starts - DLEDGER.payload]


class EntryRule(NamedTuple):
    """A condition of DLedger for an entry. kept: bool[n]. why: the reason if not. field: of the head that shows it."""

    kept: Flags
    why: str
    field: str


def entry_rules(heads: Structs, positions: Ints, last: int, term: int) -> tuple[EntryRule, ...]:
    """The rules, in DLedger's order. last, term: number and term of the entry before, -1 if there is none."""
    before = np.concatenate([np.array([last], np.int64), heads["index"][:-1]])
    terms = np.concatenate([np.array([term], np.int64), heads["term"][:-1]])
    sizes = heads["size"].astype(np.int64)
    return (
        EntryRule(heads["magic"] == MAGIC_ENTRY, "the kind of entry is unknown", "magic"),
        EntryRule(heads["pos"] == positions, "the entry names another place", "pos"),
        EntryRule(heads["body_length"] == sizes - HEADER_BYTES, "its sizes differ", "body_length"),
        EntryRule(sizes > HEADER_BYTES, "the entry is empty", "size"),
        EntryRule((heads["index"] == before + 1) | (before == -1), "its number does not follow", "index"),
        EntryRule(heads["term"] >= terms, "its term is lower than the one before", "term"),
    )


def _count_following(part: DledgerEntries, last: int, term: int) -> tuple[int, str]:
    """How many of these entries DLedger takes, and why not the next one."""
    rules = entry_rules(part.heads, part.positions, last, term)
    good = np.logical_and.reduce([rule.kept for rule in rules])
    if good.all():
        return len(good), ""
    row = int(good.argmin())
    return row, next(rule.why for rule in rules if not rule.kept[row])


def units_of(heads: Structs, positions: Ints) -> Structs:
    """The index units of entries at log positions `positions`."""
    units = np.zeros(len(heads), _UNIT)
    for name in ("magic", "size", "index", "term"):
        units[name] = heads[name]
    units["pos"] = positions
    return units


def _compare_with_index(part: DledgerEntries, index: DledgerIndexFile, found: DLedgerStart) -> None:
    """Find the first unit that does not match its entry: from there on DLedger writes the index again."""
    if found.rewritten >= 0:
        return
    expected, count = units_of(part.heads, part.positions), len(part.heads)
    first = int(expected["index"][0])
    stored = index.units(first, count) if first >= 0 else expected[:0]
    same = np.zeros(count, np.bool_)
    same[: len(stored)] = stored == expected[: len(stored)]
    if not same.all():
        found.rewritten = first + int(same.argmin())


def _first_file(snapshot: Snapshot, files: list[LoadedFile], index: DledgerIndexFile) -> int:
    """Number of the file where the walk begins: the third last, or an earlier one whose first entry is in the index."""
    for number in range(max(0, len(files) - _WALKED_FILES), 0, -1):
        file = files[number]
        part = _first_entry(snapshot, file)
        if part is not None and _count_following(part, -1, -(1 << 63))[0]:
            probe = DLedgerStart()
            _compare_with_index(part, index, probe)
            if probe.rewritten < 0:
                return number
    return 0


def _first_entry(snapshot: Snapshot, file: LoadedFile) -> DledgerEntries | None:
    assert file.entry is not None
    data = snapshot.bytes_of(file.entry)[:HEADER_BYTES]
    if len(data) < HEADER_BYTES:
        return None
    return DledgerEntries(file.start, np.zeros(1, np.int64), overlapping(data, _HEAD)[:1], data, 0)


def _committed(snapshot: Snapshot, files: list[LoadedFile], found: DLedgerStart, index: DledgerIndexFile) -> int:
    """Log position behind the last committed entry, by the member's checkpoint; -1 without one."""
    number = member_state(snapshot).committed
    if number is None or found.last < 0 or number < 0:
        return -1
    if number >= found.last:
        return found.last_end
    if 0 <= found.rewritten <= number:
        return _end_of_entry(snapshot, files, number)
    unit = index.units(number, 1)
    return int(unit["pos"][0]) + int(unit["size"][0]) if len(unit) else -1


def _end_of_entry(snapshot: Snapshot, files: list[LoadedFile], number: int) -> int:
    """Log position behind the entry of that number, searched in the log; -1 if it is not there."""
    for file in reversed(files):
        for part in entries_of(_content(snapshot, file), file.start):
            if isinstance(part, str):
                break
            rows = np.flatnonzero(part.heads["index"] == number)
            if len(rows):
                row = int(rows[0])
                return file.start + int(part.starts[row] + part.heads["size"][row])
    return -1


def committed_end(snapshot: Snapshot) -> int | None:
    """Log position behind the entries that a group of several nodes has committed, by the member's checkpoint and the
    unit of the entry; None: all count. A broker dispatches no entry behind them: the group may still replace it.
    """
    if not snapshot.layout.has_peers:
        return None
    number = member_state(snapshot).committed
    if number is None or number < 0:
        return 0
    with DledgerIndexFile(snapshot) as index:
        unit = index.units(number, 1)
    known = len(unit) and unit["size"][0] and unit["index"][0] == number  # else the log ends before the entry
    return int(unit["pos"][0]) + int(unit["size"][0]) if known else None


class MemberState(NamedTuple):
    """Numbers of entries in the checkpoint of a member; None if missing, or below -1."""

    committed: int | None
    end: int | None


def member_state(snapshot: Snapshot) -> MemberState:
    """The last committed entry, and the last entry. Raises Unreadable."""
    assert snapshot.layout.dledger is not None
    fields = member_fields(snapshot.layout.dledger.parent)
    return MemberState(*(entry_number(fields.get(name)) for name in (COMMITTED_INDEX, END_INDEX)))


def member_fields(directory: Path) -> dict[str, Any]:
    """The fields of a member's checkpoint; none if committedIndex is missing or blank, as in a file without content:
    DLedger takes this for no checkpoint. Raises Unreadable.
    """
    file = read_if_there(directory / "checkpoint", "dledger-state")
    fields = file.value if file else {}
    return fields if str(fields.get(COMMITTED_INDEX, "")).strip() else {}


def entry_number(text: object) -> int | None:
    """The number of an entry, or -1 for none; None if the text is no such number."""
    try:
        number = int(str(text).strip())
    except ValueError:
        return None
    return number if number >= -1 else None


def records_of(
    snapshot: Snapshot, file: LoadedFile, rules: RecordRules, body: BodyCheck, begin: int = 0, end: int = 1 << 62
) -> Iterator[Columns | bool]:
    """Yield the records of entries in bytes [begin, end) of a file, up to the first that the broker does not take; then
    whether it takes no more of the next file either.

    `starts` and `ends` of the columns are bytes of the file.
    """
    for part in entries_of(_content(snapshot, file), file.start):
        if isinstance(part, str):
            yield part != _BLANK_WITHOUT_NEXT
            return
        inside = (part.starts >= begin) & (part.starts + part.heads["size"] <= end)
        starts = part.starts[inside] - part.offset + HEADER_BYTES
        if not len(starts):
            continue
        checked = check(part.buffer, starts, rules, body)
        good = checked.passed & (checked.size > 0)
        good &= checked.size + HEADER_BYTES == part.heads["size"][inside]
        count = len(starts) if good.all() else int(good.argmin())
        if count:
            columns = checked.columns.take(slice(0, count))
            columns.starts, columns.ends = columns.starts + part.offset, columns.ends + part.offset
            yield columns
        if count < len(starts):
            yield True
            return


def recover_dledger(outcome: Outcome, waiting: PendingUnits) -> None:
    """Run DLedger's recovery, then the broker's, then the dispatch of the leader. Raises Unreadable."""
    snapshot, files = outcome.snapshot, outcome.log.files
    found = recover_entries(snapshot, files)
    if isinstance(found, Refusal):
        outcome.refusal = found
        return
    outcome.dledger = found
    broker_end = _dispatched_after_crash(outcome, waiting, files) if snapshot.abort else None
    outcome.log_removed = truncate(files, found.end, snapshot.log_file_bytes)
    limit = found.end if broker_end is None else broker_end
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


def _dispatched_after_crash(outcome: Outcome, waiting: PendingUnits, files: list[LoadedFile]) -> int | None:
    """Dispatch what lies behind the queues, from the file that the checkpoint gives on.

    Returns where the broker believes that the log ends; None if this version does not dispatch here.
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
                if isinstance(taken, bool):
                    ended = taken
                    break
                waiting.add(taken, None)
                behind += int(taken.ints("total_size").sum())
            if ended:
                break
    return behind


def reput(outcome: Outcome, waiting: PendingUnits, file: LoadedFile, begin: int, end: int) -> None:
    """Dispatch the entries of a file in [begin, end), up to the first that fails."""
    inside = (max(0, begin - file.start), end - file.start)
    for taken in records_of(outcome.snapshot, file, outcome.profile.record, BodyCheck.NONE, *inside):
        if isinstance(taken, Columns):
            waiting.add(taken, None)
