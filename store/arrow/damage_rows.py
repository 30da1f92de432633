"""What of the logs of many stores cannot be read as rows: ranges, and whole stores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

import pyarrow as pa

from ..errors import StoreError
from .arrays import path_text
from .ask import Ask
from .log_rows import Damage, LogPart, damage_of, parts_of
from .table import SQL_TYPES, STORE

COLUMNS: Mapping[str, str] = {
    STORE: "string",
    "position": "bigint",
    "size": "bigint",
    "reason": "string",
}
"""Names and SQL types. position, size: null for all of a store."""


class DamagePart(NamedTuple):
    """What is looked at once; `part` is None for a store that cannot be read, for a reason."""

    store: str
    part: LogPart | None
    reason: str = ""


def damage_parts(ask: Ask) -> list[DamagePart]:
    """What the tasks of a read are. Raises StoreError for a store, if the query is to fail."""
    found: list[DamagePart] = []
    for store in ask.stores:
        try:
            parts = parts_of(replace(ask, stores=(store,)))
            found += [DamagePart(store, part) for part in parts]
        except StoreError as error:
            if ask.fails:
                raise
            found.append(DamagePart(store, None, str(error)))
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
        yield from damage_of(ask, mine.part)
    except StoreError as error:
        if ask.fails_at(error):
            raise
        yield Damage(mine.store, None, None, str(error))
