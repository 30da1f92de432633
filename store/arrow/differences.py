"""Where two logs, or two lists of logs, differ: message by message, in bounded memory.

Messages are matched by topic, queue and queue offset, and compared by the digest of what the producer sent. Both sides
are read at the same pace and equal messages are forgotten at once, so copies of one log need hardly any memory. If two
logs have too little in common, both are read again, for a part of the messages at a time.

For parallel work `look` compares parts of two logs, and `met` matches what the parts left unmatched. Parts of copies
leave hardly anything; if a part leaves too much, the logs are compared as a whole.
"""

from __future__ import annotations

import base64
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow.compute as pc

from ...formats.derive.ragged import Ints
from ...formats.digest_columns import mixed
from ..log.commit_log import Split
from ..search.store import StoreReader
from .log_columns import DIGEST
from .log_rows import Damage, LogSplit, parts_of, rows_of
from .stores import BODY_CRC_OK, NO_BODY, ReadOptions

HOW = ("only_a", "only_b", "changed")
"""How a message differs: only one side has it, or both have different ones."""
FIELDS = ("position", "total_size", "topic", "queue_id", "queue_offset", DIGEST, BODY_CRC_OK)
DAMAGE_MAX = 1000
"""Damaged ranges listed one by one; of further ones only the count and the bytes are kept."""
WAITING_MAX = 1_500_000
"""Messages of both sides in memory at once; comparing them needs some 250 MiB in all."""
_ENOUGH = 0.75
"""The share of WAITING_MAX that may be unmatched; above it there is too little room for new messages."""
_STEP = 1 << 18
"""New messages are matched when there are more than this, and more than already wait unmatched."""
_BLOCK_BITS = 10
"""2^n neighbouring offsets of a queue stay in the same shard."""
_SPLIT_MAX = 1 << 20

Queue = tuple[str, int]
Rows: TypeAlias = tuple[Ints, Ints, Ints]
"""Messages: the number of their queue, their queue offset, their digest."""
Differing: TypeAlias = dict[Queue, dict[str, Any]]
Note: TypeAlias = Callable[[int], None]


@dataclass
class Unsound:
    """What of one side cannot be compared, or failed its checksum.

    first: the first DAMAGE_MAX damaged ranges. ranges, bytes: of all damaged ranges, by store. bodies: how many failed
    their checksum, and the position of the first, by store.
    """

    first: list[Damage] = field(default_factory=list)
    ranges: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    bodies: dict[str, tuple[int, int]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.ranges or self.bodies)

    def add(self, damage: Damage) -> None:
        """Add a range that cannot be read."""
        self.join(Unsound([damage], {damage.store: 1}, {damage.store: damage.size or 0}))

    def join(self, other: Unsound) -> None:
        """Add what is unsound in other stores, or in other parts of the same stores."""
        self.first += other.first[: DAMAGE_MAX - len(self.first)]
        for store, count in other.ranges.items():
            self.ranges[store] = self.ranges.get(store, 0) + count
            self.bytes[store] = self.bytes.get(store, 0) + other.bytes[store]
        for store, (count, position) in other.bodies.items():
            self.add_bodies(store, count, position)

    @property
    def cut(self) -> dict[str, tuple[int, int]]:
        """Number and bytes of all ranges, for stores some of whose ranges are not in `first`."""
        listed = Counter(damage.store for damage in self.first)
        return {store: (count, self.bytes[store]) for store, count in self.ranges.items() if listed[store] < count}

    def add_bodies(self, store: str, count: int, position: int) -> None:
        """Add the number of bodies that failed their checksum, and the position of the first."""
        known, first = self.bodies.get(store, (0, position))
        self.bodies[store] = known + count, min(first, position)


@dataclass
class QueueDifferences:
    """A row for each queue that differs, and what is unsound in either log."""

    rows: list[dict[str, Any]]
    unsound: Unsound


def compare(
    a: ReadOptions,
    b: ReadOptions,
    name: str,
    note: Note = lambda size: None,
    within: Sequence[tuple[int, int]] | None = None,
) -> QueueDifferences:
    """Compare the messages of two sides. name: of the pair. note: called with the number of bytes read.

    within: positions [begin, end) outside of which both logs are equal; None: they may differ anywhere. Raises
    StoreError for a log that cannot be read.
    """
    shards, found = [(0, 1)], Differing()
    queues: dict[Queue, int] = {}
    unsound, firsts = Unsound(), Firsts()
    while shards:
        shard, of = shards.pop()
        unsound, firsts = Unsound(), Firsts()  # the last reading counts everything again
        sides = [side_of(ask, _parts(ask, within), queues, unsound) for ask in (a, b)]
        unmatched = unmatched_of(sides, shard, of, firsts, note)
        if unmatched is None:
            shards += [(shard + of, 2 * of), (shard, 2 * of)]
            note = lambda size: None
        else:
            # nothing has expired within a part: what is before it is equal, or was left out
            _add_differences(found, differing(list(queues), *unmatched, firsts if within is None else Firsts()))
    rows = [{"store": name, **found[queue]} for queue in sorted(found)]
    return QueueDifferences(rows, unsound)


def _parts(ask: ReadOptions, within: Sequence[tuple[int, int]] | None) -> list[LogSplit]:
    """The parts of the only store of `ask` that are read."""
    if within is None:
        return parts_of(ask)
    (root,) = ask.stores
    with StoreReader(root, ask.broker_config) as store:
        end = store.log_end.position
    pieces = (Split(begin, min(stop, end)) for begin, stop in within)
    return [LogSplit(root, each, bytes=each.stop - each.start) for each in pieces if each.start < end]


def side_of(
    ask: ReadOptions, parts: Iterable[LogSplit], queues: dict[Queue, int], unsound: Unsound
) -> Iterator[tuple[Rows, int]]:
    """Yield the messages of one side batch by batch, and their bytes in the log.

    queues: the numbers of queues; a new queue gets the next number. unsound: gets what is unsound.
    """
    reading = replace(ask, fields=FIELDS, body=NO_BODY)
    for part in parts:
        for rows in rows_of(reading, part, unsound.add):
            sound = rows.column(BODY_CRC_OK).fill_null(True)
            if wrong := len(rows) - sound.true_count:
                first = rows.column("position")[pc.index(sound, False).as_py()].as_py()
                unsound.add_bodies(part.store, wrong, first)
            offset, digest = (rows.column(n).to_numpy() for n in ("queue_offset", DIGEST))
            yield ((_queue_numbers(rows, queues), offset, digest), pc.sum(rows.column("total_size")).as_py())


def _queue_numbers(rows: Any, queues: dict[Queue, int]) -> Ints:
    """The number of each message's queue; a new queue gets the next number."""
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


class Firsts:
    """The lowest offset of each queue on either side."""

    def __init__(self) -> None:
        self.least: tuple[dict[int, int], dict[int, int]] = ({}, {})
        """By side: lowest offset by queue number."""

    def add(self, side: int, rows: Rows) -> None:
        """Add messages of the first (0) or the second side (1)."""
        queue, offset, _ = rows
        order = np.lexsort((offset, queue))
        first = np.flatnonzero(np.diff(queue[order], prepend=-1))
        for number, value in zip(queue[order][first].tolist(), offset[order][first].tolist(), strict=True):
            self.add_one(side, number, value)

    def add_one(self, side: int, queue: int, offset: int) -> None:
        """Add one offset of a queue of a side."""
        least = self.least[side]
        least[queue] = min(offset, least.get(queue, offset))

    def common(self, queue: Ints) -> Ints:
        """For each queue, the first offset to compare: one side may have expired what is before it."""
        numbers, inverse = np.unique(queue, return_inverse=True)
        known = [max(side.get(n, 0) for side in self.least) for n in numbers.tolist()]
        return np.array(known, np.int64)[inverse]


def unmatched_of(
    sides: Sequence[Iterator[tuple[Rows, int]]], shard: int, of: int, firsts: Firsts, note: Note
) -> tuple[Rows, Ints] | None:
    """The messages without an equal one on the other side, and their weights; None if these are too many.

    Only messages of one shard count. Weights above 0 stand for the first side, below 0 for the second.
    """
    waiting = UnmatchedMessages()
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
            in_shard = mixed((rows[0], rows[1] >> _BLOCK_BITS)) % np.uint64(of) == shard
            rows = rows[0][in_shard], rows[1][in_shard], rows[2][in_shard]
        waiting.add(rows, -1 if side else 1)
        if waiting.count > _ENOUGH * WAITING_MAX and of < _SPLIT_MAX:
            return None
    return waiting.all()


class UnmatchedMessages:
    """Messages without an equal one on the other side. count: how many there were at the last matching."""

    def __init__(self) -> None:
        self.count = 0
        self._new = 0
        self._columns: tuple[list[Ints], ...] = ([], [], [], [])

    def add(self, rows: Rows, weight: int | Ints) -> None:
        """Add messages. weight: above 0 for the first side, below 0 for the second; one number or int64[n]."""
        weights = np.full(len(rows[0]), weight) if isinstance(weight, int) else weight
        for kept, column in zip(self._columns, (*rows, weights), strict=True):
            kept.append(column)
        self._new += len(rows[0])
        if self._new > max(_STEP, self.count) or self.count + self._new > WAITING_MAX:
            self._cancel()

    def all(self) -> tuple[Rows, Ints]:
        """What is unmatched in the end, and its weights."""
        self._cancel()
        (queue,), (offset,), (digest,), (weight,) = self._columns
        return (queue, offset, digest), weight

    def _cancel(self) -> None:
        """Drop equal messages: add up the weights of messages with the same place and digest, and drop those with 0."""
        columns = [self._take_column(n) for n in range(4)]
        key = mixed(columns[:3])
        order = np.argsort(key)
        del key
        new = np.zeros(len(order), np.bool_)
        new[:1] = True
        for n in range(4):
            columns[n] = columns[n][order]
            if n < 3:
                new[1:] |= columns[n][1:] != columns[n][:-1]
        first = np.flatnonzero(new)
        weight = columns.pop()
        weight = np.add.reduceat(weight, first) if len(first) else weight
        unmatched = np.flatnonzero(weight)
        for kept, column in zip(self._columns, (*columns, None), strict=True):
            kept.append(weight[unmatched] if column is None else column[first[unmatched]])
        self.count, self._new = len(unmatched), 0

    def _take_column(self, number: int) -> Ints:
        """One column of all kept messages, which are then forgotten."""
        kept = self._columns[number]
        found = np.concatenate(kept) if kept else np.zeros(0, np.int64)
        kept.clear()
        return found


def differing(queues: Sequence[Queue], rows: Rows, weight: Ints, firsts: Firsts) -> Differing:
    """For each queue that differs: where first, how, and how often."""
    queue, offset, _ = rows
    kept = np.flatnonzero(offset >= firsts.common(queue))
    kept = kept[np.lexsort((offset[kept], queue[kept]))]
    queue, offset, weight = queue[kept], offset[kept], weight[kept]
    place = np.flatnonzero(np.diff(queue, prepend=-1) | np.diff(offset, prepend=-1))
    if not len(place):
        return {}
    in_a = np.logical_or.reduceat(weight > 0, place)
    in_b = np.logical_or.reduceat(weight < 0, place)
    how = np.where(in_a & in_b, 2, np.where(in_a, 0, 1))
    queue, offset = queue[place], offset[place]
    found = {}
    for places in np.split(np.arange(len(queue)), np.flatnonzero(np.diff(queue)) + 1):
        one = queues[int(queue[places[0]])]
        counts = np.bincount(how[places], minlength=len(HOW)).tolist()
        found[one] = {
            "topic": one[0],
            "queue_id": one[1],
            "queue_offset": int(offset[places[0]]),
            "how": HOW[how[places[0]]],
            **dict(zip(HOW, counts, strict=True)),
        }
    return found


def _add_differences(found: Differing, more: Differing) -> None:
    """Add the differences of another shard of the messages, whose queues may be the same."""
    for queue, row in more.items():
        known = found.setdefault(queue, row)
        if known is row:
            continue
        counts = {how: known[how] + row[how] for how in HOW}
        first = min(known, row, key=lambda one: int(one["queue_offset"]))
        found[queue] = {**first, **counts}


_LEVEL = 1


@dataclass
class Left:
    """The unmatched messages of a part, with weights as in `UnmatchedMessages`; queues by their numbers."""

    queues: list[Queue]
    rows: Rows
    weight: Ints
    firsts: Firsts
    unsound: Unsound

    def to_json(self) -> dict[str, Any]:
        """For another process on a machine of the same byte order."""
        columns = np.stack([*self.rows, self.weight])
        return {
            "queues": self.queues,
            "left": base64.b64encode(zlib.compress(columns.tobytes(), _LEVEL)).decode("ascii"),
            "firsts": [list(least.items()) for least in self.firsts.least],
            "unsound": asdict(self.unsound),
        }

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> Left:
        """The inverse of `to_json`."""
        data = zlib.decompress(base64.b64decode(given["left"]))
        queue, offset, digest, weight = np.frombuffer(data, np.int64).reshape(4, -1)
        firsts, unsound = Firsts(), given["unsound"]
        for side, least in enumerate(given["firsts"]):
            for number, value in least:
                firsts.add_one(side, number, value)
        return cls(
            [(topic, queue_id) for topic, queue_id in given["queues"]],
            (queue, offset, digest),
            weight,
            firsts,
            Unsound(
                [Damage(**one) for one in unsound["first"]],
                unsound["ranges"],
                unsound["bytes"],
                {store: (count, first) for store, (count, first) in unsound["bodies"].items()},
            ),
        )


def look(a: ReadOptions, b: ReadOptions, parts: Sequence[Sequence[LogSplit]], most: int) -> Left | None:
    """Compare some parts of one side with some of the other; None if more than `most` messages are unmatched.

    Raises StoreError for a log that cannot be read.
    """
    queues: dict[Queue, int] = {}
    unsound, firsts = Unsound(), Firsts()
    sides = [side_of(ask, mine, queues, unsound) for ask, mine in zip((a, b), parts, strict=True)]
    unmatched = unmatched_of(sides, 0, 1, firsts, lambda size: None)
    if unmatched is None or len(unmatched[1]) > most:
        return None
    return Left(list(queues), *unmatched, firsts, unsound)


def met(lefts: Iterable[Left], name: str) -> QueueDifferences:
    """Combine all parts of two logs. name: of the pair."""
    queues: dict[Queue, int] = {}
    waiting, firsts, unsound = UnmatchedMessages(), Firsts(), Unsound()
    for part in lefts:
        numbers = [queues.setdefault(queue, len(queues)) for queue in part.queues]
        queue, offset, digest = part.rows
        waiting.add((np.array(numbers, np.int64)[queue], offset, digest), part.weight)
        for side, least in enumerate(part.firsts.least):
            for number, value in least.items():
                firsts.add_one(side, numbers[number], value)
        unsound.join(part.unsound)
    found = differing(list(queues), *waiting.all(), firsts)
    return QueueDifferences([{"store": name, **found[queue]} for queue in sorted(found)], unsound)
