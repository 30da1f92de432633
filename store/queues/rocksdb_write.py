"""What becomes of the files of a RocksDB when entries are put into it; the database itself stays as it is.

The library changes a copy in the directory for temporary files, in which tables, which never change,
are links. What it writes is of the oldest form that brokers since 5.3 read. Needs the extra `rocksdb`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from ..disk.byte_reader import read_regular
from ..errors import Unreadable, Unsupported, from_os_error
from .rocksdb import DEFAULT, HINT

_TABLE = ".sst"
_TABLE_FORMAT = 5
"""Of tables; brokers of 5.3 bring a library that knows no later one."""
_NOT_OURS = ("LOG", "rocksdict-config.json")
"""What the library tells beside the database."""
_LARGEST_BYTES = 256 << 20
"""Of a file that is changed or new."""


class Rewritten(NamedTuple):
    """made: content of files that are new or other than before, by name. gone: names of files.

    digest: of all files as they were.
    """

    made: dict[str, bytes]
    gone: tuple[str, ...]
    digest: str


def rewritten(path: Path, entries: Mapping[bytes, bytes]) -> Rewritten:
    """The database in `path` with these entries of its family `default`. Writes nothing there.

    Raises Unsupported where the extra is not installed, Unreadable.
    """
    try:
        import rocksdict
    except ImportError as error:
        raise Unsupported("a RocksDB", path=path, hint=HINT) from error
    with TemporaryDirectory(prefix="mqstore-rocksdb-", ignore_cleanup_errors=True) as folder:
        copy = Path(folder)
        try:
            digest = _copy(path, copy)
            _put(rocksdict, copy, entries)
            return Rewritten(*_changes(path, copy), digest)
        except OSError as error:
            raise from_os_error(error, path, "cannot copy the files of") from error
        except Exception as error:  # the library raises nothing narrower
            if isinstance(error, Unreadable):
                raise
            said = str(error).replace(folder, str(path))
            raise Unreadable(f"cannot change the RocksDB ({said})", path=path) from error


def _copy(path: Path, copy: Path) -> str:
    """Links to the tables, all else copied; a digest of names, lengths and content."""
    total = hashlib.sha256()
    for file in _files(path):
        total.update(f"{file.name} {file.stat().st_size}\n".encode())
        if file.suffix == _TABLE:
            (copy / file.name).symlink_to(file.absolute())
        else:
            total.update(hashlib.sha256(read_regular(file, _LARGEST_BYTES)).digest())
            shutil.copyfile(file, copy / file.name)
    return total.hexdigest()


def _files(path: Path) -> list[Path]:
    return sorted(
        Path(entry.path)
        for entry in os.scandir(path)
        if entry.is_file() and not entry.name.startswith(_NOT_OURS)
    )


def _put(rocksdict: Any, path: Path, entries: Mapping[bytes, bytes]) -> None:
    families = rocksdict.Rdict.list_cf(str(path), _options(rocksdict))
    options = {name: _options(rocksdict) for name in families}
    database = rocksdict.Rdict(str(path), _options(rocksdict), column_families=options)
    try:
        family = database.get_column_family(DEFAULT)
        for key, value in entries.items():
            family[key] = value
        family.flush()
        del family
    finally:
        database.close()


def _options(rocksdict: Any) -> Any:
    """As brokers open theirs, but that nothing is merged into other tables."""
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(False)
    options.set_disable_auto_compactions(True)
    options.set_compression_type(rocksdict.DBCompressionType.none())
    options.set_wal_recovery_mode(rocksdict.DBRecoveryMode.skip_any_corrupted_record())
    tables = rocksdict.BlockBasedOptions()
    tables.set_format_version(_TABLE_FORMAT)
    options.set_block_based_table_factory(tables)
    return options


def _changes(path: Path, copy: Path) -> tuple[dict[str, bytes], tuple[str, ...]]:
    before, after = {f.name: f for f in _files(path)}, {f.name: f for f in _files(copy)}
    made = {}
    for name, file in after.items():
        if file.is_symlink():
            continue
        data = read_regular(file, _LARGEST_BYTES)
        if name not in before or data != read_regular(before[name], _LARGEST_BYTES):
            made[name] = data
    return made, tuple(sorted(before.keys() - after.keys()))
