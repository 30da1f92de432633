"""A message that is to be appended, and the limits that a broker sets it (spec 01, 1.2 … 1.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...formats.hashing import crc31
from ...formats.message import MAGIC_V1, MAGIC_V2, PROPERTIES_BYTES_MAX, TOPIC_BYTES_MAX_V1, SysFlag
from ...formats.message_properties import CRC32, CRC_ITEM_BYTES, NAME_VALUE_SEPARATOR
from ...formats.primitives import IPV6_BYTES
from ..broker.write_profile import WriterProfile
from ..counted import counted
from ..disk.broker_conf import BrokerConfig
from ..errors import InvalidInput, LimitExceeded

MAX_MESSAGE_BYTES = 4 << 20
"""A broker's `maxMessageSize`: the largest body."""
CRC_ITEM_HEAD = CRC32.encode() + NAME_VALUE_SEPARATOR
_TOPIC_CHARACTERS_MAX = 255
_HOST_BITS = SysFlag.BORN_V6 | SysFlag.STORE_V6
Host = tuple[bytes, int]


@dataclass(frozen=True)
class NewMessage:
    """What a producer gives; names and units as in `formats.message`.

    properties: the text as stored. Hosts are (ip, port). store_timestamp: None takes the clock.
    wrong_crc: a checksum for a body that is known to be corrupted, None for the right one.
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


@dataclass(frozen=True)
class Rules:
    """What a writer needs to know to make records.

    The generation, its own address, a limit; append_crc: give every record a `__CRC32#`.
    """

    profile: WriterProfile
    store_host: Host
    max_body_bytes: int = MAX_MESSAGE_BYTES
    append_crc: bool = False

    @classmethod
    def of(cls, profile: WriterProfile, store_host: Host, config: BrokerConfig) -> Rules:
        """Those of a broker with this configuration. Raises InvalidInput for one without sense."""
        limit = config.get_int("maxMessageSize", MAX_MESSAGE_BYTES) or MAX_MESSAGE_BYTES
        append_crc = profile.property_crc and config.get_bool("enabledAppendPropCRC")
        return cls(profile, store_host, limit, append_crc)


def check_topic(topic: bytes, profile: WriterProfile) -> int:
    """The magic code for records of a topic. Raises InvalidInput for a topic that is refused."""
    try:
        text = topic.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidInput(f"topic is not UTF-8: {topic!r}") from None
    if not text:
        raise InvalidInput("a message needs a topic")
    if "\0" in text or "/" in text or text in (".", ".."):
        raise InvalidInput(f"topic cannot be the name of a directory: {text!r}")
    long = len(text) > TOPIC_BYTES_MAX_V1 or len(topic) > TOPIC_BYTES_MAX_V1
    if len(topic) > _TOPIC_CHARACTERS_MAX or (long and not profile.start.record.v2):
        limit = _TOPIC_CHARACTERS_MAX if profile.start.record.v2 else TOPIC_BYTES_MAX_V1
        raise InvalidInput(
            f"topic of {len(topic)} bytes: brokers of {profile.version} take {limit}: {text!r}"
        )
    return MAGIC_V2 if long else MAGIC_V1


def check_sizes(body_bytes: int, properties_bytes: int, rules: Rules) -> None:
    """Raises LimitExceeded for a body or properties that a broker refuses."""
    if body_bytes > rules.max_body_bytes:
        raise LimitExceeded(
            f"a body of {counted(body_bytes, 'byte')},"
            f" more than maxMessageSize {rules.max_body_bytes}",
            hint="--set maxMessageSize=BYTES raises the limit",
        )
    if properties_bytes > PROPERTIES_BYTES_MAX:
        raise LimitExceeded(
            f"properties of {properties_bytes} bytes, more than {PROPERTIES_BYTES_MAX}"
        )


def check_record(record_bytes: int, rules: Rules) -> None:
    """Raises LimitExceeded for a record, or the records of a batch, that old brokers refuse."""
    if rules.profile.whole_records and record_bytes > rules.max_body_bytes:
        raise LimitExceeded(
            f"a record of {counted(record_bytes, 'byte')},"
            f" more than maxMessageSize {rules.max_body_bytes}",
            hint="--set maxMessageSize=BYTES raises the limit",
        )


def ends_with_crc(properties: bytes) -> bool:
    """Whether the last item is a `__CRC32#`, which has to be computed again (spec 1.7)."""
    return properties[-CRC_ITEM_BYTES:].startswith(CRC_ITEM_HEAD)


def check_host(ip: bytes, profile: WriterProfile) -> None:
    """Raises InvalidInput for an address that the generation cannot store."""
    if len(ip) == IPV6_BYTES and not profile.start.record.ipv6:
        raise InvalidInput(f"brokers of {profile.version} cannot store IPv6 addresses")


def host_bits(born_ip: bytes, store_ip: bytes) -> int:
    """The bits of sys_flag that tell the widths of the two addresses."""
    bits = SysFlag(0)
    if len(born_ip) == IPV6_BYTES:
        bits |= SysFlag.BORN_V6
    if len(store_ip) == IPV6_BYTES:
        bits |= SysFlag.STORE_V6
    return int(bits)


def with_host_bits(sys_flag: int, born_ip: bytes, store_ip: bytes) -> int:
    """sys_flag with the bits of these addresses, whatever it said."""
    return sys_flag & ~int(_HOST_BITS) | host_bits(born_ip, store_ip)


def record_fields(message: NewMessage, rules: Rules, now_ms: int) -> dict[str, Any]:
    """The fields of the record, its queue offset and position still 0.

    Raises InvalidInput, LimitExceeded for what a broker of the generation refuses.
    """
    magic_code = check_topic(message.topic, rules.profile)
    check_sizes(len(message.body), len(message.properties), rules)
    check_host(message.born_host[0], rules.profile)
    if message.queue_id < 0:
        raise InvalidInput(f"queue id must not be negative: {message.queue_id}")
    hosts = (message.born_host[0], rules.store_host[0])
    time = now_ms if message.store_timestamp is None else message.store_timestamp
    return {
        "magic_code": magic_code,
        "body_crc": crc31(message.body) if message.wrong_crc is None else message.wrong_crc,
        "queue_id": message.queue_id,
        "flag": message.flag,
        "queue_offset": 0,
        "physical_offset": 0,
        "sys_flag": with_host_bits(message.sys_flag, *hosts),
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
