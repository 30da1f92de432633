"""Topics that a broker makes for itself, and groups, whatever its configuration says."""

from __future__ import annotations

from typing import Final

from ...formats.message_properties import RETRY_PREFIX
from .delay_level import SCHEDULE_TOPIC

OFFSET_MOVED: Final = "OFFSET_MOVED_EVENT"
CHECKED_TOO_OFTEN: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""Prepared messages of transactions, and which of them have ended."""
DEAD_LETTER_PREFIX: Final = "%DLQ%"
LMQ_PREFIX: Final = "%LMQ%"
"""Light queues (spec 2.9)."""
SELF_TEST: Final = "SELF_TEST_TOPIC"
NEW_TOPICS: Final = "TBW102"
"""The topic whose entry new ones are made from."""
LOWER_PREFIX: Final = "rmq_sys_"
SYSTEM_PREFIXES: Final = ("RMQ_SYS_", LOWER_PREFIX)
_TOPICS = frozenset(
    {SCHEDULE_TOPIC, OFFSET_MOVED, CHECKED_TOO_OFTEN, NEW_TOPICS, "BenchmarkTest", SELF_TEST}
)
_GROUPS = frozenset({"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP"})
SYSTEM_GROUPS: Final = "CID_RMQ_SYS_"
_GROUP_PREFIXES = (SYSTEM_GROUPS, "CID_ONS")


def is_system_topic(topic: str) -> bool:
    """A broker serves the topic without an entry."""
    return topic in _TOPICS or topic.startswith(SYSTEM_PREFIXES)


def is_system_group(group: str) -> bool:
    """A broker knows the group without an entry."""
    return group in _GROUPS or group.startswith(_GROUP_PREFIXES)


def group_of_topic(topic: str) -> str:
    """The group whose retries or dead letters the topic has, "" for another topic."""
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if topic.startswith(prefix):
            return topic.removeprefix(prefix)
    return ""
