"""Which RocksDB of `config/` stands for which of its files (spec 05, 5.4).

Brokers have five forms: files of JSON, a RocksDB for each of three tables, one for all of them, that of
configManagerVersion=v2, and what an earlier form left behind. Only the broker's options say which is
in force; without them it is the one that was written last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from ...formats.json_table import DATA_VERSION
from ...formats.kinds import KINDS
from ..disk.layout import ROCKSDB_STORE_TYPE, was_rocksdb
from ..errors import Unreadable
from ..queues.rocksdb import RocksDb, is_rocksdb
from .parse import parse
from .rocksdb import FAMILIES, SECOND, SEPARATE, SINGLE, read_entries

_V2 = "v2"
_VERSION, _STORE_TYPE = "configManagerVersion", "storeType"
_OFFSET_TABLE, _FORBIDDEN = "offsetTable", "forbiddenTable"
_OWN = "default"
_KIND_OF = {kind.file: name for name, kind in KINDS.items()}
_ONE_FOR_ALL = "useSingleRocksDBForAllConfigs"


class Form(StrEnum):
    """Where topics, groups and positions of groups are."""

    FILES = "files"
    SEPARATE = "separate databases"
    SINGLE = "one database"
    SECOND = "one database, version 2"


_PLACES: Mapping[Form, Mapping[str, str]] = {
    Form.SEPARATE: SEPARATE,
    Form.SINGLE: dict.fromkeys(SEPARATE, SINGLE),
    Form.SECOND: dict.fromkeys(SEPARATE, SECOND),
}


class InForce(NamedTuple):
    """The form that the next start reads. sure: an option says so, or there is no other one.

    databases: of the files that it stands for the directories, those that are gone or broken too.
    others: directories of other forms that are there as well.
    """

    form: Form
    sure: bool
    databases: dict[str, Path]
    others: tuple[str, ...] = ()


def in_force(config: Path, options: Mapping[str, str] | None = None) -> InForce:
    """That of a `config` directory, which need not be there, with these options of the broker."""
    there = {form: _databases(config, form) for form in _PLACES}
    found = [form for form, databases in there.items() if databases]
    asked = _asked_for(options or {})
    form = asked or max(
        found, key=lambda form: _written_ns(there[form].values()), default=Form.FILES
    )
    others = {path.name for each in found if each is not form for path in there[each].values()}
    beside = bool(found) and any((config / name).is_file() for name in SEPARATE)
    sure = asked is not None or not (others or beside)
    return InForce(form, sure, there.get(form, {}), tuple(sorted(others)))


def stand_ins(config: Path, options: Mapping[str, str] | None = None) -> dict[str, Path]:
    """Of each file in whose place a broker reads a RocksDB, that RocksDB."""
    databases = in_force(config, options).databases
    return {name: path for name, path in databases.items() if is_rocksdb(path)}


def rows_of(path: Path, file: str) -> list[dict[str, Any]]:
    """Records of what a RocksDB has of the table of a file. Raises Unsupported, Unreadable."""
    with RocksDb.open(path) as database:
        return [
            row for entry in read_entries(database) if entry.file == file for row in entry.records
        ]


def table_of(path: Path, file: str) -> dict[str, Any]:
    """What the file would say, whole, that a RocksDB of three or one for all stands for: the JSON of every
    entry as it is, numbers of queues as numbers, dataVersion where the database has it.

    Raises Unsupported, Unreadable, also for an entry that is no JSON.
    """
    table, *more = (one.member for one in KINDS[_KIND_OF[file]].tables)
    content: dict[str, Any] = {table: {}}
    with RocksDb.open(path) as database:
        for family in database.column_families:
            member = _member(path.name, family, file)
            for key, value in database.items(family) if member else ():
                parsed = parse(value)
                if parsed.problem or not isinstance(parsed.value, dict):
                    raise Unreadable(f"an entry is no JSON: {parsed.problem}", path=path)
                name, entry = key.decode("utf-8", "surrogateescape"), parsed.value
                if member == DATA_VERSION.member:
                    content[member] = entry
                    continue
                if table == _OFFSET_TABLE:
                    entry = {int(queue): at for queue, at in entry.get(table, entry).items()}
                content.setdefault(member or table, {})[name] = entry
    if _FORBIDDEN in more:
        content.setdefault(_FORBIDDEN, {})
    return content


def _member(directory: str, family: str, file: str) -> str | None:
    """The member of a file whose entries a column family has, None where it has nothing of it."""
    if directory == SINGLE:
        single = FAMILIES.get(family)
        return single[1].member if single and single[0] == file else None
    members = [table.member for table in KINDS[_KIND_OF[file]].tables]
    found = {_OWN: members[0], "kvDataVersion": DATA_VERSION.member, "forbidden": _FORBIDDEN}
    return found[family] if found.get(family) in members else None


def _asked_for(options: Mapping[str, str]) -> Form | None:
    """The form that these options ask for, None where they do not say."""
    if options.get(_VERSION, "").lower() == _V2:
        return Form.SECOND
    store_type = options.get(_STORE_TYPE)
    if store_type is None:
        return None
    if store_type != ROCKSDB_STORE_TYPE:
        return Form.FILES
    single = options.get(_ONE_FOR_ALL)
    if single is None and _VERSION not in options:
        return None
    return Form.SINGLE if (single or "").lower() == "true" else Form.SEPARATE


def _databases(config: Path, form: Form) -> dict[str, Path]:
    """Directories of a form, if at least one of them is, or was, a RocksDB."""
    places = {file: config / name for file, name in _PLACES[form].items()}
    there = any(is_rocksdb(path) or was_rocksdb(path) for path in places.values())
    return places if there else {}


def _written_ns(paths: Iterable[Path]) -> int:
    """When a file in these directories was last written."""
    times = [
        file.stat().st_mtime_ns
        for path in set(paths)
        if path.is_dir()
        for file in path.iterdir()
        if file.is_file()
    ]
    return max(times, default=0)


assert set(SEPARATE) <= {kind.file for kind in KINDS.values()}
