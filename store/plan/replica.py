"""A copy of the same commit log: a slave's, its master's, a backup (spec 7.9). It is only read.

A slave receives the bytes of its master's log and puts them at the same positions, so what one has
lost the other has byte for byte, as long as nobody has cut either of them since.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile, gettempdir

from ..counted import counted
from ..disk.checkpoint import read_checkpoint
from ..disk.file_queue import MappedFileQueue
from ..disk.layout import Layout
from ..errors import (
    InvalidInput,
    Missing,
    NotAStore,
    Refused,
    Unreadable,
    Unsupported,
    from_os_error,
)
from ..log.commit_log import CommitLog

_WINDOW_BYTES = 1 << 20
_EPOCH_FILE = "epochFileCheckpoint"


@dataclass
class Replica:
    """A copy opened for reading.

    name: as it was asked for. confirmed: behind this position nothing counts, None: all does. Where
    a controller elects masters, what not all replicas in sync have confirmed may be cut again.
    """

    name: str
    log: CommitLog
    confirmed: int | None = None

    @classmethod
    def open(cls, name: str, own: Layout, file_bytes: int) -> Replica:
        """Open a store, a directory of log files, or several, `a:b`, that hold one log.

        own: the store that is to be recovered, with log files of `file_bytes`. Raises Missing,
        NotAStore, Unreadable, Unsupported, InvalidInput for the store itself, Refused for files of
        another size.
        """
        directories: list[Path] = []
        confirmed: int | None = None
        for place in _places(name):
            found, end = _log_of(place)
            directories += found
            confirmed = end if confirmed is None else confirmed
        taken = {_identity(path) for path in own.commit_log_directories if path.exists()}
        if any(_identity(path) in taken for path in directories if path.exists()):
            raise InvalidInput("the replica is the store itself", path=name)
        queue = MappedFileQueue.open(directories, file_bytes)
        if not queue.files:
            raise NotAStore("no commit log to bring anything back from", path=name)
        for file in queue.files:
            if file.size > file_bytes or file.start % file_bytes:
                raise Refused(
                    "no copy of this log: its files have other sizes than"
                    f" {counted(file_bytes, 'byte')}",
                    path=file.path,
                    hint="give the log of this broker's slave or master",
                )
        return cls(name, CommitLog(queue), confirmed)

    @property
    def end(self) -> int:
        """Position behind the last byte that can count."""
        return min(self.log.max_file_end, self.confirmed or self.log.max_file_end)

    def bytes_at(self, begin: int, end: int) -> bytes:
        """The bytes of a range inside one file, fewer where there are not so many."""
        return self.log.read(begin, end - begin)

    def kept(self, begin: int, end: int) -> memoryview:
        """The same in a temporary file, mapped: a range may be larger than memory.

        The replica's own files are not mapped: a page that their disk does not give would kill the
        process. Raises Unreadable, NoSpace.
        """
        with TemporaryFile(prefix="mqstore-") as target:
            try:
                for at in range(begin, end, _WINDOW_BYTES):
                    data = self.bytes_at(at, min(end, at + _WINDOW_BYTES))
                    if len(data) < min(end, at + _WINDOW_BYTES) - at:
                        raise Unreadable(
                            "the replica has changed while it was read", path=self.name
                        )
                    target.write(data)
                target.flush()
            except OSError as error:
                raise from_os_error(
                    error, gettempdir(), "cannot keep what a replica has"
                ) from error
            return memoryview(mmap.mmap(target.fileno(), end - begin, access=mmap.ACCESS_READ))


def _places(name: str) -> Iterator[Path]:
    """What `name` stands for: one path, or several with colons between."""
    parts = [name] if Path(name).exists() else [part for part in name.split(":") if part]
    for part in parts or [name]:
        path = Path(part)
        if not path.exists():
            raise Missing("no such directory", path=path, hint="check the path of the replica")
        yield path


def _log_of(place: Path) -> tuple[tuple[Path, ...], int | None]:
    """Log directories of a store or a directory of log files, and how far it is confirmed."""
    try:
        layout = Layout.open(place)
    except NotAStore:
        if place.is_dir() and MappedFileQueue.open(place).files:
            return (place,), None
        raise
    if layout.dledger is not None:
        raise Unsupported("a DLedger log is no copy of this log", path=layout.dledger)
    if not (layout.root / _EPOCH_FILE).exists():
        return layout.commit_log_directories, None
    checkpoint = read_checkpoint(layout.checkpoint)
    confirmed = checkpoint.confirm_phy_offset if checkpoint else 0
    return layout.commit_log_directories, confirmed or None


def _identity(path: Path) -> tuple[int, int]:
    status = os.stat(path)  # noqa: PTH116
    return status.st_dev, status.st_ino
