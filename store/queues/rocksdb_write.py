"""Write to a RocksDB of a broker: put entries into a database, or make a new one of queues. Needs the extra `rocksdb`.

Entries are put into a copy, and the database itself stays as it is: the library changes the copy in the directory for
temporary files, in which tables, which never change, are links. The copy has the oldest form that brokers since 5.3
read.

A new RocksDB of consume queues is made from units that were found in the log. They come queue by queue, in the order of
the log, and a queue may come several times: `UnitSpool` keeps them in a temporary file. `build` goes through that file
queue by queue, in the order of keys, and writes tables (SST files) that the database takes in as they are: no
write-ahead log, no memtable, and only one stretch of units in memory.

The new database has what a broker leaves at a clean stop (spec 2.10): units in the family `default`; in `offset` a
`max` row for each queue and the row of CHECKPOINT_TOPIC. Brokers write `min` rows when somebody asks for the minimum,
so a new database has none, except for queues with holes. Tables have the form that libraries since 5.3 read.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...formats import rocksdb_consume_queue as formats
from ...formats.derive import dtype_of
from ...formats.derive.ragged import Flags, Ints
from ...formats.fixed import numbers_of
from ...formats.hashing import utf8
from ...formats.message import SMALLEST
from ...formats.rocksdb_consume_queue import BOUNDS, CHECKPOINT, CHECKPOINT_KEY, MAX, MIN, UNITS
from ..broker.snapshot import QueueId
from ..disk.byte_reader import pieces
from ..disk.files import Content, Edit
from ..disk.temporary import TemporaryBytes, mapped, temporary_files
from ..errors import NoSpace, StoreError, Unreadable, Unsupported, from_os_error
from .rocksdb import DEFAULT, HINT, QueueBound, RocksDb, RocksdbConsumeQueue

_TABLE = ".sst"
_TABLE_FORMAT = 5
"""Version of the table format; the library of 5.3 brokers knows no later one."""
_NO_SPACE = "No space left"
"""Part of the library's message for a full disk."""
NOT_OURS = ("LOG", "rocksdict-config.json")
"""Prefixes of the files with notes that the library writes beside a database."""
_OF_DATABASE = re.compile(r"CURRENT|IDENTITY|LOCK|(MANIFEST|OPTIONS)-\d+|\d+\.(sst|log|blob|dbtmp)")


class KeyChanges(Protocol):
    """Keys, each with a new value, or None to delete the entry: a mapping, or a generator of pairs with a length."""

    def __len__(self) -> int: ...

    def items(self) -> Iterable[tuple[bytes, bytes | None]]:
        """All keys with their values."""


Changes = Mapping[str, KeyChanges]
"""Changes by column family."""


class Rewritten(NamedTuple):
    """made: content of new and changed files, by name. gone: names of removed files.

    digest: of all files as they were. Made content lies in mapped temporary files without a name.
    """

    made: dict[str, Content]
    gone: tuple[str, ...]
    digest: str


def rewritten(path: Path, entries: KeyChanges, family: str = DEFAULT) -> Rewritten:
    """`changed` for one column family."""
    return changed(path, {family: entries})


def in_order(names: Iterable[str]) -> list[str]:
    """Sort files of a database for copying: a file comes before the file that names it, so each step is sound."""
    return sorted(names, key=lambda name: (_rank(name), name))


def _rank(name: str) -> int:
    """Order of kinds: tables, logs, OPTIONS, MANIFEST (the list of tables), and CURRENT, which names it."""
    starts = ("OPTIONS", "MANIFEST", "CURRENT")
    found = next((at for at, start in enumerate(starts, 2) if name.startswith(start)), None)
    return found if found is not None else int(not name.endswith(_TABLE))


def changed(path: Path, changes: Changes) -> Rewritten:
    """The files of the database in `path` after these changes. Writes nothing there.

    Raises Unsupported if the extra is not installed, Unreadable.
    """
    if not any(changes.values()):
        return Rewritten({}, (), "")
    rocksdict = library("change", path)
    with TemporaryDirectory(prefix="mqstore-rocksdb-", ignore_cleanup_errors=True) as folder:
        copy = Path(folder)
        try:
            digest = _copy_database(path, copy)
            _apply_changes(rocksdict, copy, changes)
            return Rewritten(*_changed_files(path, copy), digest)
        except OSError as error:
            raise from_os_error(error, path, "cannot copy the files of") from error
        except StoreError:
            raise
        except Exception as error:  # the library raises nothing narrower
            if _NO_SPACE in str(error):
                with temporary_files():
                    raise
            message = str(error).replace(folder, str(path))
            raise Unreadable(f"cannot change the RocksDB: {message}", path=path) from error


def library(purpose: str, path: Path) -> Any:
    """The library that writes a RocksDB. purpose: a verb, as "change". Raises Unsupported without it."""
    try:
        import rocksdict
    except ImportError as error:
        message = f"cannot {purpose} a RocksDB without the extra rocksdb"
        raise Unsupported(message, path=path, hint=HINT) from error
    return rocksdict


def _copy_database(path: Path, copy: Path) -> str:
    """Link the tables and copy all other files; return a digest of names, lengths, and content other than of tables."""
    total = hashlib.sha256()
    for file in files_of(path):
        total.update(f"{file.name} {file.stat().st_size}\n".encode())
        if file.suffix == _TABLE:
            (copy / file.name).symlink_to(file.absolute())
        else:
            content = hashlib.sha256()
            with temporary_files(), (copy / file.name).open("wb") as target:
                for data in pieces(file):
                    content.update(data)
                    target.write(data)
            total.update(content.digest())
    return total.hexdigest()


def database_files(path: Path) -> list[Path]:
    """The files of a database in a directory that may hold topics, too; none if the directory is missing."""
    if not path.is_dir():
        return []
    return [file for file in files_of(path) if is_of_database(file.name)]


def is_of_database(name: str) -> bool:
    """Whether a file of this name belongs to a database."""
    return _OF_DATABASE.fullmatch(name) is not None


def files_of(path: Path) -> list[Path]:
    """The files of a directory, without the library's notes beside a database."""
    return sorted(
        Path(entry.path) for entry in os.scandir(path) if entry.is_file() and not entry.name.startswith(NOT_OURS)
    )


def _apply_changes(rocksdict: Any, path: Path, changes: Changes) -> None:
    families = rocksdict.Rdict.list_cf(str(path), table_options(rocksdict))
    options = {name: table_options(rocksdict) for name in families}
    database = rocksdict.Rdict(str(path), table_options(rocksdict), column_families=options)
    try:
        for name, entries in changes.items():
            if not entries:
                continue
            family = database.get_column_family(name)
            for key, value in entries.items():
                if value is None:
                    del family[key]
                else:
                    family[key] = value
            family.flush()
            del family
    finally:
        database.close()


def table_options(rocksdict: Any, *, packed: bool = False) -> Any:
    """Options like a broker's, but without merging tables. packed: with LZ4, as brokers have their units."""
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(False)
    options.set_disable_auto_compactions(True)
    kinds = rocksdict.DBCompressionType
    options.set_compression_type(kinds.lz4() if packed else kinds.none())
    options.set_wal_recovery_mode(rocksdict.DBRecoveryMode.skip_any_corrupted_record())
    tables = rocksdict.BlockBasedOptions()
    tables.set_format_version(_TABLE_FORMAT)
    options.set_block_based_table_factory(tables)
    return options


def _changed_files(path: Path, copy: Path) -> tuple[dict[str, Content], tuple[str, ...]]:
    before, after = {f.name: f for f in files_of(path)}, {f.name: f for f in files_of(copy)}
    made: dict[str, Content] = {
        name: mapped(pieces(file))
        for name, file in after.items()
        if not file.is_symlink()
        and (name not in before or any(a != b for a, b in zip_longest(pieces(file), pieces(before[name]))))
    }
    return made, tuple(sorted(before.keys() - after.keys()))


_BOUND = numbers_of(formats.BOUND)
_OFFSET = dtype_of(formats.UNIT_OFFSET)
UNIT = dtype_of(formats.UNIT)
ROW = dtype_of(formats.NUMBERED_UNIT)
"""A unit in the temporary file: its queue offset as at the end of a key, and its value."""
_VALUE = np.dtype(f"V{UNIT.itemsize}")
_ROWS_AT_ONCE = 1 << 16
_TABLE_BYTES = 256 << 20
"""When keys and values in a table reach this size, a new table begins."""
_NAME = "{:06}.built"
_BYTES_OF_UNIT, _BYTES_OF_BOUND = 64, 256
"""Upper estimates of what a unit and a bound take in a database."""


class UnitSpool:
    """Units of any number of queues in a temporary file, 36 bytes each."""

    def __init__(self) -> None:
        self._file = TemporaryBytes()
        self._rows = 0
        self._parts: dict[QueueId, list[tuple[int, int]]] = {}
        self._disordered: set[QueueId] = set()
        #: The last unit of each queue.
        self.ends: dict[QueueId, QueueBound] = {}
        #: Log position behind the last record that has a unit.
        self.dispatched = 0
        self._digest = b""

    def __len__(self) -> int:
        return self._rows

    @property
    def digest(self) -> bytes:
        """A digest of the units, whatever order they came in."""
        if not self._digest:
            total = hashlib.sha256()
            for queue in self.queues:
                prefix = _prefix(queue)
                total.update(b"%d:%b" % (len(prefix), prefix))
                count = 0
                for rows in self.rows(queue):
                    total.update(rows)
                    count += len(rows)
                total.update(b"%d;" % count)
            self._digest = total.digest()
        return self._digest

    @property
    def queues(self) -> list[QueueId]:
        """All queues that have units, in key order of a database."""
        return sorted(self._parts, key=_prefix)

    def add(self, queue: QueueId, offset: Ints, position: Ints, size: Ints, tags: Ints, time: Ints) -> None:
        """Add one or more units of a queue, behind its earlier ones. Raises NoSpace."""
        rows = np.zeros(len(offset), ROW)
        rows["queue_offset"], rows["physical_offset"], rows["size"] = offset, position, size
        rows["tags_code"], rows["store_timestamp"] = tags, time
        self._digest = b""
        self._file.append(rows.tobytes())
        self._parts.setdefault(queue, []).append((self._rows, len(rows)))
        self._rows += len(rows)
        self.dispatched = max(self.dispatched, int((position + size).max()))
        last = len(offset) - 1 - int(offset[::-1].argmax())
        end, before = QueueBound(int(position[last]), int(offset[last])), self.ends.get(queue)
        if (np.diff(offset) <= 0).any() or (before and int(offset[0]) <= before.queue_offset):
            self._disordered.add(queue)
        if before is None or end.queue_offset >= before.queue_offset:
            self.ends[queue] = end

    def first(self, queue: QueueId) -> QueueBound:
        """The first unit of a queue; the queue must have one."""
        row = next(self.rows(queue))[0]
        return QueueBound(int(row["physical_offset"]), int(row["queue_offset"]))

    def has_holes(self, queue: QueueId) -> bool:
        """Whether queue offsets are missing between the queue's units."""
        count = sum(count for _, count in self._parts[queue])
        return count <= self.ends[queue].queue_offset - self.first(queue).queue_offset

    def rows(self, queue: QueueId) -> Iterator[Any]:
        """Yield a queue's units by queue offset, `ROW[n]` at a time; of several at one offset only the last."""
        parts = self._parts.get(queue, [])
        if queue not in self._disordered:
            for first, count in parts:
                for begin in range(first, first + count, _ROWS_AT_ONCE):
                    yield self._read(begin, min(_ROWS_AT_ONCE, first + count - begin))
            return
        # np.concatenate would convert the numbers to the byte order of this machine
        rows = np.frombuffer(b"".join(self._read(*part).tobytes() for part in parts), ROW)
        offsets = rows["queue_offset"].astype(np.int64)
        order = np.argsort(offsets, kind="stable")
        last = np.append(np.diff(offsets[order]) != 0, np.ones(1, np.bool_))
        rows = rows[order[last]]
        for begin in range(0, len(rows), _ROWS_AT_ONCE):
            yield rows[begin : begin + _ROWS_AT_ONCE]

    def _read(self, first: int, count: int) -> Any:
        size = count * ROW.itemsize
        return np.frombuffer(self._file.read(first * ROW.itemsize, size), ROW)


class Holes:
    """Queue offsets that the messages of a log leave out, and the tombstones of what was lost there; spec 2.10, B4.

    A pull at a queue offset without a unit fails with an exception; at a unit that names a tombstone it continues.
    Missing offsets for which the log has no room between its records were never given out.
    """

    def __init__(self) -> None:
        self._last_rows: dict[QueueId, Ints] = {}
        self._gaps: list[tuple[QueueId, Ints, Ints]] = []
        self._tombstone_rows: list[Ints] = [np.empty((0, 5), np.int64)]

    def note(self, queue: QueueId, columns: Sequence[Ints], lost: Flags) -> None:
        """Take one or more messages of a queue, behind its earlier ones: columns as for `UnitSpool.add`.

        lost: which of them are tombstones.
        """
        rows = np.stack(columns, axis=1)
        if lost.any():
            self._tombstone_rows.append(rows[lost])
        rows = np.concatenate([self._last_rows.get(queue, rows[0])[None], rows])
        steps, room = np.diff(rows[:, 0]), np.diff(rows[:, 1]) // SMALLEST
        for at in np.flatnonzero((steps > 1) & (steps <= room)).tolist():
            self._gaps.append((queue, rows[at].copy(), rows[at + 1].copy()))
        self._last_rows[queue] = rows[-1].copy()  # a view would keep the whole batch

    def passed(self, queue: QueueId, number: int, database: RocksDb) -> None:
        """Skip messages of a queue up to queue offset `number`, which all have units in the database, none of a
        tombstone.

        Raises Unreadable.
        """
        rows = np.full((1, self._tombstone_rows[0].shape[1]), -1, np.int64)
        _read(database, queue, number, rows)
        rows[0, 0] = number
        self._last_rows[queue] = rows[0]

    @property
    def tombstones(self) -> Ints:
        """Rows of the tombstones as `UnitSpool.add` takes them, by position, int64[n, 5]."""
        rows = np.concatenate(self._tombstone_rows)
        self._tombstone_rows = [rows[np.unique(rows[:, 1], return_index=True)[1]]]
        return self._tombstone_rows[0]

    def fill(self, spool: UnitSpool, database: RocksDb | None, good: Callable[[Ints], Flags]) -> None:
        """Add units for missing queue offsets, once: they name a tombstone between their neighbours, else the record of
        the unit before.

        good: which positions, as named by units of the database, may stay. Raises NoSpace, Unreadable.
        """
        for queue, before, behind in self._gaps:
            for first in range(int(before[0]) + 1, int(behind[0]), _ROWS_AT_ONCE):
                units = np.full((min(_ROWS_AT_ONCE, int(behind[0]) - first), len(before)), -1)
                if database is not None:
                    _read(database, queue, first, units)
                has = (units[:, 1] >= 0) & good(units[:, 1])
                units[:, 0] = np.arange(first, first + len(units))
                for run in np.split(np.arange(len(has)), np.flatnonzero(np.diff(has)) + 1):
                    rows = units[run]
                    if not has[run[0]]:
                        end = units[run[-1] + 1] if run[-1] + 1 < len(has) else behind
                        rows[:, 1:] = self._rows_between(before, end, len(run))
                        spool.add(queue, *rows.T)
                    before = rows[-1]
        self._gaps = []

    def _rows_between(self, before: Ints, behind: Ints, count: int) -> Ints:
        """What `count` units name between two other units, int64[count, 4]."""
        rows = self.tombstones
        begin, end = np.searchsorted(rows[:, 1], (before[1] + 1, behind[1])).tolist()
        if begin < end:
            return rows[np.minimum(begin + np.arange(count), end - 1), 1:]
        return np.repeat(before[None, 1:], count, axis=0)


def _read(database: RocksDb, queue: QueueId, first: int, rows: Ints) -> None:
    """Read the units of a database from `first` on into their rows."""
    for number, data in RocksdbConsumeQueue(database, *queue).rows(first, first + len(rows)):
        units = np.frombuffer(data, UNIT)
        for column, name in enumerate(UNIT.names or (), 1):
            rows[number - first : number - first + len(units), column] = units[name]


def build(folder: Path, spool: UnitSpool, dispatched: int, kept: Mapping[QueueId, QueueBound] | None = None) -> None:
    """Make a database of these units in a new folder.

    dispatched: log position behind the last record that has its units. kept: ends of queues that may have no unit any
    more; the greater end counts. Raises Unsupported if the extra is not installed, NoSpace, OSError.
    """
    rocksdict = library("make", folder)
    folder.mkdir(exist_ok=True)
    try:
        _build(rocksdict, folder, spool, _bound_rows(spool, dispatched, kept))
    except Exception as error:
        if type(error) is not Exception:  # the library raises nothing narrower
            raise
        raise NoSpace(f"cannot build the RocksDB ({error})", path=folder) from error
    for path in folder.iterdir():
        if path.name.startswith(NOT_OURS) or path.suffix == ".built":
            path.unlink()


def _build(rocksdict: Any, folder: Path, spool: UnitSpool, ends: Mapping[bytes, bytes]) -> None:
    units, bounds = table_options(rocksdict, packed=True), table_options(rocksdict)
    tables = list(_unit_tables(rocksdict, units, folder, spool))
    bound_table = folder / "bounds.built"
    writer = _writer(rocksdict, bounds, bound_table)
    for key in sorted(ends):
        writer[key] = ends[key]
    writer.finish()
    options = table_options(rocksdict)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    database = rocksdict.Rdict(str(folder), options, column_families={UNITS: units, BOUNDS: bounds})
    try:
        taken = rocksdict.IngestExternalFileOptions()
        taken.set_move_files(True)
        if tables:
            database.ingest_external_file(tables, taken)
        family = database.get_column_family(BOUNDS)
        family.ingest_external_file([str(bound_table)], taken)
        del family
    finally:
        database.close()


def _bound_rows(spool: UnitSpool, dispatched: int, kept: Mapping[QueueId, QueueBound] | None) -> dict[bytes, bytes]:
    """All rows of the family `offset`."""
    ends = dict(spool.ends)
    for queue, bound in (kept or {}).items():
        if queue not in ends or ends[queue].queue_offset < bound.queue_offset:
            ends[queue] = bound
    rows = {
        formats.bound_key(utf8(queue.topic), queue.queue_id, MAX): bytes(formats.BOUND.build(bound._asdict()))
        for queue, bound in ends.items()
    }
    for queue in spool.queues:
        if spool.has_holes(queue):  # a broker's bisection for the first unit would end at a hole
            begin = formats.BOUND.build(spool.first(queue)._asdict())
            rows[formats.bound_key(utf8(queue.topic), queue.queue_id, MIN)] = bytes(begin)
    rows[CHECKPOINT_KEY] = bytes(CHECKPOINT.build({"physical_offset": dispatched}))
    return rows


def _unit_tables(rocksdict: Any, options: Any, folder: Path, spool: UnitSpool) -> Iterator[str]:
    """Write the tables of all units in key order; yield their paths."""
    writer, size, number = None, 0, 0
    for queue in spool.queues:
        prefix = np.frombuffer(_prefix(queue), np.uint8)
        for rows in spool.rows(queue):
            if writer is None:
                path = folder / _NAME.format(number)
                writer, size, number = _writer(rocksdict, options, path), 0, number + 1
                yield str(path)
            keys, values = _entries(prefix, rows)
            deque(map(writer.__setitem__, keys, values), maxlen=0)
            size += len(rows) * (len(keys[0]) + UNIT.itemsize)
            if size >= _TABLE_BYTES:
                writer.finish()
                writer = None
    if writer is not None:
        writer.finish()


def values_of(rows: Any) -> Any:
    """The values of rows as a database has them, `UNIT[n]`."""
    raw = rows.view(np.uint8).reshape(len(rows), ROW.itemsize)
    return np.ascontiguousarray(raw[:, _OFFSET.itemsize :]).view(UNIT).ravel()


@dataclass
class UnitChanges:
    """Changes of a database's units (`KeyChanges`). put: units to write, in a temporary file. gone: keys to delete."""

    put: UnitSpool
    gone: dict[bytes, None] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.put) + len(self.gone)

    def items(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Key and value of each change, None to delete."""
        for queue in self.put.queues:
            prefix = np.frombuffer(_prefix(queue), np.uint8)
            for rows in self.put.rows(queue):
                yield from zip(*_entries(prefix, rows), strict=True)
        yield from self.gone.items()


def _entries(prefix: Any, rows: Any) -> tuple[list[bytes], list[bytes]]:
    """Keys and values of a stretch of units."""
    width = len(prefix) + _OFFSET.itemsize
    keys = np.empty((len(rows), width), np.uint8)
    keys[:, : len(prefix)] = prefix
    raw = rows.view(np.uint8).reshape(len(rows), ROW.itemsize)
    keys[:, len(prefix) :] = raw[:, : _OFFSET.itemsize]
    return keys.view(f"V{width}").ravel().tolist(), values_of(rows).view(_VALUE).tolist()


def _writer(rocksdict: Any, options: Any, path: Path) -> Any:
    writer = rocksdict.SstFileWriter(options=options)
    writer.open(str(path))
    return writer


def _prefix(queue: QueueId) -> bytes:
    return formats.queue_prefix(utf8(queue.topic), queue.queue_id)


def last_units(database: RocksDb) -> Iterator[tuple[QueueId, QueueBound]]:
    """Yield the `max` row of each queue. Raises Unreadable."""
    for key, value in database.items(BOUNDS):
        found = formats.bound_of(key)
        if found is not None and len(value) == _BOUND.size:
            queue = QueueId(found[0].decode("utf-8", "surrogateescape"), found[1])
            yield queue, QueueBound(*_BOUND.unpack(value))


def expired_ends(
    ends: Iterable[tuple[QueueId, QueueBound]], spool: UnitSpool, log_start: int
) -> dict[QueueId, QueueBound]:
    """Ends of queues whose last record is expired. Of the other queues the log has the last record, or it is lost."""
    return {queue: bound for queue, bound in ends if queue not in spool.ends and bound.physical_offset < log_start}


class DatabaseFix(NamedTuple):
    """A database to build. path: its directory. dispatched, kept: as for `build`."""

    path: Path
    spool: UnitSpool
    dispatched: int
    kept: Mapping[QueueId, QueueBound]

    def edits(self, reason: str, codes: tuple[str, ...] = ("I-070",)) -> list[Edit]:
        """The edit of a plan for it; the files are made when the plan is carried out. Raises Unsupported."""
        library("make", self.path)
        kept = sorted((*queue, *bound) for queue, bound in self.kept.items())
        content = self.spool.digest + repr((kept, self.dispatched)).encode(errors="replace")
        return [Edit("rebuild", str(self.path), reason, codes, data=content)]

    @property
    def bytes(self) -> int:
        """About how many bytes it takes; as much again while it is built."""
        return len(self.spool) * _BYTES_OF_UNIT + len(self.spool.ends) * _BYTES_OF_BOUND
