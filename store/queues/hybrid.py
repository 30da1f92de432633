"""The consume queues of a store, wherever they are: in files, in a RocksDB, or in both (spec 2.10).

The broker's options say which queues are in a RocksDB; without options, what is there says it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from heapq import merge

from ..broker.system_topics import LITE_PREFIX, LMQ_PREFIX
from ..disk.layout import Layout, QueueDirectory, has_topic
from ..errors import Unreadable, Unsupported
from .read import ConsumeQueue, ConsumeQueues
from .rocksdb import RocksdbConsumeQueues

_DOUBLE, _SELECTIVE = "rocksdbCQDoubleWriteEnable", "rocksdbCQSelectiveDoubleWriteEnable"


def _database_topics(layout: Layout) -> list[str]:
    """The topic of each queue in the RocksDB; empty without a RocksDB, or if it cannot be read."""
    if layout.queue_database is None:
        return []
    try:
        return [queue.topic for queue in RocksdbConsumeQueues(layout)]
    except (Unsupported, Unreadable):
        return []


def lmq_in_database(layout: Layout) -> bool | None:
    """Whether the RocksDB of queues has LMQs; None if it has no queue, is missing, or cannot be read."""
    topics = _database_topics(layout)
    return any(topic.startswith(LMQ_PREFIX) for topic in topics) if topics else None


def selective_double_write(layout: Layout) -> bool:
    """Whether a broker with queues in files keeps queues of LITE topics in a RocksDB as well, and other LMQs nowhere.

    Decided by rocksdbCQSelectiveDoubleWriteEnable (5.5.1), else by what is there (spec 2.10). A broker with its queues
    only in files, or only in a RocksDB, does not read that option.
    """
    config = layout.broker_config
    if layout.queues_for_rocksdb or not config.get_bool(_DOUBLE, layout.queue_database is not None):
        return False
    if layout.queue_database is None or _SELECTIVE in config:
        return config.get_bool(_SELECTIVE)
    lite = parents_of_lite(layout)
    return bool(lite) and lite >= {
        queue.topic for queue in RocksdbConsumeQueues(layout) if not queue.topic.startswith(LITE_PREFIX)
    }


def parents_of_lite(layout: Layout) -> set[str]:
    """The topics that LMQs of LITE topics in the RocksDB name; empty if it cannot be read."""
    lmq = (topic for topic in _database_topics(layout) if topic.startswith(LITE_PREFIX))
    return {topic.removeprefix(LITE_PREFIX).partition("$")[0] for topic in lmq}


class HybridConsumeQueues(ConsumeQueues):
    """Queues of a store that has queues in files and in a RocksDB. Those in files count; LMQs without a directory are
    read from the database, where brokers keep them alone (spec 2.10).
    """

    def __init__(self, layout: Layout, database: RocksdbConsumeQueues) -> None:
        super().__init__(layout)
        self.in_database = database

    @property
    def lmq(self) -> list[QueueDirectory]:
        """LMQs that are only in the database."""
        return list(self._lmq.values())

    @cached_property
    def _lmq(self) -> dict[str, QueueDirectory]:
        """The queue of each LMQ that is only in the database, by topic."""
        if not self.layout.broker_config.get_bool("combineCQUseRocksdbForLmq", True):
            return {}
        lmq = (each for each in self.in_database if each.topic.startswith(LMQ_PREFIX))
        root = self.layout.consume_queue
        return {each.topic: each for each in lmq if not has_topic(root, each.topic)}

    def __iter__(self) -> Iterator[QueueDirectory]:
        yield from merge(super().__iter__(), self._lmq.values())

    def open(self, topic: str, queue_id: int) -> ConsumeQueue:
        lmq = topic in self._lmq
        return self.in_database.open(topic, queue_id) if lmq else super().open(topic, queue_id)

    def has_topic(self, topic: str) -> bool:
        return topic in self._lmq or super().has_topic(topic)

    def of_topic(self, topic: str) -> list[QueueDirectory]:
        return [self._lmq[topic]] if topic in self._lmq else super().of_topic(topic)

    def _listed(self, each: QueueDirectory) -> ConsumeQueue:
        return self.open(each.topic, each.queue_id) if each.topic in self._lmq else super()._listed(each)

    def close(self) -> None:
        """Close the database, if it was opened."""
        self.in_database.close()


def all_queues(layout: Layout) -> ConsumeQueues:
    """The queues of a store, in files, in a RocksDB, or in both; reads no queue yet."""
    if layout.queue_database is None:
        return ConsumeQueues(layout)
    queues = RocksdbConsumeQueues(layout)
    return queues if layout.rocksdb_queues else HybridConsumeQueues(layout, queues)


def open_queues(layout: Layout) -> tuple[ConsumeQueues, str]:
    """Return the queues of a store, and why those of its RocksDB cannot be read, "" if they can. If they cannot, only
    the queues in files remain, or none if the store has all of them in the RocksDB.
    """
    queues = all_queues(layout)
    database = queues.in_database if isinstance(queues, HybridConsumeQueues) else queues
    if not isinstance(database, RocksdbConsumeQueues):
        return queues, ""
    try:
        next(iter(database), None)
    except (Unsupported, Unreadable) as error:
        database.give_up()
        why = "; ".join(filter(None, (error.message, error.hint)))
        problem = f"the consume queues cannot be read ({why})"
        return (queues if database is queues else ConsumeQueues(layout)), problem
    return queues, ""
