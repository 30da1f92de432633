"""The directories of logs and queues: names, lengths and order of files (I-001 … I-005, I-011)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ..broker.profiles import OnOddFile
from ..counted import counted
from ..disk.compressed import is_compressed_name, plain_name
from ..disk.file_queue import NAME_DIGITS, file_name, start_of
from ..disk.snapshot import Entry, list_entries
from ..log.log_items import LogItems
from .catalogue import Severity
from .context import Scene

_SLASH_NAMES = "4.9"
"""The generation that makes directories for light queues with a slash in their name (B12)."""
_INDEX_DIGITS = 17


@dataclass(frozen=True)
class Directory:
    """Files that form one stream, in one or several directories.

    file_bytes: their length, 0 where nothing tells. gaps: they may be missing in the middle.
    """

    paths: tuple[Path, ...]
    entries: list[Entry]
    file_bytes: int
    topic: str | None = None
    queue_id: int | None = None
    is_log: bool = False
    gaps: bool = False

    @property
    def files(self) -> list[tuple[int, Entry]]:
        """Those that a name makes files, by position."""
        found = [(start_of(plain_name(e.name)), e) for e in self.entries if not e.directory]
        return sorted((start, e) for start, e in found if start is not None)


def check_directories(scene: Scene) -> None:
    """All of them. A queue that is not asked for is left out."""
    for directory in _directories(scene):
        _check_entries(scene, directory)
        if not directory.gaps:
            _check_order(scene, directory)
    _check_index(scene)


def _directories(scene: Scene) -> Iterator[Directory]:
    layout, sizes, config = scene.store.layout, scene.store.sizes, scene.store.config
    logs = layout.commit_log_directories
    entries = [entry for path in logs for entry in list_entries(path)]
    yield Directory(logs, entries, sizes.commit_log.value, is_log=True)
    timer = list_entries(layout.timer_log)
    yield Directory((layout.timer_log,), timer, sizes.timer_log.value if timer else 0)
    if not layout.rocksdb_queues:
        yield from _queues(scene, layout.consume_queue, sizes.consume_queue.value)
    for root, option in (
        (layout.batch_consume_queue, "mapperFileSizeBatchConsumeQueue"),
        (layout.consume_queue_ext, "mappedFileSizeConsumeQueueExt"),
    ):
        yield from _queues(scene, root, _configured(config.size(option)))
    yield from _queues(scene, layout.compaction_log, 0, gaps=True)
    # file names of compactionCq are those of the log beside it, whatever they hold


def _configured(size: tuple[int, str]) -> int:
    value, origin = size
    return value if origin == "configuration" else 0


def _queues(
    scene: Scene, root: Path, file_bytes: int, *, gaps: bool = False
) -> Iterator[Directory]:
    """The queue directories below one root; tells those that have no number for a name."""
    scope, found = scene.scope, []
    for topic in list_entries(root):
        if not topic.directory or scope.topic not in (None, topic.name):
            continue
        for queue in list_entries(topic.path):
            if not queue.directory:
                continue
            if not queue.name.isdigit():
                _odd_queue(scene, topic.name, queue)
            elif scope.queue_id in (None, int(queue.name)):
                entries = list_entries(queue.path)
                found.append((topic.name, int(queue.name), Path(queue.path), entries))
    if not file_bytes:
        lengths = Counter(e.size for *_, es in found for e in es if e.size and not e.directory)
        file_bytes = max(lengths, key=lambda n: (lengths[n], n), default=0)
    for name, queue_id, path, entries in found:
        yield Directory((path,), entries, file_bytes, name, queue_id, gaps=gaps)


def _odd_queue(scene: Scene, topic: str, queue: Entry) -> None:
    """A directory beside the queues of a topic, with another name."""
    light = scene.profile.version == _SLASH_NAMES and topic.startswith("%LMQ%")
    if light:
        text = f"of a light queue {topic}/{queue.name}: 4.9 makes it, and forgets it (B12)"
    else:
        text = f"{queue.name!r} is no number of a queue of {topic}"
    severity = Severity.INFO if light else None
    scene.findings.add("I-011", queue.path, text, severity=severity)


def _check_entries(scene: Scene, directory: Directory) -> None:
    """Each entry for itself."""
    last = max((entry.name for entry in directory.entries), default="")
    for entry in directory.entries:
        fault = _fault(scene, directory, entry, last=entry.name == last)
        if fault is not None:
            code, text, severity = fault
            scene.findings.add(
                code,
                entry.path,
                text,
                severity=severity,
                topic=directory.topic,
                queue_id=directory.queue_id,
                repair=_mend(directory, entry),
            )


def _mend(directory: Directory, entry: Entry) -> str | None:
    """What mends an entry where that is not as in the catalogue: no plan is made beside such a file."""
    if is_compressed_name(entry.name):
        unpack = "gunzip" if entry.name.endswith(".gz") else "zstd --decompress --rm"
        return f"{unpack} {{path}}"
    return "recover" if directory.is_log else None


def _fault(
    scene: Scene, directory: Directory, entry: Entry, *, last: bool
) -> tuple[str, str, Severity | None] | None:
    """Code, what is wrong, and how bad it is where that is not as usual."""
    rules, size = scene.profile.load, directory.file_bytes
    start = start_of(plain_name(entry.name))
    if entry.directory:
        ignored = rules.directory is OnOddFile.IGNORE
        return "I-005", "a directory among the files", Severity.WARNING if ignored else None
    if start is None:
        return "I-005", f"{entry.name!r} is no file of a broker", None
    if is_compressed_name(entry.name):
        return "I-005", "compressed: mqstore reads it, a broker does not", None
    if len(entry.name) != NAME_DIGITS or (size and start % size and not directory.gaps):
        return "I-001", f"its name is no multiple of {size} in {NAME_DIGITS} digits", None
    if scene.live and last:
        return None  # it is being made
    if not entry.size:
        harmless = last and rules.empty_last is not OnOddFile.REFUSE
        return "I-004", "it is empty", Severity.WARNING if harmless else None
    if size and entry.size != size and not directory.gaps:
        return "I-003", f"it has {counted(entry.size, 'byte')}, not {size}", None
    return None


def _check_order(scene: Scene, directory: Directory) -> None:
    """No file is missing between the others."""
    size = directory.file_bytes
    for (first, _), (second, entry) in pairwise(directory.files):
        if not size or second <= first + size:
            continue
        missing = (second - first) // size - 1
        gone = Path(entry.path).with_name(file_name(first + size))
        more = f", and {missing - 1} behind it" if missing > 1 else ""
        text = f"this file is missing{more}; {file_name(second)} follows"
        alone = directory.is_log and entry is directory.files[-1][1] and _is_zero(scene, second)
        if alone:
            text += ", all zeros: 4.9 waits for ever at the gap"
        scene.findings.add(
            "I-002",
            os.fspath(gone),
            text,
            severity=Severity.FATAL if alone else None,
            topic=directory.topic,
            queue_id=directory.queue_id,
        )


def _is_zero(scene: Scene, start: int) -> bool:
    """The file of the log that begins there has nothing but zeros."""
    file = scene.store.log_files.file_at(start)
    return file is not None and LogItems(scene.store.log, file).is_zero(0, file.size)


def _check_index(scene: Scene) -> None:
    """Index files have one length; an empty one is told by the index checks."""
    files = [e for e in list_entries(scene.store.layout.index) if not e.directory and e.size]
    files = [e for e in files if e.name.isdigit() and len(e.name) == _INDEX_DIGITS]
    lengths = Counter(entry.size for entry in files)
    if len(lengths) < 2:
        return
    usual = max(lengths, key=lambda length: (lengths[length], length))
    for entry in files:
        if entry.size != usual:
            text = f"it has {counted(entry.size, 'byte')}, the others {usual}"
            scene.findings.add("I-003", os.fspath(entry.path), text)
