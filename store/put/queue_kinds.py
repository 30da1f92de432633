"""Kinds of queues: batch queues (spec 02, 2.7) and LMQs, light message queues (spec 02, 2.9).

Batch queues (5.x): the attribute queue.type of a topic says whether it has them. For a topic that is not in topics.json
its directory decides; a new one gets batch queues with its first inner batch.

LMQs: INNER_MULTI_DISPATCH names further queues for a message; a broker with the options enabled adds
INNER_MULTI_QUEUE_OFFSET with the next offset of each. Copies in a store without the options stay as they are, except in
a store made from copies: there their units are numbered from 0, and the messages must name these offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...formats import message_properties as names
from ...formats.client_batch import MESSAGES_MAX
from ...formats.sys_flag import TRANSACTION_MASK, SysFlag
from ..broker.profiles import WriterProfile
from ..broker.system_topics import LMQ_PREFIX
from ..broker.topics import BATCH_QUEUES, QUEUE_TYPE, Topics
from ..counted import counted
from ..disk.layout import Layout, has_topic
from ..errors import InvalidInput, LimitExceeded, Refused
from .new_message import NewMessage, WriterRules

if TYPE_CHECKING:
    from ...formats.derive import Ragged
    from ...formats.derive.ragged import Flags, Ints
    from ...formats.property_columns import PropertyItems
    from ..broker.dispatch_record import Dispatching
    from ..broker.profiles import LmqRules
    from ..columns import Dictionary


_NUMBER_MARK = names.INNER_NUM.encode() + names.NAME_VALUE_SEPARATOR


class QueueKinds:
    """Knows the topics with batch queues in a store that is written to; counts messages in records for them."""

    def __init__(self, layout: Layout, topics: Topics | None, profile: WriterProfile) -> None:
        self._layout = layout
        self._topics = topics
        self._known: dict[str, bool] = {}
        #: 4.x has neither batch queues nor inner batches: all records are alike
        self._plain = not profile.modern_topics

    def is_batch(self, topic: str, *, inner: bool = False) -> bool:
        """Whether a topic has batch queues. inner: an inner batch is put to it.

        Raises Refused if directory and topics.json disagree: no broker starts then.
        """
        if self._plain:
            return False
        found = self._known.get(topic)
        if found is None:
            found = self._kind(topic, inner)
            self._known[topic] = found
        return found

    def _kind(self, topic: str, inner: bool) -> bool:
        batch = has_topic(self._layout.batch_consume_queue, topic)
        plain = has_topic(self._layout.consume_queue, topic)
        if self._topics is None or topic not in self._topics:
            return batch or (inner and not plain)
        wanted = self._topics.attribute(topic, QUEUE_TYPE) == BATCH_QUEUES
        if plain if wanted else batch:
            kinds = ("batch", "simple") if wanted else ("simple", "batch")
            raise Refused(
                f"topics.json gives {topic} {kinds[0]} queues, but the store has {kinds[1]} queues",
                path=self._layout.root,
                hint="no broker starts with this difference",
            )
        return wanted

    @property
    def batch_topics(self) -> set[str]:
        """Topics with batch queues that messages were put to."""
        return {topic for topic, batch in self._known.items() if batch}

    def special(self, topic: str, message: NewMessage) -> bool:
        """Whether a message goes to batch queues, or has INNER_BATCH or INNER_NUM."""
        inner = bool(message.sys_flag & SysFlag.INNER_BATCH)
        marked = inner or _NUMBER_MARK in message.properties
        return not self._plain and (marked or self.is_batch(topic))

    def counts(
        self, columns: dict[str, Any], topics: Dictionary, texts: list[str], properties: PropertyItems
    ) -> Ints | None:
        """Messages in each record, int64[n]; None if no topic has batch queues.

        properties: the items of the column `properties`. Raises InvalidInput for what 5.x brokers refuse: an inner
        batch for a topic without batch queues, INNER_NUM in a message that is not an inner batch.
        """
        import numpy as np

        if self._plain:
            return None
        inner = columns["sys_flag"] & SysFlag.INNER_BATCH != 0
        marked = properties.has_name(names.INNER_NUM)
        with_inner = set(topics.ids[inner].tolist()) if inner.any() else set[int]()
        kinds = [self.is_batch(text, inner=i in with_inner) for i, text in enumerate(texts)]
        if not marked and not with_inner and not any(kinds):
            return None
        for number in with_inner:
            if not kinds[number]:
                raise InvalidInput(
                    f"an inner batch for {texts[number]}, a topic without batch queues",
                    hint="its entry in topics.json needs queue.type=BatchCQ among its attributes",
                )
        counts = np.ones(len(topics.ids), np.int64)
        numbers = properties.find(names.INNER_NUM)
        for row in np.flatnonzero(numbers.length > 0).tolist():
            if not inner[row]:
                raise InvalidInput(f"{names.INNER_NUM} in a message that is no inner batch")
            counts[row] = _count(numbers[row])
        return counts if any(kinds) else None


def with_bases(columns: dict[str, Any], *, final_separator: bool) -> None:
    """Set INNER_BASE, the queue offset of the first message, in each inner batch, in place."""
    import numpy as np

    from ...formats.derive import Ragged

    flags = columns["sys_flag"]
    rows = np.flatnonzero((flags & SysFlag.INNER_BATCH != 0) & (flags & SysFlag.PREPARED == 0))
    if not len(rows):
        return
    texts = columns["properties"].tolist()
    for row in rows.tolist():
        base = str(int(columns["queue_offset"][row]))
        texts[row] = names.with_value(texts[row], names.INNER_BASE, base, final_separator=final_separator)
    columns["properties"] = Ragged.of(texts)


def _count(text: bytes) -> int:
    number = int(text) if text.isdigit() and len(text) < 6 else 0
    if not 0 < number <= MESSAGES_MAX:
        raise InvalidInput(f"{names.INNER_NUM}: not 1 to {MESSAGES_MAX}: {text!r}")
    return number


_UNDECIDED = (SysFlag.PREPARED, SysFlag.ROLLBACK)
Queue = tuple[str, int]
Offsets = dict[Queue, int]


class LightQueueRows(NamedTuple):
    """Rows of a step that name LMQs, and their new properties. counters: the next offsets of the named LMQs after these
    rows.
    """

    rows: list[int]
    texts: list[bytes]
    counters: Offsets


def name_offsets(
    columns: dict[str, Any],
    topics: Dictionary,
    texts: list[str],
    rules: WriterRules,
    next_offsets: Offsets,
    counters: Offsets,
    properties: PropertyItems,
) -> LightQueueRows | None:
    """The rows that name LMQs, with the offsets they get; None if there are none.

    properties: the items of that column, which may have got more items since. counters: next offsets that differ from
    `next_offsets`. Raises InvalidInput for a name at which brokers of the generation would stop dispatching forever
    (B11).
    """
    lmq = rules.profile.lmq_queues
    if lmq is None or not properties.has_name(names.INNER_MULTI_DISPATCH):
        return None
    import numpy as np

    queues = properties.find(names.INNER_MULTI_DISPATCH)
    found = LightQueueRows([], [], {})
    for row in np.flatnonzero(queues.length > 0).tolist():
        state = int(columns["sys_flag"][row]) & TRANSACTION_MASK
        undecided = state in _UNDECIDED
        if texts[int(topics.ids[row])].startswith(lmq.closed_topics):
            continue
        if undecided and not lmq.undecided:
            continue
        wanted = _lmq_queues(queues[row], int(columns["queue_id"][row]), lmq)
        counts = found.counters
        offsets = [counts.get(q, counters.get(q, next_offsets.get(q, 0))) for q in wanted]
        found.rows.append(row)
        found.texts.append(
            names.with_value(
                columns["properties"][row],
                names.INNER_MULTI_QUEUE_OFFSET,
                ",".join(map(str, offsets)),
                final_separator=rules.profile.final_separator,
            )
        )
        if not undecided or lmq.undecided_count:
            for queue, offset in zip(wanted, offsets, strict=True):
                again = counts.get(queue, offset) if lmq.twice else offset
                counts[queue] = again + 1
    return found if found.rows else None


def numbered_anew(
    columns: dict[str, Any],
    topics: Dictionary,
    texts: list[str],
    how: Dispatching,
    next_offsets: Offsets,
    properties: PropertyItems,
) -> LightQueueRows | None:
    """The rows that bring LMQ offsets from another store, with offsets of this one; None if there are none.

    Other messages may lie between them, or before them, in the other store's queues; here those that get units are
    consecutive.
    """
    if not how.multi_dispatch or not properties.has_name(names.INNER_MULTI_QUEUE_OFFSET):
        return None
    import numpy as np

    from ..broker.dispatch import java_split, named_queues, numbered_names

    found, counts = LightQueueRows([], [], {}), Offsets()
    with_units = np.flatnonzero(columns["sys_flag"] & SysFlag.PREPARED == 0)
    for row, named, numbers in named_queues(properties, with_units, topics.ids, texts, how.lmq_closed):
        queue_id, items, own = int(columns["queue_id"][row]), java_split(numbers), Offsets()
        for number, name, offset in numbered_names(java_split(named), items, how):
            queue = (name, how.queue_id_of(name, queue_id))
            if offset is not None:
                own[queue] = counts.get(queue, next_offsets.get(queue, 0))
                items[number] = str(own[queue])
        if not own:
            continue
        counts.update({queue: offset + 1 for queue, offset in own.items()})
        text = names.with_value(
            columns["properties"][row],
            names.INNER_MULTI_QUEUE_OFFSET,
            ",".join(items),
            final_separator=columns["properties"][row].endswith(names.ITEM_SEPARATOR),
        )
        found.rows.append(row)
        found.texts.append(text)
    return found if found.rows else None


def set_texts(columns: dict[str, Any], found: LightQueueRows, rules: WriterRules | None = None) -> None:
    """Replace the properties of the found rows. rules: those of a broker that names LMQ offsets, which limit records.
    Raises LimitExceeded for a record that becomes too long.
    """
    from ...formats.derive import Ragged

    texts = columns["properties"].tolist()
    lmq = None if rules is None else rules.profile.lmq_queues
    for row, text in zip(found.rows, found.texts, strict=True):
        grown = len(text) - len(texts[row])
        size = int(columns["total_size"][row]) + grown
        if rules and lmq and lmq.whole_records and size > rules.max_body_bytes:
            raise LimitExceeded(
                f"a record of {counted(size, 'byte')} that names LMQs, more than maxMessageSize {rules.max_body_bytes}",
                hint="--set maxMessageSize=BYTES raises the limit",
            )
        texts[row] = text
    columns["properties"] = Ragged.of(texts)


def without_blocking_names(texts: Ragged, lmq: LmqRules) -> tuple[Ragged, Flags]:
    """Property texts without the names that `name_offsets` refuses, for which no broker made units; and bool[n]: the
    texts that had any.
    """
    import numpy as np

    from ...formats.derive import Ragged
    from ...formats.property_columns import find
    from ..broker.dispatch import java_split

    queues = find(texts, names.INNER_MULTI_DISPATCH)
    changed, made = np.zeros(len(texts), np.bool_), list[bytes]()
    for row in np.flatnonzero(queues.length > 0).tolist():
        named = java_split(queues[row])
        good = [name for name in named if not _blocks(name, lmq)]
        if len(good) < len(named):
            made = made or texts.tolist()
            changed[row], made[row] = True, _with_names(made[row], good)
    return (Ragged.of(made) if made else texts), changed


def _with_names(text: bytes, named: list[str]) -> bytes:
    """A property text that names these further queues, without their offsets."""
    ended = text.endswith(names.ITEM_SEPARATOR)
    text = names.with_value(text, names.INNER_MULTI_DISPATCH, ",".join(named), final_separator=ended)
    dropped = [names.INNER_MULTI_QUEUE_OFFSET, *([] if named else [names.INNER_MULTI_DISPATCH])]
    heads = tuple(name.encode() + names.NAME_VALUE_SEPARATOR for name in dropped)
    return names.ITEM_SEPARATOR.join(i for i in text.split(names.ITEM_SEPARATOR) if not i.startswith(heads))


def _blocks(name: str, lmq: LmqRules) -> bool:
    """Whether a message with this name keeps brokers of the generation from dispatching what follows it (B11)."""
    return not name.startswith(LMQ_PREFIX) and (not lmq.other_names or not name)


def _lmq_queues(text: bytes, queue_id: int, lmq: LmqRules) -> list[Queue]:
    from ..broker.dispatch import java_split

    found = []
    for name in java_split(text):
        if _blocks(name, lmq):
            raise InvalidInput(
                f"{names.INNER_MULTI_DISPATCH}: {name!r} does not begin with {LMQ_PREFIX}: at such a"
                " message brokers stop dispatching for ever (B11)"
            )
        found.append((name, 0 if name.startswith(LMQ_PREFIX) else queue_id))
    return found
