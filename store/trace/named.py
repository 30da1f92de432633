"""Which units name a record: of its own queue, of light queues, of a batch queue, with what they say.

Also the other way round: which unit names a place in the log where no record can be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from ...formats import message_properties as names
from ..broker.system_topics import LMQ_PREFIX
from ..disk.file_queue import MappedFileQueue
from ..errors import NotFound
from ..log.message import Message
from ..queues.ext import ExtUnit, ext_unit
from ..queues.read import ConsumeQueue, QueueSummary
from ..search.queue_search import open_batch_queue
from ..search.store import Store
from .answer import Evidence
from .family import Place


class Naming(StrEnum):
    """What the unit of a message is."""

    NAMES = "names"
    NOT_YET = "not_yet"
    HOLE = "hole"
    ELSEWHERE = "elsewhere"
    NO_QUEUE = "no_queue"
    UNREAD = "unread"


class Named(NamedTuple):
    """The unit for a message in one queue. path: of the queue, within the store.

    min_offset, max_offset: of the queue. tags_code: what the unit says. ext: what it has in
    consumequeue_ext. why: it cannot be read.
    """

    place: Place
    state: Naming
    path: str = ""
    min_offset: int = 0
    max_offset: int = 0
    tags_code: int | None = None
    ext: ExtUnit | None = None
    why: str = ""

    @property
    def evidence(self) -> Evidence:
        """The fact in a sentence."""
        topic, queue_id, offset = self.place
        name = f"{topic}/{queue_id}"
        said = {
            Naming.NAMES: f"unit {offset} of {name} names the record",
            Naming.NOT_YET: f"{name} ends before {self.max_offset}: it has no unit {offset} yet",
            Naming.HOLE: f"unit {offset} of {name} names nothing, the queue goes on to {self.max_offset}",
            Naming.ELSEWHERE: f"unit {offset} of {name} names another place of the log",
            Naming.NO_QUEUE: f"there is no queue {name}",
            Naming.UNREAD: f"queue {name} cannot be read: {self.why}",
        }
        return Evidence(said[self.state], self.path)


def places_of(message: Message) -> list[Place]:
    """The places in queues that a broker dispatches a record to, its own one first (spec 2.9)."""
    found = [Place(message.topic, message.queue_id, message.queue_offset)]
    further = message.properties.get(names.INNER_MULTI_DISPATCH, "")
    offsets = message.properties.get(names.INNER_MULTI_QUEUE_OFFSET, "")
    if not further:
        return found
    for topic, offset in zip(further.split(","), offsets.split(","), strict=False):
        if topic and offset.isascii() and offset.isdecimal() and len(offset) < 20:
            queue_id = 0 if topic.startswith(LMQ_PREFIX) else message.queue_id
            found.append(Place(topic, queue_id, int(offset)))
    return found


def named(store: Store, message: Message, place: Place) -> Named:
    """The unit for a message at a place of a queue. Raises Unreadable."""
    topic, queue_id, offset = place
    if queue_id is None or offset is None:
        return Named(place, Naming.NO_QUEUE)
    if store.layout.rocksdb_queues and (problem := store.queues_unread):
        return Named(place, Naming.UNREAD, store.layout.consume_queue.name, why=problem)
    if store.has_batch_queues(topic):
        return _in_batch_queue(store, message, place)
    path = f"{store.layout.consume_queue.name}/{topic}/{queue_id}"
    try:
        queue = store.queues.open(topic, queue_id)
    except NotFound:
        found = Named(place, Naming.NO_QUEUE, path)
    else:
        with queue:
            ends = store.queue_summary(queue)
            found = _unit(store, queue, message, Named(place, Naming.NAMES, path), ends)
    if found.state in (Naming.NOT_YET, Naming.NO_QUEUE) and (why := store.units_in_memory):
        return found._replace(state=Naming.UNREAD, why=why)
    return found


def _unit(
    store: Store, queue: ConsumeQueue, message: Message, found: Named, ends: QueueSummary
) -> Named:
    offset = found.place.queue_offset or 0
    found = found._replace(min_offset=ends.min_offset, max_offset=ends.max_offset)
    unit = queue.unit(offset)
    if offset >= ends.max_offset:
        return found._replace(state=Naming.NOT_YET)
    if unit is None or not unit.valid or unit.pre_fill:
        return found._replace(state=Naming.HOLE)
    if unit.physical_offset != message.position:
        return found._replace(state=Naming.ELSEWHERE)
    ext = None
    if unit.ext_address is not None:
        directory = store.layout.consume_queue_ext / queue.topic / str(queue.queue_id)
        with MappedFileQueue.open(directory) as files:
            ext = ext_unit(files, unit.ext_address)
    return found._replace(tags_code=unit.tags_code, ext=ext)


def _in_batch_queue(store: Store, message: Message, place: Place) -> Named:
    topic, queue_id, offset = place
    assert queue_id is not None and offset is not None
    path = f"{store.layout.batch_consume_queue.name}/{topic}/{queue_id}"
    try:
        queue = open_batch_queue(store, topic, queue_id)
    except NotFound:
        return Named(place, Naming.NO_QUEUE, path)
    with queue:
        ends = queue.summary()
        found = Named(place, Naming.NAMES, path, ends.min_offset, ends.max_offset)
        unit = queue.find(offset)
        if unit is None:
            ahead = offset >= ends.max_offset
            return found._replace(state=Naming.NOT_YET if ahead else Naming.HOLE)
        if unit.physical_offset != message.position:
            return found._replace(state=Naming.ELSEWHERE)
        return found._replace(tags_code=unit.tags_code)


def naming(store: Store, position: int, topic: str | None = None) -> Iterator[tuple[Place, str]]:
    """The units that name a place of the log, each with the path of its queue. Raises Unreadable.

    topic: of whose queues only. A few units of each queue are read.
    """
    if store.queues_unread:
        return
    queues = store.queues if topic is None else store.queues.of_topic(topic)
    for directory in queues:
        with store.queues.open(directory.topic, directory.queue_id) as queue:
            ends = queue.summary()
            at = queue.at_or_behind(position, queue.first_offset, ends.max_offset)
            unit = queue.unit(at) if at < ends.max_offset else None
            if unit is not None and unit.valid and unit.physical_offset == position:
                path = f"{store.layout.consume_queue.name}/{directory.topic}/{directory.queue_id}"
                yield Place(directory.topic, directory.queue_id, at), path
