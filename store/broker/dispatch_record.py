"""Dispatch of one record, by the rules of `dispatch`; a test compares both.

For messages that are appended one by one: dispatching a batch of one takes six times as long.
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
"""Prefixes of topics whose messages go to no LMQs, since 5.3 (spec 2.9)."""
_TAG_MARK = "T#"


class Dispatching(NamedTuple):
    """The rules by which a broker makes units and index items of records.

    items: make index items; index_tags: also of tags, as since 5.4. multi_dispatch: make units for the names in
    INNER_MULTI_DISPATCH. slash_names: also for names with a `/`, as 4.9 does. lmq_closed: prefixes of topics whose
    messages get no such units. lmq_zero: LMQs have queue id 0, not that of the message (enableLmq). delay_levels: ms of
    levels 1, 2, …; None: the broker's default. lite_only: of LMQs only those of LITE topics get units, as a broker
    with rocksdbCQSelectiveDoubleWriteEnable keeps no others. begins: function of (topic, queue id, position of a
    message in it) that returns the log position where the queue begins; the broker has deleted what earlier records
    had in it (`scan_messages`).
    """

    index_tags: bool = False
    items: bool = True
    multi_dispatch: bool = True
    slash_names: bool = False
    lmq_closed: tuple[str, ...] = LMQ_CLOSED
    lmq_zero: bool = True
    delay_levels: tuple[int, ...] | None = None
    lite_only: bool = False
    begins: Callable[[str, int, int], int] | None = None

    def same_units(self, other: Dispatching | None) -> bool:
        """Whether other rules give the same units; index items may differ."""
        if other is None:
            return False
        return self._replace(items=other.items, index_tags=other.index_tags, begins=other.begins) == other

    def skips(self, name: str) -> bool:
        """Whether a broker ignores this name and the offset for it (spec 2.9)."""
        return "/" in name and not self.slash_names

    def has_queue(self, name: str) -> bool:
        """Whether a broker makes a unit for this name, unless it skips the name."""
        lmq = name.startswith(LMQ_PREFIX) and not name.startswith(LITE_PREFIX)
        return bool(name) and not (lmq and self.lite_only)

    def queue_id_of(self, name: str, queue_id: int) -> int:
        """Queue id in the queue of this name, for a message that itself has `queue_id`."""
        return 0 if self.lmq_zero and name.startswith(LMQ_PREFIX) else queue_id


OWN_QUEUES = Dispatching(items=False, multi_dispatch=False)
"""Only the units in the records' own queues."""


class OneRecord(NamedTuple):
    """What one record adds.

    topic: decoded as Java does. has_unit: it gets a unit in its own queue, with `tags_code`. key_hashes: of its index
    items, in order. names_queues: it goes to further queues (LMQs), for which only `dispatch` makes units.
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
