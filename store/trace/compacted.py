"""What compaction made of a message: superseded by which one, still in the log of its topic or not.

Of a compaction topic the last message of each key stays (spec 06, 6.1).
"""

from __future__ import annotations

from ..errors import NotFound
from ..log.message import Message
from ..search.compaction import compaction_queues, is_compaction_topic, search_compaction
from ..search.found import Note
from ..search.key_search import search_key
from ..search.selection import Selection
from ..search.store import Store
from .answer import Event, Evidence, Judgement, Kind, Verdict


class Compacted:
    """The answer. events: of the story. judgement: where no consumer gets it any more, else None.

    Raises Unreadable.
    """

    def __init__(self, store: Store, message: Message, note: Note) -> None:
        self.events: list[Event] = []
        self.judgement: Judgement | None = None
        if not message.keys or not is_compaction_topic(store, message.topic):
            return
        newer = _newer(store, message, note)
        if newer is not None:
            self.events.append(_superseded(newer))
        queues = compaction_queues(store, message.topic)
        if not any(queue.queue_id == message.queue_id for queue in queues):
            return
        there = _in_compaction_log(store, message, note)
        path = f"compaction/compactionLog/{message.topic}/{message.queue_id}"
        if there is not None:
            text = f"in the log of the compaction topic, at {there.position} of it"
            place = (message.topic, message.queue_id, message.queue_offset)
            self.events.append(Event(Kind.COMPACTED, text, None, None, *place, path=path))
        elif newer is not None:
            fact = Evidence("a newer message with its key", f"commitlog at {newer.position}")
            reason = "compaction has left it out: a newer message has its key"
            self.judgement = Judgement(Verdict.GONE, reason, (fact,))


def _superseded(newer: Message) -> Event:
    return Event(
        Kind.SUPERSEDED,
        "superseded by a newer message with the same key",
        newer.store_timestamp,
        newer.position,
        newer.topic,
        newer.queue_id,
        newer.queue_offset,
    )


def _newer(store: Store, message: Message, note: Note) -> Message | None:
    """The last message of the queue with the same key, if that is behind this one."""
    wanted = Selection(topic=message.topic, queue_id=message.queue_id, key=message.keys[0])
    last = None
    for found in search_key(store, wanted, note=note):
        if found.message.queue_offset > message.queue_offset:
            last = found.message
    return last


def _in_compaction_log(store: Store, message: Message, note: Note) -> Message | None:
    wanted = Selection(topic=message.topic, queue_id=message.queue_id)
    found = search_compaction(store, wanted, offset=message.queue_offset, count=1, note=note)
    try:
        one = next(found, None)
    except NotFound:
        return None
    same = one is not None and one.message.queue_offset == message.queue_offset
    return one.message if one is not None and same else None
