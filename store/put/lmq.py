"""Light queues (LMQ): the offsets that a broker gives a message for the queues it names (spec 02, 2.9).

INNER_MULTI_DISPATCH names further queues; a broker with the options switched on adds
INNER_MULTI_QUEUE_OFFSET with the next offset of each. Copies in a store without them stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...formats import message_properties as names
from ...formats.derive import Ragged
from ...formats.property_columns import find
from ...formats.sys_flag import TRANSACTION_MASK, SysFlag
from ..broker.dispatch import LMQ_PREFIX, java_split
from ..counted import counted
from ..errors import InvalidInput, LimitExceeded
from .new_message import Rules
from .queue_kinds import occurs

if TYPE_CHECKING:
    from ..broker.write_profile import LightQueueRules
    from ..columns.dictionary import Dictionary

_MARK = names.INNER_MULTI_DISPATCH.encode() + names.NAME_VALUE_SEPARATOR
_UNDECIDED = (SysFlag.PREPARED, SysFlag.ROLLBACK)
Queue = tuple[str, int]
Offsets = dict[Queue, int]


class Named(NamedTuple):
    """Rows of a step that name light queues: int64[k], their new property texts; and how all
    counters that they change stand behind them.
    """

    rows: list[int]
    texts: list[bytes]
    counters: Offsets


def name_offsets(
    columns: dict[str, Any],
    topics: Dictionary,
    texts: list[str],
    rules: Rules,
    next_offsets: Offsets,
    counters: Offsets,
) -> Named | None:
    """The offsets for messages that name light queues; None where there are none.

    counters: where they stand, if not at `next_offsets`. Raises InvalidInput for a name at which the
    brokers of the generation would stop to dispatch for ever (B11).
    """
    light = rules.profile.light_queues
    if light is None or not occurs(_MARK, columns["properties"]):
        return None
    queues = find(columns["properties"], names.INNER_MULTI_DISPATCH)
    found = Named([], [], {})
    for row in np.flatnonzero(queues.length > 0).tolist():
        state = int(columns["sys_flag"][row]) & TRANSACTION_MASK
        undecided = state in _UNDECIDED
        if texts[int(topics.ids[row])].startswith(light.closed_topics):
            continue
        if undecided and not light.undecided:
            continue
        wanted = _queues(queues[row], int(columns["queue_id"][row]), light)
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
        if not undecided or light.undecided_count:
            for queue, offset in zip(wanted, offsets, strict=True):
                again = counts.get(queue, offset) if light.twice else offset
                counts[queue] = again + 1
    return found if found.rows else None


def set_texts(columns: dict[str, Any], found: Named, rules: Rules) -> None:
    """Put the new texts in the place of the old ones. Raises LimitExceeded for a record too long."""
    texts = columns["properties"].tolist()
    light = rules.profile.light_queues
    for row, text in zip(found.rows, found.texts, strict=True):
        grown = len(text) - len(texts[row])
        size = int(columns["total_size"][row]) + grown
        if light is not None and light.whole_records and size > rules.max_body_bytes:
            raise LimitExceeded(
                f"a record of {counted(size, 'byte')} that names light queues,"
                " more than maxMessageSize "
                f"{rules.max_body_bytes}",
                hint="--set maxMessageSize=BYTES raises the limit",
            )
        texts[row] = text
    columns["properties"] = Ragged.of(texts)


def _queues(text: bytes, queue_id: int, light: LightQueueRules) -> list[Queue]:
    found = []
    for name in java_split(text):
        if not name.startswith(LMQ_PREFIX) and (not light.other_names or not name):
            raise InvalidInput(
                f"{names.INNER_MULTI_DISPATCH}: {name!r} does not begin with {LMQ_PREFIX}: brokers"
                " stop to dispatch for ever at such a message (B11)"
            )
        found.append((name, 0 if name.startswith(LMQ_PREFIX) else queue_id))
    return found
