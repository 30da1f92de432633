"""Read a RocksDB of a broker without changing a byte of it, and the consume queues in it (spec 02, 2.10).

The library that opens a RocksDB writes its own files beside those it finds. So it is given a directory of links in the
system's directory for temporary files, which is removed with the object. Needs the extra `rocksdb` (rocksdict).
`RocksdbConsumeQueue` has the interface of a queue in files.
"""

from __future__ import annotations

import os
import re
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...formats import rocksdb_consume_queue as formats
from ...formats.fixed import numbers_of
from ...formats.hashing import utf8
from ...formats.rocksdb import LOG_BLOCK_BYTES, LOG_PART, RECYCLED_TYPES, read_log
from ...formats.rocksdb_consume_queue import BOUNDS, MAX, UNIT_BYTES, UNITS
from ..disk.byte_reader import Closing, Unread, failed, fill_any, opened, pieces, read_at
from ..disk.file_queue import MappedFileQueue
from ..disk.layout import Layout, QueueDirectory
from ..errors import Missing, NotFound, StoreError, Unreadable, Unsupported, os_errors
from .read import ConsumeQueue, ConsumeQueues, QueueSummary, Unit, is_cut

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

    from rocksdict import Rdict

    from ...formats.derive.ragged import Ints
    from .units import Units, UnitStream


CURRENT, MANIFEST = "CURRENT", "MANIFEST-"
HINT = "pip install 'mqstore[rocksdb]' and try again"
DEFAULT = "default"
_IO_ERROR = "IO error"
_MISSING = r"No such file or directory: While open.*?: \S*/([^/\s]+): No such file or directory"
_NAMED_BY = r"The file \S*/([^/\s]+) may be corrupted"
"""What the library says of a missing file that the database needs, and of the file that names it."""
_WINDOW_BYTES = 1 << 20
_OPEN_FILES = 256
_ALL_FILES = -1
_STRETCH_ENTRIES = 1 << 10
"""Entries that are read together: many more would leave the processor's cache before they are looked at."""
_PARTS_MAX = 64
_LIBRARY_NOTES = "rocksdict-config.json"
"""What the library writes about a database, even if it only reads."""
_PART = numbers_of(LOG_PART)
_LOG_WINDOW_BYTES = LOG_BLOCK_BYTES << 8
_NAME_BYTES_MAX = 256
_FILES_MAX = 200_000
"""A directory with more files is no RocksDB of a broker."""


def is_rocksdb(path: str | os.PathLike[str]) -> bool:
    """Whether a directory holds a RocksDB: it has a file CURRENT."""
    return os.path.isfile(os.path.join(path, CURRENT))  # noqa: PTH113, PTH118


def readable() -> bool:
    """Whether the library that reads a RocksDB is installed."""
    try:
        import rocksdict  # noqa: F401
    except ImportError:
        return False
    return True


class RocksDb(Closing):
    """One RocksDB as it lies on the disk, its write-ahead log included; a context manager.

    `RocksDb.open` opens it. column_families: names.
    """

    def __init__(self, path: Path, database: Rdict, families: tuple[str, ...]) -> None:
        self.path = path
        self.column_families = families
        self._database = database
        self._open: dict[str, Rdict] = {}

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, every_file: bool = False, manifest: str = "") -> RocksDb:
        """Open the database in a directory. every_file: look at the end of each table now, as a broker does. manifest:
        open as if CURRENT named this MANIFEST.

        Raises Unsupported if the extra is not installed, Unreadable if the directory is no whole RocksDB, Missing.
        """
        path = Path(path)
        try:
            import rocksdict
        except ImportError as error:
            raise Unsupported("cannot read a RocksDB without the extra rocksdb", path=path, hint=HINT) from error
        if not manifest:
            _check_manifest(path)
        links = _links(path, manifest)
        try:
            names = tuple(sorted(rocksdict.Rdict.list_cf(links.name, _options(rocksdict))))
            options = _options(rocksdict)
            if every_file:
                options.set_max_open_files(_ALL_FILES)
            database = rocksdict.Rdict(
                links.name,
                options,
                column_families={name: _options(rocksdict) for name in names},
                access_type=rocksdict.AccessType.read_only(False),
            )
        except Exception as error:  # the library raises nothing narrower
            links.cleanup()
            raise _error(error, path, links.name) from error
        found = cls(path, database, names)
        found._links = links.name
        found._finalizer = weakref.finalize(found, links.cleanup)
        return found

    _links: str
    _finalizer: weakref.finalize[[], RocksDb]

    def get(self, family: str, key: bytes) -> bytes | None:
        """The value of a key, None if there is none. Raises Unreadable."""
        try:
            value = self._family(family).get(key)
        except Exception as error:
            raise _error(error, self.path, self._links) from error
        return None if value is None else bytes(value)

    def items(self, family: str, start: bytes = b"", *, backwards: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys from `start` on with their values, in byte order. Raises Unreadable.

        backwards: from the last key at or before `start` down. A family that does not exist is empty.
        """
        if family not in self.column_families:
            return
        last = start
        try:
            for last, value in self._family(family).items(backwards=backwards, from_key=start or None):
                yield last, value
            self._check_end(family, last, backwards=backwards)
        except Exception as error:
            raise _error(error, self.path, self._links) from error

    def stretch(self, family: str, start: bytes, most: int) -> tuple[list[bytes], list[bytes]]:
        """Up to `most` keys from `start` on, and their values, in byte order. Raises Unreadable."""
        if family not in self.column_families:
            return [], []
        try:
            rows = list(islice(self._family(family).items(from_key=start), most))
            if len(rows) < most:
                self._check_end(family, rows[-1][0] if rows else start, backwards=False)
        except Exception as error:
            raise _error(error, self.path, self._links) from error
        return [key for key, _ in rows], [value for _, value in rows]

    def _check_end(self, family: str, last: bytes, *, backwards: bool) -> None:
        """Raise unless the rows really end at the key `last`: at an unreadable block they only seem to end."""
        rows = self._family(family).iter()
        if backwards:
            rows.seek_for_prev(last) if last else rows.seek_to_last()
            move = rows.prev
        else:
            rows.seek(last) if last else rows.seek_to_first()
            move = rows.next
        if rows.valid():
            move()
        rows.status()

    def _family(self, name: str) -> Any:
        if name not in self._open:
            self._open[name] = self._database.get_column_family(name)
        return self._open[name]

    def close(self) -> None:
        """Close the database and remove the links."""
        self._open.clear()
        self._database.close()
        self._finalizer()


def _options(rocksdict: Any) -> Any:
    """Options for plain bytes and a bounded number of open files."""
    options = rocksdict.Options(raw_mode=True)
    # as brokers open a database: a torn end of its log is skipped
    options.set_wal_recovery_mode(rocksdict.DBRecoveryMode.skip_any_corrupted_record())
    options.create_if_missing(False)
    options.set_max_open_files(_OPEN_FILES)
    return options


def _links(path: Path, manifest: str) -> TemporaryDirectory[str]:
    """Make a temporary directory with a link to each file of `path` that a broker makes. manifest: what CURRENT names
    there; "": as in `path`.
    """
    from tempfile import TemporaryDirectory  # few stores have a RocksDB

    with os_errors(path), os.scandir(path) as entries:
        files = [e for _, e in zip(range(_FILES_MAX), entries, strict=False) if e.is_file()]
        files = [entry for entry in files if entry.name != _LIBRARY_NOTES]
    with os_errors(path, "cannot link to the files of"):
        target = TemporaryDirectory(prefix="mqstore-rocksdb-", ignore_cleanup_errors=True)
        for entry in files:
            link = Path(target.name, entry.name)
            if not (manifest and entry.name == CURRENT):
                link.symlink_to(Path(entry.path).absolute())
        if manifest:
            with Path(target.name, CURRENT).open("w") as current:
                current.write(f"{manifest}\n")
    return target


def _check_manifest(path: Path) -> None:
    """Raise Unreadable if the MANIFEST has a part of a recycled log, at which the library loops forever."""
    name, at, head = "", None, b""
    with suppress(StoreError):  # the library reports a file that is missing or cannot be read
        name = named_manifest(path)
        if not name.startswith(MANIFEST) or "/" in name or "\0" in name:
            return  # not the name of a MANIFEST: the library reports this, too
        at = read_log(log_windows(path / name), keep=False).damaged
        head = read_at(path / name, _PART.size, at) if at is not None else b""
    if len(head) == _PART.size and _PART.unpack(head)[2] in RECYCLED_TYPES:
        raise Unreadable(f"cannot read the RocksDB: {name} is damaged at {at}", path=path)


def named_manifest(path: Path) -> str:
    """The name of the MANIFEST in CURRENT, "" without CURRENT. Raises StoreError."""
    with suppress(Missing):
        return read_at(path / CURRENT, _NAME_BYTES_MAX, 0).decode("ascii", "replace").strip()
    return ""


def log_windows(path: Path) -> Iterator[bytes]:
    """The bytes of a MANIFEST or write-ahead log, as `read_log` takes them. Raises StoreError."""
    return pieces(path, piece_bytes=_LOG_WINDOW_BYTES)


def _error(error: Exception, path: Path, links: str) -> Unreadable:
    """The library's error, in terms of the store's files; bytes that the disk does not give are noted."""
    message = str(error).replace(links, str(path))
    missing = re.search(_MISSING, message)
    if missing is not None and not (path / missing[1]).exists():
        names = re.search(_NAMED_BY, message)
        damaged = f"or {names[1]}, which names it, is damaged" if names else ""
        message = ", ".join(filter(None, (f"its file {missing[1]} is missing", damaged)))
        return Unreadable(f"cannot read the RocksDB: {message}", path=path)
    if _IO_ERROR in message:
        unread = [one for file in _files_in(path, message) for one in _unread(file)]
        for one in unread[1:]:
            failed(one)
        if unread:
            return failed(unread[0])
    return Unreadable(f"cannot read the RocksDB: {message}", path=path)


def _files_in(path: Path, said: str) -> list[Path]:
    """The files that a message names, or all files of the directory if it names none."""
    files = sorted(file for file in path.iterdir() if file.is_file())
    return [file for file in files if str(file) in said] or files


def _unread(path: Path) -> Iterator[Unread]:
    """Yield the ranges of a file that cannot be read."""
    with opened(path) as descriptor:
        size = os.fstat(descriptor).st_size
        room = memoryview(bytearray(min(size, _WINDOW_BYTES)))
        for at in range(0, size, _WINDOW_BYTES):
            yield from fill_any(descriptor, room[: size - at], at, os.fspath(path), end=size)[1]


_UNIT, _BOUND = numbers_of(formats.UNIT), numbers_of(formats.BOUND)
_BEHIND_OFFSETS = b"\x7f" + b"\xff" * 8
"""Suffix behind every queue offset; negative numbers follow, which are no queue offsets."""
_BEHIND_QUEUE = b"\xff" * 9
"""Suffix behind all keys that begin with the key of a queue."""


class QueueBound(NamedTuple):
    """The last unit of a queue, or the first: log position of its record, and its queue offset."""

    physical_offset: int
    queue_offset: int

    def hides(self, first: QueueBound) -> bool:
        """Whether this `min` row hides the first message, or sends consumers where no message is. first: unit."""
        if self.queue_offset < first.queue_offset:
            return self.physical_offset >= first.physical_offset
        return self.queue_offset > first.queue_offset


def bound_in(database: RocksDb, topic: bytes, queue_id: int, which: bytes) -> QueueBound | None:
    """The `min` or `max` row of a queue; None without a whole one. Raises Unreadable."""
    value = database.get(BOUNDS, formats.bound_key(topic, queue_id, which))
    return QueueBound(*_BOUND.unpack(value)) if value is not None and len(value) == _BOUND.size else None


class RocksdbConsumeQueue(ConsumeQueue):
    """One topic-queue whose units are entries of a RocksDB."""

    #: Its units, if they were copied from the database before.
    copied: UnitStream | None = None

    def __init__(self, database: RocksDb, topic: str, queue_id: int) -> None:
        super().__init__(topic, queue_id, MappedFileQueue((), [], 0, []))
        self._database = database
        self._topic = utf8(topic)
        self._prefix = formats.queue_prefix(self._topic, queue_id)

    @cached_property
    def first_offset(self) -> int:
        """Queue offset of the first unit; the end if the queue has no unit."""
        first = next(self._rows(self._prefix), None)
        return self._end if first is None else first.queue_offset

    @cached_property
    def _end(self) -> int:
        """Queue offset behind the last unit; without units, behind the last one that there was."""
        last = next(self.newest_first(), None)
        if last is not None:
            return last.queue_offset + 1
        bound = bound_in(self._database, self._topic, self.queue_id, MAX)
        return 0 if bound is None else bound.queue_offset + 1

    def unit(self, queue_offset: int) -> Unit | None:
        """The unit with this queue offset, valid or not; None if there is none."""
        if not 0 <= queue_offset < 1 << 63:
            return None
        key = formats.unit_key(self._topic, self.queue_id, queue_offset)
        value = self._database.get(UNITS, key)
        if value is None or len(value) != UNIT_BYTES:
            return None
        return Unit(queue_offset, *_UNIT.unpack(value)[:3])

    @cached_property
    def stream(self) -> UnitStream:
        return self.copied or self._units(self.first_offset, self._end)

    def _units(self, first: int, stop: int) -> UnitStream:
        from ...formats.derive import dtype_of
        from .units import RowUnits

        return RowUnits(self.rows, dtype_of(formats.UNIT), first, stop)

    def newest_first(self) -> Iterator[Unit]:
        """Yield all units from the last one back, valid or not. Raises Unreadable."""
        return self._rows(self._prefix + _BEHIND_OFFSETS, backwards=True)

    def fill(self, first: int, units: Units) -> None:
        """Read units from `first` on into `units`; rows without a unit stay as they are. Raises Unreadable."""
        (self.copied or self._units(first, first + len(units))).fill(first, units)

    def rows(self, first: int, stop: int) -> Iterator[tuple[int, bytes]]:
        """Yield runs of units first ≤ k < stop without a hole: number of the first, their bytes. Raises Unreadable."""
        import numpy as np

        key = formats.unit_key(self._topic, self.queue_id, first)
        begun, parts = first, list[bytes]()
        while first < stop:
            keys, values = self._database.stretch(UNITS, key, min(stop - first, _STRETCH_ENTRIES))
            own_count = bisect_left(keys, True, key=lambda key: not key.startswith(self._prefix))
            numbers, values = self._numbers_and_values(keys[:own_count], values[:own_count])
            behind = int(np.searchsorted(numbers, stop))
            ends = np.flatnonzero(np.diff(numbers[:behind]) != 1) + 1
            begins = [0, *ends.tolist()] if behind else []
            for begin, end in zip(begins, [*ends.tolist(), behind], strict=False):
                if len(parts) >= _PARTS_MAX or (parts and numbers[begin] != first):
                    yield begun, b"".join(parts)
                    parts.clear()
                if not parts:
                    begun = int(numbers[begin])
                parts.append(b"".join(values[begin:end]))
                first = int(numbers[end - 1]) + 1
            if not keys or own_count < len(keys) or behind < len(numbers):
                break
            key = keys[-1] + b"\0"
        if parts:
            yield begun, b"".join(parts)

    def _numbers_and_values(self, keys: list[bytes], values: list[bytes]) -> tuple[Ints, list[bytes]]:
        """Numbers and values of this queue's units; leaves out malformed and negative keys, and malformed values."""
        import numpy as np

        from ...formats.derive import dtype_of

        count, width = len(keys), len(self._prefix) + formats.UNIT_OFFSET.sizeof()
        if len(b"".join(keys)) != count * width or len(b"".join(values)) != count * UNIT_BYTES:
            rows = zip(keys, values, strict=True)
            right = [(k, v) for k, v in rows if len(k) == width and len(v) == UNIT_BYTES]
            keys, values = [k for k, _ in right], [v for _, v in right]
        raw = np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), width)
        ends = np.ascontiguousarray(raw[:, len(self._prefix) :]).view(dtype_of(formats.UNIT_OFFSET))
        numbers = ends.ravel()["queue_offset"].astype(np.int64)
        right_to = len(numbers) - int((numbers < 0).sum())  # negative numbers come last
        return numbers[:right_to], values[:right_to]

    def _rows(self, start: bytes, *, backwards: bool = False) -> Iterator[Unit]:
        """Yield units from a key on, up to the end of this queue."""
        for key, value in self._database.items(UNITS, start, backwards=backwards):
            number = formats.queue_offset(key, self._prefix)
            if number is None or number < 0:
                return
            if len(value) == UNIT_BYTES:
                yield Unit(number, *_UNIT.unpack(value)[:3])

    def summary(self, log_start: int = 0, log_end: int | None = None, *, broker_4: bool = False) -> QueueSummary:
        if self.first_offset == self._end:
            return QueueSummary(self.topic, self.queue_id, self._end, self._end)
        return super().summary(log_start, log_end, broker_4=broker_4)

    def _last_unit(self, log_end: int | None) -> Unit | None:
        for unit in self.newest_first():
            if unit.valid and (log_end is None or not is_cut(unit.physical_offset, log_end)):
                return unit
        return None

    def close(self) -> None:
        """Close nothing: the database stays open for other queues."""


class RocksdbConsumeQueues(ConsumeQueues):
    """All consume queues of a store that has them in a RocksDB.

    Methods raise Unsupported without the extra, Unreadable.
    """

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self._path = layout.queue_database or layout.consume_queue
        #: Gives the units of a queue, if they were copied before: `CopiedQueues.stream`.
        self.copied: Callable[[str, int], UnitStream | None] | None = None

    @classmethod
    def at(cls, path: Path) -> RocksdbConsumeQueues:
        """The queues of a RocksDB that need not be in a store."""
        found = cls(Layout.of(path.parent))
        found._path = path
        return found

    @classmethod
    def of(cls, database: RocksDb) -> RocksdbConsumeQueues:
        """The queues of an open database, which the caller closes."""
        found = cls.at(database.path)
        found.__dict__["database"] = database
        return found

    @cached_property
    def database(self) -> RocksDb:
        """The RocksDB, opened when first needed."""
        return RocksDb.open(self._path)

    @cached_property
    def dispatched(self) -> int:
        """Log position up to which the database has units, by its own CHECKPOINT_TOPIC row; 0 if it has none."""
        value = self.database.get(BOUNDS, formats.CHECKPOINT_KEY)
        if value is None or len(value) != formats.CHECKPOINT.sizeof():
            return 0
        return int(formats.CHECKPOINT.parse(value).physical_offset)

    @cached_property
    def _all(self) -> dict[tuple[str, int], QueueDirectory]:
        """Queues that have units, or had some, sorted; looked up once for a layout."""
        return self.layout.once(lambda _: self._found_queues(), (RocksdbConsumeQueues, self._path))

    def _found_queues(self) -> dict[tuple[str, int], QueueDirectory]:
        """Look up all queues; each takes one seek in the database."""
        found: set[tuple[bytes, int]] = set()
        start = b""
        while (row := next(self.database.items(UNITS, start), None)) is not None:
            if (queue := formats.queue_of(row[0])) is not None:
                found.add(queue)
            start = row[0] + b"\0" if queue is None else formats.queue_prefix(*queue) + _BEHIND_QUEUE
        for key, _ in self.database.items(BOUNDS):
            bound = formats.bound_of(key)
            if bound is not None:
                found.add(bound)
        names = ((topic.decode("utf-8", "surrogateescape"), number) for topic, number in found)
        return {name: QueueDirectory(*name, str(self._path)) for name in sorted(names)}

    def __iter__(self) -> Iterator[QueueDirectory]:
        return iter(self._all.values())

    def open(self, topic: str, queue_id: int) -> ConsumeQueue:
        if (topic, queue_id) not in self._all:
            what = f"no queue {queue_id} of topic {topic}"
            raise NotFound(what if self.has_topic(topic) else f"no such topic: {topic}")
        found = RocksdbConsumeQueue(self.database, topic, queue_id)
        if self.copied is not None:
            found.copied = self.copied(topic, queue_id)
        return found

    def of_topic(self, topic: str) -> list[QueueDirectory]:
        return [queue for queue in self if queue.topic == topic]

    def has_topic(self, topic: str) -> bool:
        return any(queue.topic == topic for queue in self)

    def _listed(self, each: QueueDirectory) -> ConsumeQueue:
        return self.open(each.topic, each.queue_id)

    def give_up(self) -> None:
        """Have no queues from now on, since the database cannot be read."""
        self._all = {}

    def close(self) -> None:
        """Close the database, if it was opened."""
        if "database" in self.__dict__:
            self.database.close()
            del self.__dict__["database"]


def odd_rows(database: RocksDb) -> Iterator[bytes]:
    """Yield keys of the family `offset` that make a broker fail, or that no broker writes. Raises Unreadable."""
    from construct import ConstructError

    for key, _ in database.items(BOUNDS):
        try:
            formats.BOUND_KEY.parse(key)
        except ConstructError:
            yield key
