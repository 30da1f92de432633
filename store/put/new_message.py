"""New messages: what a writer gets, the record it makes, and its answer (spec 01, 1.2 to 1.4).

The limits are those of a broker. A message without a unique key gets one like those of the Java client (spec 1.8).
Messages that a client sends together are one request (spec 1.9): a broker splits it and puts all messages in one file;
for a topic with queue.type=BatchCQ (5.x) it stores the request as one record.

A body comes with sys_flag and with `body_compression`, the codec that was removed to show it. A body shown decompressed
is compressed again; a message whose fields contradict its body is refused.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ...formats import message_properties as names
from ...formats.client_batch import MESSAGE, MESSAGES_MAX
from ...formats.hashing import crc31, java_integer
from ...formats.host import PORT_MAX
from ...formats.message import MAGIC_V1, MAGIC_V2, PROPERTIES_BYTES_MAX, TOPIC_BYTES_MAX_V1
from ...formats.message_id import UNIQUE_KEY_COUNTERS, unique_key
from ...formats.pop import is_topic_name
from ...formats.primitives import IPV4_BYTES, IPV6_BYTES
from ...formats.sys_flag import COMPRESSION_MASK, TRANSACTION_MASK, SysFlag
from ..broker.profiles import RecordRules, WriterProfile
from ..broker.system_topics import HALTING_BROKERS, SCHEDULE_TOPIC, TIMER_TOPIC
from ..broker.topics import now_ms
from ..counted import counted
from ..disk.broker_conf import BrokerConfig
from ..errors import InvalidInput, LimitExceeded
from ..log.message import BodyTooLarge, compression_of, pack, unpack_whole

MAX_MESSAGE_BYTES = 4 << 20
"""A broker's default `maxMessageSize`: the largest body."""
_TOPIC_CHARACTERS_MAX = 255
_HOST_BITS = SysFlag.BORN_V6 | SysFlag.STORE_V6
Host = tuple[bytes, int]
_BITS = {
    "queue_id": 31,
    "flag": 32,
    "sys_flag": 32,
    "born_timestamp": 64,
    "store_timestamp": 64,
    "reconsume_times": 32,
    "prepared_transaction_offset": 64,
}
"""Number fields of a message and their bits; a queue id is not negative."""
NUMBER_LIMITS = {
    name: (0 if name == "queue_id" else -(1 << bits - 1), (1 << bits - (name != "queue_id")) - 1)
    for name, bits in _BITS.items()
}
"""The lowest and highest value of each."""
NO_TIME = NUMBER_LIMITS["store_timestamp"][0]
"""A store_timestamp that is not given: the store's clock."""
COPIED = ("queue_offset", "physical_offset")
"""Offsets of the record that a message was copied from; below 0 for none."""
STORE = "store"
"""A number for the store that the message was read from; below 0 for none."""
_ITEM = rb"[^\x00-\x02]+\x01[^\x00-\x02]*"
_ENDED_TEXT = re.compile(rb"(?:%b\x02)*" % _ITEM)
_TEXT = re.compile(rb"(?:%b\x02)*(?:%b)?" % (_ITEM, _ITEM))
"""Properties: of brokers that put a separator after the last item, and of the others."""
FLAGS = {"zlib": SysFlag.ZLIB, "lz4": SysFlag.LZ4, "zstd": SysFlag.ZSTD}
"""The bits of sys_flag that name a codec."""
COMPRESSED = int(SysFlag.COMPRESSED)
OVER_BYTES = 4096
"""A client's `compressMsgBodyOverHowmuch`: smaller bodies are not compressed."""
_FIRST_WITH_CODECS = "5"
"""Clients from this generation on store the codec; older ones only know zlib, and have no bits for it."""


@dataclass(frozen=True)
class NewMessage:
    """A message from a producer; names and units as in `formats.message`.

    properties: the text as stored. Hosts are (ip, port). store_timestamp: None for the current time. wrong_crc: a
    checksum for a body that is known to be corrupted, None for the right one. queue_offset, physical_offset, store: see
    `COPIED`, `STORE`.
    """

    topic: bytes
    body: bytes
    queue_id: int = 0
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: Host = (b"\x7f\0\0\1", 0)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    properties: bytes = b""
    store_timestamp: int | None = None
    wrong_crc: int | None = None
    queue_offset: int = -1
    physical_offset: int = -1
    store: int = -1


class WriterRules(NamedTuple):
    """What a writer needs to make records.

    The broker generation, the broker's address, the size limit; append_crc: add a `__CRC32#` to every record.
    """

    profile: WriterProfile
    store_host: Host
    max_body_bytes: int = MAX_MESSAGE_BYTES
    append_crc: bool = False

    @classmethod
    def of(cls, profile: WriterProfile, store_host: Host, config: BrokerConfig) -> WriterRules:
        """The rules of a broker with this configuration. Raises InvalidInput for an invalid option."""
        limit = config.get_int("maxMessageSize", MAX_MESSAGE_BYTES) or MAX_MESSAGE_BYTES
        append_crc = profile.property_crc and config.get_bool("enabledAppendPropCRC")
        return cls(profile, store_host, limit, append_crc)


def check_topic(topic: bytes, profile: WriterProfile) -> int:
    """The magic code for records of a topic. Raises InvalidInput for a topic that brokers refuse."""
    try:
        text = topic.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidInput(f"topic is not UTF-8: {topic!r}") from None
    if not text:
        raise InvalidInput("a message needs a topic")
    if "\ufffd" in text:
        raise InvalidInput(
            f"topic with U+FFFD, which replaces bytes that are not UTF-8: {text!r}",
            hint="no broker has such a topic; leave out the damaged record that it comes from",
        )
    if not is_topic_name(text):
        raise InvalidInput(
            f"no broker accepts such a topic: {text!r}", hint="letters, digits and % | _ - + are allowed"
        )
    long = len(text) > TOPIC_BYTES_MAX_V1 or len(topic) > TOPIC_BYTES_MAX_V1
    if len(topic) > _TOPIC_CHARACTERS_MAX or (long and not profile.start.record.v2):
        limit = _TOPIC_CHARACTERS_MAX if profile.start.record.v2 else TOPIC_BYTES_MAX_V1
        raise InvalidInput(f"topic of {len(topic)} bytes: brokers of {profile.version} take {limit}: {text!r}")
    return MAGIC_V2 if long else MAGIC_V1


def check_sizes(body_bytes: int, properties_bytes: int, rules: WriterRules) -> None:
    """Raise LimitExceeded for a body or properties that a broker refuses."""
    if body_bytes > rules.max_body_bytes:
        raise _too_large(f"a body of {counted(body_bytes, 'byte')}", rules)
    if properties_bytes > PROPERTIES_BYTES_MAX:
        raise LimitExceeded(f"properties of {properties_bytes} bytes, more than {PROPERTIES_BYTES_MAX}")


def _too_large(what: str, rules: WriterRules) -> LimitExceeded:
    hint = "--set maxMessageSize=BYTES raises the limit"
    return LimitExceeded(f"{what}, more than maxMessageSize {rules.max_body_bytes}", hint=hint)


def check_record(record_bytes: int, rules: WriterRules) -> None:
    """Raise LimitExceeded for a record, or the records of a batch, that old brokers refuse."""
    if rules.profile.whole_records and record_bytes > rules.max_body_bytes:
        raise _too_large(f"a record of {counted(record_bytes, 'byte')}", rules)


def check_number(name: str, least: int, largest: int) -> None:
    """Raise InvalidInput if numbers of a field do not fit. least, largest: the range of the numbers."""
    low, high = NUMBER_LIMITS[name]
    if name == "queue_id" and least < 0:
        raise InvalidInput(f"queue id must not be negative: {least}")
    if least < low or largest > high:
        raise InvalidInput(f"{name}: not a whole number from {low} to {high}: {least if least < low else largest}")


def check_host(ip: bytes, profile: WriterProfile, port: int = 0) -> None:
    """Raise InvalidInput for an address that the generation cannot store."""
    if len(ip) not in (IPV4_BYTES, IPV6_BYTES):
        raise InvalidInput(f"an address of {counted(len(ip), 'byte')}: not {IPV4_BYTES} or {IPV6_BYTES}")
    if not 0 <= port <= PORT_MAX:
        raise InvalidInput(f"not a port from 0 to {PORT_MAX}: {port}")
    if len(ip) == IPV6_BYTES and not profile.start.record.ipv6:
        raise InvalidInput(f"brokers of {profile.version} cannot store IPv6 addresses")


_TO_ITS_TOPIC = "put the message to its own topic, with --deliver-at or the property TIMER_DELIVER_MS"
_LEAVE_OUT = "leave the message out"
_ALONE = (
    f"{_LEAVE_OUT}; to send it again, put it alone, without --from, to its own topic with --delay-level or --deliver-at"
)


def check_timed(topic: bytes, properties: bytes, hint: str = _TO_ITS_TOPIC) -> None:
    """Refuse a message of the timer topic without the properties that a broker adds: brokers accept it, and their timer
    stops at it forever. Raises InvalidInput.
    """
    if topic != TIMER_TOPIC.encode():
        return
    found = names.parse(properties)
    good = {names.TIMER_OUT_MS: java_integer(found.get(names.TIMER_OUT_MS, ""), 64) is not None, **_own_queue(found)}
    _require(good, f"the broker's timer, which reads {TIMER_TOPIC}, would stop at it for ever", hint)


def _require(good: Mapping[str, bool], why: str, hint: str) -> None:
    """Refuse a message of which some properties are not good. Raises InvalidInput."""
    if wrong := [name for name, is_good in good.items() if not is_good]:
        raise InvalidInput(f"this message has no valid {' and '.join(wrong)}: {why}", hint=hint)


def _own_queue(found: Mapping[str, str]) -> dict[str, bool]:
    """By property that names a waiting message's own queue: whether a broker can read it."""
    return {
        names.REAL_TOPIC: bool(found.get(names.REAL_TOPIC)),
        names.REAL_QID: java_integer(found.get(names.REAL_QID, ""), names.NUMBER_BITS[names.REAL_QID]) is not None,
    }


def check_copy(topic: bytes, properties: bytes, rules: RecordRules) -> None:
    """Refuse a copy of a record that does harm in a store: a start of the generation ends the log at it, or its timer
    or a delay level stops at it forever. For columns see `producer.refused_copies`. Raises InvalidInput.
    """
    check_timed(topic, properties, _ALONE)
    scheduled = topic == SCHEDULE_TOPIC.encode()
    batch = rules.inner_batches and names.INNER_NUM.encode() in properties
    if not scheduled and not batch:
        return
    found = names.parse(properties)
    asked = [names.DELAY] if scheduled else []
    if batch and found.get(names.INNER_NUM) and found.get(names.INNER_BASE):  # brokers read both or none
        asked += [names.INNER_NUM, names.INNER_BASE]
    for name in asked:
        text, bits = found.get(name), names.NUMBER_BITS[name]
        if text and java_integer(text, bits) is None:
            raise InvalidInput(
                f"{name} {text!r} is not a {bits}-bit number: a broker that starts would end its log at this message",
                hint=_ALONE if name == names.DELAY else _LEAVE_OUT,
            )
    if scheduled and rules.level_halts and not all(_own_queue(found).values()):
        what = f"this message has no valid {names.REAL_TOPIC} and {names.REAL_QID}"
        raise InvalidInput(f"{what}: {HALTING_BROKERS} deliver no later message of its delay level", hint=_LEAVE_OUT)


def check_scheduled(message: NewMessage, levels: int) -> None:
    """Refuse a message of the delay topic without the properties that a broker adds. levels: the number of levels.
    Raises InvalidInput.
    """
    found = names.parse(message.properties)
    level = java_integer(found.get(names.DELAY, ""), 32) or 0
    good = {names.DELAY: min(level, levels) == message.queue_id + 1, **_own_queue(found)}
    why = f"in {SCHEDULE_TOPIC} messages wait for a delay level, in the queue of that level"
    _require(good, why, "put the message to its own topic, with --delay-level or the property DELAY")


def asked_level(properties: dict[str, str]) -> int | None:
    """The delay level in the properties, None if there is none or it is below 1. Raises InvalidInput."""
    text = properties.get(names.DELAY)
    if text is None:
        return None
    level = java_integer(text, 32)
    if level is None:
        raise InvalidInput(f"{names.DELAY} is not a number: {text}")
    return level if level > 0 else None


def asked_ms(properties: dict[str, str], now_ms: int) -> int | None:
    """The delivery time in the properties, None if there is none. A broker takes a message with TIMER_OUT_MS for one
    that has waited. Raises InvalidInput.
    """
    if names.TIMER_OUT_MS in properties:
        return None
    for name, (unit_ms, is_delay) in ASKED_TIMES.items():
        text = properties.get(name)
        if text is not None:
            if not re.fullmatch(r"[0-9]{1,18}", text):
                raise InvalidInput(f"{name} is not a number: {text}")
            return now_ms * is_delay + int(text) * unit_ms
    return None


ASKED_TIMES = {names.TIMER_DELAY_SEC: (1000, True), names.TIMER_DELAY_MS: (1, True), names.TIMER_DELIVER_MS: (1, False)}
"""Properties that ask for a time, the one that counts first: ms of its unit, and whether it is counted from now."""


def _check_waits(message: NewMessage, profile: WriterProfile, now_ms: int) -> None:
    """Refuse a message that a broker would keep until it is due, outside of the topics where it waits.

    Raises InvalidInput.
    """
    if message.topic in (SCHEDULE_TOPIC.encode(), TIMER_TOPIC.encode()):
        return
    found = names.parse(message.properties)
    hint = "leave the property out, or use `mqstore put`, which stores the message as a broker does"
    if names.REAL_TOPIC not in found and asked_level(found) is not None:  # else it has waited
        raise InvalidInput(f"{names.DELAY}: a broker would keep this message in {SCHEDULE_TOPIC}", hint=hint)
    if profile.timer and (asked_ms(found, now_ms) or 0) > now_ms:
        name = next(name for name in ASKED_TIMES if name in found)
        raise InvalidInput(f"{name}: a broker would keep this message in {TIMER_TOPIC}", hint=hint)


def check_stored(message: NewMessage, rules: WriterRules, levels: int, now_ms: int) -> None:
    """Refuse what no broker of the generation stores, and what stops its services. Not for copies of records.

    Raises InvalidInput.
    """
    text, ended = message.properties, rules.profile.final_separator and not rules.append_crc
    if text and not (_ENDED_TEXT if ended else _TEXT).fullmatch(text):
        raise InvalidInput(
            f"properties are not a sequence of name, 01, value, 02 without a byte 00: {text[:_SHOWN_BYTES]!r}",
            hint="format_properties of mqstore.formats.message_properties makes them",
        )
    if message.store_timestamp is not None and message.store_timestamp <= 0:
        raise InvalidInput(f"a store timestamp must be greater than 0: {message.store_timestamp}")
    check_timed(message.topic, text)
    _check_waits(message, rules.profile, now_ms)
    if message.topic == SCHEDULE_TOPIC.encode():
        check_scheduled(message, levels)


_SHOWN_BYTES = 80


def host_bits(born_ip: bytes, store_ip: bytes) -> int:
    """The bits of sys_flag for the widths of the two addresses."""
    bits = SysFlag(0)
    if len(born_ip) == IPV6_BYTES:
        bits |= SysFlag.BORN_V6
    if len(store_ip) == IPV6_BYTES:
        bits |= SysFlag.STORE_V6
    return int(bits)


def record_fields(message: NewMessage, rules: WriterRules, now_ms: int) -> dict[str, Any]:
    """The fields of the record; queue offset and position are still 0.

    Raises InvalidInput, LimitExceeded for what a broker of the generation refuses.
    """
    magic_code = check_topic(message.topic, rules.profile)
    check_sizes(len(message.body), len(message.properties), rules)
    for name in NUMBER_LIMITS:
        number = getattr(message, name)
        if number is not None:
            check_number(name, number, number)
    check_host(message.born_host[0], rules.profile, message.born_host[1])
    check_host(rules.store_host[0], rules.profile, rules.store_host[1])
    hosts = (message.born_host[0], rules.store_host[0])
    time = now_ms if message.store_timestamp is None else message.store_timestamp
    return {
        "magic_code": magic_code,
        "body_crc": crc31(message.body) if message.wrong_crc is None else message.wrong_crc,
        "queue_id": message.queue_id,
        "flag": message.flag,
        "queue_offset": 0,
        "physical_offset": 0,
        "sys_flag": message.sys_flag & ~int(_HOST_BITS) | host_bits(*hosts),
        "born_timestamp": message.born_timestamp,
        "born_host": {"ip": message.born_host[0], "port": message.born_host[1]},
        "store_timestamp": time,
        "store_host": {"ip": rules.store_host[0], "port": rules.store_host[1]},
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "body": message.body,
        "topic": message.topic,
        "properties": message.properties,
    }


DEFAULT_HOST: Host = (b"\x7f\0\0\1", 10911)
DEFAULT_WAIT_SECONDS = 10.0


class Stored(NamedTuple):
    """Where a message was stored. store_host: the address in its message id."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    total_size: int
    store_host: Host


class WriterOptions(NamedTuple):
    """as_broker: the generation of a new store, or of a store whose own is unknown. store_host: None for that of the
    last record. topic_config: add topics to config/topics.json. follow_links: the store's own directories may be links
    to other disks. numbers_anew: messages bring LMQ offsets from another store; where they get units, they get offsets
    of this store.
    """

    as_broker: str | None = None
    store_host: Host | None = None
    topic_config: bool = True
    wait_seconds: float = DEFAULT_WAIT_SECONDS
    follow_links: bool = False
    numbers_anew: bool = False


class NewBatch(NamedTuple):
    """Messages that a client sends together.

    request: what applies to all: topic, queue, hosts, times, sys_flag, properties of the request; its body is not used.
    messages: only flag, body and properties of each are used.
    """

    request: NewMessage
    messages: tuple[NewMessage, ...]


def split(batch: NewBatch, rules: WriterRules) -> list[NewMessage]:
    """The messages that a broker makes from a batch, to be appended together.

    Properties of the request follow those of each message, if the generation does so. Raises InvalidInput for what a
    broker refuses: a transaction, a delay; LimitExceeded.
    """
    _check_batch(batch, rules)
    more = batch.request.properties if rules.profile.batch_properties else b""
    return [
        replace(
            batch.request,
            flag=message.flag,
            body=message.body,
            prepared_transaction_offset=0,
            properties=_joined_properties(message.properties, more),
        )
        for message in batch.messages
    ]


def inner(batch: NewBatch, rules: WriterRules) -> NewMessage:
    """The record that a 5.x broker makes from a batch for a topic with batch queues.

    The writer adds INNER_BASE. Raises InvalidInput, LimitExceeded.
    """
    _check_batch(batch, rules)
    found = names.parse(batch.request.properties)
    found[names.INNER_NUM] = str(len(batch.messages))
    properties = names.format_properties(found, final_separator=rules.profile.final_separator)
    bits = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
    return replace(batch.request, body=encoded(batch), properties=properties, sys_flag=batch.request.sys_flag | bits)


def encoded(batch: NewBatch) -> bytes:
    """The body of the client's request."""
    return b"".join(MESSAGE.build({"flag": m.flag, "body": m.body, "properties": m.properties}) for m in batch.messages)


def stays_whole(batch: NewBatch, profile: WriterProfile) -> bool:
    """Whether a broker stores the batch as one record if the topic has batch queues.

    Requests without a unique key, from old clients, are split there too.
    """
    return profile.modern_topics and names.UNIQ_KEY in names.parse(batch.request.properties)


def _check_batch(batch: NewBatch, rules: WriterRules) -> None:
    if not 0 < len(batch.messages) <= MESSAGES_MAX:
        raise InvalidInput(f"a batch has 1 to {MESSAGES_MAX} messages: {len(batch.messages)}")
    if batch.request.sys_flag & TRANSACTION_MASK:
        raise InvalidInput("a batch takes no part in a transaction")
    properties = (batch.request.properties, *(m.properties for m in batch.messages))
    if any(names.DELAY in names.parse(text) for text in properties if text):
        raise InvalidInput("messages of a batch cannot be delayed")
    for text in properties:
        if len(text) > PROPERTIES_BYTES_MAX:
            raise LimitExceeded(f"properties of {len(text)} bytes, more than {PROPERTIES_BYTES_MAX}")
    size = len(encoded(batch))
    if size > rules.max_body_bytes:
        raise _too_large(f"a batch of {counted(size, 'byte')}", rules)


def _joined_properties(own: bytes, more: bytes) -> bytes:
    """The properties of a message and of its request, with a separator between them."""
    if own and more and not own.endswith(names.ITEM_SEPARATOR):
        own += names.ITEM_SEPARATOR
    return own + more


class UniqueKeys:
    """Makes unique keys, all different within a process.

    ip: the address in the keys. clock: ms since 1970.
    """

    def __init__(self, ip: bytes, clock: Callable[[], int] = now_ms) -> None:
        self._ip = ip
        self._clock = clock
        self._pid = os.getpid()
        self._loader_hash = int.from_bytes(os.urandom(4))
        self._month_start = _month_start(clock())
        self._time = 0
        self._counter = 0

    def next(self) -> str:
        """A new key."""
        now = self._clock() - self._month_start
        if now > self._time or self._counter == UNIQUE_KEY_COUNTERS:
            # when the counter is used up, take a future millisecond
            self._time = max(now, self._time + 1)
            self._counter = 0
        key = unique_key(self._ip, self._pid, self._loader_hash, self._time, self._counter)
        self._counter += 1
        return key


class NoKeys:
    """Makes no keys: messages without a unique key are refused."""

    def next(self) -> str:
        """Raise InvalidInput."""
        raise InvalidInput(
            "no unique key: --resume cannot know whether the store has this message already",
            hint='give "unique_key": null and a born_timestamp; or begin again in a new store, without --resume',
        )


def _month_start(now: int) -> int:
    """The start of the current month in local time, in ms since 1970."""
    local = time.localtime(now / 1000)
    begin = (local.tm_year, local.tm_mon, 1, 0, 0, 0, 0, 0, -1)
    return int(time.mktime(begin)) * 1000


def stored_body(body: bytes, sys_flag: int | None, compression: str | None, *, as_stored: bool) -> tuple[bytes, int]:
    """A body as it is to be stored, and its sys_flag.

    sys_flag: None if not given. compression: the codec removed to show the body. as_stored: the body is marked as being
    as stored. Raises InvalidInput if these contradict each other, and for a body that is said to be compressed but does
    not decompress.
    """
    if compression:
        return _compressed_again(body, sys_flag, compression)
    flags = sys_flag or 0
    if body and flags & COMPRESSED and not as_stored:
        _require_compressed(body, flags)
    return body, flags


def _compressed_again(body: bytes, sys_flag: int | None, compression: str) -> tuple[bytes, int]:
    if compression not in FLAGS:
        raise InvalidInput(f"body_compression: not one of {', '.join(FLAGS)}: {compression!r}")
    flags = COMPRESSED | int(FLAGS[compression]) if sys_flag is None else sys_flag
    if (said := compression_of(flags)) != compression:
        said = said or ("a type that clients do not know" if flags & COMPRESSED else "not compressed")
        raise InvalidInput(f"body_compression says {compression}, sys_flag {flags} {said}")
    try:
        return pack(body, flags), flags
    except ValueError as error:
        raise InvalidInput(f"body: {error}") from None


def _require_compressed(body: bytes, sys_flag: int) -> None:
    try:
        unpack_whole(body, sys_flag)
    except BodyTooLarge:
        pass  # so it is compressed
    except ValueError as error:
        raise InvalidInput(
            f"body: sys_flag {sys_flag} says it is compressed, but it {error}",
            hint="for a decompressed body give body_compression, for a body as stored raw or body_error",
        ) from None


def stored_body_of(record: Mapping[str, Any], body: bytes, sys_flag: int | None) -> tuple[bytes, int]:
    """`stored_body` for the JSON object of a message. Raises InvalidInput."""
    raw = record.get("raw") is True
    compression = None if raw else record.get("body_compression")
    return stored_body(body, sys_flag, compression, as_stored=raw or bool(record.get("body_error")))


def wrong_crc(body: bytes, known: object) -> int:
    """A checksum for a body known to be corrupted: the one it had, but never the right one."""
    crc = crc31(body)
    given = known if type(known) is int and 0 <= known < 1 << 31 else crc
    return given if given != crc else crc ^ 1


def compressed(message: NewMessage, kind: str, profile: WriterProfile, over_bytes: int = OVER_BYTES) -> NewMessage:
    """The message with its body compressed, if it has at least `over_bytes`.

    kind: zlib, lz4 or zstd. Raises InvalidInput for a kind that the generation's clients do not know, and for a body
    that is already compressed.
    """
    if kind not in FLAGS:
        raise InvalidInput(f"no such compression: {kind}", hint="zlib, lz4 or zstd")
    if message.sys_flag & SysFlag.COMPRESSED:
        raise InvalidInput("the body is compressed already")
    if len(message.body) < over_bytes:
        return message
    kinds = profile.version >= _FIRST_WITH_CODECS
    if kind != "zlib" and not kinds:
        raise InvalidInput(f"clients of {profile.version} compress with zlib only")
    bits = SysFlag.COMPRESSED | (FLAGS[kind] if kinds else 0)
    sys_flag = message.sys_flag & ~COMPRESSION_MASK | int(bits)
    return replace(message, body=pack(message.body, sys_flag), sys_flag=sys_flag)
