"""Writing units to the RocksDB of consume queues (spec 2.10, 7.6).

Units are collected and written when there are many, and at the end: after their records, together with the new `max`
rows and the row of what was dispatched. The database is changed in a copy whose new files come to the store one by one;
CURRENT, which names them, is replaced atomically. So the store has the old database or the new one, and until then
`abort` makes a start dispatch the records again from the end of the old one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...formats import rocksdb_consume_queue as formats
from ...formats.fixed import numbers_of
from ...formats.hashing import java_string, utf8
from ...formats.rocksdb_consume_queue import BOUNDS, CHECKPOINT_KEY, MAX, UNITS
from ...formats.topics import FILE as TOPICS
from ..broker.snapshot import QueueId
from ..broker.topics import BATCH_QUEUES, QUEUE_TYPE
from ..disk.files import Content, Files, write_new
from ..disk.layout import Layout
from ..errors import InvalidInput, Refused
from ..index.read import sizes_of
from ..queues.rocksdb import CURRENT, RocksDb, RocksdbConsumeQueues
from ..queues.rocksdb_write import UnitChanges, UnitSpool, changed, in_order, last_units
from ..settings.rocksdb import rows_of, stand_ins
from ..start.queue_stores import QueueStores, queue_stores
from .tail import NO_BATCHES, Tail, unclean

if TYPE_CHECKING:
    from ...formats.derive.ragged import Flags
    from ..broker.dispatch import Units
    from ..broker.profiles import WriterProfile
    from ..columns import Dictionary

_BOUND, _CHECKPOINT = numbers_of(formats.BOUND), numbers_of(formats.CHECKPOINT)
_UNITS_MAX = 1 << 19
"""Units that are collected at most."""
_FILES_BEHIND_MAX = 4
"""Log files by which the database may be behind; a start goes back up to ten."""
_TEMPORARY = "000000.dbtmp"
"""A file with this name is deleted when a broker opens its database."""


class DatabaseWriter:
    """Writes units of new messages to the RocksDB of a store that uses one, alone or in addition to files.

    dispatched: the position in the log up to which the database has units.
    """

    def __init__(self, files: Files, path: Path, stores: QueueStores, dispatched: int, file_bytes: int) -> None:
        self.stores = stores
        self._files, self._path = files, path
        self._dispatched, self._behind = dispatched, _FILES_BEHIND_MAX * file_bytes
        self._spool = UnitSpool()
        self._reach = dispatched

    @classmethod
    def of(cls, files: Files, layout: Layout, profile: WriterProfile, tail: Tail) -> DatabaseWriter:
        """For a store with a RocksDB of queues. Raises Unsupported, Refused, Unclean, Unreadable."""
        path, stores = layout.queue_database, queue_stores(layout, profile.start)
        assert path is not None
        if stores.database != path or stores.wrong:
            what = stores.wrong or f"brokers of {profile.start.version} do not use that directory"
            raise Refused(f"cannot append to a store with a RocksDB of queues: {what}", path=path)
        files.check_inside(path)
        database = RocksdbConsumeQueues(layout)
        try:
            dispatched = database.dispatched
            _check_ends(layout, stores, database.database, tail)
        finally:
            database.close()
        if dispatched < tail.unit_end and stores.selected is None:
            raise unclean(layout, "the RocksDB of queues is behind the log", dispatched)
        if dispatched > tail.log_end:
            raise unclean(layout, "the RocksDB of queues is ahead of the log", dispatched)
        return cls(files, path, stores, dispatched, sizes_of(layout).commit_log.value)

    def in_files(self, topic: str) -> bool:
        """Whether the topic has queues in files."""
        return self.stores.in_files(topic)

    def taken(self, topics: Dictionary) -> Flags | None:
        """The records whose units go to the database, for all queues they are dispatched to; None: all records."""
        selected = self.stores.selected
        if selected is None:
            return None
        import numpy as np

        return np.array([java_string(topic) in selected for topic in topics.values])[topics.ids]

    def add(self, queue: tuple[str, int], units: Units) -> None:
        """Collect units of one queue."""
        if not len(units):
            return
        self._reach = max(self._reach, int((units.physical_offset + units.size).max()))
        place = (units.queue_offset, units.physical_offset, units.size)
        self._spool.add(QueueId(*queue), *place, units.tags_code, units.store_timestamp)

    @property
    def full(self) -> bool:
        """Whether units must be written before more are added; the log must be on disk before that."""
        return len(self._spool) >= _UNITS_MAX or self._reach - self._dispatched > self._behind

    def write(self, log_end: int = 0) -> None:
        """Write what was collected to disk. log_end: the position up to which the log is dispatched, if it is farther;
        a database of selected topics records only how far their messages go.

        Raises NoSpace, Unreadable.
        """
        reach = max(self._reach, log_end if self.stores.selected is None else 0)
        if reach == self._dispatched and not len(self._spool):
            return
        spool, rows = self._spool, {CHECKPOINT_KEY: _CHECKPOINT.pack(reach)}
        for queue in spool.queues:
            key = formats.bound_key(utf8(queue.topic), queue.queue_id, MAX)
            rows[key] = _BOUND.pack(*spool.ends[queue])
        after = changed(self._path, {UNITS: UnitChanges(spool), BOUNDS: rows})
        for name in in_order(after.made):
            self._put(self._path / name, after.made[name])
        for name in after.gone:
            self._files.unlink(self._path / name)
        self._files.sync_directory(self._path)
        self._spool, self._dispatched, self._reach = UnitSpool(), reach, reach

    def _put(self, path: Path, data: Content) -> None:
        """Create a file, or replace one atomically."""
        like = self._path / CURRENT
        if not path.exists():
            write_new(self._files, path, data, like=like)
            return
        temporary = path.with_name(_TEMPORARY)
        if temporary.exists():
            self._files.unlink(temporary)
        write_new(self._files, temporary, data, like=like)
        self._files.rename(temporary, path)
        self._files.sync_directory(path.parent)


def _check_ends(layout: Layout, stores: QueueStores, database: RocksDb, tail: Tail) -> None:
    """Check that the `max` rows, on which brokers rely, agree with the queues. Raises Unclean."""
    rows: dict[tuple[str, int], int] = {queue: bound.queue_offset + 1 for queue, bound in last_units(database)}
    both = {queue for queue in tail.next_offsets if stores.in_database(queue[0])}
    for queue in sorted({*rows, *both}):
        end, row = tail.next_offsets.get(queue, 0), rows.get(queue, 0)
        if end != row:
            topic, queue_id = queue
            raise unclean(
                layout,
                f"queue {queue_id} of {topic} ends at {end}, but at {row} by its row in the RocksDB",
                tail.log_end,
                "repair --queues",
            )


class TopicsInDatabase:
    """The topics of a broker that keeps them in RocksDB; none is added here."""

    def __init__(self, path: Path, file: str) -> None:
        self._path = path
        self._known = {str(row["topic"]): row for row in rows_of(path, file) if "topic" in row}

    @classmethod
    def of(cls, layout: Layout) -> TopicsInDatabase | None:
        """The topics in RocksDB, None if topics are in a file. Raises Unsupported, Unreadable."""
        path = stand_ins(layout.config, layout.broker_config).get(TOPICS)
        return None if path is None else cls(path, TOPICS)

    def check(self, topic: str) -> None:
        """Raise InvalidInput for a topic that does not exist, or has batch queues."""
        found = self._known.get(topic)
        if found is None:
            raise InvalidInput(
                f"no topic {topic} in the RocksDB of topics ({self._path})",
                hint="create it with mqadmin updateTopic, or put without it: --no-topic-config",
            )
        if (found.get("attributes") or {}).get(QUEUE_TYPE) == BATCH_QUEUES:
            raise InvalidInput(NO_BATCHES)
