"""A RocksDB of queues: a copy of its units in temporary files, and what its files prove to be lost.

A verification, the prediction of a start, or a plan goes through all units more than once. It finds them in the copy
like those of queues in files, which takes a tenth of the time. Queue offsets without a unit are holes, and known to be.

`database_loss`: a library that opens a RocksDB uses what CURRENT leads to, and what the write-ahead logs have up to
their first fault, and does not tell of the rest.
"""

from __future__ import annotations

import os
import re
import weakref
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Self

import numpy as np

from ...formats.rocksdb import ManifestContent, manifest_of, read_log
from ..broker.snapshot import DirectoryEntry, QueueId, list_entries
from ..disk.file_queue import file_name
from ..disk.layout import was_rocksdb
from ..disk.temporary import temporary_files
from ..errors import StoreError, Unreadable, os_errors
from .rocksdb import RocksDb, RocksdbConsumeQueue, RocksdbConsumeQueues, is_rocksdb, log_windows, named_manifest
from .units import LARGEST_OFFSET, UNIT_DTYPE, WINDOW_UNITS, FileUnits, Units, UnitStream

_LAST_NUMBER = int(np.iinfo(np.int64).max)


class CopiedQueues:
    """Queues of a database as files, removed together with the object that has made them. A copy of the object in
    another process, or from a pickle, only names the files.

    entries: by queue, files of `file_bytes`. whole: everything could be read and has a place in a file.
    """

    def __init__(self, folder: TemporaryDirectory[str], file_bytes: int) -> None:
        self._finalizer: Any = weakref.finalize(self, _remove_folder, folder, os.getpid())
        self._file_bytes = file_bytes
        self.entries: dict[QueueId, tuple[DirectoryEntry, ...]] = {}
        self.whole = True
        self._written_ranges: dict[QueueId, array[int]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_finalizer": None}

    @classmethod
    def of(cls, database: RocksDb, file_bytes: int, wanted: Callable[[str], bool] = lambda _topic: True) -> Self:
        """Copy the queues of wanted topics, as far as they can be read. Raises NoSpace."""
        with temporary_files():
            folder = TemporaryDirectory(prefix="mqstore-queues-", ignore_cleanup_errors=True)
            made = cls(folder, file_bytes)
            try:
                found = RocksdbConsumeQueues.of(database)
                queues = [QueueId(each.topic, each.queue_id) for each in found]
            except Unreadable:
                made.whole = False
                return made
            for number, queue in enumerate(queues):
                if wanted(queue.topic):
                    made._add(database, queue, Path(folder.name, str(number)))
        return made

    def stream(self, topic: str, queue_id: int) -> UnitStream | None:
        """The units of a queue that the database has; None for any other queue."""
        queue = QueueId(topic, queue_id)
        if queue not in self.entries:
            return None
        files = FileUnits.of(self.entries[queue], self._file_bytes)
        return _CopiedUnits(files, self._written_ranges[queue])

    def _add(self, database: RocksDb, queue: QueueId, folder: Path) -> None:
        """Write the units of one queue, as far as they can be read, into files with holes."""
        names, runs = dict[int, Path](), array("q")
        folder.mkdir()
        try:
            for first, units in RocksdbConsumeQueue(database, *queue).stream.windows(stop=_LAST_NUMBER):
                if not 0 <= first <= LARGEST_OFFSET - len(units):
                    self.whole = False
                    continue
                self._write(folder, names, first, units)
                if runs and runs[-1] == first:
                    runs[-1] = first + len(units)
                else:
                    runs.extend((first, first + len(units)))
        except StoreError:
            self.whole = False
        self._written_ranges[queue] = runs
        size = self._file_bytes
        entries = (DirectoryEntry(p.name, os.fspath(p), size, False) for _, p in sorted(names.items()))
        self.entries[queue] = tuple(entries)

    def _write(self, folder: Path, names: dict[int, Path], first: int, units: Units) -> None:
        unit_bytes, done = UNIT_DTYPE.itemsize, 0
        per_file = self._file_bytes // unit_bytes
        while done < len(units):
            number, at = divmod(first + done, per_file)
            part = units[done : done + per_file - at]
            new = number not in names
            path = names.setdefault(number, folder / file_name(number * self._file_bytes))
            with path.open("wb" if new else "r+b") as file:
                file.seek(at * unit_bytes)
                file.write(part.tobytes())
                if new:
                    file.truncate(self._file_bytes)
            done += len(part)


def _remove_folder(folder: TemporaryDirectory[str], owner: int) -> None:
    """Remove the folder, unless a copy of the process asks. owner: id of the process that has made it."""
    if os.getpid() == owner:
        folder.cleanup()


class _CopiedUnits(UnitStream):
    """Units in files that have holes. runs: pairs of first queue offset and offset behind the last, ascending."""

    def __init__(self, files: FileUnits, runs: array[int]) -> None:
        self._files = files
        self._begins, self._ends = np.frombuffer(runs, np.int64).reshape(-1, 2).T

    def windows(
        self, first: int = 0, stop: int = LARGEST_OFFSET, *, reverse: bool = False, most: int | None = None
    ) -> Iterator[tuple[int, Units]]:
        """See `UnitStream.windows`; holes are left out."""
        step, known = most or WINDOW_UNITS, int(self._ends[-1]) if len(self._ends) else 0
        stop = min(stop, known)  # holes behind the last unit are not read
        for begin, units in self._files.windows(first, stop, reverse=reverse, most=step):
            end = begin + len(units)
            low = int(np.searchsorted(self._ends, begin, side="right"))
            high = int(np.searchsorted(self._begins, end))
            runs = zip(self._begins[low:high].tolist(), self._ends[low:high].tolist(), strict=True)
            for one, behind in reversed(list(runs)) if reverse else runs:
                at = max(one, begin)
                yield at, units[at - begin : min(behind, end) - begin]

    def fill(self, first: int, units: Units, *, around: bool = False) -> None:
        self._files.fill(first, units, around=around)


_FILE_OF_DATABASE = re.compile(r"(?P<number>\d+)\.(?P<kind>sst|log)|(?P<manifest>MANIFEST-\d+)", re.ASCII)


class DatabaseLoss(NamedTuple):
    """What the files of a RocksDB prove that it had, and what is missing when it is opened.

    text: what is wrong. manifest: nothing is lost if CURRENT names this MANIFEST; "": no MANIFEST does that. opens:
    whether a broker opens what remains. sure: entries are lost; False: a file is missing that may have had none.
    """

    text: str
    manifest: str = ""
    opens: bool = True
    sure: bool = True

    @property
    def sentence(self) -> str:
        """`text`, with the MANIFEST that helps, if there is one."""
        return f"{self.text}; {self.manifest} beside it names all its tables" if self.manifest else self.text


class CutShort(NamedTuple):
    """The end of the last write-ahead log of a RocksDB, inside an entry: what a kill or a power loss leaves.

    all: nothing is left of the RocksDB: the log is cut at its first entry, or all zeros, and nothing is beside it.
    """

    log: str
    position: int
    all: bool = False

    @property
    def text(self) -> str:
        """Where that is."""
        return f"its write-ahead log {self.log} is cut short at {self.position}"


class _DatabaseFiles(NamedTuple):
    """The files of a RocksDB. tables: number → size in bytes. logs: number → path. manifests: names, newest first."""

    tables: dict[int, int]
    logs: dict[int, Path]
    manifests: list[str]

    @classmethod
    def of(cls, path: Path) -> _DatabaseFiles:
        """The files in a directory. Raises Unreadable."""
        found = cls({}, {}, [])
        with os_errors(path):
            for entry in path.iterdir():
                named = _FILE_OF_DATABASE.fullmatch(entry.name)
                if named is None or not entry.is_file():
                    continue
                if named["manifest"]:
                    found.manifests.append(entry.name)
                elif named["kind"] == "sst":
                    found.tables[int(named["number"])] = entry.stat().st_size
                else:
                    found.logs[int(named["number"])] = entry
        found.manifests.sort(reverse=True)
        return found

    def fit(self, manifest: ManifestContent) -> bool:
        """Whether they match a MANIFEST: its tables, and the log that took entries when it was last written."""
        return manifest.tables.items() <= self.tables.items() and self.has_log_of(manifest)

    def has_log_of(self, manifest: ManifestContent) -> bool:
        """Whether there is that log. A later log has a greater number, and replaces it with the next edit."""
        return any(manifest.open_log <= number < manifest.next_file for number in self.logs)


def database_loss(path: Path) -> DatabaseLoss | None:
    """What a RocksDB has lost; None if nothing, if everything, or if opening it reports the loss.

    CURRENT names the MANIFEST to which the tables and logs belong, and what is in no table is in the logs. A torn end
    of the last log is what a kill leaves.
    """
    found = loss_or_cut(path)
    return found if isinstance(found, DatabaseLoss) else None


def loss_or_cut(path: Path) -> DatabaseLoss | CutShort | None:
    """`database_loss`; if that is None, where the last write-ahead log is cut short."""
    with suppress(StoreError):  # the library reports a file that the disk does not give
        return _loss_of(path) if path.is_dir() else None
    return None


def has_rows(path: Path) -> bool:
    """Whether the RocksDB keeps anything: if the broker never wrote to it, it has no table and an empty log."""
    return any(
        entry.name.endswith(".sst") or (entry.name.endswith(".log") and entry.size) for entry in list_entries(path)
    )


def emptiness(path: Path, cut: DatabaseLoss | CutShort | None) -> str:
    """Return how a RocksDB is empty, "" if it keeps anything. cut: of `loss_or_cut`."""
    if not has_rows(path):
        return "empty"
    return f"empty ({cut.text})" if isinstance(cut, CutShort) and cut.all else ""


def _loss_of(path: Path) -> DatabaseLoss | CutShort | None:
    files, named = _DatabaseFiles.of(path), named_manifest(path)
    own = manifest_of(log_windows(path / named)) if named in files.manifests else None
    if own is not None and files.fit(own):
        return _loss_of_logs(files, own)
    others = (name for name in files.manifests if name != named)
    contents = ((name, manifest_of(log_windows(path / name))) for name in others)
    whole = next((name for name, one in contents if one is not None and not one.torn and files.fit(one)), "")
    if named not in files.manifests:
        any_file = files.tables or files.logs or files.manifests
        text = f"CURRENT names {named[:40]!r}, which is not there" if is_rocksdb(path) else "it has no CURRENT"
        opens = not (is_rocksdb(path) or was_rocksdb(path))  # logs alone are no RocksDB
        return DatabaseLoss(text, whole, opens) if any_file else None
    if whole:
        return DatabaseLoss(f"CURRENT names {named}, but the tables belong to {whole}", whole)
    if own is None:
        return None
    if files.has_log_of(own):
        number = min(number for number, size in own.tables.items() if files.tables.get(number) != size)
        what = "does not have the length that its MANIFEST says" if number in files.tables else "is missing"
        return DatabaseLoss(f"its table {number:06}.sst {what}", opens=False)
    younger = sorted(number for number in files.tables.keys() - own.tables if number >= own.next_file)
    text = f"{named} is older than the tables beside it" if younger else f"a write-ahead log of {named} is missing"
    return DatabaseLoss(text, sure=bool(younger))  # a log may be empty


def _loss_of_logs(files: _DatabaseFiles, manifest: ManifestContent) -> DatabaseLoss | CutShort | None:
    """The loss of entries in a MANIFEST's logs, behind damage or where a log is cut short; None if there is none."""
    for number, path in sorted(files.logs.items()):
        if number < manifest.first_log:
            continue
        found = read_log(log_windows(path), keep=False)
        if found.damaged is not None:
            return DatabaseLoss(f"its write-ahead log {path.name} is damaged at {found.damaged}, {_NOT_READ}")
        if found.torn is None:
            continue
        alone = len(files.logs) == 1 and not files.tables
        cut = CutShort(path.name, found.torn, alone and found.torn == 0)
        return cut if number == max(files.logs) else DatabaseLoss(f"{cut.text}, {_NOT_READ}")
    return None


_NOT_READ = "and is not read from there on"
