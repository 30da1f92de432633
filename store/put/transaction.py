"""Transactions: half messages, and what a broker writes for their end (spec 01, 1.10).

A half message lies under a topic of the broker's until its producer decides. Commit: the real
message is written, then an op record that names the half one; rollback: the op record alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...formats import message_properties as names
from ...formats.hashing import java_string
from ...formats.sys_flag import TRANSACTION_MASK, SysFlag
from ..broker.write_profile import WriterProfile
from ..errors import InvalidInput, NotFound, Refused
from ..plan.tombstones import HALF_TOPIC, OP_TOPIC
from .new_message import Host, NewMessage

if TYPE_CHECKING:
    from ..disk.layout import Layout
    from ..log.message import Message

TRANSACTION_ID = "__transactionId__"
_DECIDED_TAG = "d"
_REAL = (names.REAL_TOPIC, names.REAL_QID)
_OFFSET_END = b","


def is_half(message: NewMessage) -> bool:
    """Whether a producer sends it as a half message: TRAN_MSG=true."""
    return names.parse(message.properties).get(names.TRAN_MSG, "").lower() == "true"


def half(message: NewMessage, profile: WriterProfile) -> NewMessage:
    """The half message that a broker stores. Raises InvalidInput for a delayed one.

    Its PGROUP is the group that a broker asks for the decision.
    """
    found = names.parse(message.properties)
    if names.DELAY in found:
        raise InvalidInput("a half message cannot be delayed")
    found[names.TRAN_MSG] = "true"
    if profile.transaction_ids and names.UNIQ_KEY in found:
        found[TRANSACTION_ID] = found[names.UNIQ_KEY]
    found[names.REAL_TOPIC] = java_string(message.topic)
    found[names.REAL_QID] = str(message.queue_id)
    return replace(
        message,
        topic=HALF_TOPIC.encode(),
        queue_id=0,
        sys_flag=message.sys_flag & ~TRANSACTION_MASK,
        properties=names.format_properties(found, final_separator=profile.final_separator),
    )


def committed(prepared: Message, profile: WriterProfile) -> NewMessage:
    """The real message of a half one. Raises Refused for a half record that names no real queue."""
    found = dict(prepared.properties)
    queue_id = found.get(names.REAL_QID, "")
    if not found.get(names.REAL_TOPIC) or not (queue_id.isascii() and queue_id.isdigit()):
        raise Refused("a half message without REAL_TOPIC or REAL_QID", offset=prepared.position)
    topic = found[names.REAL_TOPIC].encode()
    if not profile.keeps_real_topic:
        found = {name: value for name, value in found.items() if name not in _REAL}
    return NewMessage(
        topic,
        prepared.stored_body,
        queue_id=int(queue_id),
        flag=prepared.flag,
        sys_flag=prepared.sys_flag & ~TRANSACTION_MASK | int(SysFlag.COMMIT),
        born_timestamp=prepared.born_timestamp,
        born_host=prepared.born_host,
        reconsume_times=prepared.reconsume_times,
        prepared_transaction_offset=prepared.physical_offset,
        properties=names.format_properties(found, final_separator=profile.final_separator),
    )


def decided(prepared: Message, profile: WriterProfile, store_host: Host, now_ms: int) -> NewMessage:
    """The op record that says: this half message is decided."""
    found = {names.WAIT: "true", names.TAGS: _DECIDED_TAG}
    end = _OFFSET_END if profile.op_lists else b""
    return NewMessage(
        OP_TOPIC.encode(),
        str(prepared.queue_offset).encode() + end,
        born_timestamp=now_ms,
        born_host=store_host,
        properties=names.format_properties(found, final_separator=profile.final_separator),
    )


def open_half(layout: Layout, name: str) -> Message:
    """The half message with this unique key or message id; where a broker has asked, the newest.

    Raises NotFound, Refused for one that is decided already, Unreadable.
    """
    from ..inspect.topic_records import topic_records
    from ..log.message import messages
    from ..search.store import Store

    found = None
    done: set[int] = set()
    with Store(layout.root, layout.broker_config) as store:
        for batch in topic_records(store, HALF_TOPIC, _no_note):
            for message in messages(batch):
                if name in (message.unique_key, message.message_id):
                    found = message
        if found is None:
            raise NotFound(f"no half message {name}", path=layout.root)
        for batch in topic_records(store, OP_TOPIC, _no_note):
            for message in messages(batch):
                parts = message.stored_body.split(_OFFSET_END)
                done |= {int(part) for part in parts if part.isdigit() and len(part) < 20}
    if found.queue_offset in done:
        from ..next_commands import proposed  # numpy, which a write can do without

        raise Refused(
            f"the half message {name} is decided already",
            path=layout.root,
            hint=f"{proposed(layout, 'inspect', '--transactions')} says how",
        )
    return found


def _no_note(text: str) -> None:
    """What is told of units without a record is for `inspect`."""
