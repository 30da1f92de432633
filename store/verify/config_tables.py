"""The tables of `config/` as a broker reads them: the file, else its .bak, else a RocksDB."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ...formats.kinds import KINDS
from ..errors import Missing, StoreError
from ..queues.rocksdb import RocksDb
from ..settings.read import BACKUP, FILES, ConfigFile, read_config_file
from ..settings.rocksdb import read_entries
from ..settings.summary import databases
from .catalogue import Severity
from .context import Scene
from .unreadable import need_whole

FAMILIES = frozenset({"default", "kvDataVersion", "forbidden"})
"""Column families of each database of the configuration (spec 05, 5.4)."""
FAMILIES_5_4 = FAMILIES - {"forbidden"}
"""From 5.4 on only those that are used, and of offsets no version."""
DATABASES = ("topics", "subscriptionGroups", "consumerOffsets")


class Row(NamedTuple):
    """An entry of a table, and the file that has it."""

    path: str
    values: dict[str, Any]


@dataclass
class ConfigTables:
    """All files of `config/`, read once.

    main, backup: by name of the file; None where it is not there. rows: entries by record type, of
    what a broker takes. problems: of RocksDBs that cannot be read. families: their column families.
    """

    directory: Path
    main: dict[str, ConfigFile | None] = field(default_factory=dict)
    backup: dict[str, ConfigFile | None] = field(default_factory=dict)
    rows: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    families: dict[str, frozenset[str]] = field(default_factory=dict)
    problems: dict[str, StoreError] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path) -> ConfigTables:
        """Of a `config` directory; empty where there is none. Raises Unreadable."""
        found = cls(directory)
        for name, kind in FILES.items():
            if KINDS[kind].place != "config":
                continue
            found.main[name] = _read(directory / name, kind)
            found.backup[name] = _read(directory / (name + BACKUP), kind)
            if (taken := found.taken(name)) is not None:
                for record in taken.records():
                    found.rows[record["type"]].append(Row(os.fspath(taken.path), record))
        if directory.is_dir():
            found._read_databases()
        return found

    def taken(self, name: str) -> ConfigFile | None:
        """What a broker reads of a file: it, else its .bak, else what there is of it."""
        both = [self.main.get(name), self.backup.get(name)]
        whole = [file for file in both if file is not None and file.problem is None]
        there = [file for file in both if file is not None]
        found = whole or there
        return found[0] if found else None

    def entries(self, record_type: str, scope_topic: str | None = None) -> Iterator[Row]:
        """The entries of one type, of one topic where one is asked for."""
        for row in self.rows[record_type]:
            if scope_topic is None or row.values.get("topic", scope_topic) == scope_topic:
                yield row

    def names(self, record_type: str, column: str) -> set[str]:
        """The keys of one table."""
        return {row.values[column] for row in self.rows[record_type]}

    def _read_databases(self) -> None:
        for path in databases(self.directory):
            if path.name not in DATABASES:
                continue
            try:
                with RocksDb.open(path) as database:
                    self.families[path.name] = frozenset(database.column_families)
                    for entry in read_entries(database):
                        for record in entry.records:
                            self.rows[record["type"]].append(Row(os.fspath(path), record))
            except StoreError as error:
                self.problems[path.name] = error


def _read(path: Path, kind: str) -> ConfigFile | None:
    try:
        found = read_config_file(path, kind)
    except Missing:
        return None
    need_whole([os.fspath(path)])
    return found


def config_tables(scene: Scene) -> ConfigTables:
    """Those of this run."""
    layout = scene.store.layout
    return scene.kept("config tables", lambda: ConfigTables.read(layout.config))


class Told:
    """Like findings of one code, one for each file: the first is told, all are counted."""

    def __init__(self, scene: Scene, code: str) -> None:
        self._scene, self._code = scene, code
        self._found: dict[tuple[str, Severity | None], list[str]] = {}

    def add(self, path: str, text: str, severity: Severity | None = None) -> None:
        """One more."""
        self._found.setdefault((path, severity), []).append(text)

    def tell(self) -> None:
        """Hand them over."""
        for (path, severity), texts in self._found.items():
            add = self._scene.findings.add
            add(self._code, path, texts[0], count=len(texts), severity=severity)
