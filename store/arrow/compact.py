"""`pipeline compact`: a store with the newest message of each key, as the compaction of a broker keeps it.

The rule is spec 06, 6.1, step 3, applied to all messages of a queue: of the messages with the same text of KEYS the
last one in the log is kept, unless its body is empty, which deletes the key. Messages without KEYS are dropped. A
broker does not compact its newest file, so it keeps more.

Messages inside a batch record count one by one, and a kept one becomes a record of its own: keeping the whole batch
would bring deleted messages back.

The log is read twice: once to choose, once for the messages. Memory grows with the number of keys, not of messages. No
Spark: the new log has a single writer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...formats import message_properties as names
from ...formats.client_batch import MESSAGES_MAX
from ...formats.derive.ragged import Flags, Ints
from ...formats.property_columns import find
from ..log.batch import Batch, unwrapped
from ..log.message import is_batch_record
from ..output.stage import publish_made
from ..put.message_json import BATCH_BITS
from .append_rows import Finish, NewStore, make_store
from .log_columns import few_texts, numbers, rows_of_batch, text_of
from .log_rows import Damage, messages_of, parts_of
from .stores import ReadOptions

_KEY = ("topic", "queue_id", "key")
_LATEST = ("position", "number", "body_length")
_ONE_PART_BYTES = 1 << 62
"""Split size with which a log is read in one part."""
_HEADS_MAX = 1 << 20
"""Messages collected before the newest of each key are chosen again."""
_COLUMNS = (
    *("store", "position", "topic", "queue_id", "flag", "sys_flag", "born_timestamp", "born_host", "store_timestamp"),
    *("reconsume_times", "prepared_transaction_offset", "properties", "properties_raw", "unique_key"),
    *("body_crc", "body_crc_ok", "body", "raw"),
)

_TOLD = ("skipped", "marked", "refused", "named_refused", "times_replaced", "left")
"""What a manifest says of `make_store`, besides how many messages are kept."""

Note = Callable[[int], None]


def compact_stores(
    folders: Mapping[str, str],
    topics: Sequence[str],
    target: Path,
    how: NewStore,
    note: Note,
    finish: Finish = lambda _: "",
) -> dict[str, Any]:
    """Make a compacted store of each store below `target`, a new or empty directory. Return the manifest.

    folders: by store, its folder in `target`. topics: names or patterns. how: for the new stores; its config is also
    used for the old ones. note: called with the number of bytes read; each log is read twice. finish: of
    `make_store`. Raises what `publish_made`, `make_store` and the check of `how` raise, and errors of reading a log.
    """
    for folder in folders.values():
        how.check(target / folder)

    def make(tree: Path) -> dict[str, Any]:
        found = [
            {"store": root, "folder": folder, **fill(root, topics, tree / folder, how, note, finish)}
            for root, folder in folders.items()
        ]
        return {"stores": found}

    same = {"folders": dict(folders), "topics": list(topics), "how": asdict(how)}
    like = next((Path(root) for root in folders if Path(root).is_dir()), None)
    return publish_made(target, same, make, like)


def fill(
    root: str,
    topics: Sequence[str],
    folder: Path,
    how: NewStore,
    note: Note = lambda _: None,
    finish: Finish = lambda _: "",
) -> dict[str, Any]:
    """Make a compacted store of one store in a folder. finish: of `make_store`.

    Return how many messages there were, how many are kept, and what of the log could not be read.
    """
    ask = ReadOptions((root,), topics=tuple(topics), split_bytes=_ONE_PART_BYTES, config=how.config)
    first = _CompactionPass(ask, note)
    places = newest(first)
    again = _CompactionPass(ask, note, crc=True)
    made = make_store(folder, how, _messages_at(root, again, places), finish).for_manifest()
    return {
        "messages": first.messages,
        "kept": made["messages"],
        **{name: made[name] for name in _TOLD},
        "damage": [{"position": lost.position, "size": lost.size, "reason": lost.reason} for lost in first.damage],
    }


@dataclass
class _CompactionPass:
    """One pass over the messages of some topics in a log; those inside batch records one by one.

    damage: what could not be read.
    """

    ask: ReadOptions
    note: Note
    crc: bool = False
    messages: int = 0
    damage: list[Damage] = field(default_factory=list)

    def __iter__(self) -> Iterator[Batch]:
        (part,) = parts_of(self.ask)
        reported, seen = 0, None
        for batch in messages_of(self.ask, part, self.damage.append, crc=self.crc):
            first, last = int(batch.position[0]), int(batch.position[-1])
            step = last - (first if seen is None else seen)
            reported, seen = reported + step, last
            self.note(step)
            apart = self._split_batches(batch)
            self.messages += len(apart)
            if len(apart):
                yield apart
        self.note(part.bytes - reported)

    def _split_batches(self, batch: Batch) -> Batch:
        """The messages of a batch of records, without batch records that cannot be split."""
        apart = unwrapped(batch)
        whole = is_batch_record(apart.columns.ints("sys_flag")) & (_numbers_in(apart) == 0)
        for row in np.flatnonzero(whole).tolist():
            size = int(apart.columns.ints("total_size")[row])
            self.damage.append(Damage(self.ask.stores[0], int(apart.position[row]), size, _NO_BATCH))
        return apart.take(~whole) if whole.any() else apart


_NO_BATCH = "its batch cannot be split into messages"


def _numbers_in(batch: Batch) -> Ints:
    """int64[n]: the number of each row's message in its batch record, from 1 on; 0 for a whole record."""
    return np.zeros(len(batch), np.int64) if batch.inner is None else batch.inner.number + 1


class _Places(NamedTuple):
    """Places of messages: ascending positions, and numbers as of `_numbers_in`."""

    position: Ints
    number: Ints

    def mask(self, batch: Batch) -> Flags:
        """bool[n]: which rows of a batch are at these places."""
        first = batch.position[0]
        begin = np.searchsorted(self.position, first)
        end = np.searchsorted(self.position, batch.position[-1], "right")
        those = _place_ids(self.position[begin:end] - first, self.number[begin:end])
        return np.isin(_place_ids(batch.position - first, _numbers_in(batch)), those)


def _place_ids(position: Ints, number: Ints) -> Ints:
    """Each place as one number, int64[n]."""
    return position * (MESSAGES_MAX + 1) + number


def newest(batches: Iterable[Batch]) -> _Places:
    """The places of the messages that are kept."""
    known: pa.Table | None = None
    heads: list[pa.Table] = []
    count = 0
    for batch in batches:
        heads.append(_keyed_messages(batch))
        count += len(batch)
        if count >= _HEADS_MAX:
            known, heads, count = _latest([known, *heads] if known else heads), [], 0
    if heads:
        known = _latest([known, *heads] if known else heads)
    if known is None:
        return _Places(np.zeros(0, np.int64), np.zeros(0, np.int64))
    stays = known.filter(pc.greater(known.column("body_length"), 0)).sort_by("position")
    return _Places(*(stays.column(name).to_numpy() for name in _Places._fields))


def _keyed_messages(batch: Batch) -> pa.Table:
    """Queue, key and place of the messages with a key that is more than spaces."""
    columns = batch.columns
    table = pa.table(
        {
            "topic": few_texts(columns.ragged("topic")),
            "queue_id": numbers(columns.ints("queue_id"), pa.int32()),
            "key": text_of(find(columns.ragged("properties"), names.KEYS)),
            "position": numbers(batch.position, pa.int64()),
            "number": numbers(_numbers_in(batch), pa.int64()),
            "body_length": numbers(columns.ragged("body").length, pa.int64()),
        }
    )
    trimmed = pc.utf8_trim(table.column("key"), names.KEY_SEPARATOR)
    return table.filter(pc.greater(pc.binary_length(trimmed), 0).fill_null(False))


def _latest(tables: Sequence[pa.Table]) -> pa.Table:
    """The last message of each key; tables are in log order.

    Queue offsets do not say which is last: a topic that was deleted and created again begins at 0 again.
    """
    groups = pa.concat_tables(tables).group_by(list(_KEY), use_threads=False)
    found = groups.aggregate([(name, "last") for name in _LATEST])
    return found.rename_columns([name.removesuffix("_last") for name in found.column_names])


def _messages_at(root: str, read: _CompactionPass, places: _Places) -> Iterator[pa.RecordBatch]:
    """Yield the messages at some places in log order, with bodies as stored."""
    for batch in read if len(places.position) else ():
        stays = places.mask(batch)
        if stays.any():
            kept = batch.take(stays)
            flags = kept.columns.ints("sys_flag")  # messages taken out of batch records have none of the batch
            kept.columns.set("sys_flag", np.where(_numbers_in(kept) > 0, flags & ~BATCH_BITS, flags))
            yield from rows_of_batch(root, kept, _COLUMNS, raw=True)
