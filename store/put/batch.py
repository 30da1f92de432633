"""Batches of a producer: as records of their own, or as one inner batch (spec 01, 1.9).

A client sends messages together as one request. A broker splits them; all come to one file. For a
topic with queue.type=BatchCQ (5.x) it stores the request as it is, as one record.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...formats import message_properties as names
from ...formats.client_batch import MESSAGE, MESSAGES_MAX
from ...formats.message import PROPERTIES_BYTES_MAX
from ...formats.sys_flag import TRANSACTION_MASK, SysFlag
from ..broker.write_profile import WriterProfile
from ..counted import counted
from ..errors import InvalidInput, LimitExceeded
from .new_message import NewMessage, Rules


@dataclass(frozen=True)
class NewBatch:
    """What a client sends together.

    request: what holds for all: topic, queue, hosts, times, sys_flag, properties of the request; its
    body is not used. messages: of each only flag, body and properties count.
    """

    request: NewMessage
    messages: tuple[NewMessage, ...]


def split(batch: NewBatch, rules: Rules) -> list[NewMessage]:
    """The messages that a broker makes of a batch. They are to be appended as one.

    Properties of the request go behind those of each message, as the generation does. Raises
    InvalidInput for what a broker refuses: a transaction, a delay; LimitExceeded.
    """
    _check(batch, rules)
    more = batch.request.properties if rules.profile.batch_properties else b""
    return [
        replace(
            batch.request,
            flag=message.flag,
            body=message.body,
            prepared_transaction_offset=0,
            properties=_together(message.properties, more),
        )
        for message in batch.messages
    ]


def inner(batch: NewBatch, rules: Rules) -> NewMessage:
    """The record that a broker of 5.x makes of a batch for a topic with batch queues.

    INNER_BASE is for the writer to add. Raises InvalidInput, LimitExceeded.
    """
    _check(batch, rules)
    found = names.parse(batch.request.properties)
    found[names.INNER_NUM] = str(len(batch.messages))
    properties = names.format_properties(found, final_separator=rules.profile.final_separator)
    bits = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
    return replace(
        batch.request,
        body=encoded(batch),
        properties=properties,
        sys_flag=batch.request.sys_flag | bits,
    )


def encoded(batch: NewBatch) -> bytes:
    """The body of the client's request."""
    return b"".join(
        MESSAGE.build({"flag": m.flag, "body": m.body, "properties": m.properties})
        for m in batch.messages
    )


def stays_whole(batch: NewBatch, profile: WriterProfile) -> bool:
    """Whether a broker stores the batch as one record where the topic has batch queues.

    A request without a unique key, of an old client, is split there, too.
    """
    return profile.modern_topics and names.UNIQ_KEY in names.parse(batch.request.properties)


def _check(batch: NewBatch, rules: Rules) -> None:
    if not 0 < len(batch.messages) <= MESSAGES_MAX:
        raise InvalidInput(f"a batch has 1 to {MESSAGES_MAX} messages: {len(batch.messages)}")
    if batch.request.sys_flag & TRANSACTION_MASK:
        raise InvalidInput("a batch takes no part in a transaction")
    properties = (batch.request.properties, *(m.properties for m in batch.messages))
    if any(names.DELAY in names.parse(text) for text in properties if text):
        raise InvalidInput("messages of a batch cannot be delayed")
    for text in properties:
        if len(text) > PROPERTIES_BYTES_MAX:
            raise LimitExceeded(
                f"properties of {len(text)} bytes, more than {PROPERTIES_BYTES_MAX}"
            )
    size = len(encoded(batch))
    if size > rules.max_body_bytes:
        raise LimitExceeded(
            f"a batch of {counted(size, 'byte')}, more than maxMessageSize {rules.max_body_bytes}",
            hint="--set maxMessageSize=BYTES raises the limit",
        )


def _together(own: bytes, more: bytes) -> bytes:
    """Properties of a message and of its request, with a separator between them."""
    if own and more and not own.endswith(names.ITEM_SEPARATOR):
        own += names.ITEM_SEPARATOR
    return own + more
