"""State of checks that goes on along the log, and how a run takes on that of the part behind it.

`--jobs` has parts of the log looked at in processes of their own. Each begins with no state, so what
it has seen tells less than a run that comes from the start of the log would know. A part is taken on
only where it makes no difference: nothing is wrong in it, and nothing at the seam in front of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from .context import Scene


class Carried(ABC):
    """What a check keeps from batch to batch (`Scene.kept`), and can take on from a part behind."""

    @classmethod
    def fresh(cls, scene: Scene) -> Self:
        """The state of a run that has kept nothing yet."""
        del scene
        return cls()

    def leave(self) -> Any:
        """What the run in front needs of it, to be pickled: None where it cannot be taken on."""
        return self

    def fits(self, left: Any) -> bool:
        """Nothing would be found at the seam to what `leave` gave of the part behind it."""
        del left
        return True

    @abstractmethod
    def take_on(self, scene: Scene, left: Any) -> None:
        """Go on as if this run had seen that part, too."""


CACHES = frozenset({"index files", "ext files"})
"""What else may be kept while the log is read: it says nothing of the log."""
