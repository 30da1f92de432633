"""A plain store made of one with a DLedger log (spec 01, 1.13).

Every record is written once more without the entry around it. Queue offsets stay what they are, positions
do not: records, ends of transactions and the timer log get the new ones; queues, index and checkpoint
are made from the new log. Configuration, timer wheel and compaction topics come along.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...formats.derive import dtype_of
from ...formats.timer_log import UNIT, UNIT_BYTES
from ..audit.messages import scan_messages
from ..broker.dispatch_record import Dispatching
from ..damage.drill import check_target, copy_file, copy_store
from ..disk.broker_conf import BrokerConfig
from ..disk.file_queue import MappedFileQueue
from ..disk.files import Files, new_directory
from ..disk.layout import COMMIT_LOG, COMPACTION, TIMER_LOG, Layout
from ..disk.lock import holder
from ..disk.sizes import commit_log_size
from ..errors import InUse, Refused, Unsupported
from ..index.read import sizes_of
from ..log.commit_log import CommitLog
from ..log.write import LogWriter
from ..queues.read import ConsumeQueues, QueueSummary, batch_summaries
from ..salvage.original import MissingOffsets, Restored, complete
from ..settings.generation import generation_of
from .log import Copied, copy_log
from .moved import NOWHERE, Moved

_DLEDGER_OPTION = "enableDLegerCommitLog"
_WINDOW_UNITS = 1 << 16


class ChangedQueue(NamedTuple):
    """A queue that does not reach as far as it did: (min, max) offset before and after."""

    topic: str
    queue_id: int
    before: tuple[int, int]
    after: tuple[int, int]


@dataclass
class Converted:
    """What was made. left_behind: parts that were not taken. left: what is not in order, "" for nothing."""

    layout: Layout
    target: Path
    copied: Copied
    version: str = ""
    file_bytes: int = 0
    queues: int = 0
    changed: list[ChangedQueue] = field(default_factory=list)
    left_behind: list[str] = field(default_factory=list)
    left: str = ""

    @property
    def complete(self) -> bool:
        """Every record came along, and every queue reaches as far as it did, or farther."""
        return not (self.left or self.changed or self.copied.damaged or self.copied.wrong)

    def to_json(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "type": "conversion",
            "store": str(self.layout.root),
            "to": str(self.target),
            "kind": "plain",
            "broker_version": self.version,
            **vars(self.copied),
            "file_bytes": self.file_bytes,
            "queues": self.queues,
            "changed_queues": [
                {
                    "topic": row.topic,
                    "queue_id": row.queue_id,
                    "min_offset": row.before[0],
                    "max_offset": row.before[1],
                    "new_min_offset": row.after[0],
                    "new_max_offset": row.after[1],
                }
                for row in self.changed
            ],
            "left_behind": self.left_behind,
            "left": self.left,
        }


def convert(
    layout: Layout,
    target: Path,
    version: str | None,
    files: Files,
    told: Callable[[int], None] = lambda _: None,
) -> Converted:
    """Make a plain store of a DLedger store in a new directory; nothing of the old one is written.

    version: of the brokers that will run on it, None: the guess. told: hears of so many more bytes of
    records. Raises Refused, Unsupported, InUse, InvalidInput, NoSpace, Unreadable: nothing is there then.
    """
    _check(layout)
    check_target(layout.root, target)
    file_bytes = commit_log_size(layout).value
    with new_directory(target, files), Moved() as moved:
        copied = _copy_log(layout, target, file_bytes, files, moved, told)
        left_behind = list(_take_along(layout, target, files, moved))
        config = _config(layout)
        version = version or generation_of(layout).version
        made = _complete(target, file_bytes, config, version, files, copied)
        found = Converted(layout, target, copied, made.version, file_bytes)
        found.left, found.left_behind = made.left, left_behind
        old, new = _ends(layout), _ends(Layout.open(target, config))
        found.queues = len(new)
        for name, before in sorted(old.items()):
            after = new.get(name, (0, 0))
            if after[0] > before[0] or after[1] < before[1]:
                found.changed.append(ChangedQueue(*name, before, after))
        return found


def _check(layout: Layout) -> None:
    """Raises Refused, Unsupported, InUse."""
    if layout.dledger is None:
        raise Refused("there is no DLedger log: the store is a plain one", path=layout.root)
    if layout.queue_database is not None:
        raise Unsupported("queues in RocksDB are not converted", path=layout.queue_database)
    if (pid := holder(layout.lock)) is not None:
        raise InUse(f"in use by process {pid}", path=layout.root, hint="stop the broker first")


def _copy_log(
    layout: Layout,
    target: Path,
    file_bytes: int,
    files: Files,
    moved: Moved,
    told: Callable[[int], None],
) -> Copied:
    directory = target / COMMIT_LOG
    files.make_directory(directory)
    log = CommitLog.open(layout)
    with log.queue:
        # a unit of an expired message names a position before the log: it must stay before it
        writer = LogWriter(files, [directory], file_bytes, log.min_offset)
        try:
            writer.prepare()
            copied = copy_log(log, writer, moved, told)
            writer.sync()
        finally:
            writer.close()
    if not copied.records:
        raise Refused("the log has no record", path=layout.dledger)
    return copied


def _take_along(layout: Layout, target: Path, files: Files, moved: Moved) -> Iterator[str]:
    """Copy what is made neither of the log nor of the mode; gives the names of what is left behind."""
    folders = (layout.config, layout.root / COMPACTION, layout.timer_log)
    for folder in folders:
        if folder.is_dir():
            left_out = copy_store(folder, target / folder.name, files, lambda _: None)
            yield from (os.fspath(Path(folder.name) / name) for name in left_out)
    if layout.timer_wheel.is_file():
        copy_file(layout.timer_wheel, target / layout.timer_wheel.name, files, lambda _: None)
    if (target / TIMER_LOG).is_dir():
        _move_timers(target / TIMER_LOG, files, moved)
    for path in (layout.consume_queue_ext, layout.rocksdb_store):
        if path.is_dir():
            yield path.name
    yield from (Path(entry.path).name for entry in layout.foreign)


def _move_timers(directory: Path, files: Files, moved: Moved) -> None:
    """Units of the timer log name records by their positions (spec 04, 4.6)."""
    dtype = dtype_of(UNIT)
    with MappedFileQueue.open(directory) as queue:
        for file in queue.files:
            windows = queue.windows(file, 0, file.size, _WINDOW_UNITS * UNIT_BYTES, UNIT_BYTES)
            for offset, data in windows:
                units = np.frombuffer(data, dtype, len(data) // UNIT_BYTES).copy()
                real = np.flatnonzero(units["size"] == UNIT_BYTES)
                new = moved.places(units["offset_py"][real].astype(np.int64))
                known = new != NOWHERE
                if known.any():
                    units["offset_py"][real[known]] = new[known]
                    with files.open(Path(file.path)) as out:
                        out.pwrite(units.tobytes(), offset)
                        out.sync()


def _config(layout: Layout) -> BrokerConfig:
    """The configuration of the new store: no DLedger, and files of the sizes that the old one has."""
    sizes, config = sizes_of(layout), layout.broker_config
    told = [f"{_DLEDGER_OPTION}=false"]
    for option, size in (
        ("mappedFileSizeConsumeQueue", sizes.consume_queue),
        ("maxHashSlotNum", sizes.index_slots),
        ("maxIndexNum", sizes.index_items),
    ):
        if config.get(option) is None:
            told.append(f"{option}={size.value}")
    return config.with_set(told)


def _complete(
    target: Path, file_bytes: int, config: BrokerConfig, version: str, files: Files, copied: Copied
) -> Restored:
    """Queues, index and checkpoint of the new log. Raises as `recover` does."""
    layout = Layout.open(target, config)
    with layout.commit_log_files() as queue:
        offsets = MissingOffsets(np.zeros(0, np.int64))
        scan_messages(CommitLog(queue), [offsets], Dispatching(index_tags=True), crc=False)
        restored = Restored(len(queue.files), file_bytes)
    damaged = bool(copied.damaged or copied.wrong)
    return complete(
        target, restored, offsets, config, version, files, damaged=damaged, command="repair"
    )


def _ends(layout: Layout) -> dict[tuple[str, int], tuple[int, int]]:
    """(min, max) offset of each queue that has had a message."""
    with layout.commit_log_files() as queue:
        start, end = queue.start, CommitLog.of(layout, queue).end().position
    rows: list[QueueSummary] = ConsumeQueues(layout).summaries(start, end) + batch_summaries(layout)
    return {
        (row.topic, row.queue_id): (row.min_offset, row.max_offset)
        for row in rows
        if row.max_offset
    }
