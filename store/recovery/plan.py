"""The plan of `recover`: a list of edits and what they cost. Nothing is written.

Under the policy `broker` the log ends where the broker's start would end it, under `keep` nothing
that can be read is given up (`keep/`). Both complete queues and index from the log, which no broker
does (spec 7.5), and put out of the way what lies behind the ends, so that the next start, of any
version, finds nothing to do (spec 7.11).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..checkpoint import Checkpoint
from ..commit_log import Batch, CommitLog, Extent
from ..dispatch import Dispatched
from ..errors import InvalidInput
from ..index_file import Geometry
from ..mapped_file_queue import MappedFileQueue
from ..write.consume_queue import queue_directory
from .batch_audit import BatchAudit
from .bring_back import Brought
from .checkpoint_edit import checkpoint_edit
from .edits import Edit
from .ext_edits import ext_edits
from .groups import GroupLoss, Progress
from .index_audit import IndexAudit, IndexFix
from .keep.fill import Fill
from .keep.keep_log import KeptLog, gap_finder, keep_log
from .keep.misnamed import misnamed
from .log_plan import LogPlan, plan_log
from .loss import tombstoned
from .mend import mend
from .profiles import MinOffset, Profile
from .queue_audit import QueueAudit, QueueFix
from .queue_edits import queue_edits
from .record_check import BodyCheck
from .replica_log import with_replica
from .simulate import Outcome, simulate
from .snapshot import QueueId, Snapshot
from .survey import Auditor, Messages, survey
from .tally import Tally
from .timer_edits import timer_edits
from .wish import Policy, Wish

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class QueueRow:
    """A queue as it will be."""

    queue: QueueId
    min_offset: int
    max_offset: int


@dataclass
class Plan:
    """Edits in the order in which they are made, and the store that they lead to.

    log_end: the log's end afterwards. last_record: position of its last record, -1 without one.
    index: what is made anew, None for nothing. checkpoint: as it will be, None: untouched.
    """

    policy: str
    log_start: int
    log_end: int
    edits: list[Edit] = field(default_factory=list)
    queues: list[QueueRow] = field(default_factory=list)
    lost: Tally = field(default_factory=Tally)
    groups: GroupLoss = field(default_factory=lambda: GroupLoss({}))
    index: IndexFix | None = None
    checkpoint: Checkpoint | None = None
    #: What the checkpoint of this store says when it is complete.
    sound_checkpoint: Checkpoint | None = None
    #: Tags are indexed; the index counts puts (spec 3.1): as the generation does it.
    index_tags: bool = False
    counts_puts: bool = False
    #: Messages of the log that get a unit they did not have.
    completed: int = 0
    shifted: list[QueueId] = field(default_factory=list)
    #: Records of an earlier life lie behind the end; bytes behind the end of the log.
    stale: bool = False
    tail_bytes: int = 0
    #: The log's files with what is written over them; None: as they lie there.
    files: MappedFileQueue | None = None
    #: What a replica gives; None: nobody named one.
    brought: Brought | None = None
    #: How gaps of the log are closed.
    fills: list[Fill] = field(default_factory=list)

    def touches(self, part: str) -> bool:
        """Some edit changes a file below this folder of the store."""
        return any(part in Path(edit.path).parts for edit in self.edits)


def can_have_files(queue: QueueId) -> bool:
    """Whether a topic-queue can be a directory; a damaged record can name any text (B24)."""
    try:
        queue_directory(Path(), queue.topic, queue.queue_id)
    except InvalidInput:
        return False
    return "/" not in queue.topic


class _Maker(Auditor):
    """Looks at the log on behalf of the plan."""

    def __init__(
        self, snapshot: Snapshot, log: LogPlan, groups: GroupLoss, profile: Profile, wish: Wish
    ) -> None:
        sizes, rules = snapshot.layout.sizes, profile.queues
        geometry = Geometry(sizes.index_slots.value, sizes.index_items.value)
        self.snapshot, self.log, self.retag = snapshot, log, bool(wish.lost_tag)
        self.exact = wish.exact
        self.index = IndexAudit.of(snapshot.index, geometry, log.end)
        self.queues: dict[QueueId, QueueAudit] = {}
        self.batches: dict[QueueId, BatchAudit] = {}
        #: Positions of records whose topic can be no directory.
        self.nameless: list[Ints] = []
        self._rules = rules
        self.lost = Tally()
        self.groups = groups
        self.last_record, self.last_timestamp = -1, 0
        for name in snapshot.queues:
            self._audit(name)
        for name in snapshot.batch_queues if rules.batches else ():
            self._batch_audit(name)

    def _batch_audit(self, name: QueueId) -> BatchAudit:
        if name not in self.batches:
            entries = self.snapshot.batch_queues.get(name, ())
            size = self.snapshot.batch_file_bytes
            self.batches[name] = BatchAudit.of(name, entries, size, self._rules, self.log.start)
        return self.batches[name]

    def _audit(self, name: QueueId) -> QueueAudit:
        if name not in self.queues:
            files = {int(e.name): e for e in self.snapshot.queues.get(name, ())}
            self.queues[name] = QueueAudit(
                name,
                files,
                self.snapshot.queue_file_bytes,
                self.log.start,
                self.log.end,
                self.retag,
                self.exact,
            )
        return self.queues[name]

    def records(self, batch: Batch, dispatched: Dispatched) -> None:
        inside = batch.position < self.log.end
        if inside.any():
            last = int(inside.nonzero()[0][-1])
            self.last_record = int(batch.position[last])
            self.last_timestamp = int(batch.columns.ints("store_timestamp")[last])
        self.index.records(batch, dispatched)

    def messages(self, messages: Messages) -> None:
        if not can_have_files(messages.queue):
            self.nameless.append(messages.position)
            return
        inside = messages.position < self.log.end
        gone = messages.take(~inside & messages.good)
        self.groups.add(gone)
        self.lost.add(messages.queue, "", gone.size, gone.store_timestamp, gone.offset)
        if not inside.any():
            return
        if self._rules.batches and messages.queue.topic in self.snapshot.batch_topics:
            self._batch_audit(messages.queue).add(messages.take(inside))
        else:
            self._audit(messages.queue).add(messages.take(inside))

    def extent(self, extent: Extent) -> None:
        pass

    def stale(self, batch: Batch) -> None:
        pass

    def note_lost(self, gone: Messages) -> None:
        """Count messages that got a tombstone."""
        self.groups.add(gone)
        self.lost.add(gone.queue, "", gone.size, gone.store_timestamp, gone.offset)


def make_plan(
    snapshot: Snapshot,
    profile: Profile,
    outcome: Outcome,
    *,
    wish: Wish | None = None,
    auditors: tuple[Auditor, ...] = (),
    progress: Progress | None = None,
    tell: Callable[[int], None] | None = None,
) -> Plan:
    """Plan the recovery: under `broker` to the state that this generation would reach, under `keep`
    to one in which every good record is where it was.

    wish: what was asked for, default: the policy `broker`. auditors: others that want to see the log in the same pass. progress: of the consumer groups.
    tell: called with the log position reached. Raises Refused, Unreadable.
    """
    wish, switches = wish or Wish(), outcome.switches
    policy, keep = wish.policy, wish.policy is Policy.KEEP
    rules = profile.dispatch
    multi_dispatch = rules.multi_dispatch and switches.multi_dispatch
    mended, edits = mend(snapshot, any_length=keep)
    if not mended.log:
        return Plan(policy, 0, 0)
    queue, fills, maker = _files_of(mended), list[Fill](), None
    look = partial(
        survey, index_tags=rules.index_tags, multi_dispatch=multi_dispatch, progress=tell
    )
    groups, brought = GroupLoss(progress or {}), None
    if keep:
        kept, maker, brought = _keep(mended, queue, profile, outcome, wish, look, auditors, groups)
        log, queue, fills = kept.plan, kept.queue, kept.fills
    else:
        if edits or outcome.refusal or outcome.log.hidden:
            outcome = simulate(
                mended,
                profile,
                switches._replace(consume_queue_ext=False, timer_wheel_enable=False),
            )
        log = plan_log(mended, outcome)
    commit_log = CommitLog(queue)
    if maker is None:
        groups = GroupLoss(progress or {})
        maker = _Maker(mended, log, groups, profile, wish)
        if keep:
            look(commit_log, [maker], crc=False, progress=None)
        else:
            look(commit_log, [maker, *auditors])
    for gone in tombstoned(mended, fills):
        maker.note_lost(gone)
    plan = Plan(policy, log.start, log.end, lost=maker.lost)
    plan.groups = maker.groups
    plan.files, plan.brought, plan.fills = queue, brought, fills
    plan.stale = log.stale
    plan.tail_bytes = log.tail_bytes
    plan.index_tags, plan.counts_puts = rules.index_tags, rules.counts_puts
    plan.edits = [*edits, *_queue_edits(snapshot, maker, commit_log, profile, plan)]
    if switches.consume_queue_ext:
        plan.edits += ext_edits(snapshot)
    if profile.timer and switches.timer_wheel_enable:
        plan.edits += timer_edits(snapshot)
    plan.index = maker.index.finish() if switches.message_index_enable else None
    if plan.index is not None:
        plan.edits += _index_edits(snapshot, plan.index)
    plan.edits += log.edits
    _finish(snapshot, plan, maker, profile)
    return plan


def _keep(
    snapshot: Snapshot,
    queue: MappedFileQueue,
    profile: Profile,
    outcome: Outcome,
    wish: Wish,
    look: Callable[[CommitLog, list[Auditor]], None],
    auditors: tuple[Auditor, ...],
    groups: GroupLoss,
) -> tuple[KeptLog, _Maker | None, Brought | None]:
    """Look at the log and plan it under `keep`. Where nothing is damaged, one pass does: then what
    has looked at it for the plan is there, too. Raises Refused, Unreadable.
    """
    body_check = outcome.switches.body_check
    verifies = body_check is BodyCheck.PROPERTY_CRC and profile.record.property_crc
    brought = None
    if wish.replica:
        brought, queue = with_replica(
            snapshot, queue, wish.replica, verify=verifies, look=look, auditors=auditors
        )
        auditors = ()
    finder = gap_finder(snapshot, verify=verifies)
    finder.files |= {file.start for file in queue.files}
    as_it_is = LogPlan(outcome.log_start, outcome.log_end, False, [], 0)
    guess = _Maker(snapshot, as_it_is, groups, profile, wish)
    look(CommitLog(queue), [finder, guess, *auditors])
    silent = [*guess.nameless, *finder.silent]
    elsewhere = misnamed(CommitLog(queue), guess.queues, finder.misplaced, silent)
    pieces = brought.pieces if brought else ()
    kept = keep_log(snapshot, queue, wish.forms, finder, elsewhere, pieces)
    changed = kept.fills or kept.restored
    same_ends = (kept.plan.start, kept.plan.end) == (as_it_is.start, as_it_is.end)
    return kept, None if changed or not same_ends else guess, brought


def _files_of(snapshot: Snapshot) -> MappedFileQueue:
    """The log as the snapshot has it: without what is moved away."""
    queue = snapshot.layout.commit_log_files()
    paths = {entry.path for entry in snapshot.log}
    queue.files = [file for file in queue.files if os.fspath(file.path) in paths]
    return queue


def _queue_edits(
    snapshot: Snapshot, maker: _Maker, log: CommitLog, profile: Profile, plan: Plan
) -> list[Edit]:
    edits: list[Edit] = []
    for name in sorted(maker.queues):
        audit = maker.queues[name]
        fix = audit.finish(log)
        directory = snapshot.layout.consume_queue / name.topic / str(name.queue_id)
        entries = snapshot.queues.get(name, ())
        edits += queue_edits(fix, entries, directory, snapshot.queue_file_bytes)
        plan.queues.append(QueueRow(name, _min_offset(audit, fix, profile), fix.end))
        plan.completed += fix.missing
        if fix.shifted:
            plan.shifted.append(name)
    for name, batches in sorted(maker.batches.items()):
        batches.check(snapshot)
        plan.queues.append(QueueRow(name, batches.state.min_offset, batches.state.max_offset))
    return edits


def _min_offset(audit: QueueAudit, fix: QueueFix, profile: Profile) -> int:
    """The queue's min offset afterwards: its first unit that lies in the log."""
    first_in_log = audit.first_in_log(fix)
    if first_in_log is not None:
        return first_in_log
    return 0 if profile.queues.min_offset is MinOffset.LINEAR else fix.end


def _index_edits(snapshot: Snapshot, fix: IndexFix) -> list[Edit]:
    reason = "not sound, beyond the log end, or not complete"
    edits = [Edit("move", e.path, reason, ("I-101", "I-118")) for e in fix.gone]
    return [*edits, _rebuild(snapshot, fix)]


def _rebuild(snapshot: Snapshot, fix: IndexFix) -> Edit:
    begin = max(0, fix.indexed_to)
    reason = f"the messages from position {begin} on are indexed"
    return Edit("rebuild", str(snapshot.layout.index), reason, ("I-101",), begin)


def _finish(snapshot: Snapshot, plan: Plan, maker: _Maker, profile: Profile) -> None:
    """Checkpoint, and `abort` as the very last; a store with nothing to do keeps its checkpoint."""
    old = Checkpoint(**snapshot.checkpoint)
    headers = maker.index.headers
    kept = headers[: len(headers) - len(plan.index.gone)] if plan.index else headers
    items = snapshot.layout.sizes.index_items.value
    full = [header.end_timestamp for header in kept if header.index_count >= items]
    plan.sound_checkpoint = new_checkpoint(
        old, profile, maker.last_record, maker.last_timestamp, full[-1] if full else 0
    )
    if not plan.edits and not snapshot.abort:
        return
    plan.checkpoint = plan.sound_checkpoint
    if plan.checkpoint != old:
        plan.edits.append(checkpoint_edit(snapshot.layout.checkpoint, plan.checkpoint))
    if snapshot.abort:
        reason = "the store is in order: the next start is a clean one"
        plan.edits.append(Edit("remove", str(snapshot.layout.abort), reason, ("I-009",)))


def new_checkpoint(
    old: Checkpoint, profile: Profile, last_record: int, last_timestamp: int, index_time: int
) -> Checkpoint:
    """The checkpoint of a complete store (spec 7.11, step 7); fields of later versions stay."""
    confirm, flushed = old.confirm_phy_offset, old.logics_physical_offset
    position = max(0, last_record)
    return old._replace(
        physic_msg_timestamp=last_timestamp,
        logics_msg_timestamp=last_timestamp,
        index_msg_timestamp=index_time,
        confirm_phy_offset=position if profile.queues.has_confirm_offset else confirm,
        logics_physical_offset=position if profile.queues.has_flushed_position else flushed,
    )
