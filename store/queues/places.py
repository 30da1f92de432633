"""Places of records in the commit log, many at a time: from queues, merged, and read in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...formats.consume_queue import EXT_ADDRESS_MAX
from ...formats.derive.ragged import Flags, Ints
from ..log.commit_log import Batch, CommitLog
from .read import ConsumeQueue
from .units import is_used

BATCH_BYTES = 16 << 20
BATCH_RECORDS = 1 << 12


@dataclass(frozen=True)
class Places:
    """n records: where they begin and how many bytes they have, as far as known (0: not)."""

    position: Ints
    size: Ints

    def __len__(self) -> int:
        return len(self.position)

    @classmethod
    def of(cls, positions: Iterable[int]) -> Places:
        """Places of unknown size."""
        found = np.fromiter(positions, np.int64)
        return cls(found, np.zeros_like(found))

    @classmethod
    def concat(cls, parts: list[Places]) -> Places:
        """All parts, one behind the other."""
        if not parts:
            return cls(np.empty(0, np.int64), np.empty(0, np.int64))
        return cls(
            np.concatenate([part.position for part in parts]),
            np.concatenate([part.size for part in parts]),
        )

    def take(self, key: slice | Flags | Ints) -> Places:
        """Some of them."""
        return Places(self.position[key], self.size[key])

    def sorted(self, *, reverse: bool = False) -> Places:
        """By position, each position once."""
        _, first = np.unique(self.position, return_index=True)
        return self.take(first[::-1] if reverse else first)


def of_queue(
    queue: ConsumeQueue,
    start: int,
    stop: int,
    *,
    log_end: int,
    tags_codes: Sequence[int] = (),
    reverse: bool = False,
) -> Iterator[Places]:
    """Where the units start ≤ k < stop of a queue point, in windows in queue order.

    Pre-fill, invalid units and those at or behind log_end are left out. tags_codes leave out units
    with another one; an address in consumequeue_ext may stand for any.
    """
    for _, units in queue.units(start, stop, reverse=reverse):
        position = units["physical_offset"].astype(np.int64)
        size = units["size"].astype(np.int64)
        wanted = is_used(units) & (position < log_end)
        if tags_codes:
            code = units["tags_code"]
            wanted &= np.isin(code, tags_codes) | (code <= EXT_ADDRESS_MAX)
        places = Places(position, size).take(wanted)
        queue.close()  # a topic may have more queues than a process may have open files
        if len(places):
            yield places.take(slice(None, None, -1)) if reverse else places


def merged(streams: list[Iterator[Places]], *, reverse: bool = False) -> Iterator[Places]:
    """Several streams as one, by position; each must be in that order itself.

    Memory: one window of each stream.
    """
    heads: list[tuple[Places, Iterator[Places]]] = []
    for stream in streams:
        _advance(heads, stream)
    while heads:
        ends = [int(head.position[-1]) for head, _ in heads]
        bound = max(ends) if reverse else min(ends)
        ready: list[Places] = []
        rest: list[tuple[Places, Iterator[Places]]] = []
        for head, stream in heads:
            inside = head.position >= bound if reverse else head.position <= bound
            ready.append(head.take(inside))
            if inside.all():
                _advance(rest, stream)
            else:
                rest.append((head.take(~inside), stream))
        heads = rest
        yield Places.concat(ready).sorted(reverse=reverse)


def _advance(heads: list[tuple[Places, Iterator[Places]]], stream: Iterator[Places]) -> None:
    """Add the next window of a stream, if there is one."""
    head = next(stream, None)
    if head is not None:
        heads.append((head, stream))


def batches(log: CommitLog, places: Places) -> Iterator[tuple[Places, Batch]]:
    """(places, records there) in this order, in batches of bounded size.

    A batch leaves out places where no record begins.
    """
    room = np.minimum(np.where(places.size > 0, places.size, BATCH_BYTES // 16), BATCH_BYTES)
    chunk = np.cumsum(room) // BATCH_BYTES
    begin = 0
    while begin < len(places):
        end = int(np.searchsorted(chunk, chunk[begin], side="right"))
        end = min(end, begin + BATCH_RECORDS)
        part = places.take(slice(begin, end))
        yield part, log.records(part.position)
        begin = end
