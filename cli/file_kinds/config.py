"""The directory `config/`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...store.inspect.recognise import Recognised
from ...store.queues.rocksdb import HINT, readable
from ...store.settings.read import config_files, databases, summaries_of
from ..options import Common
from .chunks import Chunk
from .config_json import file_chunks


def chunks(what: Recognised, at: int | None, raw: bool, common: Common) -> Iterator[Chunk]:
    """The entries of all files, with `raw` also those of .bak files; then the entries of RocksDBs.

    at: number of the first entry of each file.
    """
    from .rocksdb import database_chunks  # what reads databases: `summary` does without it

    for kind, path, name in config_files(what.path):
        if raw or path.name == name:
            yield from file_chunks(path, kind, at or 0, common)
    for directory in databases(what.path):
        if readable():
            yield from database_chunks(directory, at or 0)
        else:
            common.warn(f"{directory} is left out: a RocksDB; {HINT}")


def summary(what: Recognised, common: Common) -> dict[str, Any]:
    """A line for each file without its .bak, and for each .bak without its file."""
    return {"contents": [f"{one.file}: {one.text}" for one in summaries_of(what.path)]}
