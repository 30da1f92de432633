"""Dispatch of one record; the rules are those of `dispatch`, and a test holds both together.

For messages that are appended one by one: a batch of one takes six times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...formats import message_properties as names
from ...formats.hashing import index_hash, java_string, tags_code
from ...formats.message_properties import RETRY_PREFIX
from ...formats.sys_flag import TRANSACTION_MASK, SysFlag
from .system_topics import LITE_PREFIX, LMQ_PREFIX, LOWER_PREFIX, SCHEDULE_TOPIC, delay_ms

LMQ_CLOSED = (RETRY_PREFIX, LOWER_PREFIX, SCHEDULE_TOPIC)
"""How topics begin whose messages go to no LMQs, since 5.3 (spec 2.9)."""
_TAG_MARK = "T#"


class Dispatching(NamedTuple):
    """What a broker makes of a batch of records.

    items: index items are made; index_tags: of tags, too, as since 5.4. multi_dispatch: units for the names in
    INNER_MULTI_DISPATCH. slash_names: also for names with a `/`, as 4.9 does. lmq_closed: how topics begin
    whose messages get none. lmq_zero: LMQs have the number 0, not that of the message's queue
    (enableLmq). delay_levels: ms of levels 1, 2, …; None: the broker's default. lite_alone: of LMQs
    those of LITE topics get units, as a broker with rocksdbCQSelectiveDoubleWriteEnable keeps no others.
    begins: asked for a queue, and where a message of it lies: the position in the log where the queue begins; what
    earlier records had in it a broker has deleted (`scan_messages`).
    """

    index_tags: bool = False
    items: bool = True
    multi_dispatch: bool = True
    slash_names: bool = False
    lmq_closed: tuple[str, ...] = LMQ_CLOSED
    lmq_zero: bool = True
    delay_levels: tuple[int, ...] | None = None
    lite_alone: bool = False
    begins: Callable[[str, int, int], int] | None = None

    def same_units(self, other: Dispatching | None) -> bool:
        """Queues get the same units by the other rules; index items may differ."""
        if other is None:
            return False
        return self._replace(items=other.items, index_tags=other.index_tags, begins=other.begins) == other

    def skips(self, name: str) -> bool:
        """A broker makes no queue of this name, and does not look at the number for it (spec 2.9)."""
        return "/" in name and not self.slash_names

    def has_queue(self, name: str) -> bool:
        """A broker makes a unit for this name, if it does not skip it."""
        lmq = name.startswith(LMQ_PREFIX) and not name.startswith(LITE_PREFIX)
        return bool(name) and not (lmq and self.lite_alone)

    def queue_id_of(self, name: str, queue_id: int) -> int:
        """Number of the queue of this name, for a message that has `queue_id` itself."""
        return 0 if self.lmq_zero and name.startswith(LMQ_PREFIX) else queue_id


OWN_QUEUES = Dispatching(items=False, multi_dispatch=False)
"""Nothing but the units in the queues of the records' own."""


class OneRecord(NamedTuple):
    """What one record adds.

    topic: as Java reads it. has_unit: it gets a unit in its own queue, with `tags_code`. key_hashes: of its index
    items, in order. names_queues: it goes to further queues (LMQ), which are not told here: `dispatch` does.
    """

    topic: str
    has_unit: bool
    tags_code: int
    key_hashes: list[int]
    names_queues: bool


def dispatch_record(
    topic: bytes,
    properties: bytes,
    sys_flag: int,
    store_timestamp: int,
    *,
    index_tags: bool,
    delay_levels: tuple[int, ...],
) -> OneRecord:
    """What a record adds to its queue and to the index."""
    text = java_string(topic)
    found = names.parse(properties)
    tags = found.get(names.TAGS)
    code = tags_code(tags)
    if text == SCHEDULE_TOPIC and names.DELAY in found:
        wait = delay_ms(found[names.DELAY], delay_levels)
        code = code if wait is None else store_timestamp + wait
    state = sys_flag & TRANSACTION_MASK
    keys = [found.get(names.UNIQ_KEY, "")]
    keys += found.get(names.KEYS, "").split(names.KEY_SEPARATOR)
    if index_tags and tags:
        keys.append(_TAG_MARK + tags)
    indexed = [] if state == SysFlag.ROLLBACK else [index_hash(text, key) for key in keys if key]
    return OneRecord(text, not state & SysFlag.PREPARED, code, indexed, names.INNER_MULTI_DISPATCH in found)
