"""What of many stores cannot be read as rows: ranges of logs, whole stores, and what of other files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

import pyarrow as pa

from ..errors import StoreError
from . import table
from .arrays import path_text
from .ask import LOG, Ask
from .index_table import IndexTable
from .lag_table import LagTable
from .log_rows import Damage, LogPart, damage_of, parts_of
from .offset_table import OffsetTable
from .queue_table import QueueTable
from .table import SQL_TYPES, STORE, Table, TablePart
from .timer_table import TimerTable

COLUMNS: Mapping[str, str] = {
    STORE: "string",
    "position": "bigint",
    "size": "bigint",
    "reason": "string",
}
"""Names and SQL types. position, size: null for all of a store."""


_TABLES: Mapping[str, Table] = {
    one.of: one for one in (QueueTable(), IndexTable(), TimerTable(), OffsetTable(), LagTable())
}


class DamagePart(NamedTuple):
    """What is looked at once; `part` is None for a store that cannot be read, for a reason.

    of: one of `DAMAGE_OF`.
    """

    store: str
    part: LogPart | TablePart | None
    reason: str = ""
    of: str = LOG


def damage_parts(ask: Ask) -> list[DamagePart]:
    """What the tasks of a read are. Raises StoreError for a store, if the query is to fail."""
    found: list[DamagePart] = []
    for store in ask.stores:
        for of in ask.of_what:
            try:
                one = replace(ask, stores=(store,))
                parts = parts_of(one) if of == LOG else table.parts_of(_TABLES[of], one)
                found += [DamagePart(store, part, of=of) for part in parts]
            except StoreError as error:
                if ask.fails:
                    raise
                unread = DamagePart(store, None, str(error))
                found += [unread] if unread not in found else []
    return found


def damage_rows(ask: Ask, names: Sequence[str], mine: DamagePart) -> Iterator[pa.RecordBatch]:
    """The rows of one part, of the columns `names`. Raises StoreError if the query is to fail."""
    schema = pa.schema([(name, SQL_TYPES[COLUMNS[name]]) for name in names])
    for damage in _damage(ask, mine):
        row = asdict(damage) | {STORE: path_text(damage.store), "reason": path_text(damage.reason)}
        yield pa.RecordBatch.from_pylist([{name: row[name] for name in names}], schema=schema)


def _damage(ask: Ask, mine: DamagePart) -> Iterator[Damage]:
    if mine.part is None:
        yield Damage(mine.store, None, None, mine.reason)
        return
    try:
        if isinstance(mine.part, LogPart):
            yield from damage_of(ask, mine.part)
        else:
            unread: list[Damage] = []
            for _ in table.table_rows(_TABLES[mine.of], ask, (STORE,), mine.part, unread.append):
                yield from unread
                unread.clear()
            yield from unread
    except StoreError as error:
        if ask.fails_at(error):
            raise
        yield Damage(mine.store, None, None, str(error))
