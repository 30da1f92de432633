"""How far consumer groups have come, from the files in `config/`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from ...formats.kinds import KINDS
from ..broker.delay_level import SCHEDULE_TOPIC
from ..disk.layout import CONFIG, Layout
from ..settings.read import config_files, read_config_file
from .ask import OFFSET_TABLES, Ask
from .table import PROBLEM, Table, Values

_DELAY = "delay_offset"
_MEMBERS = (
    *(("consumer_offset", name) for name in ("offsetTable", "pullOffsetTable", "lmqOffsetTable")),
    (_DELAY, "offsetTable"),
)
_NAMES = dict(zip(_MEMBERS, OFFSET_TABLES, strict=True))
"""What the tables are called in the column `table`."""


class OffsetTable(Table):
    """A row is an entry: a group of a topic goes on in this queue at this offset.

    table: which of `OFFSET_TABLES` it is in; there are those of `Ask.tables`. A delay level has no
    group, and the queue is its own. A group that has never committed (-1, or nothing) has no row.
    """

    of = "offsets"
    columns: ClassVar = {
        "file": "string",
        "table": "string",
        "topic": "string",
        "group": "string",
        "queue_id": "int",
        "offset": "bigint",
    }

    needs: ClassVar = {CONFIG}

    def parts(self, layout: Layout, ask: Ask) -> list[bool]:
        return [True] if layout.config.is_dir() else []

    def rows(self, layout: Layout, ask: Ask, part: bool) -> Iterator[tuple[int, Values]]:
        for entries, problems in offsets_of(layout, ask.tables):
            if entries:
                names = OffsetTable.columns
                yield len(entries), {name: [one.get(name) for one in entries] for name in names}
            yield from ((1, problem) for problem in problems)


def offsets_of(
    layout: Layout, tables: tuple[str, ...]
) -> Iterator[tuple[list[dict[str, Any]], list[Values]]]:
    """Of each file in `config/` its entries in these tables, by column, and what cannot be read."""
    for kind, path, plain in config_files(layout.config):
        if path.name == plain:
            yield _entries(path, kind, tables)


def _entries(
    path: Path, kind: str, tables: tuple[str, ...]
) -> tuple[list[dict[str, Any]], list[Values]]:
    if not any(
        _NAMES.get((table.record_type, table.member)) in tables for table in KINDS[kind].tables
    ):
        return [], []
    file = read_config_file(path, kind)
    found, problems = [], list[str]()
    for record in file.records():
        name = _NAMES.get((record["type"], record.get("table", "")))
        if "problem" in record:
            problems.append(f"{record['name']}: {record['problem']}")
        elif name in tables and record["offset"] >= 0:
            found.append({**record, "table": name, **_of_level(record)})
    if file.problem is not None and not file.problem.noted:
        problems.append(f"{file.problem.reason} at byte {file.problem.position}")
    return found, [{"file": path.name, PROBLEM: f"{path}: {problem}"} for problem in problems]


def _of_level(record: dict[str, Any]) -> dict[str, Any]:
    """Topic and queue of a delay level; nothing for what is none."""
    if record["type"] != _DELAY:
        return {} if "queue_id" in record else {"queue_id": 0}
    return {"topic": SCHEDULE_TOPIC, "queue_id": record["delay_level"] - 1}
