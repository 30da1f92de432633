"""Topics that a broker makes for itself, and groups, whatever its configuration says."""

from __future__ import annotations

from typing import Final

from .delay_level import SCHEDULE_TOPIC

OFFSET_MOVED: Final = "OFFSET_MOVED_EVENT"
CHECKED_TOO_OFTEN: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRANSACTIONS_ENDED: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
_TOPICS = frozenset(
    {
        *(SCHEDULE_TOPIC, OFFSET_MOVED, CHECKED_TOO_OFTEN),
        *("TBW102", "BenchmarkTest", "SELF_TEST_TOPIC"),
    }
)
_TOPIC_PREFIXES = ("RMQ_SYS_", "rmq_sys_")
_GROUPS = frozenset({"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP"})
_GROUP_PREFIXES = ("CID_RMQ_SYS_", "CID_ONS")


def is_system_topic(topic: str) -> bool:
    """A broker serves the topic without an entry."""
    return topic in _TOPICS or topic.startswith(_TOPIC_PREFIXES)


def is_system_group(group: str) -> bool:
    """A broker knows the group without an entry."""
    return group in _GROUPS or group.startswith(_GROUP_PREFIXES)


def group_of_topic(topic: str) -> str:
    """The group whose retries or dead letters the topic has, "" for another topic."""
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if topic.startswith(prefix):
            return topic.removeprefix(prefix)
    return ""
