"""The directory `config/`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .chunks import Chunk
from .config_json import file_chunks, said_of

if TYPE_CHECKING:
    from ...store.recognise import Recognised
    from ..options import Common


def chunks(what: Recognised, at: int | None, raw: bool, common: Common) -> Iterator[Chunk]:
    """The entries of all files, with `raw` also those of .bak; then those of its RocksDBs.

    `at`: number of the first entry of each file.
    """
    from ...store.config_file import config_files
    from ...store.rocksdb import is_rocksdb, readable
    from .rocksdb import database_chunks

    for kind, path, name in config_files(what.path):
        if raw or path.name == name:
            yield from file_chunks(path, kind, at or 0, common)
    for directory in sorted(path for path in what.path.iterdir() if path.is_dir()):
        if is_rocksdb(directory):
            if readable():
                yield from database_chunks(directory, at or 0)
            else:
                common.warn(f"{directory} is left out: {_not_readable()}")


def _not_readable() -> str:
    from ...store.rocksdb import HINT

    return f"a RocksDB; {HINT}"


def summary(what: Recognised, common: Common) -> dict[str, Any]:
    """One line for each file without its .bak, and for what only the .bak has."""
    from ...store.config_file import config_files, read_config_file, stand_in
    from ...store.rocksdb import is_rocksdb

    lines, seen = [], set[str]()
    found = list(config_files(what.path))
    names = {path.name for _, path, _ in found}
    for kind, path, name in found:
        if path.name == name:
            lines.append(f"{name}: {said_of(read_config_file(path, kind))}")
        elif name not in names and name not in seen:
            seen.add(name)
            lines.append(f"{name}: missing; {stand_in(None, path.with_name(name), kind)}")
    for directory in sorted(path for path in what.path.iterdir() if path.is_dir()):
        if is_rocksdb(directory):
            lines.append(f"{directory.name}: {_database(directory)}")
    return {"contents": lines}


def _database(directory: Any) -> str:
    from ...store.errors import Unreadable
    from ...store.rocksdb import readable
    from .rocksdb import contents

    if not readable():
        return _not_readable()
    try:
        return ", ".join(contents(directory)) or "a RocksDB without entries"
    except Unreadable as error:
        return str(error)
