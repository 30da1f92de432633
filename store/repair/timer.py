"""Repair the timer: rebuild wrong slots of the wheel, links and entries of the timer log, and timercheck.

Damaged entries are rebuilt first (`timer_log.py`), and everything else is compared with them. A correct slot stays,
byte for byte, whatever other slots are like. Times that have passed do not matter: a broker does not read their slots
again. Spec 04, 4.5 to 4.7; I-121 to I-132.

All of it is planned on the files as they will be after `recover` has made them loadable (`PredictedTimer`): so one run
of a repair is enough. Spec 04, 4.9.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...formats.derive import dtype_of
from ...formats.derive.ragged import Bytes, Ints, Structs, overlapping
from ...formats.timer_check import PAGE_BYTES
from ...formats.timer_log import BLANK_BYTES, UNIT_BYTES
from ...formats.timer_wheel import FILE_BYTES, SLOT, SLOT_BYTES, SLOTS
from ..broker.snapshot import FileBytes, QueueId, list_entries
from ..broker.system_topics import TIMER_TOPIC
from ..counted import counted
from ..disk.byte_reader import Unread
from ..disk.checkpoint import TimerCheck
from ..disk.file_queue import MappedFile, MappedFileQueue, file_name, start_of
from ..disk.files import Content, Edit
from ..disk.layout import Layout
from ..inspect.timer_records import DeliveredTimers
from ..inspect.timers import in_database
from ..log.commit_log import CommitLog
from ..plan.plan import Plan
from ..queues.units import UNIT_DTYPE, is_valid
from ..search.store import StoreReader, silent
from ..timer.read import NOWHERE, ByTick, TimerEntries, TimerRange, is_in_place
from ..timer.start import QUEUE
from ..verify.context import Scope, VerifyContext
from ..verify.timer_log import TimerColumns, TimerFiles, TimerLog, timer_columns
from ..verify.timer_wheel import chains, counts
from . import timer_log


class PredictedTimer(TimerFiles):
    """The timer's files after some edits. Files changed by the edits are held in memory."""

    def __init__(self, scene: VerifyContext, edits: Iterable[Edit]) -> None:
        super().__init__(scene)
        self._changed: dict[str, Bytes | None] = {}
        for edit in edits:
            self._changed[edit.path] = self._bytes_after(edit)

    def _bytes_after(self, edit: Edit) -> Bytes | None:
        """Return the bytes of a file after an edit, None if the file is gone."""
        if edit.kind not in ("create", "truncate", "write"):
            return None
        old = np.zeros(0, np.uint8) if edit.kind == "create" else self.content(edit.path)
        size = max(len(old), edit.offset + edit.length) if edit.kind == "write" else edit.length
        new = np.zeros(size, np.uint8)
        kept = min(size, len(old))
        new[:kept] = old[:kept]
        if edit.kind == "write":
            data = bytes(edit.length) if edit.data is None else edit.data
            new[edit.offset : edit.offset + edit.length] = np.frombuffer(data, np.uint8)
        for offset, piece in edit.pieces:
            new[offset : offset + len(piece)] = np.frombuffer(piece, np.uint8)
        return new

    def content(self, path: str) -> Bytes | FileBytes:
        """Return the bytes of a file, b"" for a file that is gone. Raises Unreadable."""
        if path not in self._changed:
            return FileBytes(path)
        found = self._changed[path]
        return np.zeros(0, np.uint8) if found is None else found

    @property
    def wheel_bytes(self) -> int:
        """Length of the wheel, 0 without one."""
        path = str(self.wheel_path)
        if path not in self._changed and not self.wheel_path.exists():
            return 0
        return len(self.content(path))

    def read_wheel(self) -> Iterator[tuple[Ints, Structs]]:
        """Yield (numbers, slots) of the wheel."""
        content = self.content(str(self.wheel_path))
        slots = (content.sparse() if isinstance(content, FileBytes) else content).view(dtype_of(SLOT))
        yield np.arange(len(slots), dtype=np.int64), slots

    def open_log(self) -> MappedFileQueue:
        """Return the files of the timer log. Raises Unreadable."""
        if not self._changed:
            return super().open_log()
        folder = str(self._layout.timer_log)
        paths = {entry.path for entry in list_entries(folder) if not entry.directory}
        paths |= {path for path in self._changed if os.path.dirname(path) == folder}  # noqa: PTH120
        files = [
            MappedFile(path, start, len(self.content(path)), False)
            for path in paths
            if (start := start_of(os.path.basename(path))) is not None  # noqa: PTH119
        ]
        there = sorted((f for f in files if f.size), key=lambda file: file.start)
        return _Files(self, folder, there)


class _Files(MappedFileQueue):
    """Files whose content is partly in memory."""

    def __init__(self, timer: PredictedTimer, folder: str, files: list[MappedFile]) -> None:
        super().__init__((folder,), files, max((file.size for file in files), default=0), [])
        self._timer = timer

    def read_file(self, file: MappedFile, offset: int, size: int) -> bytes:
        """Return up to `size` bytes of a file from byte `offset` on."""
        return self._timer.content(file.path)[offset : offset + size].tobytes()

    def fill(self, file: MappedFile, offset: int, buffer: memoryview) -> tuple[int, list[Unread]]:
        """Read bytes of a file into `buffer`."""
        data = self.read_file(file, offset, len(buffer))
        buffer[: len(data)] = data
        return len(data), []

    def next_data(self, file: MappedFile, offset: int) -> int | None:
        """Return `offset`, None at the end of the file: there are no holes."""
        return offset if offset < file.size else None

    def data_end(self, file: MappedFile, offset: int) -> int:
        """Return the end of the file: there are no holes."""
        return file.size


class PlannedQueue(NamedTuple):
    """The planned queue of the timer topic. places: of the messages of new units. complete: no change is missing.
    log_end: the planned end of the log, None without a log.
    """

    places: Ints
    complete: bool
    log_end: int | None


def planned_queue(layout: Layout, chosen: Iterable[Edit], whole: Plan) -> PlannedQueue:
    """chosen: the edits that are made; whole: the plan with all edits that the store needs."""
    places = _places(layout, chosen)
    log_end = None if whole.without_log else whole.log_end
    return PlannedQueue(places, len(places) >= len(_places(layout, whole.edits)), log_end)


def _places(layout: Layout, edits: Iterable[Edit]) -> Ints:
    """Return positions of messages whose units these edits write into the timer topic's queue."""
    folder = os.fspath(layout.consume_queue / TIMER_TOPIC / "0")
    found = [np.zeros(0, np.int64)]
    for edit in edits:
        if edit.path.rpartition("/")[0] != folder:
            continue
        for data in (edit.data or b"", *(piece for _, piece in edit.pieces)):
            units = np.frombuffer(data, UNIT_DTYPE, len(data) // UNIT_DTYPE.itemsize)
            found.append(units["physical_offset"][is_valid(units)].astype(np.int64))
    return np.concatenate(found)


def joined(before: list[Edit], more: Iterable[Edit]) -> list[Edit]:
    """Return the edits and further ones; writes into a file that an edit creates become part of that edit."""
    found = list(before)
    made = {edit.path: number for number, edit in enumerate(found) if edit.kind == "create"}
    pieces: dict[int, list[tuple[int, Content]]] = {}
    for edit in more:
        if edit.kind == "write" and edit.path in made:
            piece = edit.offset, bytes(edit.length) if edit.data is None else edit.data
            pieces.setdefault(made[edit.path], []).append(piece)
            continue
        if edit.kind == "create":
            made[edit.path] = len(found)
        found.append(edit)
    for number, new in pieces.items():
        found[number] = found[number]._replace(pieces=(*found[number].pieces, *new))
    return found


_APART_BYTES = 1 << 16
"""Changes of a file closer than this are one edit."""


def timer_edits(
    layout: Layout,
    version: str,
    ranges: Mapping[QueueId, tuple[int, int]],
    now_ms: int,
    before: Sequence[Edit],
    queue: PlannedQueue,
) -> list[Edit]:
    """Return all edits of the timer's files. ranges: (min, max) offset of each repaired queue. before: edits after
    which a broker loads the files; a BLANK among them is left out if the entries in its place can be rebuilt. queue:
    the planned queue of the timer topic. Raises Unreadable.
    """
    with StoreReader(layout) as store:
        scene, high = VerifyContext(store, Scope(broker_version=version), now_ms), ranges.get(QUEUE, (0, 0))[1]
        if queue.log_end is not None:
            log = PredictedTimer(scene, before).log
            before = [*before, *_cut_with_the_log(log, store.log, queue.log_end, high)]
        after = _planned_files(scene, before, queue)
        if not len(after.files.log.entries) and after.files.there:
            after = _with_made_log(scene, after, queue.places)
        else:
            after = _with_unread(scene, after, high, queue.places)
        scene.kept("timer files", lambda: after.files)
        more = list(_repair(scene, high, after))
    return joined(after.before, more)


def _cut_with_the_log(log: TimerLog, of_store: CommitLog, log_end: int, high: int) -> Iterable[Edit]:
    """Return edits that take away the newest entries if they name places behind the planned end of the log, and are
    more than the messages that the queue has behind the other ones: the log is cut. high: end of the timer topic's
    queue.
    """
    named = np.flatnonzero(log.entries.offset_py < log_end)
    kept = log.entries.take(np.arange(named[-1] + 1 if len(named) else 0))
    if len(log.entries) - len(kept) <= (high - _read_to(kept, of_store, high) if len(kept) else 0):
        return ()
    return timer_log.cut_behind(log, int(kept.end) if len(kept) else log.start)


class _PlannedFiles(NamedTuple):
    """The files after the edits `before`, and their entries as they should be. repaired: None without a timer log.
    records: of the messages that the timer has.
    """

    before: list[Edit]
    files: PredictedTimer
    repaired: timer_log.RepairedEntries | None
    records: TimerColumns


def _planned_files(scene: VerifyContext, before: Sequence[Edit], queue: PlannedQueue) -> _PlannedFiles:
    """Apply the edits, without BLANKs if rebuilt entries replace them all. A first file of which nothing is known stays
    until the queue is repaired, which could show its entries.
    """
    blanks = [edit for edit in before if len(edit.data or b"") == BLANK_BYTES]
    loads = [edit for edit in before if edit not in blanks]
    files, records = PredictedTimer(scene, loads), timer_columns(scene)
    if files.log.files:
        records = timer_log.timer_messages(scene.store, scene, files.log.entries, queue.places)
    if gone := list(timer_log.missing_files(files.log, len(records))):
        files = PredictedTimer(scene, [*loads, *gone])
    repaired = _repaired(files, records)
    if gone and not timer_log.are_full(files.log, gone):
        files = PredictedTimer(scene, loads)
        repaired = _repaired(files, records)
    elif gone:
        loads, before = [*loads, *gone], [*before, *gone]
    if not all(_is_covered(blank, files, repaired) for blank in blanks):
        loads, files = list(before), PredictedTimer(scene, before)
        repaired = _repaired(files, records)  # a BLANK names no other messages
    if queue.complete and (gone := list(timer_log.unknown_beginning(files.log))):
        paths = {edit.path for edit in gone}
        loads = [*(edit for edit in loads if edit.path not in paths), *gone]
        files = PredictedTimer(scene, loads)
        repaired = _repaired(files, records)
    return _PlannedFiles(loads, files, repaired, records)


def _with_made_log(scene: VerifyContext, after: _PlannedFiles, planned: Ints) -> _PlannedFiles:
    """Make a timer log without entries from the waiting messages. planned: as of `timer_messages`. Without a timercheck
    or a wheel a start reads what it needs from the queue. Messages that wait in a RocksDB would fire twice.
    """
    files, records = after.files, after.records
    size = _log_file_bytes(scene.store.layout, files)
    if not files.has_check or files.wheel_bytes != FILE_BYTES or size is None or size < UNIT_BYTES + BLANK_BYTES:
        return after
    if not files.log.files:
        records = timer_log.timer_messages(scene.store, scene, files.log.entries, planned)
    made = timer_log.made_entries(files, records, size)
    if not len(made.position) or in_database(scene.store, silent, scene.profile.version) is not None:
        return after
    starts = np.unique((made.position - files.log.start) // size * size + files.log.start).tolist()
    paths = [os.fspath(scene.store.layout.timer_log / file_name(start)) for start in starts]
    many = counted(len(made.position), "entry", "entries")
    reason = f"{many} made from their messages, in files of {counted(size, 'byte')}"
    before = [edit for edit in after.before if edit.path not in paths]
    before += [Edit("create", path, reason, ("I-133",), length=size) for path in paths]
    files = PredictedTimer(scene, before)
    files.log.entries, files.log.end = made.entries, made.entries.end
    return _PlannedFiles(before, files, made, records)


def _with_unread(scene: VerifyContext, after: _PlannedFiles, high: int, planned: Ints) -> _PlannedFiles:
    """Add entries for messages that a start would read from the queue and file before the ticks that it reads; if the
    timer has no files, in new ones. high: end of the timer topic's queue. planned: as of `timer_messages`.
    """
    files, records, ticks = after.files, after.records, after.files.ticks
    size, edits = _log_file_bytes(scene.store.layout, files), after.before
    if size is None or (files.there and not (files.has_check and files.wheel_bytes == FILE_BYTES)):
        return after
    if not files.there:
        records = timer_log.timer_messages(scene.store, scene, files.log.entries, planned)
        edits = [*edits, Edit("create", str(files.wheel_path), "a new wheel", ("I-183",), length=FILE_BYTES)]
    read = min(files.check.last_timer_queue_offset, files.check.master_timer_queue_offset)
    begin = timer_log.entries_complete_to(files.log.entries, records, read)
    unread = (records.queue_offset >= begin) & (records.queue_offset < high)
    unread &= ~np.isin(records.position, files.log.entries.offset_py)
    late = unread & (records.out_ms < ticks.oldest_ms(scene.now_ms)) & ~records.cancels
    if not late.any() or in_database(scene.store, silent, scene.profile.version) is not None:
        return after
    waiting = _delivered(scene).waiting
    waits = np.isin(records.position, np.zeros(0, np.int64) if waiting is None else waiting.position)
    if not (late & waits).any():
        return after
    last = records.queue_offset[late & waits if files.there else unread].max()
    rows = np.flatnonzero(unread & (records.queue_offset <= last))
    rows = rows[np.argsort(records.queue_offset[rows], kind="stable")]
    rolled = np.isin(records.position[rows], _delivered(scene).scanned.rolled)
    units = timer_log.entries_to_add(files, records.take(rows), waits[rows], rolled, scene.now_ms)
    before = joined(edits, timer_log.added_to(files.log, units, size, os.fspath(scene.store.layout.timer_log)))
    files = PredictedTimer(scene, before)
    return _PlannedFiles(before, files, _repaired(files, records), records)


def _delivered(scene: VerifyContext) -> DeliveredTimers:
    return scene.kept("delivered timers", lambda: DeliveredTimers(scene.store))


def _log_file_bytes(layout: Layout, files: TimerFiles) -> int | None:
    """Return the length of a timer log file: of the existing ones, or as configured, or the default, if all positions
    in wheel and timercheck fit it. None: unknown.
    """
    if files.log.files:
        return files.log.files[0].size
    size, origin = layout.broker_config.size("mappedFileSizeTimerLog")
    slots, flushed = files.slots, files.check.last_timer_log_flush_pos
    named = np.concatenate([slots.first, slots.last, [max(0, flushed)]])
    if origin == "default" and (named[named >= 0] % size % UNIT_BYTES).any():
        return None
    return size


def _repaired(files: TimerFiles, records: TimerColumns) -> timer_log.RepairedEntries | None:
    """Rebuild the entries of the log, and return them; everything else is compared with them."""
    log = files.log
    if not log.files:
        return None
    repaired = timer_log.repaired_entries(files, records)
    log.entries = repaired.entries
    if len(repaired.torn):
        log.end = int(repaired.torn[0])
        log.ranges += [TimerRange("damage", at, UNIT_BYTES) for at in repaired.torn.tolist()]
    elif len(repaired.position):
        log.end = max(log.end, int(repaired.position[-1]) + UNIT_BYTES)
    return repaired


def _is_covered(blank: Edit, files: TimerFiles, repaired: timer_log.RepairedEntries | None) -> bool:
    """Whether the repair writes something else in the place of a BLANK."""
    start = next((file.start for file in files.log.files if file.path == blank.path), None)
    if start is None or repaired is None:
        return False
    place = np.array([start + blank.offset], np.int64)
    row, found = files.log.entries.at(place)
    if found[0] and repaired.changed[row[0]]:
        return True
    more = [edit for edit in (*timer_log.closing_blanks(files.log), *_tail_edits(files)) if edit.path == blank.path]
    return any(edit.offset <= blank.offset < edit.offset + edit.length for edit in more)


def _repair(scene: VerifyContext, high: int, after: _PlannedFiles) -> Iterator[Edit]:
    """Yield edits of what is wrong inside the files. high: end of the timer topic's queue. Raises Unreadable."""
    files, repaired, linked = after.files, after.repaired, dict[int, int]()
    check, wheel, late = files.check, files.wheel_bytes == FILE_BYTES, np.zeros(0, np.int64)
    if files.has_check or (wheel and files.log.files):
        read_ms = _read_time_ms(files, scene)
        if repaired is not None and wheel:
            late = np.flatnonzero(_delivered(scene).late(repaired.entries, read_ms, scene.now_ms))
        if repaired is not None and len(late):
            repaired = timer_log.moved_to_tick(repaired, late, after.records, files.ticks.start_ms(scene.now_ms))
            files.log.entries, read_ms = repaired.entries, files.ticks.oldest_ms(scene.now_ms)
        alive_ms = files.log.entries.alive_ms(scene.now_ms)
        read_ms = max(read_ms, files.ticks.oldest_ms(alive_ms))  # no start reads older ticks
        files.check = _corrected_check(files, high, scene.store, after.records, read_ms)
    if wheel:
        yield from _wheel_edits(files, scene, linked)
    if repaired is not None:
        yield from _entry_edits(files, repaired, linked, repaired.position[late])
        yield from timer_log.closing_blanks(files.log)
    yield from _tail_edits(files)
    if files.check != check:
        again = _read_again(check, files.check, after.records, high)
        yield from _check_edit(files, check, again, late=bool(len(late)))


def _wheel_edits(files: TimerFiles, scene: VerifyContext, linked: dict[int, int]) -> Iterator[Edit]:
    """Yield wrong slots of future ticks. linked: gets the entry before, by position of each entry of such a tick."""
    slots, entries, found = files.slots, files.log.entries, chains(scene)
    tick = entries.tick_ms // files.ticks.precision_ms
    read = files.ticks.of(files.check.last_read_time_ms)
    astray = ~is_in_place(slots.number, slots.time)
    count = counts(scene)
    wrong = ~found.good | (count.wrong & ~count.usual)
    wrong[list(found.broken)] = True
    owner = np.append(found.slots.time, NOWHERE)[found.of_slot]  # of the slot that leads to the entry
    unreached = (owner != tick) & (tick >= read)
    ticks = np.unique(np.concatenate([found.slots.time[wrong], tick[unreached]]))
    cleared = np.concatenate([slots.number[astray], found.slots.number[wrong]])
    mine = np.flatnonzero(np.isin(tick, ticks))
    order = ByTick.of(tick[mine], entries.position[mine])
    chained = entries.take(mine[order.rows])
    new = _new_slots(tick[mine[order.rows]], order, chained)
    numbers = np.concatenate([cleared, new["time"] % SLOTS]).astype(np.int64)
    values = np.zeros(len(numbers), dtype_of(SLOT))
    values[len(cleared) :] = new  # np.concatenate would change the byte order
    reason, path = "slots made from the entries", str(files.wheel_path)
    yield from _item_edits(files, path, numbers * SLOT_BYTES, values, reason, "I-122")
    gone = order.first & (chained.previous >= 0) & (chained.previous < files.log.start)
    other = (chained.previous != order.before) & ~gone
    before = order.before[other].tolist()
    linked |= dict(zip(chained.position[other].tolist(), before, strict=True))


def _new_slots(tick: Ints, order: ByTick, entries: TimerEntries) -> Structs:
    begins = np.flatnonzero(order.first)
    new = np.zeros(len(begins), dtype_of(SLOT))
    if len(begins):
        ends = np.append(begins[1:], len(tick)) - 1
        new["time"] = tick[begins]
        new["first_pos"] = entries.position[begins]
        new["last_pos"] = entries.position[ends]
        new["num"] = np.add.reduceat(np.where(entries.deletes, -1, 1), begins)
    return new


def _entry_edits(
    files: TimerFiles, repaired: timer_log.RepairedEntries, linked: dict[int, int], late: Ints
) -> Iterator[Edit]:
    """Yield rebuilt entries, and links to the entry before. late: positions of entries moved to another tick."""
    units, position = repaired.units, repaired.position
    moved = np.isin(position, late)
    rows = files.log.entries.at(np.array(list(linked), np.int64))[0]
    units["prev_pos"][rows] = np.array(list(linked.values()), np.int64)
    for file in files.log.files:
        inside = (position >= file.start) & (position < file.end)
        renewed = inside & repaired.changed
        link = np.zeros(len(position), np.bool_)
        link[rows] = True
        link &= inside & ~renewed
        both = renewed | link
        beside = position[both] - file.start, units[both]
        for mask, reason, code in (
            (renewed & ~moved, "entries made from their messages", "I-128"),
            (renewed & moved, "entries of ticks that no start reads, moved to a tick that it reads", "I-183"),
            (link, "links to the entry before", "I-123"),
        ):
            offsets = position[mask] - file.start
            yield from _item_edits(files, file.path, offsets, units[mask], reason, code, beside)


def _item_edits(
    files: TimerFiles, path: str, offsets: Ints, values: Structs, reason: str, code: str, *beside: tuple[Ints, Structs]
) -> Iterator[Edit]:
    """Yield edits of changed items of a file: of one offset the last counts, neighbours are one edit. beside: items
    that other edits write, as an edit also holds the bytes between its own items.
    """
    if not len(offsets):
        return
    size = values.dtype.itemsize
    order = np.argsort(offsets, kind="stable")
    order = order[np.append(np.diff(offsets[order]) != 0, True)]
    offsets, values = offsets[order], values[order]
    base = int(offsets[0])
    there = files.content(path)[base : int(offsets[-1]) + size]
    data = np.zeros(int(offsets[-1]) + size - base, np.uint8)
    data[: len(there)] = there
    items = overlapping(data, values.dtype)
    wrong = np.flatnonzero(items[offsets - base] != values)
    for at, units in beside:
        between = (at >= base) & (at <= offsets[-1])
        items[at[between] - base] = units[between]
    items[offsets - base] = values
    cuts = np.flatnonzero(np.diff(offsets[wrong]) > _APART_BYTES) + 1
    for part in np.split(offsets[wrong], cuts) if len(wrong) else ():
        begin, end = int(part[0]), int(part[-1]) + size
        piece = data[begin - base : end - base].tobytes()
        yield Edit("write", path, f"{len(part)} {reason}", (code,), begin, end - begin, piece)


def _tail_edits(files: TimerFiles) -> Iterator[Edit]:
    """Yield zeros for damage behind the last entry, and moves of files without one, with which a start may fail."""
    log, empty = files.log, set[str]()
    for part in sorted(log.ranges, key=lambda each: each.position):
        file = log.file_of(part.position)
        begin = max(part.position, log.end)
        size = part.position + part.size - begin
        if part.kind != "damage" or size <= 0 or file is None or file.path in empty:
            continue
        if begin == file.start and file is not log.files[0]:
            empty.add(file.path)
            yield Edit("move", file.path, "it has no entry: a broker may not start", ("I-126",))
        else:
            yield Edit("write", file.path, "zeros behind the last entry", ("I-126",), begin - file.start, size)


def _read_to(entries: TimerEntries, log: CommitLog, high: int) -> int:
    """Return the queue offset behind the message of the newest entry: the timer has read up to there."""
    places = entries.offset_py[-1:]
    record = log.records(places[places >= 0])
    if not len(record):
        return high
    return min(int(record.columns.ints("queue_offset")[0]) + 1, high)


def _corrected_check(
    files: TimerFiles, high: int, store: StoreReader, records: TimerColumns, read_ms: int
) -> TimerCheck:
    """Return a timercheck with places inside log and queue. read_ms: time up to which the timer has delivered."""
    check, log = files.check, files.log
    flushed = check.last_timer_log_flush_pos
    ends = {log.end, *(file.end for file in log.files if file.start < log.end <= file.end)}
    aligned = bool(log.aligned(np.array([flushed], np.int64))[0])
    if flushed not in ends and not (0 <= flushed <= log.end and aligned):
        flushed = log.end
    waits = not log.entries.deletes.all() and files.wheel_bytes == FILE_BYTES
    least = 1 if high and waits else 0  # some message has been read: no start should read it again
    read, master = check.last_timer_queue_offset, check.master_timer_queue_offset
    if not (least <= read <= high and least <= master <= high):
        known = _read_to(log.entries, store.log, high)
        read, master = (n if least <= n <= high else known for n in (read, master))
    known = _read_to(log.entries, store.log, high) if waits else 0
    if waits and least <= known < read:
        # entries behind the newest one are lost: a start must read their messages again
        behind = (records.queue_offset >= known) & (records.queue_offset < read)
        read = known if (behind & (records.out_ms > read_ms)).any() else read
    filed = min(
        timer_log.entries_complete_to(log.entries, records, min(read, master)), known
    )  # a start goes by the newest entry, too
    read, master = max(read, filed), max(master, filed)
    return check._replace(
        last_read_time_ms=read_ms,
        last_timer_log_flush_pos=flushed,
        last_timer_queue_offset=read,
        master_timer_queue_offset=master,
    )


def _read_again(old: TimerCheck, new: TimerCheck, records: TimerColumns, high: int) -> int:
    """Return the number of delivered messages that a start reads, and delivers, again. high: end of the timer topic's
    queue. With an impossible old offset all messages up to there may have been read.
    """
    begin, end = new.last_timer_queue_offset, old.last_timer_queue_offset
    offset, out_ms = records.queue_offset, records.out_ms
    read = (offset >= begin) & (offset < (end if 0 < end <= high else high))
    due = (out_ms > 0) & (out_ms < new.last_read_time_ms) & ~records.cancels
    return int((read & due).sum())


def _check_edit(files: TimerFiles, old: TimerCheck, again: int, *, late: bool) -> Iterator[Edit]:
    """Yield the new timercheck: its fields, or a new file if it is missing or too short. old: the present one. again:
    as `_read_again`. late: the wheel is read from a later time on.
    """
    path, data = files.check_path, files.check.to_bytes()
    codes: tuple[str, ...] = ("I-130", "I-131", "I-132")
    twice = f"; up to {counted(again, 'message is', 'messages are')} delivered again" if again else ""
    if files.has_check and path.stat().st_size >= len(data):
        reason = f"impossible positions and times corrected{twice}"
        if _is_only_older(old, files.check):
            reason, codes = "older than the timer log: a start would add messages twice", ("I-184",)
        elif late:
            reason, codes = "the time from which a start reads the wheel", ("I-183",)
        yield Edit("write", os.fspath(path), reason, codes, 0, len(data), data)
    else:
        reason = f"the timer's progress, as the timer log shows it{twice}"
        yield Edit.create(path, data, reason, codes, PAGE_BYTES)


def _is_only_older(old: TimerCheck, new: TimerCheck) -> bool:
    """Whether a timercheck is only older than the timer log, as after every kill."""
    read, master = new.last_timer_queue_offset, new.master_timer_queue_offset
    same = old._replace(last_timer_queue_offset=read, master_timer_queue_offset=master) == new
    return same and 0 < old.last_timer_queue_offset <= read and 0 < old.master_timer_queue_offset <= master


def _read_time_ms(files: TimerFiles, scene: VerifyContext) -> int:
    """Return the time up to which the timer has delivered: by timercheck, or behind the newest delivered entry. A time
    that is not a tick of the timer, or that no start goes back to, does not count.
    """
    read_ms, ticks, entries = files.check.last_read_time_ms, files.ticks, files.log.entries
    earliest = max(1, ticks.oldest_ms(entries.alive_ms(scene.now_ms)))
    has_come_to = earliest <= read_ms <= scene.now_ms + ticks.precision_ms and read_ms == ticks.start_ms(read_ms)
    if has_come_to or not (read_ms or len(entries.position)):
        return read_ms
    return _delivered(scene).up_to(entries, scene.now_ms)
