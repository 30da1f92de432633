"""Scans of the commit log for messages, and checks of what queues lack at their ends.

A scan finds any message that no queue and no index leads to. Stale records are left out, as they are not messages of
this log; `dump` shows them.

`selected` finds wanted messages in log order, for `Store.messages` and `Store.to_arrow`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from itertools import dropwhile, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from ...formats.message import EARLIEST_MS, LATEST_MS
from ..broker.system_topics import SCHEDULE_TOPIC
from ..counted import counted
from ..disk.byte_reader import UnreadRanges, each_noting, noting
from ..errors import Corrupted, InvalidInput, NotFound, StoreError
from ..log.batch import DAMAGED, messages, messages_in, unwrapped
from ..log.commit_log import Batch, Extent, ExtentKind, RecordPlaces, batches
from ..log.message import MAX_BODY_BYTES, Mark, is_batch_record, tombstones
from ..queues.batches import BatchConsumeQueue
from ..queues.ext import tags_codes
from ..queues.read import ConsumeQueue, Unit
from ..queues.references import of_queue
from ..queues.units import is_valid
from ..settings.options import options_of
from .selection import Selection, Slice, Time, TimeRange, parse_range, time_text
from .store import FoundMessage, Note, StoreReader, Via, silent

if TYPE_CHECKING:
    from ..broker.filter import Where

LAST_OFFSET = (1 << 63) - 1
CLOCK_SLACK_MS = 3_600_000
"""How far a store time may lie below an earlier one in a log that counts as in the order of time."""
SMALL_LOG_BYTES = 64 << 20
"""A log up to this size is read whole, whatever times are asked for."""

_BEHIND_MAX = 1000  # messages behind the end of all queues that are examined, at the most, for what queues lack

Range = tuple[int, int]


def search_log(
    store: StoreReader,
    selection: Selection,
    *,
    ranges: Sequence[Range] | None = None,
    offsets: Range | None = None,
    most: int | None = None,
    reverse: bool = False,
    note: Note,
) -> Iterator[FoundMessage]:
    """The wanted messages in log order.

    ranges: positions of the log to scan; None: what the times of the selection allow. offsets: wanted queue offsets
    first ≤ k < stop. most: at most so many messages, the first ones. Memory: one batch; with reverse 16 bytes for each
    record found.
    """
    if ranges is None:
        bounds = time_bounds(store, selection.times)
        note_bounds([bounds], note)
        ranges = [(bounds.start, bounds.stop)]
    if not reverse:
        for batch in _scan(store, selection, ranges, offsets, most, note):
            yield from found_in(batch, Via.SCAN)
        return
    kept: list[tuple[Mark, RecordPlaces]] = []
    last = (-1, -1)
    for batch in _scan(store, selection, ranges, offsets, most, note):
        kept.append((batch.mark, _places(batch)))
        number = -1 if batch.inner is None else int(batch.inner.number[-1])
        last = int(batch.position[-1]), number
    found = _last_first(store, selection, offsets, kept)
    # the last record may hold more messages than were asked for
    yield from dropwhile(lambda one: one.place > last, found)


def _places(batch: Batch) -> RecordPlaces:
    """The places of the records of a batch, each once, however many messages it holds."""
    size = batch.columns.ints("total_size").astype(np.int64)
    return RecordPlaces(batch.position, size).sorted()


def _last_first(
    store: StoreReader, selection: Selection, offsets: Range | None, kept: list[tuple[Mark, RecordPlaces]]
) -> Iterator[FoundMessage]:
    """The messages of an earlier scan, read again in reverse order."""
    selection = selection.of_queues(store.layout)
    for mark, places in reversed(kept):
        for _, batch in batches(store.log, places.take(slice(None, None, -1))):
            marked = batch.replace(mark=mark)
            yield from found_in(selection.wanted(marked, offsets=offsets, last_first=True), Via.SCAN)


def _scan(
    store: StoreReader,
    selection: Selection,
    ranges: Sequence[Range],
    offsets: Range | None,
    most: int | None,
    note: Note,
) -> Iterator[Batch]:
    if not ranges:
        return
    damage, noted = list[Extent](), 0
    remaining, selection = most, selection.of_queues(store.layout)
    crc, noting = selection.asks_crc, selection.noting
    for start, stop in ranges:
        for item in store.log.scan(start, stop, crc=crc, reuse=True, noting=noting):
            if isinstance(item, Extent):
                store.scanned(item.size)
                if _hides_messages(store, item):
                    damage.append(item)
                continue
            store.scanned(item.end - int(item.position[0]))
            if item.mark > Mark.AFTER_DAMAGE:
                continue
            store.searched.add_batch(Via.SCAN, item)
            batch = selection.wanted(item, offsets=offsets)
            if remaining is not None:
                batch = batch.take(slice(0, remaining))
                remaining -= len(batch)
            if len(damage) > 2 * noted:  # before what follows: a caller may take only the first messages
                note(_damage_text(damage[noted:]))
                noted = len(damage)
            if len(batch):
                yield batch
            if remaining == 0:
                break
        if remaining == 0:
            break
    if damage[noted:]:
        note(_damage_text(damage[noted:]))


def _damage_text(damage: list[Extent]) -> str:
    ranges = counted(len(damage), "damaged range")
    size = sum(extent.size for extent in damage)
    first = f"at {damage[0].position}: {damage[0].reason}"
    return f"{ranges}, {counted(size, 'byte')}, the first {first}; records behind were read, too"


def found_in(batch: Batch, via: Via) -> Iterator[FoundMessage]:
    """The records of a batch as messages."""
    for message in messages(batch.checked()):
        yield FoundMessage(message, via)


def search_log_queue(store: StoreReader, selection: Selection, part: Slice, note: Note) -> Iterator[FoundMessage]:
    """Messages of a queue by their own queue offsets, if no queue file can be read.

    A batch record shown as stored counts with all queue offsets of its messages.
    """
    most = part.length if part.offset is None else None
    offsets = wanted_offsets(part.offset, part.length)
    return search_log(store, selection, offsets=offsets, most=most, reverse=part.reverse, note=note)


def wanted_offsets(offset: int | None, count: int | None) -> Range | None:
    """The queue offsets first ≤ k < stop of `count` messages from `offset` on; None without an offset: all."""
    if offset is None:
        return None
    return offset, LAST_OFFSET if count is None else min(offset + count, LAST_OFFSET)


def log_offset_at(store: StoreReader, topic: str, queue_id: int, time_ms: int, note: Note) -> int:
    """The queue offset for a time, as a 5.x broker answers, by a scan. Raises NotFound.

    For a time after the last message, the answer is the end of the queue; in a batch queue the offset of its last
    batch.
    """
    end = None
    selection = Selection(topic=topic, queue_id=queue_id, whole=True).of_queues(store.layout)
    for batch in _scan(store, selection, [(store.log_files.start, store.log_files.end)], None, None, note):
        late = np.flatnonzero(batch.columns.ints("store_timestamp") >= time_ms)
        offsets = selection.numbers(batch)
        if len(late):
            return int(offsets[late[0]])
        behind = 0 if store.has_batch_queues(topic) else int(messages_in(batch)[-1])
        end = int(offsets[-1]) + behind
    if end is None:
        raise NotFound(f"no message of {topic}/{queue_id}", path=store.layout.root)
    return end


class TimeBounds(NamedTuple):
    """The part start ≤ p < stop of a log, in whole files, that is read for some times.

    left_out: how many of its `files` are not. steps_back: times step back so far that all are read. doubtful: times
    step back a little, or those of files left out are unknown.
    """

    start: int
    stop: int
    files: int
    left_out: int = 0
    steps_back: bool = False
    doubtful: bool = False


def is_small(store: StoreReader) -> bool:
    """Whether the log is read whole, whatever times are asked for: its data counts, not the space of its files."""
    size, files = store.log_files.size, store.log_files.files
    if size <= SMALL_LOG_BYTES or files[-1].start - files[0].start > SMALL_LOG_BYTES:
        return size <= SMALL_LOG_BYTES  # the end of the log, for which all queues are asked, does not matter
    return store.log_end.position - store.log_files.start <= SMALL_LOG_BYTES


def time_bounds(store: StoreReader, times: TimeRange) -> TimeBounds:
    """The part of the log with messages of these times: all of it, unless the log is large and known times rise.

    Then files before all that begin later, and after all that begin earlier, are left out, with some slack for a clock
    that stepped back; only a scan shows one that was ahead for less than a file. Impossible times: all of it.
    """
    files, start, stop = store.log_files.files, store.log_files.start, store.log_files.end
    damaged = times.until_ms <= EARLIEST_MS or times.since_ms >= LATEST_MS
    if not times.bounded or damaged or is_small(store):
        return TimeBounds(start, stop, len(files))
    begins = [(file.start, _first_times(store, file.start)) for file in files]
    firsts = [(begin, time_ms) for begin, first_ms in begins for time_ms in first_ms]
    known = [time_ms for _, time_ms in sorted([*firsts, *_index_times(store)], key=itemgetter(0))]
    if step_back(known):
        return TimeBounds(start, stop, len(files), steps_back=True)
    for begin, first_ms in begins:
        if first_ms and max(first_ms) >= times.since_ms - CLOCK_SLACK_MS:
            break
        start = begin if first_ms else start
    for begin, first_ms in reversed(begins):
        if first_ms and min(first_ms) < times.until_ms + CLOCK_SLACK_MS:
            break
        stop = begin if first_ms else stop
    stop = max(start, stop)
    left = [(begin, first_ms) for begin, first_ms in begins if not start <= begin < stop]
    unknown = any(not first_ms and begin < store.log_end.position for begin, first_ms in left)
    return TimeBounds(start, stop, len(files), len(left), doubtful=unknown or step_back(known, slack_ms=0))


def note_bounds(found: Sequence[TimeBounds], note: Note) -> None:
    """Note which files of logs are not read although some times are doubtful, or that all are read."""
    if back := sum(one.steps_back for one in found):
        logs = "the log" if len(found) == 1 else counted(back, "log")
        note(f"the store times of {logs} step back by more than an hour: their order does not narrow the search")
    doubtful = [one for one in found if one.doubtful]
    if left := sum(one.left_out for one in doubtful):
        stores = "" if len(found) == 1 else f" of {counted(len(doubtful), 'store')}"
        note_left_out(f"{left} of {counted(sum(one.files for one in doubtful), 'log file')}{stores}", note)


def step_back(times: Iterable[int], slack_ms: int = CLOCK_SLACK_MS) -> bool:
    """Whether one of the store times (ms) of later and later records lies below an earlier one, beyond the slack."""
    known = np.fromiter(times, np.int64)
    return bool((np.maximum.accumulate(known) - known > slack_ms).any())


def note_left_out(what: str, note: Note) -> None:
    """Note what a search by time has not read because of doubtful times of records beside it."""
    wrong = "some times step back or cannot be read, so wanted messages may be among them"
    note(f"{what} left out by the store times around them; {wrong}: `mqstore dump` reads the whole log")


def _index_times(store: StoreReader) -> list[Range]:
    """Position and store time of the first and the last record of each sound index file, if the log has them."""
    start, stop, found = store.log_files.start, store.log_files.end, list[Range]()
    with suppress(StoreError), noting():
        for header in [file.header for file in store.index.files if file.last and file.consistent]:
            found.append((header.begin_physical_offset, header.begin_timestamp))
            found.append((header.end_physical_offset, header.end_timestamp))
    return [(at, ms) for at, ms in found if start <= at < stop and EARLIEST_MS <= ms < LATEST_MS]


def _first_times(store: StoreReader, begin: int) -> list[int]:
    """The plausible store timestamps (ms) among those of the first two records of the file that begins here."""
    found = list[int]()
    with suppress(NotFound):
        for _ in range(2):
            first = store.message_at(begin + store.payload_at(begin))
            found.append(first.store_timestamp)
            begin = first.position + first.total_size
    return [time_ms for time_ms in found if EARLIEST_MS <= time_ms < LATEST_MS]


class QueueGap(NamedTuple):
    """A gap at an end of a queue: messages with queue offsets `numbers`, perhaps in `places` of the log, have no units.

    text: where the queue begins or ends, for notes. sure: there were such messages, even if the log has lost them.
    in_front: they precede the units of the queue.
    """

    queue_id: int
    text: str
    places: Range
    numbers: Range
    sure: bool = False
    in_front: bool = False


def queue_gaps_of(
    store: StoreReader,
    queue: ConsumeQueue | BatchConsumeQueue,
    reached: Mapping[int, int],
    offsets: Range | None = None,
) -> list[QueueGap]:
    """The gaps at the ends of a queue that may hold wanted messages.

    reached: by queue, an offset up to which it had messages. A queue without any unit is not handled here
    (`StoreReader.empty_queues`). If the log begins at 0, nothing has expired, so a queue must begin at 0 too. Raises
    Unreadable.
    """
    ends, log_end, found, queue_id = queue.summary(), store.log_end.position, list[QueueGap](), queue.queue_id
    if ends.end_position is None:
        return []
    first, stop = ends.min_offset, ends.max_offset
    if first > 0 and store.log_files.start == 0:
        begin = queue.position(first)
        end = ends.end_position if begin is None else begin
        found.append(QueueGap(queue_id, f"queue {queue_id} begins at {first}", (0, end), (0, first), in_front=True))
    sure = reached.get(queue_id, 0) > stop
    if ends.end_position < log_end and (sure or queue.may_be_cut_short()):
        text = f"queue {queue_id} ends at {stop}" + (f", but offset {reached[queue_id]} was reached" if sure else "")
        found.append(QueueGap(queue_id, text, (ends.end_position, log_end), (stop, LAST_OFFSET), sure))
    low, high = offsets or (0, LAST_OFFSET)
    within = (one._replace(numbers=(max(low, one.numbers[0]), min(high, one.numbers[1]))) for one in found)
    return [one for one in within if one.numbers[0] < one.numbers[1]]


class Behind(NamedTuple):
    """Messages of a topic after the end of all queues: a broker that was killed leaves them without units.

    firsts: queue offset of the first one, by queue. wanted: whether some of them are wanted.
    """

    firsts: dict[int, int]
    wanted: bool

    def reached(self, store: StoreReader, topic: str) -> dict[int, int]:
        """By queue, an offset up to which it had messages: that of the first message here, or what groups consumed."""
        groups = store.consumed.get(topic, {})
        return {one: max(self.firsts.get(one, 0), groups.get(one, 0)) for one in {*self.firsts, *groups}}


def behind_of(store: StoreReader, selection: Selection, offsets: Range | None = None) -> Behind:
    """The messages after the end of all queues, of the selected topic and queue. Raises Unreadable."""
    firsts, wanted, count = dict[int, int](), False, 0
    (low, high), whole = offsets or (0, LAST_OFFSET), Selection(topic=selection.topic, queue_id=selection.queue_id)
    for one in islice(_messages_behind(store, whole, None), _BEHIND_MAX):
        if not count:
            selection = selection.of_queues(store.layout)
        queue_id, number = selection.place_of(one.message) or (one.message.queue_id, one.message.queue_offset)
        count += 1
        firsts.setdefault(queue_id, number)
        wanted = wanted or (low <= number < high and selection.takes(one.message))
    if not wanted and count == _BEHIND_MAX:
        wanted = behind_queues(store, selection, offsets) is not None
    return Behind(firsts, wanted)


def lost_behind(
    store: StoreReader, queue: ConsumeQueue, offsets: Range = (0, LAST_OFFSET), *, reverse: bool = False
) -> Iterator[RecordPlaces]:
    """The places of units first ≤ k < stop that point past the end of a log that has lost their records.

    Not the units left over from a truncation of the log (`StoreReader.end_is_lost`). Raises Unreadable.
    """
    begin, stop = max(offsets[0], store.queue_summary(queue).max_offset), min(offsets[1], queue.summary().max_offset)
    if begin >= stop or not store.end_is_lost:
        return
    for window in of_queue(queue, begin, stop, log_end=LAST_OFFSET, reverse=reverse):
        for places, batch in batches(store.log, window):
            lost = ~np.isin(places.position, batch.position)
            if lost.any():
                yield places.take(lost)


def units_lost_behind(store: StoreReader, topic: str) -> int:
    """How many units of a topic `lost_behind` finds. Raises Unreadable."""
    found = 0
    for directory in store.queues.of_topic(topic):
        with store.queues.open(topic, directory.queue_id) as queue:
            found += sum(map(len, lost_behind(store, queue)))
    return found


def gap_text(store: StoreReader, selection: Selection, lack: QueueGap) -> str:
    """Say that a queue lacks wanted messages, "" if it does not. Scans the log unless the gap is sure."""
    if lack.sure:
        return lack.text
    first = next(_scan_gap(store, selection, lack, False, silent), None)  # gaps are noted once
    more = "but the log has more of its messages, from"
    return "" if first is None else f"{lack.text}, {more} {first.message.position} on"


def _scan_gap(
    store: StoreReader, selection: Selection, lack: QueueGap, reverse: bool, note: Note
) -> Iterator[FoundMessage]:
    """The wanted messages of a gap that the log has."""
    bounds = time_bounds(store, selection.times)
    start, stop = max(bounds.start, lack.places[0]), min(bounds.stop, lack.places[1])
    own, ranges = selection._replace(queue_id=lack.queue_id), [(start, stop)] if start < stop else []
    return search_log(store, own, ranges=ranges, offsets=lack.numbers, reverse=reverse, note=note)


def with_gaps(
    store: StoreReader,
    selection: Selection,
    lacks: list[QueueGap],
    found: Iterator[FoundMessage],
    reverse: bool,
    note: Note,
) -> Iterator[FoundMessage]:
    """The messages found by the units of a queue, and around them those of the gaps, by scanning the log."""

    def scanned(lack: QueueGap) -> Iterator[FoundMessage]:
        more = _scan_gap(store, selection, lack, reverse, note)
        if (first := next(more, None)) is not None:
            note(f"{selection.topic}: {lack.text}: scanning the log for the other messages")
            yield first
            yield from more
        elif lack.sure:
            note(f"{selection.topic}: {lack.text}: the log has no other wanted message")

    parts = [scanned(lack) for lack in lacks if lack.in_front]
    parts += [found, *(scanned(lack) for lack in lacks if not lack.in_front)]
    for part in reversed(parts) if reverse else parts:
        yield from part


def note_behind(store: StoreReader, note: Note) -> None:
    """Note that wanted messages follow the end of all queues. Raises Unreadable."""
    reached = ends_of_queues(store)
    left_out = "messages from there on are left out; `mqstore dump` shows them"
    note(f"the queues are behind the log from {reached} on: {left_out}")


def behind_queues(store: StoreReader, selection: Selection, offsets: tuple[int, int] | None = None) -> int | None:
    """The position where all queues end, if wanted messages follow it; else None.

    A broker that was killed leaves such messages; its next start dispatches them. Raises Unreadable.
    """
    behind = _messages_behind(store, selection, offsets)
    return None if next(behind, None) is None else ends_of_queues(store)


def ends_of_queues(store: StoreReader) -> int:
    """The position in the log where all queues end. Raises Unreadable."""
    every = (*store.queue_summaries, *store.batch_summaries)
    return max(store.log_files.start, *(one.end_position or 0 for one in every), 0)


def _messages_behind(store: StoreReader, selection: Selection, offsets: Range | None) -> Iterator[FoundMessage]:
    """The wanted messages after the end of all queues. Raises Unreadable."""
    begin, end = ends_of_queues(store), store.log_end.position
    ranges = [(begin, end)] if begin < end else []
    return search_log(store, selection, ranges=ranges, offsets=offsets, note=silent)


def never_delivered(store: StoreReader, passed: Mapping[int, int]) -> dict[int, int]:
    """By delay level, the queue offset of the first message that no broker can have delivered, if `passed` is beyond
    it.

    passed: by delay level, the queue offset in delayOffset.json. Delivering writes to the log, so what is due later
    than all stored messages was not delivered. Empty if the log may have lost its newest records, also by `recover` or
    `repair`. Raises Unreadable.
    """
    from ..disk.files import has_log_changed_by_session  # imported here, as searches do not need it

    asked = passed and store.queues.of_topic(SCHEDULE_TOPIC) and not has_log_changed_by_session(store.layout)
    newest_ms = store.log_end.store_timestamp if asked else None
    if newest_ms is None or store.log_end.torn or store.log_end.damaged_behind or store.end_is_lost:
        return {}
    found = _passed_and_due_after(newest_ms, store, passed)
    if found:  # after a clock that went back the last record is not the newest
        behind = min(unit.physical_offset for unit in found.values())
        for batch in store.good_records(behind):
            if tombstones(batch.columns).any():  # what was lost there may have been newer
                return {}
            newest_ms = max(newest_ms, int(batch.columns.ints("store_timestamp").max()))
        found = _passed_and_due_after(newest_ms, store, passed)
    return {level: unit.queue_offset for level, unit in found.items()}


def _passed_and_due_after(time_ms: int, store: StoreReader, passed: Mapping[int, int]) -> dict[int, Unit]:
    """By delay level, the unit of its first message due after a time, if the passed offset is beyond that unit."""
    found, levels = dict[int, Unit](), tuple[int, ...]()
    with suppress(InvalidInput):  # a broker that cannot parse its levels does not start
        levels = options_of(store.layout).delay_levels.value
    for _, queue_id, *_ in store.queues.of_topic(SCHEDULE_TOPIC):
        wait_ms, level = levels[queue_id] if queue_id < len(levels) else 0, queue_id + 1
        with store.queues.open(SCHEDULE_TOPIC, queue_id) as queue, suppress(NotFound):
            first, due_ms = _first_due_after(time_ms, store, queue)
            if first is None or first.queue_offset >= passed.get(level, 0):
                continue
            stored_ms = store.message_of_unit(queue, first.queue_offset).store_timestamp
            # if the clock went back, or the level has a shorter delay now, the broker delivers the message at once
            if stored_ms <= time_ms and due_ms <= stored_ms + wait_ms:
                found[level] = first
    return found


def _first_due_after(time_ms: int, store: StoreReader, queue: ConsumeQueue) -> tuple[Unit | None, int]:
    """The first unit at the end of a delay queue that is due after a time, and its due time. That is its tags code."""
    ends, first, due_ms = store.queue_summary(queue), None, 0
    for number, units in queue.units(ends.min_offset, ends.max_offset, reverse=True):
        codes, known = tags_codes(units["tags_code"].astype(np.int64), store.layout, queue)
        late = np.flatnonzero(is_valid(units) & known & (codes > time_ms))
        if not len(late):
            break
        first, due_ms = queue.unit(number + int(late[0])), int(codes[late[0]])
    return first, due_ms


OnDamage = Literal["warn", "raise", "skip"]
"""What to do about a range of the log that cannot be read: a `DamageWarning`, an error, nothing."""
_CALLER_LEVEL = 5
"""Stack level of the code that iterates over `Store.messages` or a reader."""


class DamageWarning(UserWarning):
    """A range of the log cannot be read: its messages are missing in the answer."""


def selected(
    store: StoreReader,
    *,
    topics: str | Sequence[str] = (),
    since: Time = None,
    until: Time = None,
    where: Where | None = None,
    on_damage: OnDamage = "warn",
    crc: bool = False,
    inner: bool = False,
) -> Iterator[Batch]:
    """The wanted records of a store before the end of its log.

    topics: names or shell patterns, none for all. crc: compute the CRC of bodies; `where` may require that too. inner:
    replace batch records by the messages inside them (spec 01, 1.9). A batch is valid until the next one is taken.
    Raises InvalidInput, Unreadable; with on_damage="raise" Corrupted for damage, UnreadableRange for bytes that the
    disk does not return.
    """
    if on_damage not in ("warn", "raise", "skip"):
        raise InvalidInput(f"on_damage is warn, raise or skip, not {on_damage!r}")
    times = parse_range(time_text(since), time_text(until), option="")
    one = Selection(times=times, where=None if where is None else where.to_the_end())
    either = [one._replace(topic=name) for name in ([topics] if isinstance(topics, str) else topics)] or [one]
    around, crc = on_damage != "raise", crc or one.asks_crc
    with noting(around=around):
        end, bounds = store.log_end.position, time_bounds(store, times)
    note_bounds([bounds], (notes := list[str]()).append)
    for text in notes:
        warnings.warn(text, UserWarning, stacklevel=3)
    items = store.log.scan(bounds.start, bounds.stop, crc=crc, reuse=True) if bounds.start < bounds.stop else iter(())
    batches = _readable(store, each_noting(items, UnreadRanges(around=around)), end, on_damage)
    return _selected(map(_split_batches, batches) if inner else batches, either)


def _selected(batches: Iterator[Batch], either: Sequence[Selection]) -> Iterator[Batch]:
    """The records that at least one of the selections wants."""
    for batch in batches:
        mask = reduce(np.logical_or, [selection.mask(batch) for selection in either])
        if mask.any():
            yield batch if mask.all() else batch.take(mask)


def _split_batches(batch: Batch) -> Batch:
    several = bool(is_batch_record(batch.columns.ints("sys_flag")).any())
    return unwrapped(batch, MAX_BODY_BYTES) if several else batch


def _readable(store: StoreReader, items: Iterator[Batch | Extent], end: int, on_damage: OnDamage) -> Iterator[Batch]:
    """The records before the end of the log; damage is reported."""
    for item in items:
        if isinstance(item, Extent):
            if _hides_messages(store, item):
                _report(store, item, on_damage)
        elif item.mark <= Mark.AFTER_DAMAGE and item.position[0] < end:
            yield item if item.position[-1] < end else item.take(slice(0, int(np.searchsorted(item.position, end))))


def _hides_messages(store: StoreReader, extent: Extent) -> bool:
    """Whether it is damage before the end of the log; a start leaves the rest of a record after the end."""
    if extent.kind is ExtentKind.DAMAGE and not extent.unread:
        return extent.position < store.log_end.position
    return extent.kind in DAMAGED


def _report(store: StoreReader, damage: Extent, on_damage: OnDamage) -> None:
    text = f"{counted(damage.size, 'byte')} of the log cannot be read: {damage.reason}"
    error = Corrupted(text, path=store.layout.root, offset=damage.position)
    if on_damage == "raise":
        raise error
    if on_damage == "warn":
        warnings.warn(str(error), DamageWarning, stacklevel=_CALLER_LEVEL)
