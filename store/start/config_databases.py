"""Tables of the configuration that are in a RocksDB instead of a file (spec 05, 5.4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import StoreError, Unsupported
from ..queues.rocksdb import RocksDb, is_rocksdb, was_rocksdb
from ..settings.rocksdb import read_entries
from ..settings.summary import databases
from .config_load import Loaded, Start, Text
from .config_rules import GROUPS, OFFSETS, TOPICS

_DATABASES = {TOPICS: "topics", GROUPS: "subscriptionGroups", OFFSETS: "consumerOffsets"}
"""Of each file the directory that stands in its place."""
_UNSEEN = Text(there=True, unseen=True)


def load_databases(config: Path) -> dict[str, Loaded]:
    """The tables that are not in files, by the names of these. Nothing is written."""
    there = {path.name for path in databases(config)} if config.is_dir() else set()
    if there - set(_DATABASES.values()):  # one for all tables, of versions that were not measured
        return {name: Loaded(name, Start.LOADS, _UNSEEN, _UNSEEN) for name in _DATABASES}
    loaded = {
        name: _load(name, config / directory)
        for name, directory in _DATABASES.items()
        if is_rocksdb(config / directory)
    }
    for name, directory in _DATABASES.items():
        path = config / directory
        if was_rocksdb(path):
            loaded[name] = _refused(name, f"the RocksDB {directory} has no file CURRENT")
        elif loaded and path.is_file():
            loaded[name] = _refused(name, f"{directory} is a file in the place of a RocksDB")
    return loaded


def _refused(name: str, problem: str) -> Loaded:
    nothing = Text(there=False, present=False)
    return Loaded(name, Start.REFUSES, Text(there=True, problem=problem), nothing)


def _load(name: str, path: Path) -> Loaded:
    none = Text(there=False, present=False)
    try:
        with RocksDb.open(path) as database:
            rows = [row for entry in read_entries(database) for row in entry.records]
    except Unsupported:
        return Loaded(name, Start.LOADS, _UNSEEN, none)
    except StoreError as error:
        return _refused(name, f"the RocksDB {path.name} cannot be opened: {error.message}")
    return Loaded(name, Start.LOADS, Text(there=True, value=_content(name, rows)), none)


def _content(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The rows as the file of this name would have them, as far as keys and offsets go."""
    if name == TOPICS:
        topics = [row["topic"] for row in rows if row["type"] == "topic_config"]
        return {"topicConfigTable": {topic: {} for topic in topics}}
    if name == GROUPS:
        groups = [row["group"] for row in rows if row["type"] == "subscription_group"]
        return {"subscriptionGroupTable": {group: {} for group in groups}}
    table: dict[str, dict[str, int]] = {}
    for row in rows:
        if row["type"] == "consumer_offset":
            place = table.setdefault(f"{row['topic']}@{row['group']}", {})
            place[str(row["queue_id"])] = int(row["offset"])
    return {"offsetTable": table}
