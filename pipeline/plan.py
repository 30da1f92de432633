"""What a job reads: stores, and the part of each log that counts. No Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from ..formats.consume_queue import UNIT_BYTES
from ..store.broker.profiles import profile_of
from ..store.broker.snapshot import (
    known_topics,
    lacks_log,
    list_entries,
    list_queues,
    topics_with_batches,
    usual_file_bytes,
)
from ..store.disk.broker_conf import BrokerConfig
from ..store.disk.compressed import is_compressed_name, plain_name
from ..store.disk.layout import Layout
from ..store.errors import InvalidInput, StoreError, Unsupported
from ..store.index.read import sizes_of
from ..store.plan.normalize import refuse_to_read
from ..store.queues.batches import batch_summaries
from ..store.queues.read import ConsumeQueues
from ..store.search.store import StoreReader
from ..store.settings.generation import generation_of
from ..store.settings.options import options_of
from ..store.start.queue_stores import queue_stores

_BATCH_SIZE = "mapperFileSizeBatchConsumeQueue"
_EXT_SIZE = "mappedFileSizeConsumeQueueExt"


def names_of(roots: Sequence[Path]) -> list[str]:
    """Return a name for each of several stores: its path below the directory that they share.

    >>> names_of([Path("/d/a/store"), Path("/d/b/store")])
    ['a/store', 'b/store']
    """
    if len(roots) < 2:
        return ["" for _ in roots]
    common = os.path.commonpath([root.parent for root in roots])
    return [root.relative_to(common).as_posix() for root in roots]


def folders_of(roots: Sequence[Path]) -> list[str]:
    """Return a folder for each of several stores: their names, or flat ones if a store lies in another one.

    Raises InvalidInput for a store named twice.

    >>> folders_of([Path("/d/a"), Path("/d/a/b"), Path("/d/c")])
    ['a', 'a%2Fb', 'c']
    """
    known = set(roots)
    if len(known) < len(roots):
        raise InvalidInput("a store is named twice")
    names = names_of(roots)
    if any(not known.isdisjoint(root.parents) for root in roots):
        return [quote(os.fsencode("/" if name == "." else name), safe="") for name in names]
    return names


@dataclass(frozen=True)
class StorePlan:
    """One store of a job.

    root: its directory, absolute. folder: below the target, "" for the target itself. start, stop: positions of its log
    that count. units_per_file: of its consume queues. broker_version: its rules of dispatch hold. options: of the
    broker's configuration. batch_topics: topics with batch queues, whose files have batch_file_bytes. ext_file_bytes:
    of consumequeue_ext, 0 if the broker writes none. index_slots, index_items: of an index file, 0 if the broker writes
    none. missing: position and size of gaps behind `stop`, as before a file that a broker made ahead. light_queues: the
    broker has LMQs, and keeps them in files.
    """

    root: str
    folder: str
    start: int
    stop: int
    units_per_file: int
    broker_version: str
    options: dict[str, str]
    batch_topics: tuple[str, ...] = ()
    batch_file_bytes: int = 0
    ext_file_bytes: int = 0
    index_slots: int = 0
    index_items: int = 0
    missing: tuple[tuple[int, int], ...] = ()
    light_queues: bool = True

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Return the plan from what `asdict` made of it, through JSON or not."""
        batch_topics = tuple(fields["batch_topics"])
        missing = tuple((gap[0], gap[1]) for gap in fields["missing"])
        return cls(**{**fields, "batch_topics": batch_topics, "missing": missing})

    @property
    def config(self) -> BrokerConfig:
        return BrokerConfig(self.options)

    @property
    def bytes(self) -> int:
        """Size of the log that counts."""
        return self.stop - self.start

    @property
    def needs_one_process(self) -> bool:
        """Whether it has queues whose units have no fixed place: one process writes them."""
        return bool(self.batch_topics or self.ext_file_bytes)

    @property
    def file_bytes(self) -> int:
        return self.units_per_file * UNIT_BYTES

    @property
    def layout(self) -> Layout:
        return Layout.open(self.root, self.config)

    def left_out(self, made: Collection[tuple[str, int]]) -> Iterator[tuple[str, int, int]]:
        """Yield topic, number and end of each queue of the store that is not in `made`: its messages have expired, or
        are lost. Raises Missing, Unreadable.
        """
        queues = ConsumeQueues(self.layout)
        for topic, queue_id, _ in queues:
            if (topic, queue_id) not in made:
                with queues.open(topic, queue_id) as queue:
                    if end := queue.summary().max_offset:
                        yield topic, queue_id, end
        for batch in batch_summaries(self.layout):
            if batch.max_offset and (batch.topic, batch.queue_id) not in made:
                yield batch.topic, batch.queue_id, batch.max_offset

    def output(self, folder: Path) -> Layout:
        sizes = {_BATCH_SIZE: self.batch_file_bytes, _EXT_SIZE: self.ext_file_bytes}
        config = BrokerConfig({name: str(size) for name, size in sizes.items() if size})
        return Layout.of(folder / self.folder, config)


@dataclass(frozen=True)
class JobPlan:
    stores: tuple[StorePlan, ...]


def plan_of(
    roots: Sequence[Path],
    config: BrokerConfig,
    broker_version: str | None = None,
    tell: Callable[[Path, StoreError], None] | None = None,
) -> JobPlan:
    """Look at the stores, before Spark starts.

    tell: called for each store that cannot be read, if another one can; without it the error is raised. Raises Missing,
    NotAStore, Unreadable, Unsupported for a store whose queues are in RocksDB, Refused for a store whose log, or a
    directory of it, is gone, InvalidInput for a store named twice.
    """
    # not resolve(): it fails at a loop of links, where Layout has the better message
    paths = [Path(os.path.abspath(root)) for root in roots]  # noqa: PTH100
    stores: list[StorePlan] = []
    problems: list[tuple[Path, StoreError]] = []
    for root, folder in zip(paths, folders_of(paths), strict=True):
        try:
            stores.append(_store_plan(root, folder, config, broker_version))
        except InvalidInput:  # of the options: no store is to blame
            raise
        except StoreError as error:
            problems.append((root, error))
    for root, problem in problems:
        if tell is None or not stores:
            raise problem
        tell(root, problem)
    return JobPlan(tuple(stores))


def _store_plan(root: Path, folder: str, config: BrokerConfig, broker_version: str | None) -> StorePlan:
    layout = Layout.open(root, config)
    if layout.rocksdb_queues:
        raise Unsupported("queues in RocksDB cannot be rebuilt", path=layout.consume_queue)
    _refuse_compressed_timer_log(layout)
    version = profile_of(broker_version).version if broker_version else None
    if lacks_log(layout):
        refuse_to_read(layout)
    with StoreReader(root, config) as opened:
        start, stop = opened.log.min_offset, opened.log_end.position
        gaps = opened.log_files.gaps
        missing = tuple((gap.position, gap.size) for gap in gaps if gap.position >= stop)
    version = version or generation_of(layout).version
    batches = dict(list_queues(layout.batch_consume_queue))
    knows_batches = profile_of(version).queues.batches
    indexed = config.get_bool("messageIndexEnable", True)
    return StorePlan(
        root=str(root),
        folder=folder,
        start=start,
        stop=stop,
        units_per_file=sizes_of(layout).consume_queue.value // UNIT_BYTES,
        broker_version=version,
        options=dict(config),
        batch_topics=tuple(sorted(topics_with_batches(known_topics(layout), batches))) if knows_batches else (),
        batch_file_bytes=usual_file_bytes(layout, _BATCH_SIZE, batches.values()),
        ext_file_bytes=_ext_file_bytes(layout),
        index_slots=sizes_of(layout).index_slots.value if indexed else 0,
        index_items=sizes_of(layout).index_items.value if indexed else 0,
        missing=missing,
        light_queues=_has_light_queues(layout, version),
    )


def _refuse_compressed_timer_log(layout: Layout) -> None:
    """Raise Unsupported if a timer wheel has to be made and would lack the entries of a compressed file."""
    if layout.dledger is None:
        for entry in list_entries(layout.timer_log):
            if is_compressed_name(entry.name) and plain_name(entry.name).isdecimal():
                what = "no timer wheel can be made from a compressed timer log"
                raise Unsupported(what, path=entry.path, hint="decompress the file in its directory")


def _has_light_queues(layout: Layout, version: str) -> bool:
    """Whether LMQs are in files; also if nothing tells. A hybrid store may have them in its RocksDB. Raises
    InvalidInput.
    """
    option = options_of(layout).multi_dispatch
    return (option.value or option.is_guess) and not queue_stores(layout, profile_of(version)).lmq_in_database


def _ext_file_bytes(layout: Layout) -> int:
    """Return the size of files in consumequeue_ext, 0 if the broker writes none. Unless configured, it writes them if
    the store has some."""
    ext = dict(list_queues(layout.consume_queue_ext))
    if not layout.broker_config.get_bool("enableConsumeQueueExt", any(ext.values())):
        return 0
    return usual_file_bytes(layout, _EXT_SIZE, ext.values())
