"""The parts of a store that a repair can be confined to, and where the queues are to be afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from ...formats.timer_check import FILE as TIMER_CHECK
from ..broker.profiles import LMQ_OPTIONS, PROFILES
from ..broker.snapshot import QueueId
from ..broker.system_topics import LMQ_PREFIX
from ..disk import layout as places
from ..disk.broker_conf import CONFIG_V2, CONFIG_VERSION, ROCKSDB_STORE_TYPE, BrokerConfig
from ..disk.layout import Layout, queue_directories
from ..errors import InvalidInput, Refused, Unreadable
from ..findings.catalogue import catalogue
from ..findings.next_commands import RECOVER
from ..queues.rocksdb import RocksdbConsumeQueues
from ..session.journal import carried_out, unfinished
from ..settings.generation import generation_of
from ..settings.rocksdb import ConfigForm, in_force
from ..verify.start import GROUP


class RepairPart(StrEnum):
    """The parts to choose from; LOG and ABORT only with everything else."""

    QUEUE = "queue"
    INDEX = "index"
    CHECKPOINT = "checkpoint"
    CONFIG = "config"
    TIMER = "timer"
    EXT = "ext"
    COMPACTION = "compaction"
    LOG = "log"
    ABORT = "abort"


CHOICES = tuple(part for part in RepairPart if part not in (RepairPart.LOG, RepairPart.ABORT))

_FOLDERS = {
    places.CONSUME_QUEUE: RepairPart.QUEUE,
    places.BATCH_CONSUME_QUEUE: RepairPart.QUEUE,
    places.ROCKSDB_CONSUME_QUEUE: RepairPart.QUEUE,
    places.CONSUME_QUEUE_EXT: RepairPart.EXT,
    places.INDEX: RepairPart.INDEX,
    places.TIMER_LOG: RepairPart.TIMER,
    places.COMPACTION: RepairPart.COMPACTION,
    "config": RepairPart.CONFIG,
}
_FILES = {"checkpoint": RepairPart.CHECKPOINT, "abort": RepairPart.ABORT, "timerwheel": RepairPart.TIMER}
_GROUPS = {
    "consume_queue": RepairPart.QUEUE,
    "index": RepairPart.INDEX,
    "checkpoint": RepairPart.CHECKPOINT,
    "timer": RepairPart.TIMER,
    "config": RepairPart.CONFIG,
    "compaction": RepairPart.COMPACTION,
}
_OF_CODES = {"I-076": RepairPart.CONFIG, "I-077": RepairPart.CONFIG, "I-079": RepairPart.EXT, "I-080": RepairPart.EXT}
"""Codes repaired by another part than their group's."""
_BY_HAND = frozenset({"I-147", "I-148", "I-151", "I-153", "I-157", "I-158", "I-159", "I-170", "I-171"})
"""Codes that no repair corrects, whatever their group: `unrepairable.toml` has the reasons."""


class Choice(NamedTuple):
    """What a repair may touch. queues: (topic or pattern, queue id or None for all); () for every queue."""

    parts: frozenset[RepairPart] = frozenset(RepairPart)
    queues: tuple[tuple[str, int | None], ...] = ()

    @property
    def everything(self) -> bool:
        """The log and `abort` are included, and so is what `recover` does."""
        return RepairPart.LOG in self.parts

    @property
    def topics(self) -> frozenset[str]:
        """The topics and patterns of `queues`."""
        return frozenset(topic for topic, _ in self.queues)

    def takes(self, layout: Layout, path: str) -> bool:
        part = part_of(layout, Path(path))
        if part is not RepairPart.QUEUE or not self.queues:
            return part in self.parts
        place = Path(path).relative_to(layout.root).parts
        topic, number = "/".join(place[1:-2]), _number(place[-2])
        return number is not None and any(covers(named, QueueId(topic, number)) for named in self.queues)


def covers(named: tuple[str, int | None], queue: QueueId) -> bool:
    """Whether a topic or pattern, with or without a queue id, includes this queue."""
    return fnmatchcase(queue.topic, named[0]) and named[1] in (None, queue.queue_id)


def part_of(layout: Layout, path: Path) -> RepairPart:
    """Return the part that a file belongs to. timercheck belongs to the timer, wherever it lies."""
    if not path.is_relative_to(layout.root):
        return RepairPart.LOG
    parts = path.relative_to(layout.root).parts
    if path.name.startswith(TIMER_CHECK):
        return RepairPart.TIMER
    return _FOLDERS.get(parts[0]) or _FILES.get(parts[0]) or RepairPart.LOG


def part_of_code(code: str) -> RepairPart:
    """Return the part that repairs a finding. Raises InvalidInput for a code that no repair corrects."""
    row = catalogue().get(code.strip().upper())
    if row is None:
        raise InvalidInput(f"no such code: {code!r}", hint="`mqstore explain --list` shows all")
    if row.code in _OF_CODES:
        return _OF_CODES[row.code]
    if row.group == GROUP and row.repair in CHOICES:
        return RepairPart(row.repair)
    if row.group not in _GROUPS or row.code in _BY_HAND:
        of_log = row.group == "commit_log"
        of_log |= row.repair == RECOVER
        hint = "`mqstore recover` repairs the log" if of_log else f"mqstore explain {row.code}"
        raise InvalidInput(f"no repair mends {row.code}", hint=hint)
    return _GROUPS[row.group]


def chosen(parts: Iterable[RepairPart], queues: tuple[tuple[str, int | None], ...]) -> Choice:
    """Return the choice by the options of a command; none means everything."""
    wanted = frozenset(parts) | (frozenset({RepairPart.QUEUE}) if queues else frozenset())
    return Choice(wanted or frozenset(RepairPart), queues)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


_KIND_OPTIONS = frozenset({"storeType", "rocksdbCQDoubleWriteEnable"})
"""Options that give the future place of queues, not the present one."""


class QueueStoreKind(StrEnum):
    """Where brokers are to have their queues."""

    ROCKSDB = "rocksdb"
    FILES = "files"


def as_kind(layout: Layout, kind: QueueStoreKind) -> Layout:
    """Return the store as seen by a broker with its queues only there."""
    changes = ["rocksdbCQDoubleWriteEnable=false"]
    if kind is QueueStoreKind.ROCKSDB:
        changes.append(f"storeType={ROCKSDB_STORE_TYPE}")
    else:
        changes += ["storeType=default", *_lmq_options(layout)]
    config = in_force(layout.config, layout.broker_config)
    if config.form is ConfigForm.SECOND and config.sure:  # read with any storeType, if its option is set
        changes.append(f"{CONFIG_VERSION}={CONFIG_V2}")
    # proposed commands about the present store, as a recovery first, need the options given
    options, words = layout.broker_config.with_set(changes), layout.broker_config.words
    return layout.carry_to(Layout.open(layout.root, BrokerConfig(options, words)))


def refuse_kind(layout: Layout, kind: QueueStoreKind | None, version: str | None) -> None:
    """Refuse a move to a RocksDB for brokers before 5.2, which read none: without files they have no queues (spec
    2.10). version: the given generation, None for a guess. Raises Refused.
    """
    if kind is not QueueStoreKind.ROCKSDB or layout.queue_database is not None:
        return
    known = [profile.version for profile in PROFILES.values() if profile.database]
    fits = (version,) if version else generation_of(layout).candidates
    others = [name for name in fits if name not in known]
    if not others:
        return
    first, hint = known[0], "first start a newer broker with the queues in files"
    if len(others) < len(fits):
        hint = f"name the version: --broker-version {first} or later"
    raise Refused(
        f"brokers of {' and '.join(others)} do not read queues in a RocksDB (from {first} on they do)",
        path=layout.root,
        hint=hint,
    )


def _lmq_options(layout: Layout) -> Iterator[str]:
    """Yield options for LMQs in files, if the database has LMQs, or files of an interrupted move have them already."""
    paths = [str(directory.path) for directory in queue_directories(layout.consume_queue)]
    paths += [edit.path for edit in carried_out(unfinished(layout.root, layout.journal))]
    lmq = any(path.startswith(f"{layout.consume_queue}/{LMQ_PREFIX}") for path in paths)
    if layout.queue_database is not None:
        try:
            with closing(RocksdbConsumeQueues.at(layout.queue_database)) as queues:
                lmq |= any(queue.topic.startswith(LMQ_PREFIX) for queue in queues)
        except Unreadable:  # they are made from the log
            lmq = True
    if lmq:
        yield from (f"{name}=true" for name in LMQ_OPTIONS)


def without_kind_options(layout: Layout) -> Layout:
    """Return the store without the options that give the future place of queues."""
    options = {name: text for name, text in layout.broker_config.items() if name not in _KIND_OPTIONS}
    return Layout.open(layout.root, BrokerConfig(options))
