"""Queues in a RocksDB at a start (spec 7.14): what they want of the first file, what is dispatched to them,
how they are held against those in files.

Units that a start makes of records are collected until its queues are given theirs: with many queues a
batch of records has few of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...formats.derive import Columns
from ...formats.derive.ragged import Flags, Ints
from ...formats.hashing import java_string
from ...formats.message import SysFlag
from ..audit.verified import VerifiedRun
from ..broker.dispatch import Dispatched, dispatch_columns
from ..broker.dispatch_record import Dispatching
from ..broker.load_rules import Refusal
from ..broker.profiles import Profile
from ..broker.snapshot import QueueId
from ..broker.system_topics import LMQ_PREFIX
from ..columns import dictionary, kept, order_of_pairs
from ..queues.start_rocksdb import Commit, DatabaseState, FileQueue, Queued, RowDamage
from ..queues.units import UNIT_DTYPE, Units, joined
from .log import DatabaseSearch
from .queue_stores import QueueStores

if TYPE_CHECKING:
    from .simulate import Outcome


class QueueUnits(NamedTuple):
    """Units of one queue, in log order. rows: which ones they are of all that were handed out."""

    queue: QueueId
    offsets: Ints
    units: Units
    rows: Ints


class DispatchedUnits:
    """Units of all queues, in log order."""

    def __init__(self) -> None:
        self._topics: dict[str, int] = {}
        self._parts: list[tuple[Ints, Ints, Units]] = []
        self._count = 0

    def add(self, dispatched: Dispatched) -> None:
        """Take what records add to queues."""
        made = dispatched.units
        units = np.zeros(len(made), UNIT_DTYPE)
        for name in UNIT_DTYPE.names or ():
            units[name] = getattr(made, name)
        numbers = [self._topics.setdefault(topic, len(self._topics)) for topic in dispatched.topics]
        keys = np.array(numbers, np.int64)[made.topic_id] << 32 | (made.queue_id & 0xFFFFFFFF)
        self._parts.append((keys, kept(made.queue_offset), units))
        self._count += len(units)

    @property
    def enough(self) -> bool:
        """So many that they are to be handed out."""
        return self._count >= _AT_ONCE

    def hand_out(self) -> Iterator[QueueUnits]:
        """All of them, a queue after the other; none are left."""
        parts, topics = self._parts, list(self._topics)
        self._topics, self._parts, self._count = {}, [], 0
        if not parts:
            return
        keys, offsets = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        if not len(keys):
            return
        units = joined([part[2] for part in parts])
        order = order_of_pairs(keys >> 32, keys & 0xFFFFFFFF)
        cuts = np.flatnonzero(np.diff(keys[order])) + 1
        for rows in np.split(order, cuts):
            key = int(keys[rows[0]])
            queue_id = (key & 0xFFFFFFFF ^ 1 << 31) - (1 << 31)
            yield QueueUnits(QueueId(topics[key >> 32], queue_id), offsets[rows], units[rows], rows)


_AT_ONCE = 1 << 18


DIFFERS = "queue-database-differs"
"""The case of a start that finds the queues of both kinds not the same."""


class LightThrows(Exception):
    """5.4 looks for the file of a light queue among the queues that consumers read (B44)."""

    def __init__(self) -> None:
        super().__init__("ClassCastException: RocksDBConsumeQueue cannot be cast to ConsumeQueue")

    @classmethod
    def check(cls, topics: Iterable[str]) -> None:
        """Raises it where one of these has light queues."""
        if any(topic.startswith(LMQ_PREFIX) for topic in topics):
            raise cls


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
    return Refusal(DIFFERS, reason, str(stores.database))


class DatabaseDispatch:
    """No name is too odd for a key. Units on their way to a database, a batch of records at a time."""

    def __init__(self, outcome: Outcome, database: DatabaseState) -> None:
        self._database, self._stores = database, outcome.stores
        how = outcome.switches.dispatching(outcome.profile.dispatch)
        self._how = how._replace(
            slash_names=True, lite_alone=False
        )  # topics are selected, not names
        #: Position of a record that the thread tries to put for ever (B11); nothing comes behind it.
        self.poisoned: int | None = None
        self._version = outcome.profile.version
        #: Who waits for light queues is told of their messages (enableMultiDispatch), where they get no units.
        config = outcome.snapshot.layout.broker_config
        self._tells = config.get_bool("enableMultiDispatch") and not how.multi_dispatch
        self._units, self._end, self._last = DispatchedUnits(), 0, 0

    def add(self, columns: Columns, behind: int | None) -> None:
        """What is dispatched for records. behind: only for those at a greater position."""
        wanted = columns.ints("sys_flag") & SysFlag.PREPARED == 0  # nor those rolled back
        if behind is not None:
            wanted &= columns.ints("physical_offset") > behind
        if self._stores.selected is not None:
            wanted &= self._selected(columns)
        columns = columns.take(wanted)
        if not len(columns) or self.poisoned is not None:
            return
        dispatched = dispatch_columns(columns, self._how)
        if len(dispatched.poisoned):
            self.poisoned = int(columns.ints("physical_offset")[dispatched.poisoned[0]])
            return
        if self._tells:  # its units are put, again and again
            told = dispatch_columns(columns, self._how._replace(multi_dispatch=True))
            for row in told.poisoned[:1]:
                self.poisoned = int(columns.ints("physical_offset")[row])
        self._units.add(dispatched)
        ends = columns.ints("physical_offset") + columns.ints("total_size")
        self._end, self._last = max(self._end, int(ends.max())), int(ends[-1])
        if self._units.enough:
            self.hand_out()

    def hand_out(self) -> None:
        """Let the database have the units that were put by."""
        if not self._end:
            return
        queued = [Queued(each.queue, each.offsets, each.units) for each in self._units.hand_out()]
        self._database.dispatch(queued, self._end, self._last)
        self._end = 0

    def _selected(self, columns: Columns) -> Flags:
        """Records of LITE topics: with all queues that they name, whatever the names are."""
        found, selected = dictionary(columns.ragged("topic")), self._stores.selected or frozenset()
        wanted = np.array([java_string(value) in selected for value in found.values], np.bool_)
        return wanted[found.ids]

    def takes(self, run: VerifiedRun, behind: int | None, made_by: Dispatching | None) -> bool:
        """Nobody has to see the records of a run: the database has their units, and puts nothing else; or
        they were made as it gets them, and are put.

        behind: as of `add`. made_by: the rules by which units of runs were made.
        """
        database = self._database
        if self._stores.files or run.further_by not in ("", self._version):
            return False
        if run.units and (self._tells or made_by != self._how):
            return False
        if not run.units and database.source is None:
            return False
        if self.poisoned is not None or (behind is not None and run.last <= behind):
            return True
        if run.units:
            self._put_made(run, -1 if behind is None else behind)
            return True
        if behind is not None and run.begin <= behind:
            return False
        self.hand_out()
        queued = []
        for queue, queue_range in run.queues.items():
            last = queue_range.next - 1
            queued.append(
                Queued(queue, np.array([last], np.int64), database.on_disk(queue, last, 1))
            )
        if queued:  # what gets no unit at the end of a run is not dispatched
            end = max(queue_range.reach(True) for queue_range in run.queues.values())
            database.dispatch(queued, end, end)
        return True

    def _put_made(self, run: VerifiedRun, behind: int) -> None:
        """Let the database have the units of a run, of records at a position greater than `behind`."""
        self.hand_out()
        last = (parts[-1][-1] for parts in run.units.values())
        ends = [int(unit["physical_offset"]) + int(unit["size"]) for unit in last]
        self._database.dispatch(_made(run, behind), max(ends), max(ends))


def _made(run: VerifiedRun, behind: int) -> Iterator[Queued]:
    for queue, parts in run.units.items():
        each, units = run.queues[queue], joined(parts)
        offsets = np.arange(each.first, each.next, dtype=np.int64)
        wanted = units["physical_offset"] > behind
        if not wanted.all():
            offsets, units = offsets[wanted], units[wanted]
        if len(units):
            yield Queued(queue, offsets, units)
