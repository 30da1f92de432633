"""Compaction topics: the log that a broker answers from, and the queue in front of it (spec 06, 6.1).

Of a topic with cleanup.policy=COMPACTION each queue has a log of its own, in which the last message
of each key stays. Its records have positions of their own. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..counted import counted
from ..disk.file_queue import MappedFileQueue
from ..disk.layout import Layout, QueueDirectory, has_topic, no_topic, queue_directories
from ..errors import Missing, NotFound
from ..log.batch import messages
from ..log.commit_log import CommitLog, Extent, ExtentKind
from ..queues.read_batches import SparseRange, sparse_units, summary_of
from ..queues.references import Places, batches
from ..queues.units import is_valid
from ..settings.read import read_config_file
from .queue_search import of_topic
from .selection import Selection
from .store import Found, Note, Store, Via

_POLICY, _COMPACTION = "cleanup.policy", "COMPACTION"


def is_compaction_topic(store: Store, topic: str) -> bool:
    """Whether a broker answers for the topic from its compaction log.

    It does if topics.json says so, also without a log. Raises Unreadable.
    """
    layout = store.layout
    if not store.config.get_bool("enableCompaction", default=True):
        return False
    return _policy(layout, topic) == _COMPACTION


def _policy(layout: Layout, topic: str) -> str | None:
    """The attribute of the topic; without topics.json what there is on disk tells."""
    for name in ("topics.json", "topics.json.bak"):
        try:
            file = read_config_file(layout.config / name, "topics")
        except Missing:
            continue
        if file.problem is None:
            table = file.value.get("topicConfigTable")
            entry = table.get(topic) if isinstance(table, dict) else None
            attributes = entry.get("attributes") if isinstance(entry, dict) else None
            value = attributes.get(_POLICY) if isinstance(attributes, dict) else None
            return value if isinstance(value, str) else None
    return _COMPACTION if has_topic(layout.compaction_queues, topic) else None


def compaction_queues(store: Store, topic: str) -> list[QueueDirectory]:
    """The sparse queues of a topic, by number. Raises Unreadable."""
    found = queue_directories(store.layout.compaction_queues)
    return [queue for queue in found if queue.topic == topic]


def open_log(layout: Layout, topic: str, queue_id: int) -> CommitLog:
    """The compaction log of a queue; empty where there is none. Raises Unreadable."""
    return CommitLog(MappedFileQueue.open(layout.compaction_log / topic / str(queue_id)))


def is_usual(log: CommitLog, extent: Extent) -> bool:
    """Whether compaction leaves such an extent: a gap between files, zeros at the end of one."""
    if extent.kind is ExtentKind.MISSING:
        return True
    file = log.queue.file_at(extent.position)
    return (
        extent.kind is ExtentKind.DAMAGE
        and file is not None
        and extent.end == file.end
        and extent.reason == ExtentKind.ZEROS
    )


def search_compaction(
    store: Store,
    selection: Selection,
    *,
    offset: int | None = None,
    count: int | None = None,
    reverse: bool = False,
    note: Note,
) -> Iterator[Found]:
    """Messages of the queue, or of all queues of the topic one by one, from the compaction log.

    As a broker answers a pull: from the first queue offset that is there at or behind `offset`, at
    most `count` of them. Their positions are those in the compaction log. Raises NotFound for an
    unknown topic or queue, and where nothing is left at or behind `offset`.
    """
    topic = selection.topic
    if topic is None:
        raise ValueError("a search in queues needs a topic")
    queues = compaction_queues(store, topic)
    if not queues:
        raise no_topic(store.layout.compaction_queues, topic)
    if selection.queue_id is not None:
        queues = [queue for queue in queues if queue.queue_id == selection.queue_id]
        if not queues:
            where = store.layout.compaction_queues
            raise NotFound(f"{topic} has no queue {selection.queue_id}", path=where)
    selection = selection._replace(topic=None, queue_id=None)
    for queue in reversed(queues) if reverse else queues:
        yield from _of_queue(store, queue, selection, offset, count, reverse, note)


def _of_queue(
    store: Store,
    queue: QueueDirectory,
    selection: Selection,
    offset: int | None,
    count: int | None,
    reverse: bool,
    note: Note,
) -> Iterator[Found]:
    """The wanted messages of one queue. What is lost or of another topic is noted at the end."""
    log = open_log(store.layout, queue.topic, queue.queue_id)
    lost = foreign = 0
    with MappedFileQueue.open(queue.path) as files, log.queue:
        windows = _places(files, offset or 0, count, note)
        seen = False
        for window in reversed(list(windows)) if reverse else windows:
            seen = True
            if reverse:
                window = window.take(slice(None, None, -1))
            for places, batch in batches(log, window):
                lost += len(places) - len(batch)
                own = of_topic(batch, queue.topic)
                foreign += int(np.count_nonzero(~own))
                kept = batch.take(own)
                store.searched.add_batch(Via.QUEUE, kept)
                for message in messages(selection.wanted(kept, last_first=reverse)):
                    yield Found(message, Via.QUEUE, log.queue)
        if offset is not None and not seen:
            raise _no_message(files, queue, offset)
    name = f"compaction queue {queue.topic}/{queue.queue_id}"
    if lost:
        points = counted(lost, f"unit of {name} points", f"units of {name} point")
        note(f"{points} at no record: left out")
    if foreign:
        points = counted(foreign, f"unit of {name} points", f"units of {name} point")
        note(f"{points} at messages of other topics: left out")


def _places(files: MappedFileQueue, offset: int, count: int | None, note: Note) -> Iterator[Places]:
    """Where the units of queue offsets ≥ `offset` point, at most `count`, window by window."""
    damaged = 0
    for part in sparse_units(files):
        if isinstance(part, SparseRange):
            damaged += part.size
            continue
        units = part.units
        found = units[is_valid(units) & (units["msg_base_offset"] >= offset)][:count]
        if count is not None:
            count -= len(found)
        if len(found):
            sizes = found["size"].astype(np.int64)
            yield Places(found["physical_offset"].astype(np.int64), sizes)
        if count == 0:
            break
    if damaged:
        where = files.directories[0]
        bytes_are = counted(damaged, f"byte of {where} is", f"bytes of {where} are")
        note(f"{bytes_are} no units: left out")


def _no_message(files: MappedFileQueue, queue: QueueDirectory, offset: int) -> NotFound:
    """The error for an offset behind the last one, with those that are there."""
    ends = summary_of(files)
    there = f"compaction left {ends.min_offset} to {ends.max_offset - 1}"
    return NotFound(
        f"{queue.topic}/{queue.queue_id} has no message at or behind {offset}",
        hint=there if ends.units else "it is empty",
    )
