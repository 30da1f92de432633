"""Where two logs, or two lists of logs, differ: message by message, in bounded memory.

Messages meet by topic, queue and queue offset, and are compared by the digest of what the producer
gave. Both sides are read at one pace; what has met its like is forgotten, so that copies of one log
need hardly any memory. Of logs that have too little in common both are read again, for a part of the
messages at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from ...formats.derive.ragged import Ints
from ...formats.digest_columns import mixed
from .ask import BODY_CRC_OK, NO_BODY, Ask
from .log_columns import DIGEST
from .log_rows import Damage, parts_of, rows_of

HOW = ("only_a", "only_b", "changed")
"""How a message differs: one side lacks it, or it is another one."""
FIELDS = ("position", "total_size", "topic", "queue_id", "queue_offset", DIGEST, BODY_CRC_OK)
DAMAGE_MAX = 1000
"""Of more places that could not be read only the numbers are kept."""
_WAITING_MAX = 4_000_000
"""Messages of both sides that wait for their like: some 300 MiB."""
_STEP = 1 << 18
"""So many new ones are compared at once, or as many as wait."""
_BLOCK_BITS = 10
"""So many neighbours of a queue stay together where the work is cut."""
_SPLIT_MAX = 1 << 20

Queue = tuple[str, int]
Rows: TypeAlias = tuple[Ints, Ints, Ints]
"""Messages: the number of their queue, their offset in it, their digest."""
Note: TypeAlias = Callable[[int], None]


@dataclass
class Unsound:
    """What of one side is not there to be compared, or not sound.

    first: of DAMAGE_MAX damaged ranges; ranges, bytes: all of them, by store. bodies: how many
    failed their checksum, and where the first one lies, by store.
    """

    first: list[Damage] = field(default_factory=list)
    ranges: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    bodies: dict[str, tuple[int, int]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.ranges or self.bodies)

    def add(self, damage: Damage) -> None:
        """A range that cannot be read."""
        self.ranges[damage.store] = self.ranges.get(damage.store, 0) + 1
        self.bytes[damage.store] = self.bytes.get(damage.store, 0) + (damage.size or 0)
        if len(self.first) < DAMAGE_MAX:
            self.first.append(damage)

    def join(self, other: Unsound) -> None:
        """What is unsound in other stores."""
        self.first += other.first[: DAMAGE_MAX - len(self.first)]
        self.ranges |= other.ranges
        self.bytes |= other.bytes
        self.bodies |= other.bodies

    @property
    def cut(self) -> dict[str, tuple[int, int]]:
        """Ranges and bytes in all, of stores of which `first` has not everything."""
        told = Counter(damage.store for damage in self.first)
        return {
            store: (count, self.bytes[store])
            for store, count in self.ranges.items()
            if told[store] < count
        }

    def add_bodies(self, store: str, count: int, position: int) -> None:
        """Bodies that failed their checksum, and where the first of them lies."""
        known, first = self.bodies.get(store, (0, position))
        self.bodies[store] = known + count, min(first, position)


@dataclass
class Compared:
    """Differences as `rows_told` has them, and what is unsound."""

    rows: list[dict[str, Any]]
    unsound: Unsound


def compare(a: Ask, b: Ask, name: str, note: Note = lambda size: None) -> Compared:
    """Compare the messages of two sides. name: of the pair. note: told how many bytes were read.

    Raises StoreError where a log cannot be read.
    """
    shards, done = [(0, 1)], list[tuple[Rows, Ints]]()
    queues: dict[Queue, int] = {}
    unsound, firsts = Unsound(), _Firsts()
    while shards:
        shard, of = shards.pop()
        unsound, firsts = Unsound(), _Firsts()  # those of the last reading are those of all
        sides = [_side(ask, queues, unsound) for ask in (a, b)]
        left = _left(sides, shard, of, firsts, note)
        if left is None:
            shards += [(shard + of, 2 * of), (shard, 2 * of)]
            note = lambda size: None
        else:
            done.append(left)
    parts = [np.concatenate([rows[n] for rows, _ in done]) for n in range(3)]
    weight = np.concatenate([weight for _, weight in done])
    return Compared(_rows_told(name, list(queues), parts, weight, firsts), unsound)


def _side(ask: Ask, queues: dict[Queue, int], unsound: Unsound) -> Iterator[tuple[Rows, int]]:
    """The messages of one side, batch by batch, and how many bytes of the log that is."""
    reading = replace(ask, fields=FIELDS, body=NO_BODY)
    for part in parts_of(reading):
        for rows in rows_of(reading, part, unsound.add):
            sound = rows.column(BODY_CRC_OK).fill_null(True)
            if wrong := len(rows) - sound.true_count:
                first = rows.column("position")[pc.index(sound, False).as_py()].as_py()
                unsound.add_bodies(part.store, wrong, first)
            offset, digest = (rows.column(n).to_numpy() for n in ("queue_offset", DIGEST))
            yield (
                (_numbers(rows, queues), offset, digest),
                pc.sum(rows.column("total_size")).as_py(),
            )


def _numbers(rows: Any, queues: dict[Queue, int]) -> Ints:
    """The number of the queue of each message; new ones get the next numbers."""
    topics = rows.column("topic").dictionary_encode()
    ids = topics.indices.to_numpy().astype(np.int64)
    queue_id = rows.column("queue_id").to_numpy().astype(np.int64)
    found, inverse = np.unique(ids << 32 | (queue_id & 0xFFFFFFFF), return_inverse=True)
    names = topics.dictionary.to_pylist()
    numbers = []
    for one in found.tolist():
        queue_of = (one & 0xFFFFFFFF) - ((one & 0xFFFFFFFF) >> 31 << 32)
        numbers.append(queues.setdefault((names[one >> 32], queue_of), len(queues)))
    return np.array(numbers, np.int64)[inverse]


class _Firsts:
    """The least offset of each queue on either side."""

    def __init__(self) -> None:
        self._least: tuple[dict[int, int], dict[int, int]] = ({}, {})

    def add(self, side: int, rows: Rows) -> None:
        queue, offset, _ = rows
        order = np.lexsort((offset, queue))
        first = np.flatnonzero(np.diff(queue[order], prepend=-1))
        least = self._least[side]
        pairs = zip(queue[order][first].tolist(), offset[order][first].tolist(), strict=True)
        for number, value in pairs:
            least[number] = min(value, least.get(number, value))

    def common(self, queue: Ints) -> Ints:
        """Of each queue the first offset that may be compared: what is before it has expired."""
        numbers, inverse = np.unique(queue, return_inverse=True)
        known = [max(side.get(n, 0) for side in self._least) for n in numbers.tolist()]
        return np.array(known, np.int64)[inverse]


def _left(
    sides: Sequence[Iterator[tuple[Rows, int]]], shard: int, of: int, firsts: _Firsts, note: Note
) -> tuple[Rows, Ints] | None:
    """What is left of both sides when all that is alike is gone; None where that is too much.

    Only messages of one shard count; with a weight above 0 those of the first side.
    """
    waiting = _Waiting()
    ended, read = [False, False], [0, 0]
    while not all(ended):
        side = min((n for n in (0, 1) if not ended[n]), key=lambda n: read[n])
        item = next(sides[side], None)
        if item is None:
            ended[side] = True
            continue
        rows, size = item
        read[side] += size
        note(size)
        firsts.add(side, rows)
        if of > 1:
            mine = _shard_of(rows, of) == shard
            rows = rows[0][mine], rows[1][mine], rows[2][mine]
        waiting.add(rows, -1 if side else 1)
        if waiting.count > _WAITING_MAX and of < _SPLIT_MAX:
            return None
    return waiting.all()


def _shard_of(rows: Rows, of: int) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = (
        mixed((rows[0], rows[1] >> _BLOCK_BITS)) % np.uint64(of)
    ).astype(np.int64)
    return found


class _Waiting:
    """Messages that have not met their like. count: how many wait, at least."""

    def __init__(self) -> None:
        self.count = 0
        self._kept: list[tuple[Ints, ...]] = []
        self._new = 0

    def add(self, rows: Rows, weight: int) -> None:
        """Messages of one side."""
        self._kept.append((*rows, np.full(len(rows[0]), weight)))
        self._new += len(rows[0])
        if self._new > max(_STEP, self.count):
            self._meet()

    def all(self) -> tuple[Rows, Ints]:
        """What waits in the end."""
        self._meet()
        queue, offset, digest, weight = self._kept[0]
        return (queue, offset, digest), weight

    def _meet(self) -> None:
        """Take out what is alike: of messages with one place and digest the weights add up."""
        nothing = tuple(np.zeros(0, np.int64) for _ in range(4))
        columns = [np.concatenate(c) for c in zip(*(self._kept or [nothing]), strict=True)]
        order = np.lexsort(columns[:3])
        columns = [column[order] for column in columns]
        new = np.zeros(len(order), np.bool_)
        new[:1] = True
        for column in columns[:3]:
            new[1:] |= column[1:] != column[:-1]
        first = np.flatnonzero(new)
        weight = np.add.reduceat(columns[3], first) if len(first) else columns[3]
        some = np.flatnonzero(weight)
        self._kept = [(*(column[first[some]] for column in columns[:3]), weight[some])]
        self.count, self._new = len(some), 0


def _rows_told(
    name: str, queues: Sequence[Queue], parts: Sequence[Ints], weight: Ints, firsts: _Firsts
) -> list[dict[str, Any]]:
    """A row for each queue that differs: where first, how, and how often."""
    queue, offset = parts[:2]
    kept = np.flatnonzero(offset >= firsts.common(queue))
    kept = kept[np.lexsort((offset[kept], queue[kept]))]
    queue, offset, weight = queue[kept], offset[kept], weight[kept]
    place = np.flatnonzero(np.diff(queue, prepend=-1) | np.diff(offset, prepend=-1))
    if not len(place):
        return []
    in_a = np.logical_or.reduceat(weight > 0, place)
    in_b = np.logical_or.reduceat(weight < 0, place)
    how = np.where(in_a & in_b, 2, np.where(in_a, 0, 1))
    queue, offset = queue[place], offset[place]
    found = []
    for some in np.split(np.arange(len(queue)), np.flatnonzero(np.diff(queue)) + 1):
        topic, queue_id = queues[int(queue[some[0]])]
        counts = np.bincount(how[some], minlength=len(HOW)).tolist()
        found.append(
            {
                "store": name,
                "topic": topic,
                "queue_id": queue_id,
                "queue_offset": int(offset[some[0]]),
                "how": HOW[how[some[0]]],
                **dict(zip(HOW, counts, strict=True)),
            }
        )
    return sorted(found, key=lambda row: (row["topic"], row["queue_id"]))
