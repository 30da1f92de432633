"""Ways to spoil the bytes of a record, or of any part of a file: edits, nothing is written.

`log_scenarios` do it to a good record of a store; the project's tests do it to anything.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from ...formats.blank import BLANK
from ...formats.commit_log import PLAIN
from ...formats.message import SMALLEST
from ..disk.edits import Edit
from .scenario import cut, write, zeros

PAGE_BYTES = 4096
LIES = (-(2**31), -1, 0, 1, SMALLEST - 1, SMALLEST, 2**16, 2**30, 2**31 - 1)
"""Sizes that no record has."""


class Spot(NamedTuple):
    """What is to be spoiled: `data`, which begins at byte `begin` of a file of `file_bytes`."""

    path: str
    file_bytes: int
    begin: int
    data: bytes

    def anywhere(self, rng: random.Random) -> int:
        """Any byte of it: the place in the file."""
        return self.begin + rng.randrange(len(self.data))


Spoil = Callable[[Spot, random.Random], Edit]


def flip_bit(spot: Spot, rng: random.Random) -> Edit:
    """One bit flips."""
    at = spot.anywhere(rng)
    flipped = bytes([spot.data[at - spot.begin] ^ 1 << rng.randrange(8)])
    return write(spot.path, at, flipped, "a bit of a record")


def zero_page(spot: Spot, rng: random.Random) -> Edit:
    """A page never reached the disk."""
    begin = spot.anywhere(rng) // PAGE_BYTES * PAGE_BYTES
    size = min(PAGE_BYTES, spot.file_bytes - begin)
    return zeros(spot.path, begin, size, "a page that was never written")


def garbage(spot: Spot, rng: random.Random) -> Edit:
    """Up to a page of random bytes."""
    at = spot.anywhere(rng)
    size = min(rng.randint(1, PAGE_BYTES), spot.file_bytes - at)
    return write(spot.path, at, rng.randbytes(size), "random bytes")


def wrong_size(spot: Spot, rng: random.Random) -> Edit:
    """The size that a record says is not its size: a little, or without any shame."""
    size = len(spot.data)
    lies = [lie for lie in (*LIES, size - 1, size + 1, size * 2) if lie != size]
    at = spot.begin + PLAIN.size_offset
    lie = BLANK.total_size.build(rng.choice(lies))[: max(0, spot.file_bytes - at)]
    return write(spot.path, at, lie, "total_size of a record")


def truncate(spot: Spot, rng: random.Random) -> Edit:
    """The file ends inside."""
    return cut(spot.path, spot.anywhere(rng), "a file of the log ends inside a record")


def torn_tail(spot: Spot, rng: random.Random, least: int = 1) -> Edit:
    """Only the front was written, `least` bytes of it or more: then come zeros."""
    front = rng.randrange(least, len(spot.data))
    size = len(spot.data) - front
    return zeros(spot.path, spot.begin + front, size, "the end of the last record")
