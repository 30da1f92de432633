"""What the records of a split of the log add to queues and index, as rows of Arrow. No Spark.

A row of `UNITS` is one of three things, the other columns are null but for `store`:

    a unit      in `more` what only batch queues and consumequeue_ext need
    `damage`    a range of the log whose records are lost
    `tally`     what a split held, once for each

Rows are made where the log is read, so that neither bodies nor properties cross to the JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..formats.consume_queue import UNIT, UNIT_BYTES
from ..formats.derive import columns_of, dtype_of
from ..store.commit_log import Batch, CommitLog, ExtentKind
from ..store.dispatch import LMQ_PREFIX, Dispatched, IndexItems, Units, dispatch
from ..store.errors import InvalidInput
from ..store.mapped_file_queue import LARGEST_START
from ..store.mark import Mark
from ..store.recovery.batch_queue_state import batch_units
from ..store.recovery.profiles import profile_of
from ..store.split import Split, scan_split
from ..store.write.consume_queue import queue_directory
from ..store.write.consume_queue_ext import BitMaps
from .plan import Plan, StorePlan

DAMAGE = "damage"
MORE = "more"
TALLY = "tally"
IN_ORDER = -1
"""In the column `file`: the queue's units follow one another, one task writes them all."""
BEFORE = -1
"""In the column `number`: the last item of the file before."""

_ARROW_TYPES = {
    "int": pa.int32(),
    "bigint": pa.int64(),
    "string": pa.string(),
    "binary": pa.binary(),
}
_SQL_TYPES = {"i4": "int", "i8": "bigint"}
_KEYS = {"store": "int", "topic": "string", "queue_id": "int", "file": "bigint"}
_UNIT = {column.name: _SQL_TYPES[column.type] for column in columns_of(UNIT)}
_ITEM = {"key_hash": "int", "physical_offset": "bigint", "store_timestamp": "bigint"}
_STRUCTS = {
    MORE: {
        "store_time": "bigint",
        "msg_base_offset": "bigint",
        "batch_size": "int",
        "bit_map": "binary",
    },
    DAMAGE: {"position": "bigint", "size": "bigint", "reason": "string"},
    TALLY: {
        "start": "bigint",
        "items": "bigint",
        "last_record": "bigint",
        "last_timestamp": "bigint",
    },
}
_COLUMNS = _KEYS | {"queue_offset": "bigint"} | _UNIT
_ITEM_COLUMNS = {"store": "int", "file": "int", "number": "int"} | _ITEM


def _ddl(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {type}" for name, type in columns.items())


def _struct(name: str) -> pa.StructType:
    return pa.struct({field: _ARROW_TYPES[type] for field, type in _STRUCTS[name].items()})


UNITS_DDL = ", ".join(
    [_ddl(_COLUMNS)]
    + [
        f"{name} struct<{', '.join(f'{n}: {t}' for n, t in fields.items())}>"
        for name, fields in _STRUCTS.items()
    ]
)
UNITS = pa.schema(
    {name: _ARROW_TYPES[type] for name, type in _COLUMNS.items()}
    | {name: _struct(name) for name in _STRUCTS}
)
ITEMS_DDL = _ddl(_ITEM_COLUMNS)
ITEMS = pa.schema({name: _ARROW_TYPES[type] for name, type in _ITEM_COLUMNS.items()})

_UNIT_DTYPE = dtype_of(UNIT)


class _Scan:
    """The records of a split that count, with what they add."""

    def __init__(self, store: StorePlan) -> None:
        self.store = store
        self._rules = profile_of(store.broker_version).dispatch
        self._levels = store.layout.options.delay_levels.value

    def of(self, split: Split) -> Iterator[tuple[Batch, Dispatched] | tuple[int, int, str]]:
        """Batches, and what is damaged: position, size, reason. Raises Unreadable."""
        log = CommitLog.open(self.store.layout)
        with log.queue:
            for item in scan_split(log, split):
                if isinstance(item, Batch):
                    if item.mark <= Mark.AFTER_DAMAGE:
                        yield item, self._dispatch(item)
                elif item.kind in (ExtentKind.DAMAGE, ExtentKind.MISSING):
                    yield item.position, item.size, item.reason

    def _dispatch(self, batch: Batch) -> Dispatched:
        rules = self._rules
        return dispatch(
            batch,
            index_tags=rules.index_tags,
            index=bool(self.store.index_items),
            multi_dispatch=rules.multi_dispatch,
            slash_names=rules.slash_names,
            light_closed=rules.light_closed,
            delay_levels=self._levels,
        )


def unit_rows(plan: Plan, number: int, split: Split) -> Iterator[pa.RecordBatch]:
    """Rows of `UNITS`: what a split of the store with this number gives. Raises Unreadable."""
    store = plan.stores[number]
    maps = BitMaps(store.layout) if store.ext_file_bytes else None
    tally = {"start": split.start, "items": 0, "last_record": -1, "last_timestamp": 0}
    for found in _Scan(store).of(split):
        if isinstance(found[0], Batch):
            batch, made = found
            yield from _Rows(number, store, batch, made, maps).batches()
            tally["items"] += len(made.items)
            tally["last_record"] = int(batch.position[-1])
            tally["last_timestamp"] = int(batch.columns.ints("store_timestamp")[-1])
        else:
            yield _notes(number, DAMAGE, [dict(zip(_STRUCTS[DAMAGE], found, strict=True))])
    if split.stop > split.start:
        yield _notes(number, TALLY, [tally])


def item_rows(plan: Plan, number: int, split: Split, first: int) -> Iterator[pa.RecordBatch]:
    """Rows of `ITEMS`: the index items of a split, whose first one is number `first` of the store.

    file counts index files from 0, number the items in it. A full file's last item comes as `BEFORE`
    to the next file, too: with its end a broker begins that one. Raises Unreadable.
    """
    store = plan.stores[number]
    per_file = store.index_items - 1  # number 0 of an index file is never used (spec 03, 3.1)
    for found in _Scan(store).of(split):
        if not isinstance(found[0], Batch) or not len(found[1].items):
            continue
        items = found[1].items
        numbers = first + np.arange(len(items), dtype=np.int64)
        first += len(items)
        file, place = numbers // per_file, numbers % per_file
        yield _items(number, items, file, place)
        last = np.flatnonzero(place == per_file - 1)
        if len(last):
            yield _items(number, items.take(last), file[last] + 1, np.full(len(last), BEFORE))


def _items(
    number: int, items: IndexItems, file: npt.NDArray[np.int64], place: npt.NDArray[np.int64]
) -> pa.RecordBatch:
    columns = {
        "store": np.full(len(items), number),
        "file": file,
        "number": place,
        **{name: getattr(items, name) for name in _ITEM},
    }
    arrays = [pa.array(columns[field.name]).cast(field.type) for field in ITEMS]
    return pa.RecordBatch.from_arrays(arrays, schema=ITEMS)


def notes_of(rows: pa.RecordBatch, name: str) -> list[dict[str, Any]]:
    """What some rows say in `DAMAGE` or `TALLY`: store, and the fields of the struct."""
    noted = rows.filter(rows.column(name).is_valid())
    stores = noted.column("store").to_pylist()
    return [
        {"store": store, **note}
        for store, note in zip(stores, noted.column(name).to_pylist(), strict=True)
    ]


def split_key(store: int, start: int) -> str:
    """A split's name where it is told how many items there are before it."""
    return f"{store}:{start}"


class _Rows:
    """The units of one batch as rows; a unit that has no place in any queue file as damage."""

    def __init__(
        self, number: int, store: StorePlan, batch: Batch, made: Dispatched, maps: BitMaps | None
    ) -> None:
        self._number, self._store, self._batch, self._made = number, store, batch, made
        self._maps = maps.of(batch.columns, made.stored_topics) if maps else None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Damage, the units of plain queues, those of batch queues."""
        units = self._made.units
        placeless = self._of_topics(lambda topic: not _is_directory(topic))
        placeless |= (units.queue_id < 0) | (units.queue_offset < 0)
        placeless |= units.queue_offset > LARGEST_START // UNIT_BYTES
        of_batches = self._of_topics(lambda topic: topic in self._store.batch_topics)
        if placeless.any():
            yield self._lost(units.take(placeless))
        yield self._plain(units.take(~placeless & ~of_batches))
        if of_batches.any():
            yield from self._of_batch_queues(units.take(~placeless & of_batches))

    def _of_topics(self, holds: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
        """bool[n]: units whose topic is such a one."""
        units, topics = self._made.units, self._made.topics
        chosen = np.array([holds(topic) for topic in topics], np.bool_)
        found: npt.NDArray[np.bool_] = chosen[units.topic_id] if len(units) else np.zeros(0, bool)
        return found

    def _lost(self, units: Units) -> pa.RecordBatch:
        reason = "its topic, queue or queue offset has no place in a file"
        at = zip(units.physical_offset.tolist(), units.size.tolist(), strict=True)
        fields = _STRUCTS[DAMAGE]
        return _notes(
            self._number, DAMAGE, [dict(zip(fields, (*a, reason), strict=True)) for a in at]
        )

    def _plain(self, units: Units) -> pa.RecordBatch:
        if self._maps is None:
            return self._rows(units, file=units.queue_offset // self._store.units_per_file)
        bits = [self._maps[record] for record in units.record.tolist()]
        light = [topic.startswith(LMQ_PREFIX) for topic in self._made.topics]
        more = pa.StructArray.from_arrays(
            [
                pa.array(units.store_timestamp),
                pa.nulls(len(units), pa.int64()),
                pa.nulls(len(units), pa.int32()),
                pa.array(bits, pa.binary()),
            ],
            fields=list(_struct(MORE)),
            mask=pa.array(np.array(light, np.bool_)[units.topic_id]) if len(units) else None,
        )
        return self._rows(units, file=np.full(len(units), IN_ORDER), more=more)

    def _of_batch_queues(self, units: Units) -> Iterator[pa.RecordBatch]:
        """Units of batches, one after the other as their records are (spec 02, 2.7)."""
        plain = np.zeros(len(units), _UNIT_DTYPE)
        for name in _UNIT_DTYPE.names or ():
            plain[name] = getattr(units, name)
        made = batch_units(self._batch.columns, units.record, plain)
        placeless = (made["msg_base_offset"] < 0) | (made["batch_size"] < 0)
        if placeless.any():
            yield self._lost(units.take(placeless))
            units, made = units.take(~placeless), made[~placeless]
        more = pa.StructArray.from_arrays(
            [
                *(
                    pa.array(made[name].astype(np.int64)).cast(_ARROW_TYPES[type])
                    for name, type in _STRUCTS[MORE].items()
                    if name != "bit_map"
                ),
                pa.nulls(len(units), pa.binary()),
            ],
            fields=list(_struct(MORE)),
        )
        file = np.full(len(units), IN_ORDER)
        yield self._rows(units, file=file, order=units.physical_offset, more=more)

    def _rows(
        self,
        units: Units,
        *,
        file: npt.NDArray[np.int64],
        order: npt.NDArray[np.int64] | None = None,
        more: pa.StructArray | None = None,
    ) -> pa.RecordBatch:
        """order: instead of the queue offset, what a queue's units are sorted by."""
        count = len(units)
        topic_id = pa.array(units.topic_id, pa.int32())
        columns: dict[str, npt.NDArray[np.int64] | pa.Array] = {
            "store": np.full(count, self._number),
            "topic": pa.DictionaryArray.from_arrays(topic_id, self._made.topics).cast(pa.string()),
            "queue_id": units.queue_id,
            "file": file,
            "queue_offset": units.queue_offset if order is None else order,
            MORE: pa.nulls(count, _struct(MORE)) if more is None else more,
            DAMAGE: pa.nulls(count, _struct(DAMAGE)),
            TALLY: pa.nulls(count, _struct(TALLY)),
            **{name: getattr(units, name) for name in _UNIT},
        }
        arrays = [pa.array(columns[field.name]).cast(field.type) for field in UNITS]
        return pa.RecordBatch.from_arrays(arrays, schema=UNITS)


def _is_directory(topic: str) -> bool:
    try:
        queue_directory(Path(), topic, 0)
    except InvalidInput:
        return False
    return True


def _notes(number: int, name: str, notes: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    values = [{"store": number, name: note} for note in notes]
    return pa.RecordBatch.from_pylist(values, schema=UNITS)
