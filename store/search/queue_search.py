"""Messages found through the queues of a topic, of its batch queues or of a compaction topic.

A unit of a batch consume queue (5.x, spec 02, 2.7) points at a record, which may hold several messages; each has its
own queue offset.

Each queue of a topic with cleanup.policy=COMPACTION has its own log, which keeps the last message of each key and from
which a broker answers (spec 06, 6.1). Its records have positions in that log. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...formats import message_properties as names
from ...formats.derive.ragged import Flags, Ints
from ...formats.hashing import utf8
from ...formats.property_columns import find as find_property
from ...formats.topics import FILE as TOPICS
from ...formats.topics import TOPIC_CONFIG_TABLE
from ..broker.topics import CLEANUP_POLICY, COMPACTED, attribute_of
from ..columns import rows_of
from ..counted import counted
from ..disk.file_queue import MappedFileQueue
from ..disk.layout import Layout, QueueDirectory, has_topic, no_topic, queue_directories
from ..disk.lock import holder, stream_of
from ..errors import NotFound
from ..log.batch import messages, unwrapped
from ..log.commit_log import Batch, CommitLog, Extent, ExtentKind, RecordPlaces, batches, merged
from ..log.message import Message, is_batch_record
from ..queues.batches import BatchConsumeQueue, SparseRange, sparse_units, summary_of
from ..queues.read import ConsumeQueue, first_at, offset_at, stored_at
from ..queues.references import UnitPlaces, of_queue
from ..queues.rocksdb_copy import database_loss
from ..queues.units import is_valid
from .log_search import (
    CLOCK_SLACK_MS,
    LAST_OFFSET,
    QueueGap,
    Range,
    TimeBounds,
    behind_of,
    found_in,
    gap_text,
    is_small,
    lost_behind,
    note_behind,
    note_bounds,
    note_left_out,
    queue_gaps_of,
    step_back,
    time_bounds,
    wanted_offsets,
    with_gaps,
)
from .selection import Selection, Slice, TimeRange
from .store import FoundMessage, Note, StoreReader, Via, no_message

_NAMED_MAX = 8
"""Lost queues named in a note."""
_FEW_FILES = 8
"""Up to this many log files the units are narrowed down by time; in more, the first and last files matter little."""
_PARTS = 16
"""Parts per log file, or of a remaining range, at whose ends the time is read."""
_LEFT_OUT = "their messages are left out; `mqstore dump` shows those in the log"


def search_queues(store: StoreReader, selection: Selection, part: Slice, note: Note) -> Iterator[FoundMessage]:
    """Messages of the queue in the selection, or of all queues of its topic.

    Order: that of a single queue, else that of the log. Messages the queues do not lead to are noted, as far as that
    can be known without reading the whole log. Raises NotFound for an unknown topic or queue.
    """
    topic = selection.topic
    assert topic is not None
    numbers = [selection.queue_id] if selection.queue_id is not None else _queue_ids(store, topic)
    missing, left_out = list[int](), list[int]()
    bounds = _bounds(store, selection.times, note)
    within = None if bounds is None else (bounds.start, bounds.stop)
    queues = [store.queues.open(topic, number) for number in numbers]
    streams = [_places(store, queue, selection, part, within, missing.append, left_out.append) for queue in queues]
    if (left := sum(left_out)) and bounds is not None and bounds.doubtful:
        note_left_out(f"{left} of {counted(store.searched.units + left, 'queue unit')}", note)
    lacks, reverse = _noted_lacks(store, selection, part, queues, note), part.reverse
    places = streams[0] if selection.queue_id is not None else merged(streams, reverse=reverse)
    any_queue = selection._replace(topic=None, queue_id=None)
    exact = part.offset is not None
    places = _note_missing(places, topic, missing, note)
    found = records_at(store, topic, any_queue, places, note, last_first=reverse, exact=exact)
    return found if selection.queue_id is None else with_gaps(store, selection, lacks, found, reverse, note)


def _noted_lacks(
    store: StoreReader,
    selection: Selection,
    part: Slice,
    queues: Sequence[ConsumeQueue | BatchConsumeQueue],
    note: Note,
) -> list[QueueGap]:
    """The gaps at the ends of queues, for `with_gaps`; what is left out because of them is noted. Raises Unreadable."""
    topic, offsets = selection.topic or "", wanted_offsets(part.offset, part.length)
    behind = behind_of(store, selection, offsets)
    reached = behind.reached(store, topic)
    lacks = [lack for queue in queues for lack in queue_gaps_of(store, queue, reached, offsets)]
    if selection.queue_id is None:
        _note_lost(store, topic, note)
        for text in filter(None, (gap_text(store, selection, lack) for lack in lacks)):
            note(f"{topic}: {text}: the other messages are left out; `mqstore dump` shows those in the log")
    if behind.wanted and (selection.queue_id is None or all(lack.in_front for lack in lacks)):
        note_behind(store, note)
    return lacks


def _bounds(store: StoreReader, times: TimeRange, note: Note) -> TimeBounds | None:
    """The log files with messages of these times; None if all units have to be read."""
    if not times.bounded or is_small(store):
        return None
    bounds = time_bounds(store, times)
    if bounds.steps_back:
        note_bounds([bounds], note)
        return None
    return bounds  # the units left out are noted


def _note_lost(store: StoreReader, topic: str, note: Note) -> None:
    """Note queues that groups consumed from but do not exist, and queues without a unit. Raises Unreadable."""
    if lost := store.lost_queues(topic):
        note(f"{topic} has no queue {_ids_text(lost)}, but groups have consumed from it: {_LEFT_OUT}")
    if empty := store.empty_queues(topic):
        note(f"{topic} has no unit in queue {_ids_text(empty)}: {_LEFT_OUT}")


def _ids_text(queues: list[int]) -> str:
    return ", ".join(map(str, queues[:_NAMED_MAX])) + (", …" if len(queues) > _NAMED_MAX else "")


def _note_missing(places: Iterator[RecordPlaces], topic: str, missing: list[int], note: Note) -> Iterator[RecordPlaces]:
    """The places; before those behind them and at the end, notes of how many units were missing."""
    lacking = _LeftOut(_LEFT_OUT, "unit of {} is missing or damaged:", "units of {} are missing or damaged:")
    for window in places:
        lacking = lacking.and_more(sum(missing)).tell(topic, note)
        missing.clear()
        yield window
    lacking.and_more(sum(missing)).tell_rest(topic, note)


def _queue_ids(store: StoreReader, topic: str) -> list[int]:
    found = [queue.queue_id for queue in store.queues.of_topic(topic)]
    if not found:
        raise no_topic(store.layout.consume_queue, topic)
    return found


def _places(
    store: StoreReader,
    queue: ConsumeQueue,
    selection: Selection,
    part: Slice,
    within: Range | None,
    missing: Callable[[int], None],
    left_out: Callable[[int], None],
) -> Iterator[RecordPlaces]:
    """The places that the units of a queue point at, which may be of wanted messages.

    within: the part of the log with messages of the wanted times, None for all. missing: as for `of_queue`. left_out:
    called with the number of units that are not read because of their times.
    """
    offset, count, reverse = part
    summary = store.queue_summary(queue)
    start = summary.min_offset if offset is None else max(offset, queue.first_offset)
    begin = start if offset is None or store.log_files.start > 0 else offset  # if the log begins at 0, nothing expired
    stop = summary.max_offset if count is None else min(summary.max_offset, begin + count)
    if within is not None and start < stop:
        asked = stop - start
        start, stop = _within_files(store, queue, (start, stop), within, selection.times)
        left_out(asked - max(0, stop - start))
    end = store.log_end.position
    store.searched.units += max(0, stop - start)
    # also units of other tags: a wrong tags code would hide a message
    found: list[Iterator[RecordPlaces]] = [of_queue(queue, start, stop, log_end=end, reverse=reverse, missing=missing)]
    if stop == summary.max_offset:
        behind = start, LAST_OFFSET if count is None else begin + count
        found.append(lost_behind(store, queue, behind, reverse=reverse))
    return chain.from_iterable(reversed(found) if reverse else found)


def _within_files(store: StoreReader, queue: ConsumeQueue, units: Range, within: Range, times: TimeRange) -> Range:
    """Units start ≤ k < stop of a queue, without those that point before or after all records of these times.

    `within` has the log files that a scan would read for the times: positions in a queue rise, whatever the clock did.
    If these are few files, the times of the queue's records narrow the range further.
    """
    begin, end = within
    summary = store.queue_summary(queue)
    start = max(units[0], first_at(queue, summary, begin, int)[0])
    stop = min(units[1], first_at(queue, summary, end, int)[1])
    files = sum(begin <= file.start < end for file in store.log_files.files)
    if files > _FEW_FILES:
        return start, stop
    found = _within_times(store, queue, (start, stop), times, _PARTS * files)
    return units if found is None else found


def _within_times(store: StoreReader, queue: ConsumeQueue, units: Range, times: TimeRange, parts: int) -> Range | None:
    """Divide units start ≤ k < stop into `parts`, read the times at their ends, and return the range from the first to
    the last part that may have records of these times; repeat with that range while it shrinks.

    None if the times step back, so that they do not tell where others are; a clock that was wrong only between the two
    ends of a part goes unnoticed.
    """
    start, stop = units
    while stop - start > max(parts, _PARTS):
        numbers = [*range(start, stop - 1, -(-(stop - start) // parts)), stop - 1]
        known = [(one, time_ms) for one in numbers if (time_ms := stored_at(queue, one, store.store_time)) is not None]
        if step_back(time_ms for _, time_ms in known):
            return None
        ends = [(start, None), *known, (stop - 1, None)]
        kept = [(a, b) for (a, first_ms), (b, last_ms) in pairwise(ends) if a < b and _covers(times, first_ms, last_ms)]
        if not kept:
            return (start, start) if known[-1][1] >= times.until_ms else (stop, stop)
        rest, parts = (kept[0][0], kept[-1][1] + 1), _PARTS
        if 2 * (rest[1] - rest[0]) > stop - start:
            return rest
        start, stop = rest
    return start, stop


def _covers(times: TimeRange, first_ms: int | None, last_ms: int | None) -> bool:
    """Whether records of these times may lie between records of the two others; None is an unknown time."""
    if first_ms is None or last_ms is None:
        return True
    return first_ms - CLOCK_SLACK_MS < times.until_ms and last_ms + CLOCK_SLACK_MS >= times.since_ms


class _LeftOut(NamedTuple):
    """Units that lead to no wanted message: how many are not noted yet and how many are.

    They are noted before what follows them, as a caller may take only the first messages; then again when as many more
    have come. where: the end of the note; {first} in it is the lowest position they point at.
    """

    where: str
    one: str = "unit of {} points at"
    several: str = "units of {} point at"
    units: int = 0
    noted: int = 0
    first: int = LAST_OFFSET

    def and_at(self, positions: Ints) -> _LeftOut:
        """Add units that point at these positions."""
        return self.and_more(len(positions))._replace(first=int(positions.min(initial=self.first)))

    def and_more(self, count: int) -> _LeftOut:
        return self._replace(units=self.units + count)

    def tell(self, of: str, note: Note) -> _LeftOut:
        """Note them if they are more than those of a topic or queue that are noted; return the count that is left."""
        return self.tell_rest(of, note) if self.units > self.noted else self

    def tell_rest(self, of: str, note: Note) -> _LeftOut:
        """Note them if there are any; return an empty count."""
        if self.units:
            one, several = self.one.replace("{}", of), self.several.replace("{}", of)
            note(f"{counted(self.units, one, several)} {self.where.replace('{first}', str(self.first))}")
        return self._replace(units=0, noted=self.noted + self.units, first=LAST_OFFSET)


_AT_NO_RECORD = "no record, the first at {first}: left out"
_AT_NONE = "no record: left out"
_AT_OTHER_TOPICS = "messages of other topics: left out"


def records_at(
    store: StoreReader,
    topic: str,
    selection: Selection,
    stream: Iterator[RecordPlaces],
    note: Note,
    *,
    offsets: tuple[int, int] | None = None,
    last_first: bool = False,
    exact: bool = False,
) -> Iterator[FoundMessage]:
    """The wanted records at the places that queues of `topic` point at, in that order.

    offsets, last_first: as for `Selection.wanted`. exact: leave out records whose queue offset is not that of their
    unit. With last_first, places past the end of the log come first.
    """
    end, behind, lost = store.log_end.position, _LeftOut(_AT_NO_RECORD), _LeftOut(_AT_NO_RECORD)
    foreign = _LeftOut(_AT_OTHER_TOPICS)
    misplaced = _LeftOut(f"messages of other numbers{': left out' if exact else ''}")
    for places, batch in chain.from_iterable(batches(store.log, window) for window in stream):
        if len(batch) < len(places):
            missing = places.position[~np.isin(places.position, batch.position)]
            missing = missing[missing >= store.log_files.gone_before]  # expired meanwhile
            newer = (missing >= end) & last_first
            behind, lost = behind.and_at(missing[newer]), lost.and_at(missing[~newer])
        own = of_topic(batch, topic)
        foreign = foreign.and_more(int(np.count_nonzero(~own)))
        if isinstance(places, UnitPlaces):
            elsewhere = own & ~in_place(batch, topic, places)
            misplaced = misplaced.and_more(int(np.count_nonzero(elsewhere)))
            own &= ~(elsewhere & exact)
        if len(batch):
            behind = behind.tell(topic, note)
        lost, foreign, misplaced = (one.tell(topic, note) for one in (lost, foreign, misplaced))
        kept = batch.take(own)
        store.searched.add_batch(Via.QUEUE, kept)
        wanted = selection.wanted(kept, offsets=offsets, last_first=last_first)
        yield from found_in(wanted, Via.QUEUE)
    for one in (behind, lost, foreign, misplaced):
        one.tell_rest(topic, note)


def note_units(count: int, of: str, where: str, note: Note) -> None:
    """Note where `count` units of a topic or queue point, if there are any."""
    _LeftOut(where, units=count).tell_rest(of, note)


def note_loss_in(store: StoreReader, path: Path, what: str, note: Note) -> bool:
    """Note that a RocksDB has lost data, unless a broker is writing to it; return whether it has."""
    loss = None if holder(store.layout.lock) is not None else database_loss(path)
    if loss is not None:
        note(f"{what}: {path.name}: {loss.sentence}")
    return loss is not None


def in_place(batch: Batch, topic: str, places: UnitPlaces) -> Flags:
    """bool[n]: the record has the queue and queue offset of its unit; the bulk form of `other_place`."""
    if len(batch) < len(places):
        places = places.take(np.isin(places.position, batch.position))
    columns = batch.columns
    here = (columns.ints("queue_offset") == places.number) & (columns.ints("queue_id") == places.queue_id)
    free = ~columns.ragged("topic").equals(utf8(topic)) | is_batch_record(columns.ints("sys_flag"))
    return np.asarray(here | free, np.bool_)


def of_topic(batch: Batch, topic: str) -> Flags:
    """bool[n]: the record is of the topic, or was also dispatched to it (spec 2.9)."""
    columns = batch.columns
    own = columns.ragged("topic").equals(utf8(topic))
    others = np.flatnonzero(~own)
    if len(others):
        texts = find_property(columns.ragged("properties")[others], names.INNER_MULTI_DISPATCH)
        name = utf8(topic)
        own[others] = [name in text.split(b",") for text in texts.tolist()]
    return own


def batch_queues(store: StoreReader, topic: str) -> list[QueueDirectory]:
    """The batch queues of a topic, by number. Raises Unreadable."""
    found = queue_directories(store.layout.batch_consume_queue)
    return [queue for queue in found if queue.topic == topic]


def open_batch_queue(store: StoreReader, topic: str, queue_id: int) -> BatchConsumeQueue:
    """Open a batch queue. Raises NotFound, Unreadable."""
    for queue in batch_queues(store, topic):
        if queue.queue_id == queue_id:
            return BatchConsumeQueue(topic, queue_id, stream_of(store.layout, queue.path))
    raise NotFound(f"{topic} has no queue {queue_id}", path=store.layout.batch_consume_queue)


def batch_message(store: StoreReader, topic: str, queue_id: int, queue_offset: int) -> Message:
    """One message by its place in a batch queue. Raises NotFound, Unreadable."""
    with open_batch_queue(store, topic, queue_id) as queue:
        unit = queue.find(queue_offset)
    if unit is None or unit.physical_offset >= store.log_end.position:
        raise NotFound(f"{topic}/{queue_id} has no message {queue_offset}")
    record = store.message_at(unit.physical_offset)
    found = unwrapped(store.log.record(record.position))
    rows = np.flatnonzero(found.columns.ints("queue_offset") == queue_offset)
    if not len(rows) or not record.is_of(topic):
        raise NotFound(f"{topic}/{queue_id} has no message {queue_offset}: its unit points elsewhere")
    return next(messages(found.take(rows[:1])))


def search_batch_queues(store: StoreReader, selection: Selection, part: Slice, note: Note) -> Iterator[FoundMessage]:
    """Messages of the batch queue in the selection, or of all batch queues of its topic.

    Order and notes: as of `search_queues`. Raises NotFound for an unknown topic or queue, or a missing offset.
    """
    topic = selection.topic
    assert topic is not None
    numbers = [queue.queue_id for queue in batch_queues(store, topic)]
    if not numbers:
        raise no_topic(store.layout.batch_consume_queue, topic)
    if selection.queue_id is not None:
        numbers = [selection.queue_id]
    queues = [open_batch_queue(store, topic, number) for number in numbers]
    for queue in queues:
        offset = part.offset
        if offset is not None and (offset < store.queue_summary(queue).min_offset or queue.find(offset) is None):
            raise no_message(store, queue, offset)
    streams = [batch_places(store, queue, selection, part) for queue in queues]
    lacks, reverse = _noted_lacks(store, selection, part, queues, note), part.reverse
    places = streams[0] if selection.queue_id is not None else merged(streams, reverse=reverse)
    any_queue, offsets = selection._replace(topic=None, queue_id=None), wanted_offsets(part.offset, part.length)
    found = records_at(store, topic, any_queue, places, note, offsets=offsets, last_first=reverse)
    return found if selection.queue_id is None else with_gaps(store, selection, lacks, found, reverse, note)


def open_queue(store: StoreReader, topic: str, queue_id: int) -> ConsumeQueue | BatchConsumeQueue:
    """Open a queue of either kind; a topic may have both, by mistake (I-083). Raises NotFound, Unreadable."""
    batches = store.has_batch_queues(topic) and any(one.queue_id == queue_id for one in batch_queues(store, topic))
    return open_batch_queue(store, topic, queue_id) if batches else store.queues.open(topic, queue_id)


def batch_places(
    store: StoreReader, queue: BatchConsumeQueue, selection: Selection, part: Slice
) -> Iterator[RecordPlaces]:
    """The places of records that may hold wanted messages, by the units of a batch queue."""
    offset, count, reverse = part
    windows = list(queue.units(queue.first, queue.stop)) if reverse else None
    times, start, end = selection.times, store.log_files.start, store.log_end.position
    for _, units in reversed(windows) if windows else queue.units(queue.first, queue.stop):
        first = units["msg_base_offset"]
        wanted = is_valid(units) & (units["physical_offset"] >= start) & (units["physical_offset"] < end)
        wanted &= first + units["batch_size"] > (offset or 0)
        if offset is not None and count is not None:
            wanted &= first < offset + count
        if times.bounded:
            wanted &= units["store_time"] >= times.since_ms - CLOCK_SLACK_MS
            wanted &= units["store_time"] < times.until_ms + CLOCK_SLACK_MS
        rows = np.flatnonzero(wanted)[:: -1 if reverse else 1]
        if len(rows):
            position = units["physical_offset"][rows].astype(np.int64)
            yield RecordPlaces(position, units["size"][rows].astype(np.int64))
    queue.close()


def queue_offset_at(store: StoreReader, topic: str, queue_id: int, time_ms: int) -> int:
    """The queue offset that a broker answers for a time. Raises NotFound if there is no such queue."""
    if store.has_batch_queues(topic):
        with open_batch_queue(store, topic, queue_id) as batches:
            return batches.offset_at(time_ms, store.log_files.start, store.log_end.position)
    with store.queues.open(topic, queue_id) as queue:
        return offset_at(
            queue,
            store.queue_summary(queue),
            time_ms,
            store.store_time,
            log_start=store.log_files.start,
            broker_4=store.broker_4,
        )


def is_compaction_topic(store: StoreReader, topic: str) -> bool:
    """Whether a broker answers for the topic from its compaction log.

    It does if topics.json says so, even without such a log. Raises Unreadable.
    """
    layout = store.layout
    if not store.config.get_bool("enableCompaction", default=True):
        return False
    return _policy(layout, topic) == COMPACTED


def _policy(layout: Layout, topic: str) -> str | None:
    """The cleanup policy of the topic in topics.json; without that file, by the directories of compaction queues."""
    from ..settings.read import read_in_force  # needed only for topics with compaction queues

    file = read_in_force(layout.config / TOPICS, "topics")
    if file is not None:
        table = file.value.get(TOPIC_CONFIG_TABLE)
        return attribute_of(table.get(topic) if isinstance(table, dict) else None, CLEANUP_POLICY)
    return COMPACTED if has_topic(layout.compaction_queues, topic) else None


def compaction_queues(store: StoreReader, topic: str) -> list[QueueDirectory]:
    """The sparse queues of a topic, by number. Raises Unreadable."""
    found = queue_directories(store.layout.compaction_queues)
    return [queue for queue in found if queue.topic == topic]


def compaction_end(store: StoreReader, topic: str, queue_id: int) -> int:
    """The end of a sparse queue: the queue offset after the last one in the compaction log. Raises Unreadable."""
    with MappedFileQueue.open(store.layout.compaction_queues / topic / str(queue_id)) as files:
        return summary_of(files).max_offset


def open_log(layout: Layout, topic: str, queue_id: int) -> CommitLog:
    """The compaction log of a queue; empty if there is none. Raises Unreadable."""
    return CommitLog(MappedFileQueue.open(layout.compaction_log / topic / str(queue_id)))


def is_usual(log: CommitLog, extent: Extent) -> bool:
    """Whether compaction leaves such an extent: a gap between files, zeros at the end of one."""
    if extent.kind is ExtentKind.MISSING:
        return True
    file, zeros = log.queue.file_at(extent.position), extent.reason == ExtentKind.ZEROS
    return extent.kind is ExtentKind.DAMAGE and zeros and file is not None and extent.end == file.end


def search_compaction(store: StoreReader, selection: Selection, part: Slice, note: Note) -> Iterator[FoundMessage]:
    """Messages of the queue in the selection, or of all queues of its topic one by one, from the compaction log.

    As a broker answers a pull: from the first existing queue offset ≥ `part.offset`, at most `part.length` of them.
    Their positions are those in the compaction log. Raises NotFound for an unknown topic or queue, and if nothing is
    left from that offset on.
    """
    topic = selection.topic
    assert topic is not None
    queues = compaction_queues(store, topic)
    if not queues:
        raise no_topic(store.layout.compaction_queues, topic)
    if selection.queue_id is not None:
        queues = [queue for queue in queues if queue.queue_id == selection.queue_id]
        if not queues:
            raise NotFound(f"{topic} has no queue {selection.queue_id}", path=store.layout.compaction_queues)
    selection = selection._replace(topic=None, queue_id=None)
    for queue in reversed(queues) if part.reverse else queues:
        yield from _search_sparse_queue(store, queue, selection, part, note)


def _search_sparse_queue(
    store: StoreReader, queue: QueueDirectory, selection: Selection, part: Slice, note: Note
) -> Iterator[FoundMessage]:
    """The wanted messages of one queue. Lost records and those of other topics are noted."""
    offset, count, reverse = part
    log = open_log(store.layout, queue.topic, queue.queue_id)
    name = f"compaction queue {queue.topic}/{queue.queue_id}"
    lost, foreign, named = _LeftOut(_AT_NONE), _LeftOut(_AT_OTHER_TOPICS), [np.empty(0, np.int64)]
    with MappedFileQueue.open(queue.path) as files, log.queue:
        windows = _sparse_places(files, offset or 0, count, note)
        last = -1
        for window in reversed(list(windows)) if reverse else windows:
            named.append(window.position)
            if reverse:
                window = window.take(slice(None, None, -1))
            for places, batch in batches(log, window):
                last = max(last, int(batch.columns.ints("queue_offset").max(initial=-1)))
                lost = lost.and_more(len(places) - len(batch)).tell(name, note)
                own = of_topic(batch, queue.topic)
                foreign = foreign.and_more(int(np.count_nonzero(~own))).tell(name, note)
                kept = batch.take(own)
                store.searched.add_batch(Via.QUEUE, kept)
                for message in messages(selection.wanted(kept, last_first=reverse)):
                    yield FoundMessage(message, Via.QUEUE, log.queue)
        known = np.unique(np.concatenate(named))
        passed = range(offset or 0, last + 1 if count is not None and len(known) else LAST_OFFSET)
        if len(passed) > len(known) and holder(store.layout.lock) is None:
            bare = _LeftOut("no unit: left out", "record of {} has", "records of {} have")
            bare.and_more(_without_unit(log, known, selection, passed)).tell_rest(name, note)
        if offset is not None and not len(known):
            raise _no_message(files, queue, offset)
    lost.tell_rest(name, note)
    foreign.tell_rest(name, note)


def _without_unit(log: CommitLog, known: Ints, selection: Selection, offsets: range) -> int:
    """The number of wanted records at none of these positions, which units name, and with these queue offsets."""
    found, selection = 0, selection._replace(whole=True)
    for item in log.scan(crc=False, reuse=True):
        if isinstance(item, Batch):
            number = item.columns.ints("queue_offset")
            bare = ~rows_of(known, item.position)[1] & (number >= offsets.start) & (number < offsets.stop)
            found += len(selection.wanted(item.take(bare))) if bare.any() else 0
    return found


def _sparse_places(files: MappedFileQueue, offset: int, count: int | None, note: Note) -> Iterator[RecordPlaces]:
    """The places that units with queue offsets ≥ `offset` point at, at most `count`, window by window."""
    where = str(files.directories[0])
    damaged = _LeftOut("left out", "byte of {} is no unit:", "bytes of {} are no units:")
    for part in sparse_units(files):
        if isinstance(part, SparseRange):
            damaged = damaged.and_more(part.size)
            continue
        units = part.units
        found = units[is_valid(units) & (units["msg_base_offset"] >= offset)][:count]
        if count is not None:
            count -= len(found)
        if len(found):
            damaged = damaged.tell(where, note)
            sizes = found["size"].astype(np.int64)
            yield RecordPlaces(found["physical_offset"].astype(np.int64), sizes)
        if count == 0:
            break
    damaged.tell_rest(where, note)


def _no_message(files: MappedFileQueue, queue: QueueDirectory, offset: int) -> NotFound:
    """The error for an offset after the last one, with those that exist."""
    ends = summary_of(files)
    hint = f"compaction left {ends.min_offset} to {ends.max_offset - 1}" if ends.units else "it is empty"
    return NotFound(f"{queue.topic}/{queue.queue_id} has no message at or behind {offset}", hint=hint)
