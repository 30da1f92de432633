"""A comparison that is cut: what is left of each part of two logs meets in the end.

Parts of copies leave hardly anything. What leaves too much is no copy, and is compared as a whole.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...formats.derive.ragged import Ints
from .ask import Ask
from .differences import (
    Compared,
    Firsts,
    Queue,
    Rows,
    Unsound,
    Waiting,
    differing,
    left_of,
    side_of,
)
from .log_rows import Damage, LogPart

_LEVEL = 1


@dataclass
class Left:
    """What has not met its like in one part, with weights as of `Waiting`; queues by their numbers."""

    queues: list[Queue]
    rows: Rows
    weight: Ints
    firsts: Firsts
    unsound: Unsound

    def to_json(self) -> dict[str, Any]:
        """For another process of a machine like this."""
        columns = np.stack([*self.rows, self.weight])
        return {
            "queues": self.queues,
            "left": base64.b64encode(zlib.compress(columns.tobytes(), _LEVEL)).decode("ascii"),
            "firsts": [list(least.items()) for least in self.firsts.least],
            "unsound": asdict(self.unsound),
        }

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> Left:
        """What `to_json` has given."""
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


def look(a: Ask, b: Ask, parts: Sequence[Sequence[LogPart]], most: int) -> Left | None:
    """Compare some parts of one side with some of the other; None where more than `most` is left.

    Raises StoreError where a log cannot be read.
    """
    queues: dict[Queue, int] = {}
    unsound, firsts = Unsound(), Firsts()
    sides = [side_of(ask, mine, queues, unsound) for ask, mine in zip((a, b), parts, strict=True)]
    left = left_of(sides, 0, 1, firsts, lambda size: None)
    if left is None or len(left[1]) > most:
        return None
    return Left(list(queues), *left, firsts, unsound)


def met(lefts: Iterable[Left], name: str) -> Compared:
    """What all parts of two logs say together. name: of the pair."""
    queues: dict[Queue, int] = {}
    waiting, firsts, unsound = Waiting(), Firsts(), Unsound()
    for left in lefts:
        numbers = [queues.setdefault(queue, len(queues)) for queue in left.queues]
        queue, offset, digest = left.rows
        waiting.add((np.array(numbers, np.int64)[queue], offset, digest), left.weight)
        for side, least in enumerate(left.firsts.least):
            for number, value in least.items():
                firsts.add_one(side, numbers[number], value)
        unsound.join(left.unsound)
    found = differing(list(queues), *waiting.all(), firsts)
    return Compared([{"store": name, **found[queue]} for queue in sorted(found)], unsound)
