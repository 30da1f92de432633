"""What the log says of a queue: offsets without a message, and what becomes of its units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..broker.snapshot import QueueId
from .units import Units

Ints = npt.NDArray[np.int64]


class Hole(NamedTuple):
    """Queue offsets begin ≤ k < end without a message; low, high: positions of the neighbours."""

    begin: int
    end: int
    low: int
    high: int


@dataclass(frozen=True)
class QueueFix:
    """What becomes of a queue: `units` are written at queue `offsets` (sorted), it ends at `end`.

    missing: messages of the log that get a unit. shifted: the queue keeps numbers that differ from
    those in the records. beyond: units behind its end that name records behind the log end.
    """

    queue: QueueId
    offsets: Ints
    units: Units
    end: int
    missing: int
    shifted: bool
    beyond: int = 0
