"""The messages of a store as a stream of Arrow: what `Store.to_arrow` gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from ..broker.filter import Where
from ..errors import InvalidInput
from ..search.selected import OnDamage, Time, selected
from .ask import PLAIN_BODY, with_notes
from .log_columns import CHECKED, SCHEMA, STORE, USUAL, rows_of_batch

if TYPE_CHECKING:
    from ..search.store import Store

Reader: TypeAlias = pa.RecordBatchReader
_KNOWN = tuple(SCHEMA.names)


def fields_of(fields: str | Sequence[str] | None) -> list[str]:
    """Columns by name; None: all but the store and what is made of bodies. Raises InvalidInput."""
    if fields is None:
        return [name for name in USUAL if name != STORE]
    names = [fields] if isinstance(fields, str) else list(dict.fromkeys(fields))
    if unknown := [name for name in names if name not in _KNOWN]:
        raise InvalidInput(f"no column {unknown[0]!r}", hint=f"there are {', '.join(_KNOWN)}")
    if not names:  # a stream without columns has no rows either, whatever is in the store
        raise InvalidInput("no column is named", hint=f"there are {', '.join(_KNOWN)}")
    return list(with_notes(tuple(names), PLAIN_BODY))


def reader(
    store: Store,
    fields: str | Sequence[str] | None = None,
    *,
    topics: str | Sequence[str] = (),
    since: Time = None,
    until: Time = None,
    where: str | Where | None = None,
    on_damage: OnDamage = "warn",
) -> Reader:
    """The records that `selected` gives as batches of Arrow, some MiB of them in memory at a time.

    A body is decompressed; what stands beside it says how it is stored, whether it is sound, and
    why one is shown as it is stored.
    """
    names = fields_of(fields)
    wanted = selected(
        store,
        topics=topics,
        since=since,
        until=until,
        where=where,
        on_damage=on_damage,
        crc=not CHECKED.isdisjoint(names),
    )

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in wanted:
            yield from rows_of_batch(str(store.layout.root), batch, names)

    schema = pa.schema([SCHEMA.field(name) for name in names])
    return Reader.from_batches(schema, batches())
