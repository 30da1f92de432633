"""Make a plain store from a store with a DLedger log (spec 01, 1.13, 1.15).

Every record is written again without its entry head, contiguously. Queue offsets stay, positions change: records, ends
of transactions and the timer log get the new ones; queues, index and checkpoint are made from the new log.
Configuration, timer wheel and compaction topics are copied, and queues whose records have all expired, as no log shows
where they end.

A record whose header contradicts its queue is written as a recovery of the old store corrects it, because the new store
has no queues to prove it. Damage between records keeps its room: the plan of `recover` closes it, with a tombstone for
each lost message.

The new places of records are in an unnamed temporary file (`Moved`) as pairs of old and new positions, 16 bytes each,
in log order: those of ten million records are more than a command may hold in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...formats.blank import BLANK_BYTES
from ...formats.commit_log import PLAIN, POSITION_DTYPE
from ...formats.derive import dtype_of
from ...formats.derive.ragged import Bytes, Ints, Ragged, overlapping
from ...formats.message import MESSAGE
from ...formats.message_properties import CRC_ITEM_BYTES, crc_item
from ...formats.property_columns import PropertyItems
from ...formats.timer_log import UNIT, UNIT_BYTES
from ..audit.messages import scan_messages
from ..broker.dispatch_record import Dispatching
from ..damage.scenario import check_target
from ..disk.broker_conf import BrokerConfig
from ..disk.file_queue import MappedFileQueue
from ..disk.files import Edit, Files
from ..disk.layout import COMMIT_LOG, TIMER_LOG, Layout
from ..disk.lock import new_directory
from ..disk.sizes import commit_log_size
from ..disk.temporary import TemporaryBytes
from ..errors import Refused, StoreError, Unsupported
from ..findings.next_commands import proposed
from ..inspect.timers import OPTION as TIMER_OPTION
from ..inspect.timers import in_database
from ..inspect.transactions import open_in_database
from ..log.batch import DAMAGED, Batch, Extent, ExtentKind
from ..log.commit_log import CommitLog
from ..log.message import Mark
from ..log.write import LogWriter, place_columns
from ..plan.close import RESTORED
from ..plan.fill import PatchedQueue
from ..plan.observer import Policy, RecoveryOptions
from ..put.message_columns import rows_with_crc
from ..queues.references import commit_log_of
from ..recover.recovery import analyze
from ..salvage.original import (
    MissingOffsets,
    Restored,
    complete,
    config_of_new,
    copy_expired_queues,
    copy_rest,
    left_at,
    log_start,
    queue_summaries,
)
from ..search.store import StoreReader, silent
from ..session.apply import put_barrier, refuse_in_use
from ..settings.generation import generation_of

NOWHERE = -1
_PAIR = np.dtype(np.int64).itemsize * 2


class Moved:
    """Old and new positions of records."""

    def __init__(self) -> None:
        self._file = TemporaryBytes()
        #: Of each block of pairs: the first old position; the byte offset, and the number of pairs.
        self._first: list[int] = []
        self._blocks: list[tuple[int, int]] = []

    def add(self, old: Ints, new: Ints) -> None:
        """Add records at `old` (ascending, behind all earlier ones), which now lie at `new`: int64[n] each."""
        if len(old):
            at = self._file.append(np.concatenate([old, new]).astype(np.int64).tobytes())
            self._first.append(int(old[0]))
            self._blocks.append((at, len(old)))

    def places(self, old: Ints) -> Ints:
        """Return the new positions of records, int64[n]; NOWHERE if no record was at `old`."""
        found = np.full(len(old), NOWHERE, np.int64)
        block = np.searchsorted(np.array(self._first, np.int64), old, "right") - 1
        for number in np.unique(block[block >= 0]).tolist():
            rows = np.flatnonzero(block == number)
            at, count = self._blocks[number]
            known, new = np.frombuffer(self._file.read(at, count * _PAIR), np.int64).reshape(2, count)
            place = np.minimum(np.searchsorted(known, old[rows]), count - 1)
            found[rows] = np.where(known[place] == old[rows], new[place], NOWHERE)
        return found


#: Distance from the position of the half message in a record to the body.
_TO_BODY: int = MESSAGE.prepared_transaction_offset.sizeof() + MESSAGE.body_length.sizeof()
#: Least bytes of a hole: a tombstone with the longest usual topic.
_LEAST_ROOM = 512
_DAMAGED = (*DAMAGED, ExtentKind.TORN_TAIL)


@dataclass
class Copied:
    """What was written. damaged: ranges between good records, and a torn last one.

    wrong: records with a wrong checksum. torn: records that have lost properties. restored: records with a corrected
    header. dead: records of an earlier life of the log, which are left out.
    """

    records: int = 0
    bytes: int = 0
    damaged: int = 0
    damaged_bytes: int = 0
    wrong: int = 0
    torn: int = 0
    restored: int = 0
    dead: int = 0


def copy_log(log: CommitLog, writer: LogWriter, moved: Moved, tell: Callable[[int], None]) -> Copied:
    """Write the good records of a log. tell: called with the number of further bytes. Raises Unreadable, NoSpace."""
    done = Copied()
    hole = 0
    for item in log.scan(reuse=True):
        if isinstance(item, Extent):
            if item.kind in _DAMAGED:
                done.damaged += 1
                done.damaged_bytes += item.size
                hole += item.size
            continue
        if item.mark > Mark.AFTER_DAMAGE:
            done.dead += len(item)
            continue
        if hole and done.records:
            size = min(max(hole, _LEAST_ROOM), writer.file_size - BLANK_BYTES)
            writer.write(writer.append(size), bytes(size))  # zeros in place of damage
        hole = 0
        _write(item, writer, moved)
        done.records += len(item)
        if item.body_crc_ok is not None:
            done.wrong += int((~item.body_crc_ok).sum())
        done.torn += int(PropertyItems(item.columns.ragged("properties")).has_lost_items().sum())
        size = int(item.columns.ints("total_size").sum())
        done.bytes += size
        tell(size)
    return done


def _write(batch: Batch, writer: LogWriter, moved: Moved) -> None:
    columns = batch.columns
    sizes = columns.ints("total_size").astype(np.int64)
    placed = place_columns(writer.position, sizes, writer.file_size)
    packed = Ragged(columns.ragged("body").buffer, columns.starts, sizes).packed()
    moved.add(batch.position, placed.positions)
    _write_positions(packed.buffer, packed.start + PLAIN.position_offset, placed.positions)
    _update_half_positions(batch, packed, moved)
    _update_crcs(packed)
    blanks = {blank.position + blank.size: blank for blank in placed.blanks}
    files = placed.positions // writer.file_size
    for rows in np.split(np.arange(len(sizes)), np.flatnonzero(np.diff(files)) + 1):
        begin, behind = int(packed.start[rows[0]]), int(packed.start[rows[-1]] + sizes[rows[-1]])
        position = int(placed.positions[rows[0]])
        if position in blanks:
            writer.write_blank(blanks[position])
        writer.write(position, packed.buffer[begin:behind].data)


def _write_positions(buffer: Bytes, at: Ints, positions: Ints) -> None:
    """Write positions into a buffer, at any byte offset."""
    overlapping(buffer, POSITION_DTYPE)[at] = positions


def _update_half_positions(batch: Batch, packed: Ragged, moved: Moved) -> None:
    """Update the position of the half message in the end of a transaction."""
    columns = batch.columns
    named = columns.ints("prepared_transaction_offset").astype(np.int64)
    rows = np.flatnonzero(named > 0)
    if not len(rows):
        return
    new = moved.places(named[rows])
    rows, new = rows[new != NOWHERE], new[new != NOWHERE]
    body = columns.ragged("body").start - columns.starts
    _write_positions(packed.buffer, packed.start[rows] + body[rows] - _TO_BODY, new)


def _update_crcs(packed: Ragged) -> None:
    """Compute again CRCs over whole records, which cover the position (spec 01, 1.7)."""
    view, ends = packed.buffer.data, packed.start + packed.length
    for row in rows_with_crc(packed).tolist():
        begin, end = int(packed.start[row]), int(ends[row])
        view[end - CRC_ITEM_BYTES : end] = crc_item(bytes(view[begin : end - CRC_ITEM_BYTES]))


_DLEDGER_OPTION = "enableDLegerCommitLog"
_WINDOW_UNITS = 1 << 16


class ChangedQueue(NamedTuple):
    """A queue whose range has shrunk: (min, max) offset before and after."""

    topic: str
    queue_id: int
    before: tuple[int, int]
    after: tuple[int, int]


@dataclass
class Converted:
    """The new store. left_behind: parts that were not copied. left: what is not in order, "" for nothing.

    Brokers have some data only in a RocksDB, which is not copied. open_transactions: those that brokers do not check
    any more. delivered_again: timed messages that were delivered or cancelled before.
    """

    layout: Layout
    target: Path
    copied: Copied
    version: str = ""
    file_bytes: int = 0
    queues: int = 0
    changed: list[ChangedQueue] = field(default_factory=list)
    left_behind: list[str] = field(default_factory=list)
    left: str = ""
    open_transactions: int = 0
    delivered_again: int = 0

    @property
    def complete(self) -> bool:
        """Every record was copied whole, no queue has shrunk, and brokers find all open transactions."""
        copied = self.copied
        damaged = copied.damaged or copied.wrong or copied.torn
        return not (self.left or self.changed or damaged or self.open_transactions)

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "conversion",
            "store": str(self.layout.root),
            "to": str(self.target),
            "kind": "plain",
            "broker_version": self.version,
            **vars(self.copied),
            "file_bytes": self.file_bytes,
            "queues": self.queues,
            "changed_queues": [
                {
                    "topic": row.topic,
                    "queue_id": row.queue_id,
                    "min_offset": row.before[0],
                    "max_offset": row.before[1],
                    "new_min_offset": row.after[0],
                    "new_max_offset": row.after[1],
                }
                for row in self.changed
            ],
            "left_behind": self.left_behind,
            "left": self.left,
            "open_transactions": self.open_transactions,
            "delivered_again": self.delivered_again,
        }


def convert(
    layout: Layout, target: Path, version: str | None, files: Files, tell: Callable[[int], None] = lambda _: None
) -> Converted:
    """Make a plain store of a DLedger store in a new directory; the old store is not changed.

    version: of the brokers that will use the new store, None: the guessed one. tell: called with the number of further
    bytes of records. Raises Refused, Unsupported, InUse, InvalidInput, NoSpace, Unreadable: then nothing is left of the
    new store.
    """
    _check(layout)
    check_target(layout.root, target)
    file_bytes = commit_log_size(layout).value
    with new_directory(target, files, like=layout.root):
        moved = Moved()
        copied = _copy_log(layout, target, file_bytes, files, moved, tell, _put_right(layout, version))
        left_behind = copy_rest(layout, target, files)
        copy_expired_queues(layout, target, log_start(layout), files)
        if (target / TIMER_LOG).is_dir():
            _move_timers(target / TIMER_LOG, files, moved)
        parts = (layout.consume_queue_ext, layout.rocksdb_store)
        left_behind += [path.name for path in parts if path.is_dir()]
        left_behind += [Path(entry.path).name for entry in layout.foreign]
        config = config_of_new(layout).with_set([f"{_DLEDGER_OPTION}=false"])
        asked, version = version, version or generation_of(layout).version
        made = _complete_store(target, file_bytes, config, version, files, copied)
        found = Converted(layout, target, copied, made.version, file_bytes)
        found.left, found.left_behind = left_at(target, made.left, config, asked), left_behind
        _count_in_database(layout, config, found)
        old, new = _queue_ranges(layout), _queue_ranges(Layout.open(target, config))
        found.queues = len(new)
        for name, before in sorted(old.items()):
            after = new.get(name, (0, 0))
            if after[0] > before[0] or after[1] < before[1]:
                found.changed.append(ChangedQueue(*name, before, after))
        return found


def _check(layout: Layout) -> None:
    """Check that the store can be converted. Raises Refused, Unsupported, InUse."""
    if layout.dledger is None:
        raise Refused("there is no DLedger log: the store is a plain store already", path=layout.root)
    if layout.queue_database is not None:
        in_files = proposed(layout, "repair", "--queues", "--as", "files", "--apply")
        hint = f"run first: {in_files}"
        raise Unsupported("queues in RocksDB are not converted", path=layout.queue_database, hint=hint)
    refuse_in_use(layout)


def _put_right(layout: Layout, version: str | None) -> list[Edit]:
    """Return the edits that correct headers in the plan of a recovery; none if there is no plan."""
    with suppress(StoreError):
        plan = analyze(layout, version, options=RecoveryOptions(Policy.KEEP)).plan
        return [edit for edit in plan.edits if (edit.reason, *edit.codes) == RESTORED] if plan else []
    return []


def _copy_log(
    layout: Layout,
    target: Path,
    file_bytes: int,
    files: Files,
    moved: Moved,
    tell: Callable[[int], None],
    put_right: Sequence[Edit],
) -> Copied:
    """Copy the records of the log. put_right: edits laid over the log."""
    directory = target / COMMIT_LOG
    files.make_directory(directory)
    put_barrier(directory, file_bytes, files)
    with layout.commit_log_files() as queue:
        starts = {file.path: file.start for file in queue.files}
        pieces = [(starts[edit.path] + edit.offset, edit.data) for edit in put_right if edit.data is not None]
        present = {file.path: file.size for file in queue.files}
        log = commit_log_of(layout, PatchedQueue(queue, queue.files, present, pieces))
        # a unit of an expired message names a position before the log: it must stay before it
        writer = LogWriter(files, [directory], file_bytes, log.min_offset)
        try:
            writer.prepare()
            copied = copy_log(log, writer, moved, tell)
            copied.restored = len(pieces)
            writer.sync()
        finally:
            writer.close()
    if not copied.records:
        raise Refused("the log has no record", path=layout.dledger)
    return copied


def _count_in_database(layout: Layout, config: BrokerConfig, found: Converted) -> None:
    """Count what brokers know only from a RocksDB. config: of the new store."""
    with StoreReader(layout) as store:
        found.open_transactions = open_in_database(store)
        has_timers = in_database(store, silent, found.version) is not None
    if has_timers:
        config = config.with_set([f"{TIMER_OPTION}=true"])
        prediction = analyze(Layout.open(found.target, config), found.version).prediction
        if (loss := prediction.timers) is not None and loss.uncancelled is not None:
            found.delivered_again = loss.fired_twice + loss.uncancelled


def _move_timers(directory: Path, files: Files, moved: Moved) -> None:
    """Update positions of records in the timer log (spec 04, 4.6)."""
    dtype = dtype_of(UNIT)
    with MappedFileQueue.open(directory) as queue:
        for file in queue.files:
            windows = queue.windows(file, 0, file.size, _WINDOW_UNITS * UNIT_BYTES, UNIT_BYTES)
            for offset, data in windows:
                units = np.frombuffer(data, dtype, len(data) // UNIT_BYTES).copy()
                real = np.flatnonzero(units["size"] == UNIT_BYTES)
                new = moved.places(units["offset_py"][real].astype(np.int64))
                known = new != NOWHERE
                if known.any():
                    units["offset_py"][real[known]] = new[known]
                    with files.open(Path(file.path)) as out:
                        out.pwrite(units.tobytes(), offset)
                        out.sync()


def _complete_store(
    target: Path, file_bytes: int, config: BrokerConfig, version: str, files: Files, copied: Copied
) -> Restored:
    """Make queues, index and checkpoint of the new log. Raises as `recover`."""
    layout = Layout.open(target, config)
    with layout.commit_log_files() as queue:
        offsets = MissingOffsets(np.zeros(0, np.int64))
        scan_messages(CommitLog(queue), [offsets], Dispatching(index_tags=True), crc=False)
        restored = Restored(len(queue.files), file_bytes)
    damaged = bool(copied.damaged or copied.wrong)
    return complete(target, restored, offsets, config, version, files, damaged=damaged, by="repair")


def _queue_ranges(layout: Layout) -> dict[tuple[str, int], tuple[int, int]]:
    """Return the (min, max) offset of each queue that has had a message; units of expired records count."""
    found = queue_summaries(layout, log_start(layout))
    return {name: (row.min_offset, row.max_offset) for name, row in found.items() if row.max_offset}
