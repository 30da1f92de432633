"""The views that queries over stores know: their names, columns and types, on Spark and without it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count

import pyarrow as pa

from . import damage_rows, log_columns
from .finding_table import FindingTable
from .index_table import IndexTable
from .lag_table import LagTable
from .offset_table import OffsetTable
from .queue_table import QueueTable
from .table import SQL_TYPES, Table
from .timer_table import TimerTable

MESSAGES = "messages"
DAMAGE = "damage"
OF_LOG = (MESSAGES, DAMAGE)
"""Views that read commit logs."""
FINDINGS = "findings"


@dataclass(frozen=True)
class View:
    """One view. source: its data source on Spark; columns: names and SQL types, in order.

    table: what it is read from, None for what is read from commit logs.
    """

    name: str
    source: str
    columns: Mapping[str, str]
    schema: pa.Schema
    table: Table | None = None

    @property
    def ddl(self) -> str:
        """The schema in SQL."""
        return ", ".join(f"{name} {sql}" for name, sql in self.columns.items())

    @property
    def tells(self) -> bool:
        """What cannot be read is among its rows, or is all of them."""
        return self.name in (DAMAGE, FINDINGS)


def _of_table(name: str, source: str, table: Table) -> View:
    columns = table.all_columns()
    return View(name, source, columns, _schema(columns), table)


def _schema(columns: Mapping[str, str]) -> pa.Schema:
    return pa.schema([(name, SQL_TYPES[sql]) for name, sql in columns.items()])


_LOG = {name: column.sql for name, column in log_columns.COLUMNS.items()}

VIEWS: Mapping[str, View] = {
    view.name: view
    for view in (
        View(MESSAGES, "rocketmq-log", _LOG, log_columns.SCHEMA),
        View(DAMAGE, "rocketmq-damage", damage_rows.COLUMNS, _schema(damage_rows.COLUMNS)),
        _of_table("queues", "rocketmq-queue", QueueTable()),
        _of_table("index_items", "rocketmq-index", IndexTable()),
        _of_table("timers", "rocketmq-timer", TimerTable()),
        _of_table(FINDINGS, "rocketmq-findings", FindingTable()),
        _of_table("offsets", "rocketmq-offsets", OffsetTable()),
        _of_table("lag", "rocketmq-lag", LagTable()),
    )
}


def named_apart(columns: Iterable[tuple[str, bool]]) -> dict[str, bool]:
    """The columns of an answer, and whether they are bytes; of two with one name the second has a number.

    >>> named_apart([("topic", False), ("body", True), ("body", True)])
    {'topic': False, 'body': True, 'body_2': True}
    """
    found: dict[str, bool] = {}
    for name, raw in columns:
        more = (f"{name}_{number}" for number in count(2))
        found[name if name not in found else next(m for m in more if m not in found)] = raw
    return found
