"""The timer log's units as rows (spec 04, 4.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ...formats.timer_log import UNIT
from ..counted import counted
from ..disk.file_queue import MappedFileQueue
from ..disk.layout import TIMER_LOG, Layout
from ..timer.read import TimerUnits, timer_log
from .ask import Ask
from .table import PROBLEM, Table, Values, fields_of_schema


class TimerTable(Table):
    """A row is a unit of the timer log; a range that is none is damage."""

    of = "timer"
    columns: ClassVar = {"position": "bigint", **fields_of_schema(UNIT)}

    needs: ClassVar = {TIMER_LOG}

    def parts(self, layout: Layout, ask: Ask) -> list[bool]:
        return [True] if layout.timer_log.is_dir() else []

    def rows(self, layout: Layout, ask: Ask, part: bool) -> Iterator[tuple[int, Values]]:
        with MappedFileQueue.open(layout.timer_log) as files:
            for item in timer_log(files):
                if isinstance(item, TimerUnits):
                    names = item.units.dtype.names or ()
                    columns = {name: item.units[name] for name in names}
                    yield len(item.units), {"position": item.position, **columns}
                elif item.kind == "damage":
                    of = f"of the timer log at {item.position}"
                    bytes_are = counted(item.size, f"byte {of} is", f"bytes {of} are")
                    reason = f"{bytes_are} no units"
                    yield 1, {"position": item.position, PROBLEM: reason}
