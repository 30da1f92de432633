"""What of the log is in order for a start and a plan, found in the pass that the checks are handed.

`store/recover` goes by it (`audit/verified.py`), so that neither the prediction of a start nor the plan
of a recovery reads the log once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..errors import StoreError
from ..log.commit_log import Batch, Extent
from .context import Scene
from .part_result import Carried

if TYPE_CHECKING:
    from ..audit.prove import Proof, Prover
    from ..audit.verified import SoundLog, SoundRun
    from ..broker.dispatch import Dispatched


class _Left(NamedTuple):
    """What a part leaves: its runs and BLANKs, and how far they go without a hole."""

    items: list[SoundRun | Extent]
    end: int


class ProofOfLog(Carried):
    """Proves the log while it is read. proof: None where that would be of no use."""

    def __init__(self, proof: Proof | None) -> None:
        self._proof = proof
        self._prover: Prover | None = None
        self._sound: SoundLog | None = None

    @classmethod
    def fresh(cls, scene: Scene) -> ProofOfLog:
        """That of the store of a run."""
        from ..recover.recovery import proof_of

        try:
            return cls(proof_of(scene.store.layout, scene.scope.broker_version))
        except StoreError:  # what `recover` refuses, too
            return cls(None)

    def see(self, item: Batch | Extent, dispatched: Dispatched | None = None) -> None:
        """The next thing in the log. dispatched: what its records add to queues, if that is known."""
        if self._proof is None:
            return
        if self._prover is None:
            begin = item.position if isinstance(item, Extent) else int(item.position[0])
            self._prover = self._proof.at(begin)
        try:
            self._prover.see(item, dispatched.stored_topics if dispatched else None)
        except StoreError:  # of a queue, which has checks of its own
            self._give_up()

    def done(self) -> SoundLog | None:
        """What is in order of all that was seen; None where that is not known."""
        if self._prover is not None:
            try:
                part, self._prover = self._prover.done(), None
            except StoreError:
                self._give_up()
            else:
                self._sound = part if self._sound is None else part.after(self._sound)
        return self._sound

    def _give_up(self) -> None:
        self._proof = self._prover = self._sound = None

    def leave(self) -> _Left:
        """What is in order of this part."""
        sound = self.done()
        return _Left([], -1) if sound is None else _Left(sound.items, sound.end)

    def take_on(self, scene: Scene, left: _Left) -> None:
        """That of the part, too."""
        from ..audit.verified import SoundLog

        del scene
        before = self.done()
        if self._proof is None or not left.items:
            return
        part = SoundLog(left.items, left.end, self._proof.index)
        self._sound = part if before is None else part.after(before)


def proved_of(scene: Scene) -> SoundLog | None:
    """What is in order in the log that a run has read; None where that is not known."""
    found = scene.states().get(ProofOfLog)
    return found.done() if isinstance(found, ProofOfLog) else None
