"""What becomes of the files of a RocksDB when entries are put into it; the database itself stays as it is.

The library changes a copy in the directory for temporary files, in which tables, which never change,
are links. What it writes is of the oldest form that brokers since 5.3 read. Needs the extra `rocksdb`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol

from ..disk.byte_reader import pieces
from ..disk.files import Content
from ..disk.temporary import mapped, temporary_files
from ..errors import StoreError, Unreadable, Unsupported, from_os_error
from .rocksdb import DEFAULT, HINT

_TABLE = ".sst"
_TABLE_FORMAT = 5
"""Of tables; brokers of 5.3 bring a library that knows no later one."""
_FULL = "No space left"
"""What the library says then, among other things."""
NOT_OURS = ("LOG", "rocksdict-config.json")
"""What the library tells beside the database."""
_OF_DATABASE = re.compile(r"CURRENT|IDENTITY|LOCK|(MANIFEST|OPTIONS)-\d+|\d+\.(sst|log|blob|dbtmp)")


class Entries(Protocol):
    """Keys, each with a new value or None for an entry that goes: a mapping, or what makes them one by one."""

    def __len__(self) -> int: ...

    def items(self) -> Iterable[tuple[bytes, bytes | None]]:
        """All of them."""


Changes = Mapping[str, Entries]
"""By column family."""


class Rewritten(NamedTuple):
    """made: content of files that are new or other than before, by name. gone: names of files.

    digest: of all files as they were. What is made lies in temporary files without a name, mapped.
    """

    made: dict[str, Content]
    gone: tuple[str, ...]
    digest: str


def rewritten(path: Path, entries: Mapping[bytes, bytes], family: str = DEFAULT) -> Rewritten:
    """The database in `path` with these entries of one of its column families. As `changed`."""
    return changed(path, {family: entries})


def in_order(names: Iterable[str]) -> list[str]:
    """Files of a database so that a copy of it is sound at any step: what names a file comes after it."""
    return sorted(names, key=lambda name: (_rank(name), name))


def _rank(name: str) -> int:
    """Tables, logs, options, the list of tables, and last what names that."""
    starts = ("OPTIONS", "MANIFEST", "CURRENT")
    found = next((at for at, start in enumerate(starts, 2) if name.startswith(start)), None)
    return found if found is not None else int(not name.endswith(_TABLE))


def changed(path: Path, changes: Changes) -> Rewritten:
    """The database in `path` with these changes. Writes nothing there.

    Raises Unsupported where the extra is not installed, Unreadable.
    """
    if not any(changes.values()):
        return Rewritten({}, (), "")
    rocksdict = library("change", path)
    with TemporaryDirectory(prefix="mqstore-rocksdb-", ignore_cleanup_errors=True) as folder:
        copy = Path(folder)
        try:
            digest = _copy(path, copy)
            _put(rocksdict, copy, changes)
            return Rewritten(*_changes(path, copy), digest)
        except OSError as error:
            raise from_os_error(error, path, "cannot copy the files of") from error
        except StoreError:
            raise
        except Exception as error:  # the library raises nothing narrower
            if _FULL in str(error):
                with temporary_files():
                    raise
            said = str(error).replace(folder, str(path))
            raise Unreadable(f"cannot change the RocksDB: {said}", path=path) from error


def library(purpose: str, path: Path) -> Any:
    """The library that writes a RocksDB. purpose: what it is for, as "change". Raises Unsupported without it."""
    try:
        import rocksdict
    except ImportError as error:
        told = f"cannot {purpose} a RocksDB without the extra rocksdb"
        raise Unsupported(told, path=path, hint=HINT) from error
    return rocksdict


def _copy(path: Path, copy: Path) -> str:
    """Links to the tables, all else copied; a digest of names, lengths and content."""
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
    """What belongs to a database in a directory that may hold topics, too; none where it is missing."""
    if not path.is_dir():
        return []
    return [file for file in files_of(path) if _OF_DATABASE.fullmatch(file.name)]


def files_of(path: Path) -> list[Path]:
    """The files of a directory, without what the library tells beside its database."""
    return sorted(
        Path(entry.path)
        for entry in os.scandir(path)
        if entry.is_file() and not entry.name.startswith(NOT_OURS)
    )


def _put(rocksdict: Any, path: Path, changes: Changes) -> None:
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
    """As brokers open theirs, but that nothing is merged into other tables. packed: by LZ4, as they have units."""
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


def _changes(path: Path, copy: Path) -> tuple[dict[str, Content], tuple[str, ...]]:
    before, after = {f.name: f for f in files_of(path)}, {f.name: f for f in files_of(copy)}
    made: dict[str, Content] = {
        name: mapped(pieces(file))
        for name, file in after.items()
        if not file.is_symlink() and (name not in before or not _same(file, before[name]))
    }
    return made, tuple(sorted(before.keys() - after.keys()))


def _same(file: Path, other: Path) -> bool:
    return all(one == two for one, two in zip_longest(pieces(file), pieces(other)))
