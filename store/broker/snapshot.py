"""The files on disk before a broker starts: the input of a prediction.

Directories are listed once. File contents are read when needed, a slice at a time, and never written. They are not
mapped, since a fault in a mapped page that the disk does not return would kill the process. A snapshot knows nothing
about versions.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...formats.derive.ragged import Bytes
from ...formats.dledger import HEAD, HEADER_BYTES, MAGIC_ENTRY
from ...formats.hashing import java_hash, java_integer
from ...formats.timer_check import FILE as TIMER_CHECK
from ..disk.byte_reader import data_ranges, fill, open_regular
from ..disk.checkpoint import Checkpoint, seen_checkpoint
from ..disk.compressed import is_compressed_name, open_plain, plain_name
from ..disk.file_queue import MappedFileQueue, is_directory, links_below, start_of, still
from ..disk.layout import BARRIER_PREFIX, COMMIT_LOG, Layout, absolute, queue_directory, refuse_compressed
from ..disk.sizes import commit_log_size, consume_queue_size
from ..errors import InvalidInput, Missing, StoreError, Unsupported, broken_link, from_os_error, os_errors
from .topics import BATCH_QUEUES, QUEUE_TYPE, Topics


class FileBytes:
    """A file, or its unpacked content if its name is that of a compressed one: `content[begin:end]` are its bytes as
    uint8[end - begin].

    Each slice is read anew and belongs to the caller. stop: bytes from here on read as zeros. Raises Missing,
    Unreadable, when it is made or for a slice.
    """

    def __init__(self, path: str, stop: int | None = None) -> None:
        self.path = path
        self._open_file = open_plain if is_compressed_name(path) else open_regular
        self._stop = stop
        with self._opened() as descriptor:
            self._size = os.fstat(descriptor).st_size

    @contextmanager
    def _opened(self) -> Iterator[int]:
        descriptor = self._open_file(self.path)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> Bytes:
        begin, end, _ = part.indices(self._size)
        data = np.empty(max(0, end - begin), np.uint8)
        if len(data):
            with self._opened() as descriptor:
                fill(descriptor, data.data, begin, self.path, end=self._size)
        if self._stop is not None:
            still(data.data, begin, self._stop)
        return data

    def sparse(self) -> Bytes:
        """The whole content, uint8[size]; holes of a sparse file are not read and take no memory."""
        found = np.zeros(self._size, np.uint8)
        with self._opened() as descriptor:
            for begin, end in data_ranges(descriptor, 0, self._size):
                fill(descriptor, found[begin:end].data, begin, self.path, end=self._size)
        return found


class DirectoryEntry(NamedTuple):
    """One entry of a directory: name, path, length in bytes, whether it is a directory.

    stop: bytes from here on count as zeros (see `MappedFileQueue.hold_still`); None: all bytes count.
    """

    name: str
    path: str
    size: int
    directory: bool
    stop: int | None = None

    @property
    def counting(self) -> int:
        """Number of bytes before `stop`."""
        return self.size if self.stop is None else min(self.size, self.stop)


class QueueId(NamedTuple):
    """A topic-queue."""

    topic: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.queue_id}" if self != NO_QUEUE else self.topic

    def below(self, queues: Path) -> Path:
        """The directory of this topic-queue below a directory of queues."""
        return queues / self.topic / str(self.queue_id)


NO_QUEUE = QueueId("?", -1)
"""For messages whose queue is unknown; no topic has this name."""


@lru_cache(maxsize=1 << 12)
def can_have_files(queue: QueueId) -> bool:
    """Whether a topic-queue can be a directory; a damaged record may name any text (B24)."""
    try:
        queue_directory(Path(), queue.topic, queue.queue_id)
    except InvalidInput:
        return False
    return "/" not in queue.topic


@dataclass(frozen=True)
class Snapshot:
    """A store that nobody changes.

    log, index: entries sorted by name, as a broker sorts them. queues: entries per topic-queue; empty if brokers read
    queues only from a RocksDB. ext, batch_queues: the same for consumequeue_ext and batchconsumequeue. batch_topics:
    topics with that queue.type; without a topics.json, topics that have batch queues. has_timer: timer log, wheel or
    timercheck exists. checkpoint: all fields of the schema, zeros if the file is missing or short. abort: the file
    exists.
    """

    layout: Layout
    log: tuple[DirectoryEntry, ...]
    log_file_bytes: int
    queues: Mapping[QueueId, tuple[DirectoryEntry, ...]]
    queue_file_bytes: int
    index: tuple[DirectoryEntry, ...]
    checkpoint: Mapping[str, int]
    abort: bool
    ext: Mapping[QueueId, tuple[DirectoryEntry, ...]] = field(default_factory=dict)
    ext_file_bytes: int = 0
    timer_log: tuple[DirectoryEntry, ...] = ()
    timer_file_bytes: int = 0
    has_timer: bool = False
    batch_queues: Mapping[QueueId, tuple[DirectoryEntry, ...]] = field(default_factory=dict)
    batch_file_bytes: int = 0
    batch_topics: frozenset[str] = frozenset()

    @classmethod
    def of(cls, layout: Layout) -> Snapshot:
        """List a store. Raises Unreadable, and Unsupported for stores that no plan is made for."""
        refuse_compressed(layout)
        if error := unmendable(layout):
            raise error
        return cls.listed(layout)

    @classmethod
    def listed(cls, layout: Layout) -> Snapshot:
        """As `of`, without the check whether a plan can be made. Raises Unreadable."""
        paths = in_java_order([os.fspath(path) for path in layout.commit_log_directories])
        entries = [e for path in paths for e in list_entries(path)]
        entries = [e for e in entries if not e.name.startswith(BARRIER_PREFIX)]
        if layout.log_stop is not None:
            entries = list(_held_still(entries, layout.log_stop))
        queues = {} if layout.rocksdb_queues else dict(list_queues(layout.consume_queue))
        if layout.log_stop is not None:
            stops = layout.queue_stops
            queues = {q: tuple(_held_still(e, stops.get(q, 0))) for q, e in queues.items()}
        ext = dict(list_queues(layout.consume_queue_ext))
        batches = dict(list_queues(layout.batch_consume_queue))
        timer_log = tuple(list_entries(layout.timer_log))
        check = layout.config / TIMER_CHECK
        return cls(
            layout=layout,
            log=tuple(sorted(entries, key=lambda e: e.name)),
            log_file_bytes=commit_log_size(layout).value,
            queues=queues,
            queue_file_bytes=consume_queue_size(layout).value,
            index=tuple(list_entries(layout.index)),
            checkpoint=(seen_checkpoint(layout.checkpoint) or Checkpoint())._asdict(),
            abort=layout.abort.exists(),
            ext=ext,
            ext_file_bytes=usual_file_bytes(layout, "mappedFileSizeConsumeQueueExt", ext.values()),
            timer_log=timer_log,
            timer_file_bytes=usual_file_bytes(layout, "mappedFileSizeTimerLog", [timer_log]),
            batch_queues=batches,
            batch_file_bytes=usual_file_bytes(layout, "mapperFileSizeBatchConsumeQueue", batches.values()),
            batch_topics=topics_with_batches(known_topics(layout), batches),
            has_timer=bool(timer_log) or layout.timer_wheel.exists() or check.exists(),
        )

    @classmethod
    def as_read(cls, layout: Layout) -> Snapshot:
        """As `listed`, with compressed files as the whole files that readers take them for. Raises Unreadable."""
        found = cls.listed(layout)
        queues = {name: _unpacked(entries, found.queue_file_bytes) for name, entries in found.queues.items()}
        return replace(found, log=_unpacked(found.log, found.log_file_bytes), queues=queues)

    def files_of_one_name(self, queue: MappedFileQueue) -> Iterator[tuple[DirectoryEntry, DirectoryEntry]]:
        """Yield log files that exist in two directories: the one that the log is read from, and the other one."""
        read = {os.fspath(file.path) for file in queue.files}
        ours = {entry.name: entry for entry in self.log if entry.path in read}
        yield from ((ours[e.name], e) for e in self.log if e.path not in read and e.name in ours)

    def bytes_of(self, entry: DirectoryEntry) -> FileBytes:
        """The content of a file. Raises Missing, Unreadable."""
        return FileBytes(entry.path, stop=entry.stop)


def _unpacked(entries: Iterable[DirectoryEntry], size: int) -> tuple[DirectoryEntry, ...]:
    """Return entries with compressed files as files of this size."""
    packed = ((entry, is_compressed_name(entry.name)) for entry in entries)
    return tuple(e._replace(name=plain_name(e.name), size=size) if is_packed else e for e, is_packed in packed)


def _held_still(entries: Iterable[DirectoryEntry], stop: int) -> Iterator[DirectoryEntry]:
    """Yield entries without the files that begin behind `stop`; bytes of others behind it count as zeros."""
    for entry in entries:
        start = start_of(entry.name)
        if start is None or start + entry.size <= stop:
            yield entry
        elif start <= stop:
            yield entry._replace(stop=stop - start)


def list_entries(directory: str | os.PathLike[str]) -> list[DirectoryEntry]:
    """Entries of a directory by name; none if it is missing. Raises Unreadable."""
    found = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                found.append(DirectoryEntry(entry.name, entry.path, _target_size(entry), is_directory(entry)))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise from_os_error(error, directory) from error
    return sorted(found)


def each_directory(
    named: Iterable[str | os.PathLike[str]], wanted: Callable[[DirectoryEntry], bool] = lambda _: True
) -> Iterator[tuple[str, list[DirectoryEntry]]]:
    """Yield directories and all directories below them, each with its entries; links are followed.

    Each directory comes once, by its own path rather than a link's if that is among them. wanted: asked for each entry;
    the others are left out, with all below them. Raises Missing, Unreadable.
    """
    seen = set[tuple[int, int]]()
    pending, links = [os.fspath(each) for each in named], list[str]()
    while pending or links:
        directory = pending.pop(0) if pending else links.pop(0)
        with os_errors(directory):
            status = Path(directory).stat()
        if (key := (status.st_dev, status.st_ino)) in seen:
            continue
        seen.add(key)
        entries = [entry for entry in list_entries(directory) if wanted(entry)]
        yield directory, entries
        below = [entry.path for entry in entries if entry.directory]
        linked = {path for path in below if Path(path).is_symlink()}
        links += [path for path in below if path in linked]
        pending = [*(path for path in below if path not in linked), *pending]


def broken_links(snapshot: Snapshot) -> Iterator[Missing]:
    """Yield the errors for links to nothing: in place of a part of the store, a topic, a queue, or a file of log,
    queues or index. What is there once their disk is mounted is not known.
    """
    layout = snapshot.layout
    parents = (layout.consume_queue, layout.batch_consume_queue, layout.consume_queue_ext)
    parts = (*layout.commit_log_directories, *parents, layout.index, layout.timer_log, layout.config)
    entries = chain(snapshot.log, snapshot.index, *snapshot.queues.values())
    below = (path for parent in parents for path in links_below(parent))
    empty = (entry.path for entry in entries if not entry.size)
    yield from filter(None, map(broken_link, chain(map(os.fspath, parts), below, empty)))


def files_for_queues(layout: Layout) -> Iterator[str]:
    """Yield the files in place of the directory of a queue, or of a topic that topics.json names: no broker makes the
    queue there.
    """
    topics: Collection[str] | None = None
    for parent in (layout.consume_queue, layout.batch_consume_queue, layout.consume_queue_ext):
        for topic in list_entries(parent):
            if topic.directory:
                numbers = (each for each in list_entries(topic.path) if each.name.isdecimal() and not each.directory)
                yield from (each.path for each in numbers if each.name == str(int(each.name)))
                continue
            if topics is None:
                with suppress(StoreError):  # what is wrong with topics.json is told elsewhere
                    topics = Topics.read(layout.config).known
            if topic.name in (topics or ()):
                yield topic.path


def directories_for_files(snapshot: Snapshot) -> list[str]:
    """Directories where a start opens a file: at the place of `checkpoint`, or of index files."""
    checkpoint = snapshot.layout.checkpoint
    index = [entry.path for entry in snapshot.index if entry.directory and java_integer(entry.name, 64) is not None]
    return [os.fspath(checkpoint), *index] if checkpoint.is_dir() else index


def directories_without_files(layout: Layout) -> list[Path]:
    """The configured log directories, if they are several, that are missing or empty: a disk is not mounted, or the
    broker has not yet used them. For a DLedger log that continues an older log: those of the older log.
    """
    paths = layout.commit_log_directories
    if layout.dledger is not None:
        paths = tuple(_of_older_log(layout, layout.dledger)) if len(paths) == 1 else ()
    elif layout.commit_log_origin != "configuration" or len(paths) == 1:
        return []
    return [path for path in paths if not list_entries(path)]


def lacks_log(layout: Layout) -> bool:
    """Whether the log, or one of its directories, has no file: nothing else would show that messages are missing."""
    return not layout.commit_log_files().files or bool(directories_without_files(layout))


def _of_older_log(layout: Layout, dledger: Path) -> Iterator[Path]:
    """The directories of the plain log that a DLedger log continues, if its first file is not at position 0."""
    first = next((entry for entry in list_entries(dledger) if start_of(entry.name) is not None), None)
    head = FileBytes(first.path)[:HEADER_BYTES] if first and start_of(first.name) else np.zeros(0, np.uint8)
    entry = HEAD.parse(head.tobytes()) if len(head) == HEADER_BYTES else None
    if entry is not None and (entry.magic, entry.index) == (MAGIC_ENTRY, 0):
        paths = [absolute(layout.root, path) for path in layout.broker_config.log_paths]
        yield from (path for path in paths or [layout.root / COMMIT_LOG] if path.resolve() != dledger.resolve())


def _target_size(entry: os.DirEntry[str]) -> int:
    """Length of the entry or the link's target; 0, as in Java, for a broken link."""
    try:
        return entry.stat().st_size
    except OSError:
        return 0


def list_queues(root: Path) -> Iterator[tuple[QueueId, tuple[DirectoryEntry, ...]]]:
    """Yield the topic-queues of `consumequeue`; directories whose name is not a number are skipped (2.1)."""
    for topic in list_entries(root):
        if not topic.directory:
            continue
        for queue in list_entries(topic.path):
            if queue.directory and java_integer(queue.name, 32) is not None:
                yield QueueId(topic.name, int(queue.name)), tuple(list_entries(queue.path))


def in_java_order(paths: Sequence[str]) -> list[str]:
    """Directories in the order in which a broker visits them: that of a Java `HashSet` of their names.

    Of two log files with one name a broker reads the one that it meets first.
    """
    size = max(16, 1 << int(len(paths) / 0.75).bit_length())
    hashes = [java_hash(path) & 0xFFFFFFFF for path in paths]
    order = sorted(range(len(paths)), key=lambda n: (hashes[n] ^ hashes[n] >> 16) & (size - 1))
    return [paths[n] for n in order]


def usual_file_bytes(layout: Layout, option: str, listed: Iterable[tuple[DirectoryEntry, ...]]) -> int:
    """Size of files: the configured one, else the commonest, else the broker's default."""
    value, origin = layout.broker_config.size(option)
    sizes = Counter(e.size for entries in listed for e in entries if e.size and not e.directory)
    return sizes.most_common(1)[0][0] if sizes and origin == "default" else value


def known_topics(layout: Layout) -> Topics | None:
    """topics.json, None if a broker, which starts all the same, cannot read it or finds no topic."""
    try:
        topics = Topics.read(layout.config)
    except StoreError:
        return None
    return topics if topics.known else None


def topics_with_batches(topics: Topics | None, queues: Iterable[QueueId]) -> frozenset[str]:
    """Topics with batch queues: by `known_topics`, else the topics of `queues`."""
    if topics is None:
        return frozenset(queue.topic for queue in queues)
    return frozenset(t for t in topics.known if topics.attribute(t, QUEUE_TYPE) == BATCH_QUEUES)


def unmendable(layout: Layout) -> Unsupported | None:
    """Why no plan can be made for a store of this kind, whatever is wrong with it; None for the usual kinds."""
    if layout.dledger is None:
        return None
    # a RocksDB of queues that is only configured would exist once the plan was carried out
    if layout.queue_database is not None or layout.queues_for_rocksdb:
        what, then = "a RocksDB", "salvage saves the messages"
    elif len(layout.commit_log_directories) > 1:
        from ..findings.next_commands import Given, converting  # imported late: few stores need it

        made = converting(layout.root, Given(layout.broker_config.words))
        what, then = "an older plain log", f"this makes a plain store from it: {made}"
    else:
        return None
    return Unsupported(
        f"a DLedger log beside {what} cannot be recovered or repaired",
        path=layout.dledger,
        hint=f"verify reports what is wrong; {then}",
    )
