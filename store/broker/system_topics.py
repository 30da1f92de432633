"""Topics and groups that a broker makes for itself, and delay levels.

Delay levels: how long a scheduled message waits (spec/01-commitlog.md, 1.11).
"""

from __future__ import annotations

import re
from typing import Final

from ...formats.hashing import java_integer
from ...formats.message_properties import RETRY_PREFIX
from ..errors import InvalidInput

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
HALTING_BROKERS: Final = "brokers 4.9.3 to 4.9.8"
"""Whose delay levels stand still at a scheduled message without a valid REAL_TOPIC and REAL_QID (spec 9.9.2)."""
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
"""The topic of timer messages, 5.x (spec/04-checkpoint-timer.md, 4.4)."""
OFFSET_MOVED: Final = "OFFSET_MOVED_EVENT"
CHECKED_TOO_OFTEN: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""Prepared messages of transactions, and which of them have ended."""
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The group that reads both topics. The meaning of its offset in one depends on its offset in the other."""
TRANSACTION_POSITIONS: Final = (f"{HALF_TOPIC}@{TRANSACTION_GROUP}", f"{OP_TOPIC}@{TRANSACTION_GROUP}")
"""The keys of these two offsets in a table of offsets."""
ROCKSDB_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_OP_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
"""The same with transRocksDBEnable, 5.4+; rocksdbstore/ tells which transactions are open."""
DEAD_LETTER_PREFIX: Final = "%DLQ%"
LMQ_PREFIX: Final = "%LMQ%"
"""Prefix of LMQs (spec 2.9)."""
LITE_PREFIX: Final = LMQ_PREFIX + "$"
"""Prefix of LMQs of LITE topics; the parent topic's name, another `$` and the own name follow."""
MEMBERS_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Prefix of a topic that each broker has; the name of the broker follows."""
SELF_TEST: Final = "SELF_TEST_TOPIC"
NEW_TOPICS: Final = "TBW102"
"""The topic whose entry is the template of new topics."""
LOWER_PREFIX: Final = "rmq_sys_"
SYSTEM_PREFIXES: Final = ("RMQ_SYS_", LOWER_PREFIX)
OWN_TOPICS: Final = (
    *(SCHEDULE_TOPIC, TIMER_TOPIC, CHECKED_TOO_OFTEN),
    *(HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC),
)
"""Topics in which a broker keeps messages of other topics."""
_TOPICS = frozenset({SCHEDULE_TOPIC, OFFSET_MOVED, CHECKED_TOO_OFTEN, NEW_TOPICS, "BenchmarkTest", SELF_TEST})
_GROUPS = frozenset({"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP"})
SYSTEM_GROUPS: Final = "CID_RMQ_SYS_"
_GROUP_PREFIXES = (SYSTEM_GROUPS, "CID_ONS")

DEFAULT_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNKNOWN_LEVEL_MS: Final = 1_000
_DIGITS_MAX: Final = 10
"""Digits of a number that any broker can read; longer ones are refused before conversion."""


def is_system_topic(topic: str) -> bool:
    """Whether a broker serves the topic without an entry in its configuration."""
    return topic in _TOPICS or topic.startswith(SYSTEM_PREFIXES)


def is_system_group(group: str) -> bool:
    """Whether a broker knows the group without an entry in its configuration."""
    return group in _GROUPS or group.startswith(_GROUP_PREFIXES)


def group_of_topic(topic: str) -> str:
    """The group whose retry or dead letter topic this is; "" for another topic."""
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if topic.startswith(prefix):
            return topic.removeprefix(prefix)
    return ""


def parse_levels(text: str = DEFAULT_LEVELS) -> tuple[int, ...]:
    """The delays of levels 1, 2, … in ms, from the text of `messageDelayLevel`. Raises InvalidInput.

    As a broker does, split at each single blank, but not at the end: a broker with any other text does not start.

    >>> parse_levels("1s 5m")
    (1000, 300000)
    """
    levels = []
    for part in text.rstrip(" ").split(" "):
        match = re.fullmatch(r"(\d+)([smhd])", part)
        if match is None:
            raise InvalidInput(f"messageDelayLevel: not a number with s, m, h or d: {part!r}")
        if len(match[1]) > _DIGITS_MAX:
            raise InvalidInput(f"messageDelayLevel: a number too large: {part[:40]!r}")
        levels.append(int(match[1]) * _UNIT_MS[match[2]])
    return tuple(levels)


def format_levels(levels: tuple[int, ...]) -> str:
    """The text of `messageDelayLevel` for levels of whole seconds.

    >>> format_levels((1000, 300000))
    '1s 5m'
    """
    found = []
    for wait_ms in levels:
        unit = next(u for u in reversed(_UNIT_MS) if wait_ms % _UNIT_MS[u] == 0)
        found.append(f"{wait_ms // _UNIT_MS[unit]}{unit}")
    return " ".join(found)


def delay_ms(delay: str, levels: tuple[int, ...]) -> int | None:
    """How long a scheduled message with this DELAY waits, in ms; None if DELAY means no delay.

    A level above the highest counts as the highest. A text that is not a number means no delay here, although a
    broker's load ends the log at such a record (`broker.load_rules`).
    """
    wanted = java_integer(delay, 32)
    if wanted is None:
        return None
    level = min(wanted, len(levels))
    if level > 0:
        return levels[level - 1]
    return _UNKNOWN_LEVEL_MS if not levels and wanted > 0 else None
