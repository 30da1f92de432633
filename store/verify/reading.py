"""The pass over the log: what is met there is handed to the checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from ..columns.topic_table import TopicTable
from ..log.commit_log import Batch, Extent
from ..log.record_status import Mark
from ..log.tail_history import LOOK_BACK
from .context import Scene
from .covered import covered_of
from .proof import ProofOfLog
from .records import Records
from .register import CHECKS, checks_of
from .start import GROUP, why_not
from .unreadable import Going

if TYPE_CHECKING:
    from ..audit.messages import Messages
    from ..broker.dispatch import Dispatched
    from ..disk.snapshot import QueueId

LOG_GROUPS = frozenset({"layout", "commit_log"})
"""Groups that look at records without asking what they add to queues and index."""


def wants_crc(scene: Scene, groups: frozenset[str]) -> bool:
    """The bodies are compared with their checksums."""
    return "commit_log" in groups and not scene.scope.quick


def wants_proof(scene: Scene, groups: frozenset[str]) -> bool:
    """A start is predicted behind the pass, and can go by what is in order.

    A run that goes on has not seen the beginning of the log: there the prediction reads it itself.
    """
    if scene.scope.start is not None:
        return False
    asked = scene.scope.proof or (GROUP in groups and not why_not(scene))
    return asked and wants_crc(scene, groups) and not scene.live


def read(
    scene: Scene,
    log_pass: LogPass,
    items: Iterable[Batch | Extent],
    progress: Callable[[int], None] | None = None,
) -> None:
    """Hand these items to the checks; all messages have been handed out at the end."""
    if log_pass.of_log_alone:
        log_pass.run(items, progress)
        return
    from ..audit.messages import survey
    from ..broker.dispatch_record import Further

    rules, light = scene.profile.dispatch, scene.store.layout.options.multi_dispatch
    survey(
        scene.store.log,
        [log_pass],
        index_tags=rules.index_tags,
        multi_dispatch=rules.multi_dispatch and not (light.is_given and not light.value),
        further=Further(delay_levels=scene.store.layout.options.delay_waits()),
        progress=progress,
        items=items,
    )


class LogPass:
    """Hands what the pass over the log meets to the checks of some groups.

    of_log_alone: no check asks what records add to queues and index.
    """

    def __init__(self, scene: Scene, groups: frozenset[str]) -> None:
        self.of_log_alone = groups <= LOG_GROUPS
        self._scene = scene
        self._covered = covered_of(scene)
        self._topics = TopicTable()
        self._proof = (
            scene.kept(ProofOfLog, partial(ProofOfLog.fresh, scene))
            if wants_proof(scene, groups)
            else None
        )
        moments = (CHECKS.records, CHECKS.stale, CHECKS.messages, CHECKS.extents)
        self._records, self._stale, self._messages, self._extents = (
            Going(scene, moment, checks_of(moment, groups)) for moment in moments
        )

    def run(self, items: Iterable[Batch | Extent], progress: Callable[[int], None] | None) -> None:
        """All items, without what records add to queues and index."""
        for item in items:
            if isinstance(item, Extent):
                self.extent(item)
                continue
            if progress is not None:
                progress(item.end)
            if item.mark > Mark.AFTER_DAMAGE:
                self.stale(item)
            else:
                self.records(item, None)

    def records(self, batch: Batch, dispatched: Dispatched | None) -> None:
        """Good records of this log."""
        records, log = Records(batch, dispatched, self._topics), self._scene.log
        self._covered.add(int(batch.position[0]), batch.end)
        self._records(records)
        log.end = batch.end
        log.records += len(batch)
        log.bytes += batch.end - int(batch.position[0])
        times = records.ints("store_timestamp")
        log.newest = max(log.newest, int(times.max()))
        log.last, log.last_timestamp = batch.position[-LOOK_BACK:].tolist(), int(times[-1])

        self._prove(batch, dispatched)

    def messages(self, messages: Messages) -> None:
        """Messages of one queue."""
        self._messages(messages)
        self._note(messages.queue, messages)

    def _note(self, queue: QueueId, messages: Messages) -> None:
        log, last = self._scene.log, int(messages.offset[-1])
        log.first_offset.setdefault(queue, int(messages.offset[0]))
        log.next_offset[queue] = max(log.next_offset.get(queue, 0), last + 1)

    def extent(self, extent: Extent) -> None:
        """What is no record."""
        self._scene.log.bytes += extent.size
        if extent.unread:
            self._scene.gone.append((extent.position, extent.end))
        self._covered.add(extent.position, extent.end)
        self._extents(extent)
        self._prove(extent)

    def stale(self, batch: Batch) -> None:
        """Whole records that are none of this log, or no longer."""
        self._scene.log.bytes += batch.end - int(batch.position[0])
        self._covered.add(int(batch.position[0]), batch.end)
        records, log = Records(batch), self._scene.log
        if batch.mark is Mark.DEAD_TAIL:
            log.newest_dead = max(log.newest_dead, int(records.ints("store_timestamp").max()))
        self._stale(records)
        self._prove(batch)

    def _prove(self, item: Batch | Extent, dispatched: Dispatched | None = None) -> None:
        if self._proof is not None:
            self._proof.see(item, dispatched)
