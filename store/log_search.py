"""Messages found by scanning the commit log.

The way to any message that no queue and no index names. Stale records are left out: they are no
messages of this log. `dump` shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ..formats import message_properties as names
from ..formats.message import SysFlag
from ..formats.property_columns import find as find_property
from .commit_log import Batch, Extent, ExtentKind
from .errors import NotFound
from .found import Found, Note, Via
from .mark import Mark
from .message import messages
from .places import Places, batches
from .selection import Selection
from .store import Store
from .time_range import TimeRange

CLOCK_SLACK_MS = 3_600_000
"""How far a broker's clock may have stepped back before a search by time misses messages."""

Mask = npt.NDArray[np.bool_]
Range = tuple[int, int]


def search_log(
    store: Store,
    selection: Selection,
    *,
    ranges: Sequence[Range] | None = None,
    also: Callable[[Batch], Mask] | None = None,
    most: int | None = None,
    reverse: bool = False,
    note: Note,
) -> Iterator[Found]:
    """The wanted messages in log order.

    ranges: positions of the log to be looked at, all by default, or what the times of the selection
    leave of it. also: a further condition. most: so many at most, the first ones. Memory: one
    batch; with reverse 16 bytes per message found.
    """
    ranges = [time_bounds(store, selection.times)] if ranges is None else ranges
    found = _scan(store, selection, ranges, also, most, note)
    if not reverse:
        for batch in found:
            yield from found_in(batch, Via.SCAN)
        return
    kept = [
        (batch.mark, Places(batch.position, batch.columns.ints("total_size").astype(np.int64)))
        for batch in found
    ]
    for mark, places in reversed(kept):
        for _, batch in batches(store.log, places.take(slice(None, None, -1))):
            yield from found_in(
                Batch(batch.columns, batch.position, mark, batch.body_crc_ok), Via.SCAN
            )


def _scan(
    store: Store,
    selection: Selection,
    ranges: Sequence[Range],
    also: Callable[[Batch], Mask] | None,
    most: int | None,
    note: Note,
) -> Iterator[Batch]:
    damage: list[Extent] = []
    left = most
    for start, stop in ranges:
        for item in store.log.scan(start, stop):
            if isinstance(item, Extent):
                store.scanned(item.size)
                if item.kind in (ExtentKind.DAMAGE, ExtentKind.MISSING):
                    damage.append(item)
                continue
            store.scanned(item.end - int(item.position[0]))
            if item.mark > Mark.AFTER_DAMAGE:
                continue
            mask = selection.mask(item)
            if also is not None:
                mask &= also(item)
            batch = item.take(mask)
            if left is not None:
                batch = batch.take(slice(0, left))
                left -= len(batch)
            if len(batch):
                yield batch
            if left == 0:
                break
        if left == 0:
            break
    if damage:
        note(_about(damage))


def _about(damage: list[Extent]) -> str:
    ranges = "1 damaged range" if len(damage) == 1 else f"{len(damage)} damaged ranges"
    size = sum(extent.size for extent in damage)
    first = f"at {damage[0].position}: {damage[0].reason}"
    return f"{ranges}, {size} bytes, the first {first}; what lies behind was read, too"


def found_in(batch: Batch, via: Via) -> Iterator[Found]:
    """The records of a batch as messages."""
    for message in messages(batch):
        yield Found(message, via)


def search_log_queue(
    store: Store,
    selection: Selection,
    *,
    offset: int | None = None,
    count: int | None = None,
    reverse: bool = False,
    note: Note,
) -> Iterator[Found]:
    """Messages of a topic-queue by their own queue offsets, where no queue file can be read.

    A record that holds a batch counts with all queue offsets of the batch.
    """

    def inside(batch: Batch) -> Mask:
        first = batch.columns.ints("queue_offset")
        wanted: Mask = first + _messages_in(batch) > (offset or 0)
        if offset is not None and count is not None:
            wanted &= first < offset + count
        return wanted

    most = count if offset is None else None
    return search_log(store, selection, also=inside, most=most, reverse=reverse, note=note)


def _messages_in(batch: Batch) -> npt.NDArray[np.int64]:
    """How many messages each record holds: INNER_NUM of a batch, else 1."""
    number = np.ones(len(batch), np.int64)
    inner = np.flatnonzero(batch.columns.ints("sys_flag") & SysFlag.INNER_BATCH)
    if len(inner):
        texts = find_property(batch.columns.ragged("properties")[inner], names.INNER_NUM).tolist()
        for row, text in zip(inner.tolist(), texts, strict=True):
            if text.isdigit() and len(text) < 10:
                number[row] = max(1, int(text))
    return number


def log_offset_at(store: Store, topic: str, queue_id: int, time_ms: int, note: Note) -> int:
    """The queue offset for a time, as a 5.x broker answers, by scanning. Raises NotFound.

    For a time behind the last message that is the end of the queue, of a batch queue the offset of
    its last batch.
    """
    selection = Selection(topic=topic, queue_id=queue_id)
    end = None
    for batch in _scan(store, selection, [time_bounds(store, TimeRange())], None, None, note):
        late = np.flatnonzero(batch.columns.ints("store_timestamp") >= time_ms)
        offsets = batch.columns.ints("queue_offset")
        if len(late):
            return int(offsets[late[0]])
        behind = 0 if store.has_batch_queues(topic) else int(_messages_in(batch)[-1])
        end = int(offsets[-1]) + behind
    if end is None:
        raise NotFound(f"no message of {topic}/{queue_id}", path=store.layout.root)
    return end


def time_bounds(store: Store, times: TimeRange) -> Range:
    """The part of the log in which messages of these times lie, in whole files.

    Goes by the first record of each file, with some slack for clocks that stepped back.
    """
    files = store.log_files.files
    start, stop = store.log_files.start, store.log_files.end
    if not times.bounded:
        return start, stop
    for file in files:
        first_ms = store.store_time(file.start + store.payload_at(file.start))
        if first_ms is None:
            continue
        if first_ms < times.since_ms - CLOCK_SLACK_MS:
            start = file.start
        if first_ms >= times.until_ms + CLOCK_SLACK_MS:
            stop = file.start
            break
    return start, max(start, stop)
