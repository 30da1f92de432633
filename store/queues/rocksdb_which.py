"""Which queues a broker has in a RocksDB, by its options, or else by what is there (spec 2.10)."""

from __future__ import annotations

from ..broker.system_topics import LITE_PREFIX, LMQ_PREFIX
from ..disk.layout import Layout
from ..errors import Unreadable, Unsupported
from .rocksdb import RocksdbConsumeQueues

_SELECTIVE = "rocksdbCQSelectiveDoubleWriteEnable"


def has_database(layout: Layout) -> bool:
    """A broker has consume queues in a RocksDB, by its options, or else by what is there."""
    config = layout.broker_config
    asked = layout.queues_for_rocksdb or config.get_bool("rocksdbCQDoubleWriteEnable")
    return asked or layout.queue_database is not None


def light_in_database(layout: Layout) -> bool | None:
    """The RocksDB of queues has light queues; None: it has no queue, or cannot be read."""
    if layout.queue_database is None:
        return None
    try:
        topics = [queue.topic for queue in RocksdbConsumeQueues(layout)]
    except (Unsupported, Unreadable):
        return None
    return any(topic.startswith(LMQ_PREFIX) for topic in topics) if topics else None


def selective_double_write(layout: Layout) -> bool:
    """A broker with queues in files keeps those of LITE topics in a RocksDB besides, and light queues of others nowhere.

    By rocksdbCQSelectiveDoubleWriteEnable (5.5.1), else by what is there (spec 2.10).
    """
    config = layout.broker_config
    if layout.queue_database is None or layout.rocksdb_queues or _SELECTIVE in config:
        return config.get_bool(_SELECTIVE)
    lite = parents_of_lite(layout)
    return bool(lite) and lite >= {
        queue.topic
        for queue in RocksdbConsumeQueues(layout)
        if not queue.topic.startswith(LITE_PREFIX)
    }


def parents_of_lite(layout: Layout) -> set[str]:
    """The topics that light queues of LITE topics in the RocksDB name; none where that cannot be read."""
    if layout.queue_database is None:
        return set()
    try:
        topics = [queue.topic for queue in RocksdbConsumeQueues(layout)]
    except (Unsupported, Unreadable):
        return set()
    light = (topic for topic in topics if topic.startswith(LITE_PREFIX))
    return {topic.removeprefix(LITE_PREFIX).partition("$")[0] for topic in light}
