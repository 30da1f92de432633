"""Messages that are delivered later: delay levels and timers (spec 01, 1.11; 04, 4.4).

A broker stores such a message under a topic of its own and notes the real one in its properties;
its services deliver it. Here is only what is stored: `put` never delivers.
"""

from __future__ import annotations

from dataclasses import replace

from ...formats import message_properties as names
from ...formats.hashing import java_string
from ...formats.sys_flag import TRANSACTION_MASK, SysFlag
from ..broker.delay_level import SCHEDULE_TOPIC, TIMER_TOPIC
from ..broker.write_profile import WriterProfile
from ..errors import InvalidInput, LimitExceeded
from .new_message import NewMessage

TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
_MAX_DELAY_SECONDS = 3 * 86_400


def delayed(message: NewMessage, level: int, levels: int, profile: WriterProfile) -> NewMessage:
    """The message as a broker stores it for a delay level; a level above the highest is that.

    levels: how many the broker has. Raises InvalidInput for a level below 1, and for a half
    message: a broker delays none.
    """
    if level < 1:
        raise InvalidInput(f"delay levels begin with 1: {level}")
    _refuse_transaction(message)
    level = min(level, levels) if levels else level
    return _under(
        message, SCHEDULE_TOPIC, level - 1, {names.DELAY: str(level)}, profile.final_separator
    )


def timed(
    message: NewMessage,
    deliver_ms: int,
    now_ms: int,
    profile: WriterProfile,
    *,
    precision_ms: int = 1000,
    max_delay_seconds: int = _MAX_DELAY_SECONDS,
) -> NewMessage:
    """The message as a broker of 5.x stores it for delivery at a time (ms since 1970).

    A time that is past goes to the real topic at once. precision_ms, max_delay_seconds: a broker's
    `timerPrecisionMs`, `timerMaxDelaySec`. Raises InvalidInput (a generation without timers, a half
    message, a delay level besides), LimitExceeded (too far away).
    """
    if not profile.timer:
        raise InvalidInput(
            f"brokers of {profile.version} have no timers",
            hint="use --delay-level, or --as-broker 5.1 or later",
        )
    _refuse_transaction(message)
    text = java_string(message.properties)
    if names.DELAY in names.parse(message.properties):
        raise InvalidInput("a message has a delay level or a time, not both")
    if deliver_ms - now_ms > max_delay_seconds * 1000:
        raise LimitExceeded(
            f"a delivery {(deliver_ms - now_ms) // 1000} s from now, more than timerMaxDelaySec "
            f"{max_delay_seconds}",
            hint="--set timerMaxDelaySec=SECONDS raises the limit",
        )
    asked = {} if TIMER_DELIVER_MS in text else {TIMER_DELIVER_MS: str(deliver_ms)}
    if deliver_ms <= now_ms:
        return _with_properties(message, asked, profile.final_separator)
    whole = deliver_ms % precision_ms == 0
    out_ms = deliver_ms - precision_ms if whole else deliver_ms // precision_ms * precision_ms
    asked[names.TIMER_OUT_MS] = str(out_ms)
    return _under(message, TIMER_TOPIC, 0, asked, profile.final_separator)


def _refuse_transaction(message: NewMessage) -> None:
    if message.sys_flag & TRANSACTION_MASK in (SysFlag.PREPARED, SysFlag.ROLLBACK):
        raise InvalidInput("a half message cannot be delayed")


def _under(
    message: NewMessage, topic: str, queue_id: int, more: dict[str, str], final_separator: bool
) -> NewMessage:
    """The message under a topic of the broker's, its own one in the properties."""
    real = {names.REAL_TOPIC: java_string(message.topic), names.REAL_QID: str(message.queue_id)}
    found = _with_properties(message, {**more, **real}, final_separator)
    return replace(found, topic=topic.encode(), queue_id=queue_id)


def _with_properties(
    message: NewMessage, more: dict[str, str], final_separator: bool
) -> NewMessage:
    found = names.parse(message.properties) | more
    return replace(
        message, properties=names.format_properties(found, final_separator=final_separator)
    )
