"""`mqstore verify` of a directory or file inside a store: find its store, and select the findings about it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..store.disk import layout as places
from ..store.disk.layout import Layout
from ..store.errors import Denied, NotAStore, Unreadable, Unsupported

if TYPE_CHECKING:
    from ..store.disk.broker_conf import BrokerConfig
    from ..store.findings.findings import Finding
    from ..store.verify.verdict import Verdict

_DEEPEST = 7
"""Levels of directories between a file of a store and the store's root, at most."""
_LAYOUT = "layout"
_LOG = "commit_log"
_GROUPS = {
    places.COMMIT_LOG: _LOG,
    places.CONSUME_QUEUE: "consume_queue",
    places.BATCH_CONSUME_QUEUE: "consume_queue",
    places.CONSUME_QUEUE_EXT: "consume_queue",
    places.INDEX: "index",
    places.TIMER_LOG: "timer",
    "timerwheel": "timer",
    "checkpoint": "checkpoint",
    "config": "config",
    places.TIERED_INDEX_FILES: "config",
    places.COMPACTION: "compaction",
    places.ROCKSDB_STORE: _LAYOUT,
    "abort": _LAYOUT,
    "lock": _LAYOUT,
}
"""Name of a part of a store → the group of its checks."""
_ABOVE_TOPICS = {
    places.CONSUME_QUEUE: 1,
    places.BATCH_CONSUME_QUEUE: 1,
    places.CONSUME_QUEUE_EXT: 1,
    places.COMPACTION: 2,
}
"""Levels of directories from the root to the topics' directories."""
_OF_ROOTS = (places.COMMIT_LOG, places.CONSUME_QUEUE, places.BATCH_CONSUME_QUEUE, places.INDEX, "checkpoint")
"""A store's root has at least one of these."""
_OF_SCOPE = ": --topic"
"""End of the reasons in `unread` that come from the scope of a queue."""


class VerifyTarget(NamedTuple):
    """A part of a store.

    root: of the store, as it is shown. path: what was asked for. group: of the part's checks. logs: directories of the
    commit log. topic, queue_id: of the part, None if it has several.
    """

    root: Path
    path: Path
    group: str
    logs: tuple[Path, ...]
    topic: str | None = None
    queue_id: int | None = None

    def of(self, verdict: Verdict) -> Verdict:
        from dataclasses import replace  # imports inspect

        from ..store.verify.verdict import status_of

        findings = [finding for finding in verdict.findings if self._has(finding)]
        unread = [text for text in verdict.unread if not text.endswith(_OF_SCOPE)]
        unread.insert(0, f"all but {self.path}: it alone was asked for")
        return replace(verdict, status=status_of(findings), findings=findings, unread=unread, part=self.path)

    def _has(self, finding: Finding) -> bool:
        """Whether a finding is about this part.

        For a directory, findings of its group of checks about directories above it and about the log count, too.
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
    """The part of a store that `path` is, None if `path` is a store itself.

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
    """Whether a directory has parts of a store. One that has the name of a part must have a log and queues: a topic may
    have such a name, and a DLedger has an index and a checkpoint of its own.
    """
    there = {name for name in _OF_ROOTS if os.path.exists(path / name)}  # noqa: PTH110 (no errors)
    if path.name in _GROUPS or path.name.startswith(places.DLEDGER_PREFIX):
        return {places.COMMIT_LOG, places.CONSUME_QUEUE} <= there
    return bool(there)


def _part(root: Path, path: Path, whole: Path, config: BrokerConfig) -> VerifyTarget | None:
    """The part, None if `root` is no store or `path` is not in one of its parts. Raises Unsupported."""
    from ..formats import timer_check, timer_metrics

    try:
        layout = Layout.open(root, config)
    except (Denied, NotAStore, Unreadable):
        return None
    logs, inside = layout.commit_log_directories, whole.relative_to(root).parts
    group = _GROUPS.get(inside[0].partition(".")[0])
    if inside[0].startswith(places.DLEDGER_PREFIX) or any(_inside(whole, log) or _inside(log, whole) for log in logs):
        group = _LOG
    elif whole.name.partition(".")[0] in (timer_check.FILE, timer_metrics.FILE):
        group = "timer"
    if group is None:
        from ..store.tiered.segments import is_of_tier  # imports numpy

        if not is_of_tier(inside[0]):
            return None
        group = "config"  # the metadata of segments is in config/
    if not whole.is_dir() and (whole.parent / places.ROCKSDB_CURRENT).is_file():
        hint = f"name its directory, {path.parent}"
        raise Unsupported("one file of a RocksDB", path=path, hint=hint)
    shown = Path(*path.parts[: max(0, len(path.parts) - len(inside))])
    shown = shown if shown.absolute() == root else root
    return VerifyTarget(shown, path, group, logs, *_queue(root, inside))


def _queue(root: Path, inside: tuple[str, ...]) -> tuple[str | None, int | None]:
    """Topic and queue id that a path names, None for each that it does not name."""
    topics = _ABOVE_TOPICS.get(inside[0])
    if topics is None or not root.joinpath(*inside[: topics + 1]).is_dir():
        return None, None
    topic, queue = [*inside[topics : topics + 2], None, None][:2]
    return topic, int(queue) if queue is not None and queue.isdecimal() else None


def _inside(path: Path, directory: Path) -> bool:
    """Whether `path` is `directory` or lies in it, by their names or by where links lead."""
    for real in (os.path.abspath, os.path.realpath):
        one, other = real(path), real(directory)
        if one == other or one.startswith(other.rstrip(os.sep) + os.sep):
            return True
    return False
