"""Unique keys that more than one message of a topic has (I-051), as far as memory for it lasts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...formats.derive.ragged import Ragged, overlapping
from ...formats.message_properties import UNIQ_KEY
from ..columns.ordered import Flags, Ints
from ..counted import counted
from .context import Scene
from .part_result import Carried
from .records import Records
from .register import after, of_records

_PLACE_BITS = 20
"""Room for so many unique keys, as a power of two: the same one is looked for among these."""
_ROW_BITS = 17
"""The same for those of one batch, few enough to stay in a processor's cache."""
_FREE = np.uint32(0)
"""No mark is 0."""
_MIX = 0x9E3779B97F4A7C15
_WORD = np.dtype(np.uint64)
_WORDS = 4
"""Words of a unique key that count: its first 32 characters."""
_SEEDS = 1 << 16
"""Topics whose numbers are kept."""
_AT_A_SEAM = 10_000
"""More keys that repeat one in front of a part of the log are not looked up one by one."""

Numbers = npt.NDArray[np.uint64]


@of_records("I-051")
def unique_keys(scene: Scene, records: Records) -> None:
    """No two messages of a topic have one unique key, as far as memory for it lasts."""
    if scene.scope.quick:
        return
    keys = records.properties.find(UNIQ_KEY)
    has = np.flatnonzero(keys.length > 0)
    if not len(has):
        return
    numbers = _numbers(keys[has], records.topics.ids[has], records.topics.values)
    seen = scene.kept(_Seen, lambda: _Seen(behind=scene.behind is not None))
    twice = seen.add(numbers, records.position[has])
    if twice.any():
        seen.note(records, has[twice])


@dataclass
class _Repeat:
    """Messages of a topic with the unique key of one before: where the first stands, how many."""

    position: int
    size: int
    count: int = 0


@after("I-051")
def repeated_keys(scene: Scene) -> None:
    """Told once for each topic: retries and batches make many of them."""
    repeats = scene.kept(_Seen, _Seen).repeats
    for topic, repeat in repeats.items():
        one, several = f"message of {topic} has", f"messages of {topic} have"
        text = counted(
            repeat.count,
            f"{one} the unique key of one before it",
            f"{several} the unique key of one before them",
        )
        more = {"count": repeat.count, "topic": topic}
        scene.log_finding("I-051", repeat.position, repeat.size, text, **more)


class _Left(NamedTuple):
    """What a part of the log leaves. numbers: keys that came first to their place, uint64[n]."""

    marks: npt.NDArray[np.uint32]
    numbers: Numbers
    position: Ints
    repeats: dict[str, _Repeat]


class _Seen(Carried):
    """Unique keys that were met, as numbers: each has a place, and the next one there takes it.

    repeats: by topic. behind: another run comes to the start of this one; those that came first to
    their place are kept for it.
    """

    def __init__(self, *, behind: bool = False) -> None:
        self.repeats: dict[str, _Repeat] = {}
        self._marks = np.zeros(1 << _PLACE_BITS, np.uint32)
        self._rows = np.zeros(1 << _ROW_BITS, np.int32)
        self._behind = behind
        self._first: list[tuple[Numbers, Ints]] = []

    def add(self, numbers: Numbers, position: Ints) -> Flags:
        """Note them, of the records at `position`.

        Returns bool[n]: which of them were met before, or stand here twice.
        """
        place, mark = _place_and_mark(numbers)
        before = self._marks[place]
        twice: Flags = before == mark
        self._marks[place] = mark
        own = np.arange(len(numbers), dtype=np.int32)
        small = place >> (_PLACE_BITS - _ROW_BITS)
        self._rows[small[::-1]] = own[::-1]
        first = self._rows[small]
        shared = np.flatnonzero(first != own)  # one of these before it has the same small place
        if len(shared):
            some = np.zeros(len(numbers), np.bool_)
            some[shared] = some[first[shared]] = True
            rows = np.flatnonzero(some)
            rows = rows[np.argsort(numbers[rows], kind="stable")]
            twice[rows[1:]] |= numbers[rows[1:]] == numbers[rows[:-1]]
        if self._behind:
            new = np.flatnonzero((before == _FREE) & ~twice)
            self._first.append((numbers[new], position[new]))
        return twice

    def note(self, records: Records, rows: Ints) -> None:
        """These rows repeat a key."""
        topics = records.topics.ids[rows]
        for topic in np.flatnonzero(np.bincount(topics)).tolist():
            some = rows[topics == topic]
            row = int(some[0])
            position = int(records.position[row])
            repeat = _Repeat(position, int(records.ends[row]) - position, len(some))
            self._repeat(records.topic_texts[topic], repeat)

    def _repeat(self, topic: str, repeat: _Repeat) -> None:
        known = self.repeats.setdefault(topic, repeat)
        if known is not repeat:
            first = min(known, repeat, key=lambda each: each.position)
            count = known.count + repeat.count
            self.repeats[topic] = _Repeat(first.position, first.size, count)

    def leave(self) -> _Left:
        """Marks, and what stands against those of the run in front."""
        numbers = np.concatenate([np.zeros(0, np.uint64), *(one for one, _ in self._first)])
        position = np.concatenate([np.zeros(0, np.int64), *(one for _, one in self._first)])
        return _Left(self._marks, numbers, position, self.repeats)

    def _again(self, left: _Left) -> Ints:
        """int64[m]: the records of the part that repeat a key of a record in front of it."""
        place, mark = _place_and_mark(left.numbers)
        again: Ints = left.position[self._marks[place] == mark]
        return again

    def fits(self, left: _Left) -> bool:
        """There are few of them."""
        return len(self._again(left)) <= _AT_A_SEAM

    def take_on(self, scene: Scene, left: _Left) -> None:
        """The keys of the part are the newer ones."""
        again = self._again(left)
        if len(again):
            records = Records(scene.store.log.records(again))
            front = _Seen()
            front.repeats = left.repeats
            front.note(records, np.arange(len(records)))
        for topic, repeat in left.repeats.items():
            self._repeat(topic, repeat)
        self._marks = np.where(left.marks == _FREE, self._marks, left.marks)


def _place_and_mark(numbers: Numbers) -> tuple[Ints, npt.NDArray[np.uint32]]:
    """Where each is looked for, and what stands there."""
    place = (numbers >> np.uint64(64 - _PLACE_BITS)).astype(np.int64)
    return place, numbers.astype(np.uint32) | np.uint32(1)


@lru_cache(_SEEDS)
def _seed(topic: bytes) -> int:
    """Not `hash`, which is another one in each process that is not forked off this one."""
    return int.from_bytes(blake2b(topic, digest_size=_WORD.itemsize).digest())


def _numbers(keys: Ragged, topic_ids: Ints, topics: list[bytes]) -> npt.NDArray[np.uint64]:
    """A number for topic and key: equal for equal ones, and for others hardly ever."""
    seeds = np.array([_seed(topic) for topic in topics], np.uint64)
    mixed = seeds[topic_ids] ^ keys.length.astype(np.uint64)
    words = overlapping(keys.buffer, _WORD)
    shortest = int(keys.length.min())
    for number in range(_WORDS):
        behind = (number + 1) * _WORD.itemsize
        at = keys.start + number * _WORD.itemsize
        if behind <= shortest:
            part = words[at]
        else:
            part = words[np.minimum(at, len(words) - 1)]
            part[behind > keys.length] = 0
        part *= np.uint64(pow(_MIX, number + 1, 1 << 64))
        mixed += part
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(_MIX)
    mixed ^= mixed >> np.uint64(29)
    return mixed
