"""What `inspect` says of `config/`: one line for each file, and which of file and .bak counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..counted import counted
from ..errors import StoreError
from ..queues.rocksdb import RocksDb, is_rocksdb
from .read import BACKUP, ConfigFile, config_files, read_config_file, stand_in
from .rocksdb import read_entries

WHOLE, BROKEN, MISSING, UNREAD = "whole", "broken", "missing", "unread"
_NOT_COUNTED = ("data_version", "config_value")


class ConfigSummary(NamedTuple):
    """One file or RocksDB. state: `whole`, `broken`, `missing` (its .bak is there), `unread`.

    entries: record type → number. text: the same in words, with what a broker does.
    """

    file: str
    state: str
    entries: dict[str, int]
    text: str


def summary_of(file: ConfigFile) -> ConfigSummary:
    """Of a file that was read."""
    counts = Counter(record["type"] for record in file.records())
    entries = {name: count for name, count in counts.items() if name not in _NOT_COUNTED}
    told = entries_text(entries)
    if file.problem is None:
        text = (told or "no entries") + (f"; {file.note}" if file.note else "")
        return ConfigSummary(file.path.name, WHOLE, entries, text)
    parts = [f"broken at byte {file.problem.position} ({file.problem.reason})"]
    if file.larger:
        parts = [file.problem.reason]
    if told:
        parts.append(f"{told} before that")
    if file.larger:
        return ConfigSummary(file.path.name, UNREAD, entries, "; ".join(parts))
    if not file.path.name.endswith(BACKUP):
        parts.append(stand_in(file, file.path, file.kind))
    return ConfigSummary(file.path.name, BROKEN, entries, "; ".join(parts))


def summaries_of(directory: Path) -> Iterator[ConfigSummary]:
    """Of each file without its .bak, of what only the .bak has, then of RocksDBs.

    Raises Missing, Unreadable.
    """
    found = list(config_files(directory))
    names = {path.name for _, path, _ in found}
    for kind, path, name in found:
        if path.name == name:
            yield summary_of(read_config_file(path, kind))
        elif name not in names:
            names.add(name)
            instead = stand_in(None, path.with_name(name), kind)
            yield ConfigSummary(name, MISSING, {}, f"missing; {instead}")
    for path in databases(directory):
        try:
            entries = count_entries(path)
        except StoreError as error:
            yield ConfigSummary(path.name, UNREAD, {}, str(error))
        else:
            entries = {name: n for name, n in entries.items() if name not in _NOT_COUNTED}
            yield ConfigSummary(path.name, WHOLE, entries, entries_text(entries) or "no entries")


def databases(directory: Path) -> list[Path]:
    """The RocksDBs in a directory, sorted."""
    return sorted(path for path in directory.iterdir() if path.is_dir() and is_rocksdb(path))


def count_entries(path: Path) -> dict[str, int]:
    """Records of a RocksDB by their type. Raises Unsupported, Unreadable."""
    counts: Counter[str] = Counter()
    with RocksDb.open(path) as database:
        for entry in read_entries(database):
            counts.update(record["type"] for record in entry.records)
    return dict(counts)


def entries_text(entries: dict[str, int]) -> str:
    """`2 topic configs, 1 forbidden`."""
    return ", ".join(counted(count, *_thing(name)) for name, count in entries.items())


def _thing(record_type: str) -> tuple[str, str]:
    """What one of these, and more of them, are called."""
    name = record_type.replace("_", " ")
    return name, f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"
