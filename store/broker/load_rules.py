"""Which files a broker loads, and which records it accepts.

A load takes every file of the configured length, by name (spec README, "Rules common to every MF-queue"); what it does
with other entries differs between versions and is data in `profiles`.

The check of a record is a broker's `checkMessageAndReturnSize` (spec 7.2). It differs from mqstore's own check: it
ignores physical offset, queue, store time and topic, and of the properties all but the numbers that it needs; a
negative body or properties length counts as zero, and 4.3 does not know 16-byte hosts. Whole columns of records are
checked at once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from construct import Bytes as FixedBytes
from construct import Construct, FuncPath, Struct
from construct import this as _record

from ...formats.blank import BLANK, BLANK_BYTES, MAGIC_BLANK
from ...formats.commit_log import PLAIN
from ...formats.derive import Columns, decode, dtype_of
from ...formats.derive.ragged import Bytes, Flags, Ints, Ragged, overlapping
from ...formats.hashing import java_integer, java_string
from ...formats.hashing_columns import crc31_column
from ...formats.message import MAGIC_V1, MAGIC_V2, MESSAGE
from ...formats.message_properties import (
    DELAY,
    DUP_INFO,
    INNER_BASE,
    INNER_NUM,
    NUMBER_BITS,
    REAL_QID,
    REAL_TOPIC,
    crc_ok,
)
from ...formats.primitives import HOST_V4
from ...formats.property_columns import PropertyItems, find
from ..counted import counted
from ..log.window import Window
from ..log.window import walk as follow
from .profiles import LoadRules, OnOddFile, RecordRules
from .snapshot import DirectoryEntry, FileBytes, Snapshot, directories_for_files
from .system_topics import SCHEDULE_TOPIC

_NOT_MATCHED = "length not matched message store config value"


@dataclass
class LoadedFile:
    """A file that the broker has loaded: its start in the stream and its write position."""

    start: int
    wrote: int
    entry: DirectoryEntry | None


class Refusal(NamedTuple):
    """A failed load: label of the case, reason, file."""

    case: str
    reason: str
    path: str

    def text(self, root: str) -> str:
        """Reason, and the file within a store at `root`."""
        return f"{self.reason} ({self.path.removeprefix(root + os.sep)})"


class LoadedFiles(NamedTuple):
    """The outcome of loading one directory, or the directories of one log."""

    files: list[LoadedFile]
    hidden: list[DirectoryEntry]
    deleted: list[DirectoryEntry]
    refusal: Refusal | None = None


def load_files(entries: Sequence[DirectoryEntry], file_bytes: int, rules: LoadRules) -> LoadedFiles:
    """Load the `entries` of a directory, sorted by name. Pure: nothing is deleted on disk."""
    files: list[LoadedFile] = []
    deleted: list[DirectoryEntry] = []
    for i, entry in enumerate(entries):
        fault = _odd_entry(entry, file_bytes, rules, last=i == len(entries) - 1)
        if fault is not None:
            action, refusal = fault
            if action is OnOddFile.HIDE:
                return LoadedFiles(files, list(entries[i:]), deleted)
            if action is OnOddFile.REFUSE:
                return LoadedFiles(files, [], [], refusal)
            if action is OnOddFile.DELETE:
                deleted.append(entry)
            continue
        start = java_integer(entry.name, 64)
        if start is None:
            reason = f'NumberFormatException: For input string: "{entry.name}"'
            refusal = Refusal("foreign-name", reason, entry.path)
            return LoadedFiles(files, [], [], refusal)
        files.append(LoadedFile(start, file_bytes, entry))
    return LoadedFiles(files, [], deleted)


def directory_for_file(snapshot: Snapshot, rules: LoadRules) -> Refusal | None:
    """Why a start fails at a directory where it opens a file; older brokers do so at `checkpoint` alone."""
    layout, found = snapshot.layout, directories_for_files(snapshot)
    if layout.abort.is_dir():
        found.append(str(layout.abort))
    wrong = next((path for path in found if rules.needs_files or path == str(layout.checkpoint)), None)
    return None if wrong is None else Refusal("directory", "FileNotFoundException: Is a directory", wrong)


def _odd_entry(
    entry: DirectoryEntry, file_bytes: int, rules: LoadRules, last: bool
) -> tuple[OnOddFile, Refusal] | None:
    """What the load does with an entry that is not a whole file, and the refusal; None for a whole file."""
    if entry.directory:
        if rules.directory is OnOddFile.HIDE and entry.size == file_bytes:
            return None
        reason = f"{_NOT_MATCHED}: a directory among the files"
        return rules.directory, Refusal("directory", reason, entry.path)
    if not entry.size and last:
        reason = f"{_NOT_MATCHED}: the last file is empty"
        return rules.empty_last, Refusal("empty-last-file", reason, entry.path)
    if entry.size != file_bytes:
        reason = f"{_NOT_MATCHED}: {counted(entry.size, 'byte')}, not {file_bytes}"
        return rules.wrong_length, Refusal("wrong-length", reason, entry.path)
    return None


def truncate(files: list[LoadedFile], end: int, file_bytes: int) -> list[LoadedFile]:
    """The broker's `truncateDirtyFiles(end)`: drop files that start behind `end`; return the dropped ones.

    In the file that holds `end` only the write position moves there; a file that begins exactly at `end` stays, with
    nothing written.
    """
    removed = [f for f in files if f.start > end]
    files[:] = [f for f in files if f.start <= end]
    for file in files:
        if file.start + file_bytes > end:
            file.wrote = end % file_bytes
    return removed


_WINDOW_BYTES = 8 << 20
_TWO_PARTS = re.compile(rb"[^_]*_[^_]+_*")
_non_negative_ = FuncPath(lambda length: np.maximum(length, 0))
_HOSTS = {"born_host": HOST_V4, "store_host": HOST_V4}
_STRINGS = {
    "body": FixedBytes(_non_negative_(_record.body_length)),
    "properties": FixedBytes(_non_negative_(_record.properties_length)),
}


def _as_broker_reads(replaced: Mapping[str, Construct[Any, Any]]) -> Construct[Any, Any]:
    """The record schema with some members read in the broker's way."""
    members = ((str(member.name), member) for member in MESSAGE.subcons)
    return Struct(*(name / replaced.get(name, member) for name, member in members))


_SCHEMA = _as_broker_reads(_STRINGS)
_SCHEMA_IPV4 = _as_broker_reads({**_STRINGS, **_HOSTS})
_HEAD_DTYPE = dtype_of(BLANK)
_WITH_NUMBERS = (DELAY, INNER_NUM, INNER_BASE)


def size_at(snapshot: Snapshot, entry: DirectoryEntry, offset: int) -> int:
    """total_size at a byte of a file if a record seems to begin there, else 0."""
    data = snapshot.bytes_of(entry)[offset : offset + _HEAD_DTYPE.itemsize]
    if len(data) < _HEAD_DTYPE.itemsize:
        return 0
    head = data.view(_HEAD_DTYPE)[0]
    return int(head["total_size"]) if head["magic_code"] in (MAGIC_V1, MAGIC_V2) else 0


class BodyCheck(Enum):
    """Which checksum of a record is checked."""

    NONE = "nothing"
    BODY_CRC = "the checksum of the body"
    PROPERTY_CRC = "the checksum of the record in its properties, which is required (spec 1.7)"


class CheckedPositions(NamedTuple):
    """Outcome for n positions: `passed`, and `size` as the broker returns it.

    size: total_size of a good record, 0 for a BLANK, -1 for a failure, but total_size for a failure because the fields
    do not add up to it (row 6). columns: the fields; `columns.ends` is the byte behind the last field read.
    """

    passed: Flags
    size: Ints
    columns: Columns


def schema_of(rules: RecordRules) -> Construct[Any, Any]:
    """The record schema as a generation of brokers reads it."""
    return _SCHEMA if rules.ipv6 else _SCHEMA_IPV4


def knows(rules: RecordRules, magic: npt.NDArray[Any]) -> Flags:
    """bool[n]: the magic code is that of a record that this generation knows."""
    known: Flags = magic == MAGIC_V1
    return known | (magic == MAGIC_V2) if rules.v2 else known


def check(
    buffer: Bytes, starts: Ints, rules: RecordRules, body: BodyCheck = BodyCheck.BODY_CRC, behind: int = 0
) -> CheckedPositions:
    """Check the records at `starts` of some bytes of a file. behind: bytes of the file behind `buffer`."""
    left = len(buffer) + behind - starts
    columns = decode(schema_of(rules), buffer, starts)
    heads = overlapping(buffer, _HEAD_DTYPE)
    whole_head = left >= BLANK_BYTES
    head = heads[np.where(whole_head, starts, 0)] if len(heads) else np.zeros(len(starts), heads.dtype)
    total = np.where(whole_head, head["total_size"], -1).astype(np.int64)
    magic = np.where(whole_head, head["magic_code"], 0)
    fits = whole_head & (total <= left) if rules.bounded else whole_head
    if rules.signed:
        fits &= total >= 0
    blank = fits & (magic == MAGIC_BLANK)
    readable = fits & knows(rules, magic) & (total >= 0) & columns.ok
    readable &= _arrays_fit(columns, total)
    if body is BodyCheck.PROPERTY_CRC and rules.property_crc:
        readable &= _records_agree(buffer, starts, total, readable)
    elif body is not BodyCheck.NONE:
        readable &= _bodies_agree(columns, readable)
    if rules.dup_info:
        readable &= _have_dup_info(columns, readable)
    equal = columns.ends - columns.starts == total
    readable[_rows_with_no_number(columns, readable, equal, rules)] = False
    size = np.where(readable, total, -1)
    size[blank] = 0
    return CheckedPositions(blank | (readable & equal), size, columns)


def _arrays_fit(columns: Columns, total: Ints) -> Flags:
    """bool[n]: body, topic and properties fit into an array of total_size bytes, into which a broker reads them."""
    fits: Flags = np.ones(len(columns), np.bool_)
    for name in ("body_length", "topic_length", "properties_length"):
        if name in columns:
            fits &= columns.ints(name) <= total
    return fits


def _bodies_agree(columns: Columns, readable: Flags) -> Flags:
    """bool[n]: the body matches its checksum; an empty body is not checked."""
    agree: Flags = np.ones(len(columns), np.bool_)
    if "body" not in columns:
        return agree
    bodies = columns.ragged("body")
    asked = np.flatnonzero(readable & (bodies.length > 0))
    agree[asked] = crc31_column(bodies[asked]) == columns.ints("body_crc")[asked]
    return agree


def _records_agree(buffer: Bytes, starts: Ints, total: Ints, readable: Flags) -> Flags:
    """bool[n]: the record matches its checksum. Checked one by one, since few stores need this check."""
    agree: Flags = np.zeros(len(starts), np.bool_)
    for at in np.flatnonzero(readable).tolist():
        begin = int(starts[at])
        agree[at] = crc_ok(buffer[begin : begin + int(total[at])].tobytes()) is True
    return agree


def _have_dup_info(columns: Columns, readable: Flags) -> Flags:
    """bool[n]: DUP_INFO has two parts, as Java splits it (row 5)."""
    have: Flags = np.zeros(len(columns), np.bool_)
    asked = np.flatnonzero(readable)
    values = find(columns.ragged("properties")[asked], DUP_INFO)
    texts = (values[row] for row in range(len(asked)))
    have[asked] = [_TWO_PARTS.fullmatch(text) is not None for text in texts]
    return have


def _rows_with_no_number(columns: Columns, readable: Flags, equal: Flags, rules: RecordRules) -> Ints:
    """Rows that seem readable, but have a property that should be a number and is not (row 7)."""
    rows = np.flatnonzero(readable)
    items = PropertyItems(columns.ragged("properties")[rows], _WITH_NUMBERS)
    whole = equal[rows] if rules.inner_batches else None
    return rows[unreadable_numbers(columns.ragged("topic")[rows], items, whole)]


def rows_not_to_store(
    topics: Ragged, properties: PropertyItems, rules: RecordRules, pending: Callable[[Ints], Flags] | None = None
) -> Ints:
    """Rows of records at which a start ends the log, or a delay level halts for ever, because of their properties.
    pending: which of these rows a delay level has still to deliver; None: all.
    """
    batches = np.ones(len(topics), np.bool_) if rules.inner_batches else None
    rows = unreadable_numbers(topics, properties, batches)
    if not rules.level_halts:
        return rows
    halting = undeliverable(topics, properties)
    return np.concatenate([rows, halting if pending is None else halting[pending(halting)]])


def undeliverable(topics: Ragged, properties: PropertyItems) -> Ints:
    """Rows of scheduled messages that no broker can deliver: without REAL_TOPIC, or without a number in REAL_QID.

    Plain tombstones are among them: a level that halts, halts at them, too (spec 9.9.2).
    """
    scheduled = topics.equals(SCHEDULE_TOPIC.encode())
    if not scheduled.any():
        return np.zeros(0, np.int64)
    lacking = scheduled & ((properties.find(REAL_TOPIC).length <= 0) | (properties.find(REAL_QID).length <= 0))
    return np.concatenate([np.flatnonzero(lacking), _not_numbers(REAL_QID, properties, scheduled & ~lacking)])


def unreadable_numbers(topics: Ragged, properties: PropertyItems, batches: Flags | None) -> Ints:
    """Rows of records at which a broker's check throws, since Java cannot read a number in their properties (spec 7.2,
    row 7). The numbers are the delay level of a scheduled message, and the two of a batch. batches: bool[n], records
    whose batch numbers are read; None: of no record.
    """
    levels = unreadable_levels(topics, properties)
    return levels if batches is None else np.concatenate([levels, unreadable_batches(properties, batches)])


def unreadable_levels(topics: Ragged, properties: PropertyItems) -> Ints:
    """Rows of scheduled messages whose delay level is not a number."""
    if not properties.has_name(DELAY):
        return np.zeros(0, np.int64)
    return _not_numbers(DELAY, properties, topics.equals(SCHEDULE_TOPIC.encode()))


def unreadable_batches(properties: PropertyItems, batches: Flags) -> Ints:
    """Rows of the records in `batches` that have both batch numbers, not both readable; brokers read both or none."""
    if not properties.has_name(INNER_NUM):
        return np.zeros(0, np.int64)
    both = batches & (properties.find(INNER_NUM).length > 0) & (properties.find(INNER_BASE).length > 0)
    wrong = (_not_numbers(name, properties, both) for name in (INNER_NUM, INNER_BASE))
    return np.unique(np.concatenate(list(wrong)))


def _not_numbers(name: str, properties: PropertyItems, asked: Flags) -> Ints:
    """Rows of the records in `asked` that have this property, but no readable number in it."""
    texts, bits = properties.find(name), NUMBER_BITS[name]
    rows = np.flatnonzero(asked & (texts.length > 0))
    if not len(rows):
        return rows
    packed = texts[rows].packed()
    are_digits = np.logical_and.reduceat((packed.buffer >= ord("0")) & (packed.buffer <= ord("9")), packed.start)
    fits = packed.length < len(str(1 << bits - 1))
    rows = rows[~(are_digits & fits)]  # rarely any: these are parsed one by one
    wrong = [java_integer(java_string(text), bits) is None for text in texts[rows]]
    return rows[np.array(wrong, np.bool_)]


class LoadFailure(NamedTuple):
    """The record at which a walk through one file ended."""

    offset: int
    passed: bool
    size: int
    #: byte behind the last field that was read
    read_to: int


def walk(
    content: FileBytes, offset: int, rules: RecordRules, body: BodyCheck, file_start: int = 0, end: int | None = None
) -> Iterator[Columns | LoadFailure]:
    """Yield the good records from `offset` of a file on, in windows, and last the item that is not a good record.

    That LoadFailure is a BLANK if it passed with size 0, else damage or the end. Nothing behind the file or its byte
    `end` is read. file_start: position of the file, which makes the walk faster. `starts` and `ends` of the columns are
    bytes of the file.
    """
    stop = len(content) if end is None else min(end, len(content))
    size = _WINDOW_BYTES
    while True:
        data = content[offset : min(stop, offset + size)]
        rest = max(0, stop - offset - len(data))
        starts = _chain(data, file_start + offset)
        checked = check(data, starts, rules, body, rest)
        good = checked.passed & (checked.size > 0)
        count = len(starts) if good.all() else int(good.argmin())
        if count == 0 and rest and not checked.columns.ok[0]:
            size *= 4  # the record's lengths reach beyond the window, but not beyond the file
            continue
        if count:
            columns = checked.columns.take(slice(0, count))
            columns.starts, columns.ends = columns.starts + offset, columns.ends + offset  # bytes of the file
            yield columns
        if count < len(starts) and (not rest or checked.columns.ok[count] or not count):
            yield LoadFailure(
                offset + int(starts[count]),
                bool(checked.passed[count]),
                int(checked.size[count]),
                offset + int(checked.columns.ends[count]),
            )
            return
        size = _WINDOW_BYTES
        offset += int(starts[count]) if count < len(starts) else int(starts[-1] + checked.size[-1])


def passes(content: FileBytes, rules: RecordRules, body: BodyCheck) -> bool:
    """Whether a file begins with a good record or a BLANK."""
    first = next(walk(content, 0, rules, body))
    return first.passed if isinstance(first, LoadFailure) else True


def _chain(data: Bytes, position: int) -> Ints:
    """Starts of items that follow one another by total_size, the first byte included: at least one."""
    window = Window(bytearray(data), len(data), position)
    starts, _stop = follow(window, PLAIN)
    return starts if len(starts) else np.zeros(1, np.int64)
