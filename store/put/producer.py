"""Messages as a broker stores them for a producer: checks, delays, timers, transactions.

Delayed messages (spec 01, 1.11; 04, 4.4): a broker stores them under a topic of its own, with the real topic in the
properties, and its services deliver them. Here they are only stored: `put` never delivers.

Checks of the client and of the broker's front (spec 05; 01, 1.4) are limits of sending, not of storing: a copy of a
record must only be something a broker's store can hold (`new_message`).

Transactions (spec 01, 1.10): a half message is stored under a topic of the broker until its producer decides. Commit:
the broker writes the real message, then an op record that names the half message; rollback: only the op record.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ...formats import message_properties as names
from ...formats.config import BACKUP
from ...formats.hashing import java_string
from ...formats.json_table import QUEUE_ID
from ...formats.message import TOPIC_BYTES_MAX_V1
from ...formats.message_properties import RETRY_PREFIX
from ...formats.op_record import offset_text, offsets_in
from ...formats.sys_flag import TRANSACTION_MASK, SysFlag
from ...formats.topic_queue_mapping import BROKER, HOSTED_QUEUES, MAPPING_TABLE
from ...formats.topic_queue_mapping import FILE as MAPPINGS
from ..broker.profiles import RecordRules, WriterProfile
from ..broker.system_topics import DEAD_LETTER_PREFIX, HALF_TOPIC, LITE_PREFIX, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from ..counted import counted
from ..errors import InvalidInput, LimitExceeded, NotFound, Refused
from ..settings.options import options_of
from .new_message import (
    ASKED_TIMES,
    OVER_BYTES,
    Host,
    NewMessage,
    asked_level,
    asked_ms,
    check_copy,
    check_sizes,
    check_timed,
    compressed,
)

if TYPE_CHECKING:
    from ..disk.layout import Layout
    from ..log.message import Message
    from .writer import StoreWriter


_MAX_DELAY_SECONDS = 3 * 86_400
_FIRST_WITH_LITE = "5.5"


def delayed(message: NewMessage, level: int, levels: int, profile: WriterProfile) -> NewMessage:
    """The message as a broker stores it for a delay level; a level above the highest counts as the highest.

    levels: how many the broker has. Raises InvalidInput for a level below 1, and for a half message, which brokers do
    not delay.
    """
    if level < 1:
        raise InvalidInput(f"delay levels begin with 1: {level}")
    _refuse_transaction(message)
    level = min(level, levels) if levels else level
    return _under_broker_topic(message, SCHEDULE_TOPIC, level - 1, {names.DELAY: str(level)}, profile.final_separator)


def timed(
    message: NewMessage,
    deliver_ms: int,
    now_ms: int,
    profile: WriterProfile,
    *,
    precision_ms: int = 1000,
    max_delay_seconds: int = _MAX_DELAY_SECONDS,
) -> NewMessage:
    """The message as a 5.x broker stores it for delivery at a time (ms since 1970).

    If the time is past, it goes to the real topic at once. precision_ms, max_delay_seconds: a broker's
    `timerPrecisionMs`, `timerMaxDelaySec`. Raises InvalidInput (a generation without timers, a half message, also a
    delay level, a cancellation too late), LimitExceeded (too far away).
    """
    if not profile.timer:
        raise InvalidInput(
            f"brokers of {profile.version} have no timers", hint="use --delay-level, or --as-broker 5.1 or later"
        )
    _refuse_transaction(message)
    found = names.parse(message.properties)
    if asked_level(found) is not None:
        raise InvalidInput("a message has a delay level or a time, not both")
    if deliver_ms - now_ms > max_delay_seconds * 1000:
        raise LimitExceeded(
            f"a delivery {(deliver_ms - now_ms) // 1000} s from now, more than timerMaxDelaySec {max_delay_seconds}",
            hint="--set timerMaxDelaySec=SECONDS raises the limit",
        )
    asked = {} if found.keys() & ASKED_TIMES.keys() else {names.TIMER_DELIVER_MS: str(deliver_ms)}
    if deliver_ms <= now_ms:
        if names.TIMER_DEL_UNIQKEY in found:
            raise InvalidInput(f"the time is past: a broker refuses a late cancellation ({names.TIMER_DEL_UNIQKEY})")
        return _with_properties(message, asked, profile.final_separator)
    whole = deliver_ms % precision_ms == 0
    out_ms = deliver_ms - precision_ms if whole else deliver_ms // precision_ms * precision_ms
    asked[names.TIMER_OUT_MS] = str(out_ms)
    return _under_broker_topic(message, TIMER_TOPIC, 0, asked, profile.final_separator)


def _refuse_transaction(message: NewMessage) -> None:
    if message.sys_flag & TRANSACTION_MASK in (SysFlag.PREPARED, SysFlag.ROLLBACK):
        raise InvalidInput("a half message cannot be delayed")


def _under_broker_topic(
    message: NewMessage, topic: str, queue_id: int, more: dict[str, str], final_separator: bool
) -> NewMessage:
    """The message under a topic of the broker, with its own topic in the properties."""
    real = {names.REAL_TOPIC: java_string(message.topic), names.REAL_QID: str(message.queue_id)}
    found = _with_properties(message, {**more, **real}, final_separator)
    return replace(found, topic=topic.encode(), queue_id=queue_id)


def _with_properties(message: NewMessage, more: dict[str, str], final_separator: bool) -> NewMessage:
    found = names.parse(message.properties) | more
    return replace(message, properties=names.format_properties(found, final_separator=final_separator))


_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]+")
_LONG_TOPICS = (RETRY_PREFIX, DEAD_LETTER_PREFIX)


def check_producer_topic(topic: bytes, long_topics: tuple[str, ...] = _LONG_TOPICS) -> None:
    """Refuse a topic that every client and broker refuses. Raises InvalidInput.

    long_topics: the prefixes that allow a topic of more than 127 characters.
    """
    text = topic.decode("utf-8", "replace")
    if not _TOPIC.fullmatch(text):
        raise InvalidInput(f"no topic for a producer: {text!r}", hint="letters, digits and % | _ - are allowed")
    if len(text) > TOPIC_BYTES_MAX_V1 and not text.startswith(long_topics):
        raise InvalidInput(f"a topic of {len(text)} characters: brokers take {TOPIC_BYTES_MAX_V1}")


def _check_static(topic: str, queue_id: int, writer: StoreWriter) -> None:
    """Refuse a queue of a static topic that another broker writes now: groups are behind its range here already."""
    path = writer.layout.config / MAPPINGS
    if not (os.path.lexists(path) or os.path.lexists(f"{path}{BACKUP}")):
        return
    from ..settings.read import FILES, read_in_force  # hardly any store has the file

    file = read_in_force(path, FILES[MAPPINGS])
    mappings = file.value.get(MAPPING_TABLE.member) if file is not None else None
    mapping = mappings.get(topic) if isinstance(mappings, dict) else None
    if not isinstance(mapping, dict):
        return
    own, hosted = mapping.get(BROKER.name), mapping.get(HOSTED_QUEUES.member)
    parts = hosted.values() if isinstance(hosted, dict) else ()
    written = [part[-1] for part in parts if isinstance(part, list) and part and isinstance(part[-1], dict)]
    places = {(str(part.get(BROKER.name)), str(part.get(QUEUE_ID.name))) for part in written}
    if (str(own), str(queue_id)) not in places:
        others = sorted({broker for broker, _ in places} - {str(own)})
        raise InvalidInput(
            f"this broker does not write queue {queue_id} of the static topic {topic}, and refuses the message",
            path=path,
            hint=f"put the message to the store of {' or '.join(others)}" if others else "",
        )


def check_producer(message: NewMessage, writer: StoreWriter) -> None:
    """Refuse what a client of the generation, or its broker, refuses; the body must not be compressed yet.

    Raises InvalidInput, LimitExceeded; the error names the limit.
    """
    check_producer_topic(message.topic, writer.profile.long_topics)
    topic = java_string(message.topic)
    if topic in writer.profile.closed_topics:
        raise InvalidInput(
            f"{topic} is a system topic: brokers of {writer.profile.version} accept no messages for it",
            hint="put --from can copy its records",
        )
    check_timed(message.topic, message.properties)
    if not message.body:
        raise InvalidInput("the body is empty: clients refuse that", hint="put --from can copy such a record")
    check_sizes(len(message.body), 0, writer.rules)
    named = names.parse(message.properties).get(names.INNER_MULTI_DISPATCH, "")
    if "/" in named and writer.profile.modern_topics:
        raise InvalidInput(f"{names.INNER_MULTI_DISPATCH}: clients refuse a name with a slash: {named}")
    count = writer.topics.queues(topic) if writer.topics else None
    if count is not None and message.queue_id >= count:
        raise InvalidInput(
            f"queue {message.queue_id}: {topic} has {counted(count, 'queue')} in topics.json",
            hint="use a smaller --queue, or --no-topic-config",
        )
    if writer.profile.modern_topics:
        _check_static(topic, message.queue_id, writer)


def refused_copies(columns: Mapping[str, Any], rules: RecordRules) -> dict[int, str]:
    """`check_copy` for columns of topics and properties: why it refuses rows, by row, ascending."""
    # numpy, which a single message does not need
    from ...formats.property_columns import PropertyItems
    from ..broker.load_rules import rows_not_to_store

    topics, texts = columns["topic"], columns["properties"]

    def why(row: int) -> str:
        try:
            check_copy(topics[row], texts[row], rules)
        except InvalidInput as error:
            return error.message
        return ""

    timed = topics.equals(TIMER_TOPIC.encode()).nonzero()[0].tolist()
    harmful = rows_not_to_store(topics, PropertyItems(texts), rules).tolist()  # which `check_copy` asks, too
    reasons = ((row, why(row)) for row in sorted({*harmful, *timed}))
    return {row: reason for row, reason in reasons if reason}


TRANSACTION_ID = "__transactionId__"
_DECIDED_TAG = "d"
_REAL = (names.REAL_TOPIC, names.REAL_QID)


def is_half(message: NewMessage) -> bool:
    """Whether a producer sends it as a half message: TRAN_MSG=true."""
    return names.parse(message.properties).get(names.TRAN_MSG, "").lower() == "true"


def half(message: NewMessage, profile: WriterProfile) -> NewMessage:
    """The half message that a broker stores. Raises InvalidInput for a delayed one.

    The broker asks the group in PGROUP for the decision.
    """
    found = names.parse(message.properties)
    if names.DELAY in found:
        raise InvalidInput("a half message cannot be delayed")
    more = {names.TRAN_MSG: "true"}
    if profile.transaction_ids and names.UNIQ_KEY in found:
        more[TRANSACTION_ID] = found[names.UNIQ_KEY]
    made = _under_broker_topic(message, HALF_TOPIC, 0, more, profile.final_separator)
    return replace(made, sys_flag=message.sys_flag & ~TRANSACTION_MASK)


def committed(prepared: Message, profile: WriterProfile) -> NewMessage:
    """The real message of a half message. Raises Refused for a half message that names no real queue."""
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
    """The op record that marks a half message as decided."""
    found = {names.WAIT: "true", names.TAGS: _DECIDED_TAG}
    return NewMessage(
        OP_TOPIC.encode(),
        offset_text(prepared.queue_offset, ended=profile.op_lists),
        born_timestamp=now_ms,
        born_host=store_host,
        properties=names.format_properties(found, final_separator=profile.final_separator),
    )


def open_half(layout: Layout, name: str) -> Message:
    """The half message with this unique key or message id; the newest if a broker has written it again to ask.

    Raises NotFound, Refused for one that is already decided, Unreadable.
    """
    from ..inspect.own_topics import topic_records
    from ..log.batch import messages
    from ..search.store import StoreReader, silent

    found = None
    done: set[int] = set()
    with StoreReader(layout) as store:
        for batch in topic_records(store, HALF_TOPIC, silent):
            for message in messages(batch):
                if name in (message.unique_key, message.message_id):
                    found = message
        if found is None:
            raise NotFound(f"no half message {name}", path=layout.root)
        for batch in topic_records(store, OP_TOPIC, silent):
            for message in messages(batch):
                done |= offsets_in(message.stored_body)
    if found.queue_offset in done:
        from ..findings.next_commands import proposed  # loads the catalogue, which most writes do not need

        raise Refused(
            f"the half message {name} is decided already",
            path=layout.root,
            hint=f"{proposed(layout, 'inspect', '--transactions')} says how",
        )
    return found


class ProducerOptions(NamedTuple):
    """delay_level: from 1. deliver_ms: ms since 1970. compress: zlib, lz4 or zstd, for bodies of at least `over_bytes`.
    half: begin a transaction.
    """

    delay_level: int | None = None
    deliver_ms: int | None = None
    compress: str = ""
    over_bytes: int = OVER_BYTES
    half: bool = False


def _for_light_queue(message: NewMessage, writer: StoreWriter) -> NewMessage:
    """The message with the LMQ that the broker names for a LITE one."""
    found = names.parse(message.properties)
    lite = found.get(names.LITE_TOPIC)
    if lite and writer.profile.version >= _FIRST_WITH_LITE:
        if "/" in lite or "," in lite:
            raise InvalidInput(f"{names.LITE_TOPIC}: no LMQ has such a name: {lite}")
        found[names.INNER_MULTI_DISPATCH] = f"{LITE_PREFIX}{java_string(message.topic)}${lite}"
        message = _with_properties(message, found, writer.profile.final_separator)
    return message


def as_stored(message: NewMessage, options: ProducerOptions, writer: StoreWriter) -> NewMessage:
    """The message that the broker of `writer` stores for a producer's message.

    Properties count as options too, as in a broker: DELAY, TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS, TRAN_MSG.
    Raises InvalidInput, LimitExceeded.
    """
    check_producer(message, writer)
    if options.compress:
        message = compressed(message, options.compress, writer.profile, options.over_bytes)
    message = _for_light_queue(message, writer)
    found = names.parse(message.properties)
    now_ms = writer.clock()
    level = options.delay_level
    if level is None:
        level = asked_level(found)
    deliver_ms = options.deliver_ms if options.deliver_ms is not None else asked_ms(found, now_ms)
    other = [name for name in (*ASKED_TIMES, names.TIMER_OUT_MS) if name in found]
    if options.deliver_ms is not None and other:
        raise InvalidInput(f"a message has one time: --deliver-at or the property {other[0]}, not both")
    if level is not None and deliver_ms is not None:
        raise InvalidInput("a message has a delay level or a time, not both")
    asks_half = options.half or is_half(message)
    if asks_half and (level is not None or deliver_ms is not None):
        raise InvalidInput("a half message cannot be delayed")
    if asks_half and writer.layout.broker_config.get_bool("rejectTransactionMessage"):
        raise InvalidInput("rejectTransactionMessage is on: the broker refuses half messages")
    if asks_half or level is not None or deliver_ms is not None:
        writer.check_topic(java_string(message.topic))
        writer.expect(java_string(message.topic), message.queue_id)
    if asks_half:
        return half(message, writer.profile)
    if level is not None:
        return delayed(message, level, len(writer.delay_levels), writer.profile)
    if deliver_ms is None:
        return message
    config = writer.layout.broker_config
    if not config.get_bool("timerWheelEnable", True):
        raise InvalidInput("timerWheelEnable is off: the broker refuses messages with a time")
    precision_ms = options_of(writer.layout).timer_precision.value
    limit = config.get_int("timerMaxDelaySec", _MAX_DELAY_SECONDS)
    return timed(message, deliver_ms, now_ms, writer.profile, precision_ms=precision_ms, max_delay_seconds=limit)
