"""Reading a RocksDB of a broker without changing a byte of it.

The library that opens it writes files of its own beside those it finds. So it is given a directory
of links in the system's directory for temporary files, which goes away with the object.

Needs the extra `rocksdb` (rocksdict), imported only here.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ..disk.byte_reader import Unread, failed, fill_any, opened
from ..errors import Unreadable, Unsupported, from_os_error

if TYPE_CHECKING:
    from rocksdict import Rdict

CURRENT = "CURRENT"
HINT = "pip install 'mqstore[rocksdb]' and try again"
DEFAULT = "default"
_IO_ERROR = "IO error"
_WINDOW_BYTES = 1 << 20
_MANIFEST, _SST = "MANIFEST-", ".sst"
_OPEN_FILES = 256
_NOTES = "rocksdict-config.json"
"""What the library writes about a database, even where it only reads."""
_MOST_FILES = 200_000
"""More files than so in one directory are no RocksDB of a broker."""


def is_rocksdb(path: str | os.PathLike[str]) -> bool:
    """Whether a directory holds a RocksDB: it has a file CURRENT."""
    return os.path.isfile(os.path.join(path, CURRENT))  # noqa: PTH113, PTH118


def was_rocksdb(path: Path) -> bool:
    """Whether a directory has files of a RocksDB, but no CURRENT: what opens it refuses, or loses them."""
    if is_rocksdb(path) or not path.is_dir():
        return False
    return any(entry.name.startswith(_MANIFEST) or entry.suffix == _SST for entry in path.iterdir())


def readable() -> bool:
    """Whether the library that reads a RocksDB is installed."""
    try:
        import rocksdict  # noqa: F401
    except ImportError:
        return False
    return True


class RocksDb:
    """One RocksDB, as it lies on the disk, its write-ahead log included.

    Open with `RocksDb.open`; use as a context manager or `close`. column_families: by name.
    """

    def __init__(self, path: Path, database: Rdict, families: tuple[str, ...]) -> None:
        self.path = path
        self.column_families = families
        self._database = database
        self._open: dict[str, Rdict] = {}

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RocksDb:
        """The database in a directory.

        Raises Unsupported where the extra is not installed, Unreadable for what is no whole
        RocksDB, Missing.
        """
        path = Path(path)
        try:
            import rocksdict
        except ImportError as error:
            raise Unsupported("a RocksDB", path=path, hint=HINT) from error
        links = _links(path)
        try:
            names = tuple(sorted(rocksdict.Rdict.list_cf(links.name, _options(rocksdict))))
            database = rocksdict.Rdict(
                links.name,
                _options(rocksdict),
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
        """The value of a key, None without. Raises Unreadable."""
        try:
            value = self._family(family).get(key)
        except Exception as error:
            raise _error(error, self.path, self._links) from error
        return None if value is None else bytes(value)

    def items(
        self, family: str, start: bytes = b"", *, backwards: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Keys from `start` on with their values, in order of the bytes. Raises Unreadable.

        backwards: from the last key that is not behind `start` down. A family that is not there is
        empty.
        """
        if family not in self.column_families:
            return
        last = start
        try:
            for last, value in self._family(family).items(
                backwards=backwards, from_key=start or None
            ):
                yield last, value
            self._check_end(family, last, backwards=backwards)
        except Exception as error:
            raise _error(error, self.path, self._links) from error

    def _check_end(self, family: str, last: bytes, *, backwards: bool) -> None:
        """The rows end behind the key `last`: at a block that cannot be read they only seem to."""
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
        """Close it, and take the links away."""
        self._open.clear()
        self._database.close()
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _options(rocksdict: Any) -> Any:
    """Plain bytes, a bounded number of open files."""
    options = rocksdict.Options(raw_mode=True)
    # as brokers open theirs: what is torn at the end of its log is passed over
    options.set_wal_recovery_mode(rocksdict.DBRecoveryMode.skip_any_corrupted_record())
    options.create_if_missing(False)
    options.set_max_open_files(_OPEN_FILES)
    return options


def _links(path: Path) -> tempfile.TemporaryDirectory[str]:
    """A directory for temporary files with a link to each file of `path` that a broker makes."""
    try:
        with os.scandir(path) as entries:
            files = [e for _, e in zip(range(_MOST_FILES), entries, strict=False) if e.is_file()]
            files = [entry for entry in files if entry.name != _NOTES]
    except OSError as error:
        raise from_os_error(error, path) from error
    try:
        target = tempfile.TemporaryDirectory(prefix="mqstore-rocksdb-", ignore_cleanup_errors=True)
        for entry in files:
            link = Path(target.name, entry.name)
            link.symlink_to(Path(entry.path).absolute())
    except OSError as error:
        raise from_os_error(error, path, "cannot link to the files of") from error
    return target


def _error(error: Exception, path: Path, links: str) -> Unreadable:
    """What the library says, about the files of the store; bytes that a disk does not give are noted."""
    said = str(error).replace(links, str(path))
    if _IO_ERROR in said:
        unread = [one for file in _files_in(path, said) for one in _unread(file)]
        for one in unread[1:]:
            failed(one)
        if unread:
            return failed(unread[0])
    return Unreadable(f"cannot read the RocksDB ({said})", path=path)


def _files_in(path: Path, said: str) -> list[Path]:
    """The files that a message names, all of the directory where it names none."""
    files = sorted(file for file in path.iterdir() if file.is_file())
    return [file for file in files if str(file) in said] or files


def _unread(path: Path) -> Iterator[Unread]:
    """The ranges of a file that cannot be read."""
    with opened(path) as descriptor:
        size = os.fstat(descriptor).st_size
        room = memoryview(bytearray(min(size, _WINDOW_BYTES)))
        for at in range(0, size, _WINDOW_BYTES):
            yield from fill_any(descriptor, room[: size - at], at, os.fspath(path), end=size)[1]
