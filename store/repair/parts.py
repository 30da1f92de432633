"""The parts of a store that a repair can be confined to."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from ...formats.timer_check import FILE as TIMER_CHECK
from ..broker.snapshot import QueueId
from ..disk.layout import (
    BATCH_CONSUME_QUEUE,
    COMPACTION,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    ROCKSDB_CONSUME_QUEUE,
    TIMER_LOG,
    Layout,
)
from ..disk.layout import INDEX as INDEX_FOLDER
from ..errors import InvalidInput
from ..findings.catalogue import catalogue
from ..findings.next_commands import RECOVER
from ..verify.start import GROUP


class RepairPart(StrEnum):
    """What can be chosen; LOG and ABORT only with everything else."""

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
    CONSUME_QUEUE: RepairPart.QUEUE,
    BATCH_CONSUME_QUEUE: RepairPart.QUEUE,
    ROCKSDB_CONSUME_QUEUE: RepairPart.QUEUE,
    CONSUME_QUEUE_EXT: RepairPart.EXT,
    INDEX_FOLDER: RepairPart.INDEX,
    TIMER_LOG: RepairPart.TIMER,
    COMPACTION: RepairPart.COMPACTION,
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
"""Codes that another part mends than their group says."""
_BY_HAND = frozenset({"I-147", "I-148", "I-151", "I-153", "I-157", "I-158", "I-159", "I-170", "I-171"})
"""Codes that no repair mends, whatever their group says: `unrepairable.toml` has the reasons."""


class Choice(NamedTuple):
    """What a repair may touch. queues: (topic, or a pattern, and queue id or None for
    all), () for every queue."""

    parts: frozenset[RepairPart] = frozenset(RepairPart)
    queues: tuple[tuple[str, int | None], ...] = ()

    @property
    def everything(self) -> bool:
        """The log and `abort`, too: what `recover` does is part of it."""
        return RepairPart.LOG in self.parts

    @property
    def topics(self) -> frozenset[str]:
        """What stands for a topic in `queues`."""
        return frozenset(topic for topic, _ in self.queues)

    def takes(self, layout: Layout, path: str) -> bool:
        """An edit of this file is asked for."""
        part = part_of(layout, Path(path))
        if part is not RepairPart.QUEUE or not self.queues:
            return part in self.parts
        place = Path(path).relative_to(layout.root).parts
        topic, number = "/".join(place[1:-2]), _number(place[-2])
        return number is not None and any(covers(named, QueueId(topic, number)) for named in self.queues)


def covers(named: tuple[str, int | None], queue: QueueId) -> bool:
    """A topic or pattern, with or without a number, means this queue."""
    return fnmatchcase(queue.topic, named[0]) and named[1] in (None, queue.queue_id)


def part_of(layout: Layout, path: Path) -> RepairPart:
    """The part that a file belongs to. timercheck is of the timer, wherever it lies."""
    if not path.is_relative_to(layout.root):
        return RepairPart.LOG
    parts = path.relative_to(layout.root).parts
    if path.name.startswith(TIMER_CHECK):
        return RepairPart.TIMER
    return _FOLDERS.get(parts[0]) or _FILES.get(parts[0]) or RepairPart.LOG


def part_of_code(code: str) -> RepairPart:
    """The part that mends a finding. Raises InvalidInput for a code that no repair mends."""
    told = catalogue().get(code.strip().upper())
    if told is None:
        raise InvalidInput(f"no such code: {code!r}", hint="`mqstore explain --list` shows all")
    if told.code in _OF_CODES:
        return _OF_CODES[told.code]
    if told.group == GROUP and told.repair in CHOICES:
        return RepairPart(told.repair)
    if told.group not in _GROUPS or told.code in _BY_HAND:
        of_log = told.group == "commit_log"
        of_log |= told.repair == RECOVER
        hint = "`mqstore recover` repairs the log" if of_log else f"mqstore explain {told.code}"
        raise InvalidInput(f"no repair is for {told.code}", hint=hint)
    return _GROUPS[told.group]


def chosen(parts: Iterable[RepairPart], queues: tuple[tuple[str, int | None], ...]) -> Choice:
    """What the options of a command ask for; nothing means all."""
    wanted = frozenset(parts) | (frozenset({RepairPart.QUEUE}) if queues else frozenset())
    return Choice(wanted or frozenset(RepairPart), queues)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None
