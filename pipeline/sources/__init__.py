"""Data sources for Spark: the files of stores as rows.

`register` of `mqstore.pipeline` makes them known to a session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

    from .tables import TableSource


def all_sources() -> list[type[DataSource]]:
    from .damage import DamageSource
    from .log import LogSource

    return [LogSource, DamageSource, *table_sources()]


def table_sources() -> list[type[TableSource]]:
    """Return the data sources of files other than the log."""
    from . import tables

    own = (tables.QueueSource, tables.IndexSource, tables.TimerSource)
    return [*own, tables.OffsetSource, tables.LagSource, tables.FindingSource]
