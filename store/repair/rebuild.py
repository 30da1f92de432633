"""Queues and index made anew where there are none: one pass over the log, a part on each core.

What lies in order is told as `recover` proves it (`audit/verified.py`), with the units and index
items that the records ask for. From the first record on that is anything out of the ordinary, others
look one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...formats.message import MAGIC_V1, SysFlag
from ...formats.message_properties import INNER_MULTI_DISPATCH, ends_with_crc
from ..audit.prove import in_parts, is_in_order
from ..audit.verified import (
    PackedItems,
    QueueRange,
    VerifiedLog,
    VerifiedRun,
    drop_full_end,
    goes_on,
)
from ..broker.dispatch import Dispatched, dispatch
from ..broker.profiles import DispatchRules
from ..broker.snapshot import QueueId, Snapshot
from ..columns.ordered import begins
from ..index.compare import IndexFiles
from ..log.batch import LOOK_BACK, Batch, Extent
from ..log.commit_log import CommitLog
from ..plan.observer import can_have_files
from ..queues.units import LARGEST_OFFSET, UNIT_DTYPE, Units, joined
from ..settings.options import options_of

Ints = npt.NDArray[np.int64]
_AT_ONCE = 1 << 18
"""Messages that are sorted by queue together: with many queues a window has few of each."""
_MOST_QUEUES = 1 << 16
_LONG_HOSTS = int(SysFlag.BORN_V6 | SysFlag.STORE_V6)


def made_anew(
    snapshot: Snapshot,
    rules: DispatchRules,
    *,
    multi_dispatch: bool,
    jobs: int,
    tell: Callable[[int], None] | None = None,
) -> VerifiedLog | None:
    """What is in order from the beginning of the log on, units and index items included.

    None where queues or index have files: these are compared with the log first. Raises Unreadable.
    """
    compared = any(snapshot.queues.values()) or snapshot.batch_topics or snapshot.index
    if not snapshot.log or compared:
        return None
    log, index = CommitLog.open(snapshot.layout), IndexFiles.of(snapshot)
    levels = options_of(snapshot.layout).delay_waits()

    def part(begin: int, end: int, tell: Callable[[int], None] | None) -> VerifiedLog:
        return _Part(log, rules, levels, light=multi_dispatch).made(begin, end, index, tell)

    return in_parts(log, part, jobs, tell)


@dataclass
class _Group:
    """Messages that wait to be sorted by queue: columns, one array per window.

    begin, reach: log positions of the first record and behind the last. The rest as `VerifiedRun` has it.
    """

    begin: int
    reach: int
    count: int = 0
    topic: list[Ints] = field(default_factory=list)
    queue_id: list[Ints] = field(default_factory=list)
    offset: list[Ints] = field(default_factory=list)
    units: list[Units] = field(default_factory=list)
    items: list[PackedItems] = field(default_factory=list)
    unindexed: int | None = None
    recent: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    store_timestamp: int = 0
    with_crc: bool = False
    plain: bool = True

    def add(self, batch: Batch, made: Dispatched, topic: Ints) -> None:
        """Take a window of records behind the last one. topic: number of each record's topic."""
        columns = batch.columns
        units = np.empty(len(batch), UNIT_DTYPE)
        for name in UNIT_DTYPE.names or ():
            units[name] = getattr(made.units, name)
        self.topic.append(topic)
        self.queue_id.append(made.units.queue_id)
        self.offset.append(made.units.queue_offset)
        self.units.append(units)
        self.items.append(PackedItems.of(batch, made.items))
        if self.unindexed is None and len(made.items):
            self.unindexed = int(made.items.physical_offset[0])
        self.recent = batch.position[-LOOK_BACK:].copy()
        self.store_timestamp = int(columns.ints("store_timestamp")[-1])
        self.with_crc |= ends_with_crc(columns.ragged("properties")[len(batch) - 1])
        self.plain &= bool((columns.ints("magic_code") == MAGIC_V1).all())
        self.plain &= not (columns.ints("sys_flag") & _LONG_HOSTS).any()
        self.count, self.reach = self.count + len(batch), batch.end

    def run(
        self, path: str, queues: dict[QueueId, QueueRange], units: dict[QueueId, Units]
    ) -> VerifiedRun:
        """The run that these records are."""
        return VerifiedRun(
            path,
            self.begin,
            self.reach,
            int(self.recent[-1]),
            self.store_timestamp,
            self.with_crc,
            self.plain,
            self.unindexed,
            self.recent,
            queues,
            units,
            self.items,
            first_timestamp=int(self.items[0].store_timestamp[0]),
        )


class _Part:
    """Makes what one part of a log asks for. levels: what delay levels wait, in ms. light: messages
    can be in further queues.
    """

    def __init__(
        self, log: CommitLog, rules: DispatchRules, levels: tuple[int, ...] | None, *, light: bool
    ) -> None:
        self._log, self._rules, self._levels, self._light = log, rules, levels, light
        self._topics: dict[str, int] = {}
        self._next: dict[QueueId, int] = {}
        self._group = _Group(0, 0)

    def made(
        self, start: int, stop: int, index: IndexFiles, tell: Callable[[int], None] | None
    ) -> VerifiedLog:
        """What is in order from the record at `start` on, up to `stop`. Raises Unreadable.

        tell: called with the position reached.
        """
        items: list[VerifiedRun | Extent] = []
        self._group = _Group(start, start)
        for item in self._log.scan(start, stop, reuse=True):
            if isinstance(item, Extent):
                if not self._settle(items) or not goes_on(self._log, item, self._group.reach):
                    break
                items.append(item)
                self._group = _Group(item.end, item.end)
                continue
            if tell is not None:
                tell(item.end)
            if not self._take(item):
                break
            if self._group.count >= _AT_ONCE and not self._settle(items):
                break
        self._settle(items)
        drop_full_end(self._log, items)
        return VerifiedLog(items, items[-1].end if items else start, index)

    def _take(self, batch: Batch) -> bool:
        """Dispatch a window of records; False: some record is out of the ordinary."""
        if not is_in_order(batch, self._group.reach):
            return False
        how = self._rules.how(multi_dispatch=False, delay_levels=self._levels)
        made = dispatch(batch, how)
        if self._light and made.properties.find(INNER_MULTI_DISPATCH).length.max() > 0:
            return False
        numbers = [self._topics.setdefault(topic, len(self._topics)) for topic in made.topics]
        self._group.add(batch, made, np.array(numbers, np.int64)[made.units.topic_id])
        return True

    def _settle(self, items: list[VerifiedRun | Extent]) -> bool:
        """Make a run of the messages that wait; False: a queue is not in order, there is none."""
        group, self._group = self._group, _Group(self._group.reach, self._group.reach)
        file = self._log.queue.file_at(group.begin)
        if not group.count or file is None:
            return not group.count
        topic, queue_id = np.concatenate(group.topic), np.concatenate(group.queue_id)
        width = int(queue_id.max()) + 1
        if int(queue_id.min()) < 0 or width * len(self._topics) > _MOST_QUEUES:
            return False
        queue = (topic * width + queue_id).astype(np.uint16)  # numpy sorts 16 bits in one pass
        order = np.argsort(queue, kind="stable")
        queue, offset = queue[order], np.concatenate(group.offset)[order]
        units = joined(group.units)[order]
        new = np.flatnonzero(begins(queue))
        ends = np.append(new[1:], len(queue))
        topics = list(self._topics)
        names = [QueueId(topics[n // width], n % width) for n in queue[new].tolist()]
        if not self._follow(names, offset, new):
            return False
        positions = units["physical_offset"]
        last = ends - 1
        columns = offset[new], offset[last] + 1, positions[new], positions[last]
        rows = zip(names, *(c.tolist() for c in (*columns, units["size"][last])), strict=True)
        queues = {name: QueueRange(*row) for name, *row in rows}
        self._next |= {name: queue_range.next for name, queue_range in queues.items()}
        pieces = zip(names, new.tolist(), ends.tolist(), strict=True)
        made = {name: units[first:end] for name, first, end in pieces}
        items.append(group.run(file.path, queues, made))
        return True

    def _follow(self, names: list[QueueId], offset: Ints, new: Ints) -> bool:
        """The messages of each queue, which begin at rows `new`, have one offset after the other."""
        begins = zip(names, offset[new].tolist(), strict=True)
        before = np.append(-1, offset[:-1]) + 1
        before[new] = [self._next.get(name, first) for name, first in begins]
        possible = int(offset.min()) >= 0 and int(offset.max()) < LARGEST_OFFSET
        known = all(name in self._next or can_have_files(name) for name in names)
        return possible and known and not (offset != before).any()
