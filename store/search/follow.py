"""Following a live commit log: each message once, as soon as it is complete (`tail -f`).

A broker writes through a memory map into files that it created full of zeros. So the log ends where the next record is
not complete. A record is complete when its fields add up, its body has its checksum and its properties have no zero
byte: they have no checksum, and a read during the write may lack some of their bytes. It is also complete if an earlier
read has seen a record behind it. A record that stays broken while good ones follow is damage: it is noted and skipped.
A starting broker may truncate the log and write on from there: so the records delivered last are checked again, and
reading continues after the last one that still exists.

With inotify, a change of a file's length or name ends a wait at once. Writes through a memory map give no event, so
waits begin short and double while nothing happens.
"""

from __future__ import annotations

import ctypes
import os
import select
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Self

import numpy as np

from ...formats.commit_log import HEAD_BYTES
from ...formats.derive import Ragged
from ...formats.derive.ragged import Flags
from ..counted import counted
from ..disk.file_queue import MappedFile
from ..disk.layout import Layout
from ..errors import Missing, Unreadable
from ..log.batch import Batch, good_records
from ..log.message import Mark
from ..log.scan import LogItems
from ..log.window import check, number_at, walk
from ..queues.references import commit_log_of
from .store import Note, StoreReader, silent

SHORTEST_SECONDS = 0.02
LONGEST_SECONDS = 0.5
_CREATE, _MOVED_TO, _MODIFY, _DELETE = 0x100, 0x80, 0x2, 0x200
_EVENTS = _CREATE | _MOVED_TO | _MODIFY | _DELETE
_READ_BYTES = 1 << 16


class Watch:
    """Waits for changes in some directories; a context manager."""

    def __init__(self, directories: Sequence[str | os.PathLike[str]]) -> None:
        self._pause = SHORTEST_SECONDS
        self._descriptor = _inotify(directories)
        self._with_descriptors = dict(_with_descriptors(directories))

    def missing(self) -> str:
        """A watched directory that no longer exists, "" if all do."""
        return next((path for path in self._with_descriptors if not os.path.isdir(path)), "")  # noqa: PTH112

    def replaced(self) -> str:
        """A watched path where another directory is now, "" if there is none."""
        for path, descriptor in self._with_descriptors.items():
            try:
                if not os.path.samestat(os.stat(path), os.fstat(descriptor)):  # noqa: PTH116
                    return path
            except OSError:
                continue
        return ""

    def active(self) -> None:
        """Something happened: begin with short waits again."""
        self._pause = SHORTEST_SECONDS

    def wait(self) -> None:
        """Wait for a change or the end of the pause; each pause is twice as long as the one before."""
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_SECONDS)
        if self._descriptor < 0:
            time.sleep(pause)
            return
        ready, _, _ = select.select([self._descriptor], [], [], pause)
        if ready:
            os.read(self._descriptor, _READ_BYTES)  # which change does not matter

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in (self._descriptor, *self._with_descriptors.values()):
            if descriptor >= 0:
                os.close(descriptor)


def _with_descriptors(directories: Iterable[str | os.PathLike[str]]) -> Iterator[tuple[str, int]]:
    """Directories with open descriptors, so that a directory created anew is never taken for the old one."""
    for directory in directories:
        with suppress(OSError):
            yield os.fspath(directory), os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _inotify(directories: Iterable[str | os.PathLike[str]]) -> int:
    """A descriptor that becomes readable on a change, -1 without inotify."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        descriptor = int(library.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
    except (OSError, AttributeError):
        return -1
    if descriptor >= 0:
        for directory in directories:
            library.inotify_add_watch(descriptor, os.fsencode(directory), _EVENTS)
    return descriptor


WINDOW_BYTES = 1 << 20
_REMEMBERED = 4096
_REMEMBERED_OF_A_BATCH = 256
"""Delivered records that are remembered, in all and of one batch, to find the place after a truncation."""
_COMPARED_BYTES = 64
_BROKEN_SECONDS = 2.0
"""How long an invalid record may be one that is still being written."""
_REST_FACTOR = 50
"""A search for good records after damage is repeated only after this many times its duration."""
_GIVE_UP_BYTES = 64 << 20
"""No record is larger: a size above it is damage."""


def _nothing() -> None:
    """The default for `idle`."""


class Follower:
    """Reads a log from `position` on, and waits for more.

    position: after the last delivered record. note: called with one line for a truncation, damage and files that are
    gone.
    """

    def __init__(self, layout: Layout, position: int, note: Note) -> None:
        self.position = position
        self._layout = layout
        self._note = note
        self._log = commit_log_of(layout, layout.commit_log_files())
        self._delivered: deque[tuple[int, int, int]] = deque(maxlen=_REMEMBERED)
        self._broken: tuple[int, int, float] | None = None
        #: Log position of the last record that was seen: those in front of it are complete when they are read again.
        self._seen = 0

    def batches(self, idle: Callable[[], None] = _nothing) -> Iterator[Batch]:
        """Yield new records in log order, forever; a batch is valid until the next one is taken.

        idle: called when there is nothing to read; an exception from it ends the loop. Raises Unreadable, also if
        another directory takes the place of the log's and lacks the last delivered record, or none was delivered: then
        a copy of the log cannot be told from another log.
        """
        while True:
            with Watch([d for d in self._layout.commit_log_directories if d.is_dir()]) as watch:
                yield from self._until_replaced(watch, idle)
            self._reopen()

    def _until_replaced(self, watch: Watch, idle: Callable[[], None]) -> Iterator[Batch]:
        """Yield new records until a directory is replaced by another one with the last delivered record.

        Raises Unreadable.
        """
        away = ""
        while True:
            batch = self.poll()
            if batch is not None:
                watch.active()
                yield batch
                continue
            idle()
            if path := watch.replaced():
                self._reopen()
                if self._delivered and self._is_unchanged(self._delivered[-1]):
                    return
                hint = "run the command again to follow the new log"
                raise Unreadable("the log that was followed was replaced", path=path, hint=hint)
            missing = watch.missing()
            if missing and not away:
                self._note(f"{missing} has disappeared: waiting for it")
            away = missing
            watch.wait()

    def skip(self) -> bool:
        """Continue at the next good record, also past zeros; return False if there is none.

        For callers who know that the missing bytes are not being written. Raises Unreadable.
        """
        self._reopen()
        file = self._log.queue.file_at(self.position)
        if file is None:
            return False
        for batch in good_records(self._log.scan(self.position, reuse=True)):
            self._skip_damage(int(batch.position[0]) - self._log.frame_of(file).payload)
            return True
        return False

    def poll(self) -> Batch | None:
        """The next records, None if there are none yet. Raises Unreadable."""
        try:
            return self._poll()
        except Missing:  # a file expired after it was listed
            self._reopen()
            return None

    def _poll(self) -> Batch | None:
        self._look_back()
        file = self._file()
        if file is None:
            return None
        at = self.position - file.start
        items = LogItems(self._log, file)
        head = items.peek(at, HEAD_BYTES)
        if not head.unread and not any(head.data):
            self._broken = None
            # it has grown, or a restarted broker created it anew
            if self._log.queue.grown_bytes(file) or self._log.queue.is_deleted(file):
                self._reopen()
            return None
        if items.blank(at) is not None:
            return self._next_file(file)
        batch = self._records(items, file, at)
        return batch if batch is not None else self._handle_invalid(file, at)

    def _records(self, items: LogItems, file: MappedFile, at: int) -> Batch | None:
        """The complete records from byte `at` on, None if the first is not complete."""
        size = items.size(at)
        if size is None or size > _GIVE_UP_BYTES:
            return None
        window = items.peek(at, max(size, WINDOW_BYTES))
        starts, _ = walk(window, items.frame)
        checked = check(window, items.frame, starts)
        good = checked.whole & checked.in_place
        if checked.body_crc_ok is not None:
            good &= checked.body_crc_ok
        checked = checked.take(slice(0, _leading(good)))
        written = _written(checked.columns.ragged("properties")) | (checked.position < self._seen)
        self._seen = max([self._seen, *checked.position[-1:].tolist()])
        count = _leading(written)
        if not count:
            return None
        checked = checked.take(slice(0, count))
        batch = Batch(checked.columns, checked.position, Mark.NONE, checked.body_crc_ok)
        last = int(starts[count - 1])
        end = at + last + number_at(window, last + items.frame.size_offset)
        for start in starts[max(0, count - _REMEMBERED_OF_A_BATCH) : count].tolist():
            head = window.array[start : start + _COMPARED_BYTES].tobytes()
            self._delivered.append((file.start + at + start, zlib.crc32(head), len(head)))
        self.position = file.start + end
        self._broken = None
        return batch

    # -- files ----------------------------------------------------------------------------------

    def _file(self) -> MappedFile | None:
        """The file that holds the position; None if it does not exist yet."""
        file = self._file_at(self.position)
        if file is None:
            self._reopen()
            file = self._file_at(self.position)
        if file is None and self._expired(self.position):
            file = self._file_at(self.position)
        return file

    def _file_at(self, position: int) -> MappedFile | None:
        """The file as listed; None if it is shorter now, because it was created anew."""
        file = self._log.queue.file_at(position)
        return file if file is not None and self._log.queue.grown_bytes(file) >= 0 else None

    def _next_file(self, file: MappedFile) -> Batch | None:
        """After a BLANK record: continue in the next file once it exists."""
        if self._log.queue.file_at(file.end) is None:
            self._reopen()
        if self._log.queue.file_at(file.end) is None:
            return self._poll() if self._expired(file.end) else None
        self.position = file.end
        return self._poll()

    def _expired(self, position: int) -> bool:
        """If the files at a position were deleted, continue where the log begins now, and return True."""
        if not self._log.files or position >= self._log.min_offset:
            return False
        self.position = self._log.min_offset
        self._delivered.clear()
        self._note(f"files before {self.position} are gone: continuing there")
        return True

    def _reopen(self) -> None:
        self._log.queue.close()
        self._seen = 0
        self._log = commit_log_of(self._layout, self._layout.commit_log_files())

    # -- what may go wrong ----------------------------------------------------------------------

    def _is_unchanged(self, record: tuple[int, int, int]) -> bool:
        """Whether a delivered record is unchanged."""
        position, crc, size = record
        if self._file_at(position) is None:
            return False
        return zlib.crc32(self._log.queue.read(position, size)) == crc

    def _look_back(self) -> None:
        """After a truncation go back to the last delivered record that still exists."""
        if not self._delivered or self._is_unchanged(self._delivered[-1]):
            return
        self._reopen()
        # a disk that was not mounted for a while is not a truncation
        if not self._log.files or self._is_unchanged(self._delivered[-1]):
            return
        while self._delivered and self._log.queue.file_at(self._delivered[-1][0]) is None:
            if self._delivered[-1][0] < self._log.min_offset:  # expired, not truncated
                self._delivered.clear()
                return
            self.position = self._delivered.pop()[0]
        while self._delivered and not self._is_unchanged(self._delivered[-1]):
            self.position = self._delivered.pop()[0]
        if self._delivered:
            last = self._delivered[-1][0]
            batch = self._log.records(np.array([last], np.int64))
            self.position = batch.end if len(batch) else last
        self._note(f"the log was cut: continuing at {self.position}")

    def _handle_invalid(self, file: MappedFile, at: int) -> Batch | None:
        """Handle an invalid record at byte `at`: it is being written, or is damage with good records after it."""
        if self._log.queue.grown_bytes(file) > 0:  # the file has grown since it was listed
            self._reopen()
            return None
        head = zlib.crc32(LogItems(self._log, file).peek(at, WINDOW_BYTES).data)
        now = time.monotonic()
        if self._broken is None or self._broken[:2] != (self.position, head):
            self._broken = (self.position, head, now + _BROKEN_SECONDS)
            return None
        if now < self._broken[2]:
            return None
        self._reopen()
        payload = self._log.frame_of(file).payload
        damaged: Batch | None = None
        for batch in good_records(self._log.scan(self.position, crc=True)):
            found = int(batch.position[0]) - payload
            if damaged is None and found == self.position:
                damaged = batch.take(slice(0, 1))
                if len(batch) == 1 and not _ends_written(damaged):
                    continue
            if damaged is not None:  # nobody writes it: good ones follow, or it is whole but for zeros in properties
                self._note(f"the record at {self.position} has a damaged body or properties")
                self.position, self._broken = damaged.end, None
                return damaged
            self._skip_damage(found)
            return self._poll()
        ended = time.monotonic()
        self._broken = (self.position, head, ended + max(_BROKEN_SECONDS, _REST_FACTOR * (ended - now)))
        return None

    def _skip_damage(self, end: int) -> None:
        """Note the damage up to `end`, and skip it."""
        size, at = end - self.position, self.position
        bytes_are = counted(size, f"byte at {at} is", f"bytes at {at} are")
        self._note(f"{bytes_are} damaged: skipped")
        self.position, self._broken = end, None


def _ends_written(record: Batch) -> bool:
    """Whether the body has its checksum and the last byte of the properties is written."""
    body_ok = record.body_crc_ok is None or bool(record.body_crc_ok.all())
    return body_ok and record.columns.ragged("properties").tolist()[0][-1:] not in (b"", b"\0")


def _leading(good: Flags) -> int:
    """How many of the first ones are good."""
    return len(good) if good.all() else int(np.argmin(good))


def _written(properties: Ragged) -> Flags:
    """bool[n]: whether no byte of the text is zero, as all are before they are written."""
    found = np.ones(len(properties), np.bool_)
    rows = np.flatnonzero(properties.length > 0)
    if len(rows):
        text = properties[rows]
        edges = np.stack([text.start, text.start + text.length], axis=1).ravel()
        found[rows] = ~np.logical_or.reduceat(np.append(text.buffer == 0, False), edges)[::2]
    return found


_PATIENCE_S = 2.0
"""A log that has not grown for this long may have a hole with records after it."""
_GIVE_UP_S = 5.0
_POLL_S = 0.1
_RECENT_MS = 60_000
"""If the last record is older, no record is being written."""


class LiveEnd:
    """The end of a log that may be growing, to be asked repeatedly. Raises StoreError."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        with StoreReader(layout.root, layout.broker_config) as store:
            end, files = store.log_end.position, store.log_files
            file = files.file_at(max(files.start, end - 1)) if files.files else None
        self._follower = Follower(layout, file.start if file else end, silent)
        self._since, self._seen = time.monotonic(), -1
        self._looked_behind = False

    def position(self) -> int:
        """The end of the last complete record."""
        while self._follower.poll() is not None:
            pass
        now, at = time.monotonic(), self._follower.position
        if at != self._seen:
            self._since, self._seen, self._looked_behind = now, at, False
        elif not self._looked_behind and now - self._since >= _PATIENCE_S:
            self._looked_behind = True
            if self._follower.skip():
                return self.position()
        return self._follower.position

    def settled(self) -> int:
        """The same, also past damage: an invalid record may be one that is being written."""
        with StoreReader(self._layout.root, self._layout.broker_config) as store:
            end = store.log_end.position
        while self.position() < end and time.monotonic() < self._since + _GIVE_UP_S:
            time.sleep(_POLL_S)
        return self._follower.position


def end_of(layout: Layout) -> int:
    """The current end of the last complete record of a log. Raises StoreError."""
    with StoreReader(layout.root, layout.broker_config) as store:
        end = store.log_end
    now_ms = time.time_ns() // 1_000_000
    if end.store_timestamp is None or abs(now_ms - end.store_timestamp) > _RECENT_MS:
        return end.position
    # records that a broker has cut off may follow the end; the follower would accept them
    return min(end.position, LiveEnd(layout).settled())
