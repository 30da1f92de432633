"""`mqstore verify` of a directory or file inside a store: whose it is, and what is said of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..store.disk.layout import (
    BATCH_CONSUME_QUEUE,
    COMMIT_LOG,
    COMPACTION,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    DLEDGER_PREFIX,
    INDEX,
    ROCKSDB_CURRENT,
    ROCKSDB_STORE,
    TIMER_LOG,
    Layout,
)
from ..store.errors import NotAStore, Unreadable, Unsupported

if TYPE_CHECKING:
    from ..store.disk.broker_conf import BrokerConfig
    from ..store.findings.findings import Finding
    from ..store.verify.verdict import Verdict

_DEEPEST = 7
"""Levels of directories between a file of a store and its root."""
_LAYOUT = "layout"
_LOG = "commit_log"
_GROUPS = {
    COMMIT_LOG: _LOG,
    CONSUME_QUEUE: "consume_queue",
    BATCH_CONSUME_QUEUE: "consume_queue",
    CONSUME_QUEUE_EXT: "consume_queue",
    INDEX: "index",
    TIMER_LOG: "timer",
    "timerwheel": "timer",
    "checkpoint": "checkpoint",
    "config": "config",
    COMPACTION: "compaction",
    ROCKSDB_STORE: _LAYOUT,
    "abort": _LAYOUT,
    "lock": _LAYOUT,
}
"""The group of checks that is about a part of a store, by the part's name."""
_ABOVE_TOPICS = {CONSUME_QUEUE: 1, BATCH_CONSUME_QUEUE: 1, CONSUME_QUEUE_EXT: 1, COMPACTION: 2}
"""Directories between the root and those of the topics, with this one."""
_OF_ROOTS = (COMMIT_LOG, CONSUME_QUEUE, BATCH_CONSUME_QUEUE, INDEX, "checkpoint")
"""What lies in a store's root: one of them at least."""
_OF_SCOPE = ": --topic"
"""How the reason ends that is there because of the scope that a queue makes."""


class VerifyTarget(NamedTuple):
    """A part of a store.

    root: of the store, as it is to be shown. path: what was asked for. group: of its checks. logs:
    directories of the commit log. topic, queue_id: whose it is, None where of more than one.
    """

    root: Path
    path: Path
    group: str
    logs: tuple[Path, ...]
    topic: str | None = None
    queue_id: int | None = None

    def of(self, verdict: Verdict) -> Verdict:
        """The verdict about this part alone."""
        from dataclasses import replace  # with inspect

        from ..store.verify.verdict import status_of

        findings = [finding for finding in verdict.findings if self._has(finding)]
        unread = [text for text in verdict.unread if not text.endswith(_OF_SCOPE)]
        unread.insert(0, f"all but {self.path}: it alone was asked for")
        return replace(verdict, status=status_of(findings), findings=findings, unread=unread)

    def _has(self, finding: Finding) -> bool:
        """It lies in this part.

        Of a directory, what its checks say of the directories above it and of the log counts, too.
        """
        from ..store.findings.catalogue import catalogue

        place = Path(finding.path)
        if _inside(place, self.path):
            return True
        if not self.path.is_dir() or self.group == _LAYOUT:
            return False
        if catalogue()[finding.code].group != self.group:
            return False
        if finding.topic not in (None, self.topic or finding.topic):
            return False
        of_log = self.group != _LOG and any(_inside(place, log) for log in self.logs)
        return of_log or _inside(self.path, place)


def part_of(path: Path, config: BrokerConfig) -> VerifyTarget | None:
    """What `path` is a part of, None where it is a store itself.

    Raises NotAStore, Missing, Unreadable, Unsupported (one file of a RocksDB).
    """
    whole = Path(os.path.abspath(path))  # noqa: PTH100 (a link's own name counts)
    if os.path.exists(whole) and not _is_root(whole):  # noqa: PTH110 (never raises)
        for root in whole.parents[:_DEEPEST]:
            part = _part(root, path, whole, config) if _is_root(root) else None
            if part is not None:
                return part
        from ..store.tiered.segments import kind_of_place

        if kind_of_place(whole) is not None:
            hint = "name its store, with --set tieredStoreFilePath=DIR"
            raise NotAStore("a segment of the tiered store, but no store above it", path=path, hint=hint)
    Layout.open(path, config)
    return None


def _is_root(path: Path) -> bool:
    """It has parts of a store. In a part of one these say nothing: a topic may be named so, and a
    DLedger has an index and a checkpoint of its own; there it must have a log and queues.
    """
    there = {name for name in _OF_ROOTS if os.path.exists(path / name)}  # noqa: PTH110 (no errors)
    if path.name in _GROUPS or path.name.startswith(DLEDGER_PREFIX):
        return {COMMIT_LOG, CONSUME_QUEUE} <= there
    return bool(there)


def _part(root: Path, path: Path, whole: Path, config: BrokerConfig) -> VerifyTarget | None:
    """None where `root` is no store, or `path` is not one of its parts. Raises Unsupported."""
    from ..formats import timer_check, timer_metrics

    try:
        layout = Layout.open(root, config)
    except (NotAStore, Unreadable):
        return None
    logs, inside = layout.commit_log_directories, whole.relative_to(root).parts
    group = _GROUPS.get(inside[0].partition(".")[0])
    if inside[0].startswith(DLEDGER_PREFIX) or any(_inside(whole, log) or _inside(log, whole) for log in logs):
        group = _LOG
    elif whole.name.partition(".")[0] in (timer_check.FILE, timer_metrics.FILE):
        group = "timer"
    if group is None:
        from ..store.tiered.segments import is_of_tier  # with numpy

        if not is_of_tier(inside[0]):
            return None
        group = "config"  # which has the metadata of segments
    if not whole.is_dir() and (whole.parent / ROCKSDB_CURRENT).is_file():
        hint = f"name its directory, {path.parent}"
        raise Unsupported("one file of a RocksDB", path=path, hint=hint)
    shown = Path(*path.parts[: max(0, len(path.parts) - len(inside))])
    shown = shown if shown.absolute() == root else root
    return VerifyTarget(shown, path, group, logs, *_queue(root, inside))


def _queue(root: Path, inside: tuple[str, ...]) -> tuple[str | None, int | None]:
    """Topic and queue id that a place names, None where it names none."""
    topics = _ABOVE_TOPICS.get(inside[0])
    if topics is None or not root.joinpath(*inside[: topics + 1]).is_dir():
        return None, None
    topic, queue = [*inside[topics : topics + 2], None, None][:2]
    return topic, int(queue) if queue is not None and queue.isdecimal() else None


def _inside(path: Path, directory: Path) -> bool:
    """`path` is `directory` or lies in it, by their names or where links lead."""
    for real in (os.path.abspath, os.path.realpath):
        one, other = real(path), real(directory)
        if one == other or one.startswith(other.rstrip(os.sep) + os.sep):
            return True
    return False
