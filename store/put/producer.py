"""What a producer may ask for with a message, and the message that a broker stores then."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...formats import message_properties as names
from ...formats.hashing import java_string
from ..errors import InvalidInput
from .compression import OVER_BYTES, compressed
from .delay import delayed, timed
from .limits import check_producer
from .new_message import NewMessage
from .transaction import half, is_half

if TYPE_CHECKING:
    from .writer import StoreWriter

_LEVEL = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class Wishes:
    """delay_level: 1 …. deliver_ms: ms since 1970. compress: zlib, lz4 or zstd, of bodies of at
    least `over_bytes`. half: a transaction begins with it.
    """

    delay_level: int | None = None
    deliver_ms: int | None = None
    compress: str = ""
    over_bytes: int = OVER_BYTES
    half: bool = False


def as_stored(message: NewMessage, wishes: Wishes, writer: StoreWriter) -> NewMessage:
    """The message that the broker of `writer` stores for what a producer asks.

    Properties ask, too, as they do with a broker: DELAY, TIMER_DELIVER_MS, TIMER_DELAY_SEC,
    TIMER_DELAY_MS, TRAN_MSG. Raises InvalidInput, LimitExceeded.
    """
    check_producer(message, writer)
    if wishes.compress:
        message = compressed(message, wishes.compress, writer.profile, wishes.over_bytes)
    found = names.parse(message.properties)
    now_ms = writer.clock()
    level = wishes.delay_level
    if level is None and _LEVEL.fullmatch(found.get(names.DELAY, "")):
        level = int(found[names.DELAY]) or None
    deliver_ms = wishes.deliver_ms if wishes.deliver_ms is not None else _asked_ms(found, now_ms)
    if level is not None and deliver_ms is not None:
        raise InvalidInput("a message has a delay level or a time, not both")
    asks_half = wishes.half or is_half(message)
    if asks_half and (level is not None or deliver_ms is not None):
        raise InvalidInput("a half message cannot be delayed")
    if asks_half and writer.layout.broker_config.get_bool("rejectTransactionMessage"):
        raise InvalidInput("rejectTransactionMessage is on: the broker refuses half messages")
    if asks_half or level is not None or deliver_ms is not None:
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
    precision_ms = writer.layout.options.timer_precision.value
    limit = config.get_int("timerMaxDelaySec")
    if limit is None:
        return timed(message, deliver_ms, now_ms, writer.profile, precision_ms=precision_ms)
    return timed(
        message,
        deliver_ms,
        now_ms,
        writer.profile,
        precision_ms=precision_ms,
        max_delay_seconds=limit,
    )


def _asked_ms(properties: dict[str, str], now_ms: int) -> int | None:
    """When the properties ask for a delivery, None where they do not."""
    for name, unit_ms, base_ms in (
        ("TIMER_DELAY_SEC", 1000, now_ms),
        ("TIMER_DELAY_MS", 1, now_ms),
        ("TIMER_DELIVER_MS", 1, 0),
    ):
        text = properties.get(name)
        if text is not None:
            if not re.fullmatch(r"[0-9]{1,18}", text):
                raise InvalidInput(f"{name} is not a number: {text}")
            return base_ms + int(text) * unit_ms
    return None
