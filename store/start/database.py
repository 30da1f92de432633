"""Queues in a RocksDB at a start (spec 7.14): what they want of the first file, what is dispatched to them,
how they are held against those in files.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...formats.derive import Columns
from ..broker.dispatch import dispatch_columns
from ..broker.load_rules import Refusal
from ..broker.profiles import Profile
from ..broker.snapshot import QueueId
from ..columns.ordered import order_of_pairs
from ..queues.start_rocksdb import Commit, DatabaseState, FileQueue, Queued, RowDamage
from ..queues.units import UNIT_DTYPE
from .log import DatabaseSearch, Switches
from .queue_stores import QueueStores


def search_for(stores: QueueStores, database: DatabaseState, profile: Profile) -> DatabaseSearch:
    """What the database wants of the file where a recovery begins."""
    rules = profile.database
    assert rules is not None
    return DatabaseSearch(
        database.dispatch_from,
        alone=not stores.files,
        skips_new=rules.skips_new,
        checks_first=rules.checks_first,
        never_skips=stores.light_in_database,
        reads=stores.reads_database,
        extra_files=stores.extra_files,
    )


def against_files(
    stores: QueueStores,
    database: DatabaseState,
    queues: Mapping[QueueId, FileQueue],
    commit: Commit,
) -> Refusal | None:
    """Hold the queues of both kinds against each other; then all units have been written."""
    same = True
    if commit is Commit.BEFORE_START:
        database.commit()
    try:
        if stores.files:
            light, topics = stores.light_in_database, stores.in_database
            same = database.compare(queues, light=light, topics=topics)
        database.commit()
    except RowDamage as damage:
        return Refusal("queue-database-row", damage.reason, str(stores.database))
    if same or not stores.reads_database:
        return None
    reason = "RuntimeException: currentReadStore not satisfied readable conditions"
    return Refusal("queue-database-differs", reason, str(stores.database))


class DatabaseDispatch:
    """No name is too odd for a key. Units on their way to a database, a batch of records at a time."""

    def __init__(
        self, database: DatabaseState, stores: QueueStores, profile: Profile, switches: Switches
    ) -> None:
        self._database, self._stores = database, stores
        self._how = switches.dispatching(profile.dispatch)._replace(slash_names=True)

    def add(self, columns: Columns, behind: int | None) -> None:
        """What is dispatched for records. behind: only for those at a greater position."""
        if behind is not None:
            columns = columns.take(columns.ints("physical_offset") > behind)
        if not len(columns):
            return
        dispatched = dispatch_columns(columns, self._how)
        made = dispatched.units
        units = np.zeros(len(made), UNIT_DTYPE)
        for name in UNIT_DTYPE.names or ():
            units[name] = getattr(made, name)
        keys = made.topic_id.astype(np.int64) << 32 | (made.queue_id & 0xFFFFFFFF)
        order = order_of_pairs(keys >> 32, keys & 0xFFFFFFFF)
        cuts = np.flatnonzero(np.diff(keys[order])) + 1
        queued = []
        for mine in np.split(order, cuts) if len(order) else ():
            key = int(keys[mine[0]])
            topic = dispatched.topics[key >> 32]
            queue_id = (key & 0xFFFFFFFF ^ 1 << 31) - (1 << 31)
            if self._stores.in_database(topic):
                queue = QueueId(topic, queue_id)
                queued.append(Queued(queue, made.queue_offset[mine], units[mine]))
        last = int(columns.ints("physical_offset")[-1] + columns.ints("total_size")[-1])
        self._database.dispatch(queued, last)
