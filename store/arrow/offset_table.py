"""How far consumer groups have come, from the files in `config/`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from ...formats.kinds import KINDS
from ..byte_reader import noted_of
from ..config_file import config_files, read_config_file
from ..layout import CONFIG, Layout
from .ask import Ask
from .table import PROBLEM, Table, Values

_RECORD = "consumer_offset"


class OffsetTable(Table):
    """A row is an entry: a group of a topic goes on in this queue at this offset."""

    columns: ClassVar = {
        "file": "string",
        "topic": "string",
        "group": "string",
        "queue_id": "int",
        "offset": "bigint",
    }

    needs: ClassVar = {CONFIG}

    def parts(self, layout: Layout, ask: Ask) -> list[bool]:
        return [True] if layout.config.is_dir() else []

    def rows(self, layout: Layout, ask: Ask, part: bool) -> Iterator[tuple[int, Values]]:
        for kind, path, plain in config_files(layout.config):
            if path.name == plain:
                yield from _rows(path, kind)


def _rows(path: Path, kind: str) -> Iterator[tuple[int, Values]]:
    file = read_config_file(path, kind)
    records = list(file.records())
    found = [record for record in records if record["type"] == _RECORD]
    if found:
        names = OffsetTable.columns
        yield len(found), {name: [record.get(name) for record in found] for name in names}
    if not any(table.record_type == _RECORD for table in KINDS[kind].tables):
        return
    problems = [f"{one['name']}: {one['problem']}" for one in records if "problem" in one]
    if file.problem is not None and not noted_of(str(path)):
        problems.append(f"{file.problem.reason} at byte {file.problem.position}")
    for problem in problems:
        yield 1, {"file": path.name, PROBLEM: f"{path}: {problem}"}
