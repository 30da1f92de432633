"""The rows of a view of many stores, one store after the other, and what is not among them."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyarrow import compute as pc

from ..disk.byte_reader import noting
from ..disk.layout import Layout, is_uri
from ..errors import StoreError
from . import arrow_filter, damage_rows, log_rows
from .ask import BODY, BODY_CRC_OK, Ask
from .log_columns import CHECKED
from .log_rows import Damage
from .remote import open_log
from .table import parts_of, table_rows
from .views import OF_LOG, View


@dataclass
class Lacking:
    """What an answer lacks, or has though it is not sound.

    damage: ranges and stores that were passed over, as keys in the order they were met; bodies: how
    many of those that were read fail their checksum, and nobody asked for that.
    """

    damage: dict[Damage, None] = field(default_factory=dict)
    bodies: int = 0

    def add(self, damage: Damage) -> None:
        """A range that is passed over; that a query comes there twice counts once."""
        self.damage.setdefault(damage)

    def __bool__(self) -> bool:
        return bool(self.damage or self.bodies)


def readable(ask: Ask, views: Iterable[View]) -> tuple[Ask, dict[str, StoreError]]:
    """What is asked of the stores of which these views can be read, and why the others cannot."""
    of_log = any(view.name in OF_LOG for view in views)
    found: list[str] = []
    unread: dict[str, StoreError] = {}
    with noting():  # whoever reads these bytes tells of them
        for root in ask.stores:
            try:
                if of_log or is_uri(root):
                    open_log(root, ask.broker_config).queue.close()
                else:
                    Layout.open(root, ask.broker_config)
                found.append(root)
            except StoreError as error:
                unread[root] = error
    return replace(ask, stores=tuple(found)), unread


def rows_of_view(
    view: View,
    ask: Ask,
    columns: Sequence[str],
    lacking: Lacking,
    wanted: pc.Expression | None = None,
) -> Generator[pa.RecordBatch, None, None]:
    """Rows of `columns` that a filter takes; what cannot be read is told to `lacking`.

    ask: stores that can be read. Memory: a batch, some MiB; with bodies some 64 MiB. Raises
    StoreError.
    """
    about = [] if wanted is None else arrow_filter.columns_of(wanted, view.schema)
    if view.table is None and view.name != OF_LOG[0]:
        fields = list(dict.fromkeys((*columns, *about)))
        for part in damage_rows.damage_parts(ask):
            for rows in damage_rows.damage_rows(ask, fields, part):
                yield _taken(rows, wanted).select(columns)
    elif view.table is None:
        yield from _messages(ask, columns, lacking, wanted, about)
    else:
        names = tuple(dict.fromkeys((*columns, *about)))
        for one in parts_of(view.table, ask):
            for rows in table_rows(view.table, ask, names, one, lacking.add):
                yield _taken(rows, wanted).select(columns)


def _messages(
    ask: Ask,
    columns: Sequence[str],
    lacking: Lacking,
    wanted: pc.Expression | None,
    about: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """A body comes with its check: one that fails counts, unless it is the query that looks for it."""
    checked = BODY in columns or not CHECKED.isdisjoint(about)
    fields = tuple(dict.fromkeys((*columns, *((BODY_CRC_OK,) if checked else ()))))
    ask = replace(ask, fields=fields)
    for part in log_rows.parts_of(ask):
        pushed = log_rows.Pushed()
        if wanted is not None:
            pushed = log_rows.Pushed([[arrow_filter.OfBatches(part.store, wanted, about)]])
        for rows in log_rows.rows_of(ask, part, lacking.add, pushed):
            if BODY in columns and BODY_CRC_OK not in (*columns, *about):
                lacking.bodies += rows.column(BODY_CRC_OK).false_count
            yield rows.select(columns)


def _taken(rows: pa.RecordBatch, wanted: pc.Expression | None) -> pa.RecordBatch:
    return rows if wanted is None else rows.filter(pa.array(arrow_filter.mask_of(wanted, rows)))
