"""What the pass over the log has looked at: of anything else nothing can be said."""

from __future__ import annotations

from ..columns.queue_ranges import Flags, Ints, Ranges
from .context import Scene
from .part_result import Carried


class Covered(Carried):
    """Log positions, good records and all else."""

    def __init__(self) -> None:
        self._ranges = Ranges()

    def add(self, begin: int, end: int) -> None:
        """The pass is over these bytes."""
        self._ranges.add_range(begin, end)

    def has(self, positions: Ints) -> Flags:
        """bool[n]: which of the log positions, int64[n], it has been at."""
        return self._ranges.has(positions)

    def take_on(self, scene: Scene, left: Covered) -> None:
        """That of the part, too."""
        del scene
        self._ranges.add_all(left._ranges)


def covered_of(scene: Scene) -> Covered:
    """That of a run."""
    return scene.kept(Covered, Covered)
