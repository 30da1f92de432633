"""Make the plan of `recover`: a list of edits and what they cost. Nothing is written.

Under the policy `broker` the log ends where the broker's start would end it, under `keep` no readable record is given
up. Both complete queues and index from the log, which no broker does (spec 7.5), and move away what lies behind the
ends, so that the next start of any version finds nothing to do (spec 7.11). The last edits write the checkpoint and
remove `abort`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...formats.checkpoint import PAGE_BYTES
from ..audit.batches import of_right_type
from ..audit.messages import LogObserver, Tally, scan_messages
from ..audit.verified import PackedItems, VerifiedLog
from ..broker.profiles import MinOffset, Profile
from ..broker.snapshot import QueueId, Snapshot
from ..broker.system_topics import LMQ_PREFIX
from ..disk.checkpoint import Checkpoint, checkpoint_bytes, is_whole, lost_end
from ..disk.file_queue import MappedFileQueue
from ..disk.files import Edit, Phase
from ..errors import Refused, from_os_error
from ..index.compare import IndexFix, index_edits
from ..log.commit_log import CommitLog
from ..queues.edits import ext_edits, queue_edits
from ..queues.references import commit_log_of
from ..settings.options import options_of
from ..settings.read import Progress
from ..start.config import delay_progress
from ..start.config_load import config_rules
from ..start.log import Switches
from ..start.outcome import Outcome
from ..start.queue_stores import queue_stores
from ..start.simulate import simulate
from ..timer.start import timer_edits
from .close import KeptLog, SeenLog, gap_finder, keep_log, with_lost_anyway
from .database import QueueDatabase, queues_as_files
from .entries import EntryFinder, cut_log, entry_index_edits, keep_entries
from .fill import Fill, tombstoned
from .gaps import Gap, GapFinder
from .log import DeadTail, LogPlan, files_of, named_messages, plan_log, put_away
from .normalize import check_reach, in_the_way, normalize, traces_of_log
from .observer import GroupLoss, PlanBuilder, Policy, RecoveryOptions, left_away
from .torn_records import CutProperties, wrong_offsets
from .unreferenced import index_alone, places

if TYPE_CHECKING:
    from ..queues.rocksdb_write import DatabaseFix
    from .bring_back import Brought


def checkpoint_edit(path: Path, checkpoint: Checkpoint) -> Edit:
    """Return the edit that puts `checkpoint` at `path`: writes its fields, or creates the file."""
    data, why = checkpoint_bytes(checkpoint), ("the times and positions of a complete store", ("I-111", "I-113"))
    if is_whole(path):
        made = Edit("write", str(path), *why, 0, len(data), data)
    else:
        made = Edit.create(path, data, *why, PAGE_BYTES)
    return made._replace(phase=Phase.CHECKPOINT)


def ending(snapshot: Snapshot, checkpoint: Checkpoint) -> Iterator[Edit]:
    """Yield the edits of the last phases: a checkpoint, if it differs from the store's, and the removal of `abort`."""
    if checkpoint != Checkpoint(**snapshot.checkpoint):
        yield checkpoint_edit(snapshot.layout.checkpoint, checkpoint)
    if snapshot.abort:
        reason = "the store is in order: the next start is a clean start"
        yield Edit("remove", str(snapshot.layout.abort), reason, ("I-009",), phase=Phase.ABORT)


def new_checkpoint(
    old: Checkpoint, profile: Profile, last_record: int, last_timestamp: int, index_time: int, reached: int = 0
) -> Checkpoint:
    """Return the checkpoint of a complete store (spec 7.11, step 7); fields of later versions stay.

    reached: where the log ended before it lost its end, which stays known then; 0 without such a loss.
    """
    confirm, flushed = old.confirm_phy_offset, old.logics_physical_offset
    position = max(0, last_record)
    return old._replace(
        physic_msg_timestamp=last_timestamp,
        logics_msg_timestamp=last_timestamp,
        index_msg_timestamp=index_time,
        confirm_phy_offset=(reached or position) if profile.queues.has_confirm_offset else confirm,
        logics_physical_offset=position if profile.queues.has_flushed_position else flushed,
    )


class QueueEnds(NamedTuple):
    """Min and max offset of a queue after a plan or a start."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int

    @property
    def queue(self) -> QueueId:
        return QueueId(self.topic, self.queue_id)


def ranges_of(rows: Iterable[QueueEnds]) -> dict[QueueId, tuple[int, int]]:
    """Queue → its (min, max) offset."""
    return {row.queue: (row.min_offset, row.max_offset) for row in rows}


@dataclass(frozen=True)
class Plan:
    """Edits in the order of their phases, and the store that they lead to. A plan never changes.

    log_end: the end of the log afterwards. index: what is rebuilt, None for nothing. checkpoint: the new checkpoint,
    None if it stays.
    """

    policy: str
    log_start: int
    log_end: int
    edits: Sequence[Edit] = ()
    queues: Sequence[QueueEnds] = ()
    lost: Tally = field(default_factory=Tally)
    #: Number of lost messages that only a compaction log had.
    lost_compacted: int = 0
    #: Further lost messages that only index items name.
    index_alone: int = 0
    groups: GroupLoss = field(default_factory=lambda: GroupLoss({}))
    index: IndexFix | None = None
    #: All index items, if the store has no index; None: they must be read.
    items: list[PackedItems] | None = None
    checkpoint: Checkpoint | None = None
    #: The checkpoint of this store once it is complete.
    complete_checkpoint: Checkpoint | None = None
    #: As the broker generation does it: tags are indexed; the index counts puts (spec 3.1).
    index_tags: bool = False
    counts_puts: bool = False
    #: Messages of the log that get a missing unit.
    completed: int = 0
    #: Queues that keep other offsets than their records have; a repair that names them renumbers them.
    shifted: Sequence[QueueId] = ()
    #: Records of an earlier life lie behind the end; number of bytes to zero behind the end of the log.
    stale: bool = False
    tail_bytes: int = 0
    #: Log position before which records get units and index items, if that is not the end of the log.
    dispatched: int = 1 << 62
    #: Units that name records behind the broker's end of the log.
    beyond: int = 0
    #: Records whose header is corrected.
    restored: int = 0
    #: The log's files with the pieces to write over them; None: there is no log, or none of its files stays.
    files: MappedFileQueue | None = None
    #: What a replica gives; None: no replica was named.
    brought: Brought | None = None
    #: How the gaps of the log are closed.
    fills: Sequence[Fill] = ()
    #: Ranges where nothing takes the places of lost records; under `keep` only those behind the end of the log.
    gone: Sequence[Gap] = ()
    #: As of `KeptLog`.
    resent: int = 0
    lost_end: range = range(0)
    #: Records that have lost properties, with their new bytes.
    cut: Sequence[CutProperties] = ()
    #: The RocksDB of queues to build; None: it stays.
    database: DatabaseFix | None = None
    #: Without `RecoveryOptions.exact` the plan would differ.
    exact_alone: bool = False

    def __post_init__(self) -> None:
        in_phases = sorted(self.edits, key=lambda edit: edit.phase)
        object.__setattr__(self, "edits", tuple(in_phases))

    @property
    def lost_messages(self) -> int:
        return self.lost.messages + self.index_alone

    @property
    def without_log(self) -> bool:
        """The log has no file, or none that stays: queues begin at 0."""
        return self.files is None

    def touches(self, part: str) -> bool:
        """Whether an edit changes a file below this folder of the store."""
        return any(part in Path(edit.path).parts for edit in self.edits)

    def removes(self, part: str) -> bool:
        """Whether an edit removes a file of this folder that a broker would remove, too."""
        return any(e.kind == "remove" and part in Path(e.path).parts for e in self.edits)


class Reading(NamedTuple):
    """How a plan reads the log.

    observers: further observers of the same pass. tell: called with the log position reached. verified: the part of the
    log that is in order.
    """

    observers: tuple[LogObserver, ...] = ()
    tell: Callable[[int], None] | None = None
    verified: VerifiedLog | None = None


def make_plan(
    snapshot: Snapshot,
    profile: Profile,
    outcome: Outcome,
    *,
    options: RecoveryOptions | None = None,
    reading: Reading | None = None,
    progress: Progress | None = None,
    deleted: Callable[[str], bool] | None = None,
) -> Plan:
    """Plan the recovery: under `broker` to the state that this generation would reach, under `keep` to one in which
    every good record stays in place.

    options: default: the policy `broker`. progress: of the consumer groups. deleted: as of `left_away`. Raises
    Refused, Unreadable.
    """
    options, reading = options or RecoveryOptions(), reading or Reading()
    stores = queue_stores(snapshot.layout, profile)
    copied = reading.verified.copied if reading.verified else None
    if not stores.files:  # such a broker has no batch queues either
        snapshot = replace(snapshot, batch_queues={}, batch_topics=frozenset())
    with queues_as_files(snapshot, stores, copied) as (with_files, database):
        stores = stores._replace(deleted=left_away(with_files, profile, options.named, deleted))
        task = _Task(with_files, profile, outcome, options, reading, progress or {})
        plan = _plan(task, QueueDatabase(stores, database))
    check_reach(snapshot.layout, plan.edits)
    return plan


class _Task(NamedTuple):
    """What `make_plan` was given, with the queues of a RocksDB as files."""

    snapshot: Snapshot
    profile: Profile
    outcome: Outcome
    options: RecoveryOptions
    reading: Reading
    progress: Progress

    def builder(self, log: LogPlan, groups: GroupLoss, verified: VerifiedLog | None) -> PlanBuilder:
        return PlanBuilder(self.snapshot, log, groups, self.profile, self.options, verified)


def _plan(task: _Task, database: QueueDatabase) -> Plan:
    snapshot, profile, outcome, options, (_, tell, verified), progress = task
    policy, keep = options.policy, options.policy is Policy.KEEP
    switches, verified = _with_existing_lmq(snapshot, outcome, verified) if keep else (outcome.switches, verified)
    typed, wrong_type = of_right_type(snapshot, profile.queues)
    replica = options.replica
    normalized, edits = normalize(typed, any_length=keep, empty_log=options.force_empty_log, replica=replica)
    edits += wrong_type
    if not normalized.log:
        return _without_log(task, edits, database.stores.database)
    verified = None if edits else verified
    queue, builder = files_of(normalized), None
    how = database.stores.making(switches.dispatching(profile.dispatch))
    look = partial(scan_messages, how=how, progress=tell)
    brought = None
    normal = task._replace(snapshot=normalized, reading=task.reading._replace(verified=verified))
    if keep:
        kept, builder, brought = _keep(normal, queue, look)
    else:
        if edits or outcome.refusal or outcome.log.hidden:
            plain = switches._replace(consume_queue_ext=False, timer_wheel_enable=False)
            outcome = simulate(normalized, profile, plain)
        if replica:
            brought, _ = _from_replica(normal._replace(reading=Reading()), queue, look, compared_only=True)
        most = brought.parted_at if brought else None
        read = partial(look, commit_log_of(snapshot.layout, queue), progress=None)
        log = cut_log(normalized, outcome, read) if snapshot.layout.dledger else plan_log(normalized, outcome, most)
        kept = KeptLog(log, queue, [])
    untouched = verified and verified.beside(kept.written)
    if builder is None:
        builder = normal.builder(kept.plan, GroupLoss(progress), verified)
        if keep:
            look(commit_log_of(snapshot.layout, kept.queue), [builder], crc=False, progress=None, verified=untouched)
        else:
            kept = _with_losses(normal._replace(outcome=outcome), queue, kept, builder, look)
    builder.note_lost(tombstoned(normalized, [*kept.fills, *kept.gone]), kept.unplaced, kept.torn)
    beyond = sum(int((fill.lost.position >= outcome.log_end).sum()) for fill in kept.fills)
    plan = Plan(policy, kept.plan.start, kept.plan.end, edits, brought=brought, beyond=beyond)
    database = database._replace(verified=untouched, rewritten=[begin for begin, _ in kept.written])
    return _completed(plan, task, switches, kept, builder, database)


def _with_losses(
    task: _Task, queue: MappedFileQueue, kept: KeptLog, builder: PlanBuilder, look: Callable[..., None]
) -> KeptLog:
    """Read the log for a plan under `broker`; return it with what the damage itself loses. Raises Unreadable."""
    snapshot, profile, outcome, options, (observers, _, verified), _ = task
    log, again = commit_log_of(snapshot.layout, kept.queue), partial(look, progress=None)
    if snapshot.layout.dledger is not None:
        look(log, [builder, *observers], verified=verified)
        with suppress(Refused):
            of_keep = _keep_entries(task._replace(reading=Reading()), queue, again)[0]
            cut = (fill for fill in of_keep.by_head if fill.gap.begin >= kept.plan.end)
            gone = [*of_keep.fills, *of_keep.gone, *cut]
            return kept._replace(gone=gone, unplaced=of_keep.unplaced, torn=of_keep.torn)
        return kept
    finder = gap_finder(snapshot, profile, verify=outcome.switches.demand_crc(profile.record))
    look(log, [builder, finder, *observers], verified=verified)
    whole = builder
    if finder.end > kept.plan.end:  # lost messages are also known by records behind the broker's end
        whole = task.builder(kept.plan._replace(end=finder.end), GroupLoss({}), verified)
        again(log, [whole], crc=False, verified=verified)
    elsewhere = wrong_offsets(log, whole.queues, finder.misplaced, [*whole.nameless, *finder.silent])
    seen = SeenLog(snapshot, queue, finder, whole.queues, verified)
    return with_lost_anyway(kept, seen, options.forms, elsewhere)


def _completed(
    plan: Plan, task: _Task, switches: Switches, kept: KeptLog, builder: PlanBuilder, database: QueueDatabase
) -> Plan:
    snapshot, profile, _, options, *_ = task
    log, rules = kept.plan, profile.dispatch
    planned_log = commit_log_of(snapshot.layout, kept.queue)
    queues = _queue_edits(snapshot, builder, planned_log, profile, database)
    of_log = (edit._replace(phase=Phase.LOG) for edit in log.edits)
    edits = [*plan.edits, *of_log, *queues.edits]
    if snapshot.layout.dledger is not None:
        made = entry_index_edits(snapshot, kept.queue, log.end)
        edits += (edit._replace(phase=Phase.LOG) for edit in made)
    fix = None
    if options.queues_in_database:
        how = switches.dispatching(rules)
        of_database, fix = database.edits(planned_log, log.end, how, applicable=options.applicable)
        edits += of_database
    if switches.consume_queue_ext:
        edits += ext_edits(snapshot)
    if profile.timer and switches.timer_wheel_enable:
        edits += timer_edits(snapshot)
    index = None
    indexed, asked = _wants_index(snapshot, switches, options)
    if indexed:
        blanks = [fill.blank for fill in kept.fills if fill.blank is not None]
        builder.index.note_blanks([(begin, begin + size) for begin, size in blanks])
        if plan.brought is not None:
            builder.index.note_brought([(part.position, part.end) for part in plan.brought.parts], planned_log)
        index = builder.index.finish()
    if index is not None:
        edits += index_edits(snapshot, index)
    follows = snapshot.layout.dledger is not None or snapshot.layout.follows_master
    grows = snapshot.layout.log_stop is not None  # what is behind the end was stored and indexed since
    counts_behind = index is not None and options.policy is Policy.KEEP and not (follows or grows)
    unclosed = kept.gone if options.policy is Policy.BROKER else ()
    closed, gone = ([*kept.fills, *unclosed], kept.gone) if queues.completed else ((), ())  # else queues name them all
    behind = (log.end, builder.last_timestamp) if counts_behind and (gone or not queues.beyond) else None
    checkpoint = _checkpoint(snapshot, index, builder, profile, kept)
    changed = bool(edits) or snapshot.abort  # an unchanged store keeps its checkpoint
    if changed:
        edits += ending(snapshot, checkpoint)
        _check_kinds(snapshot.layout.root, edits)
    return replace(
        plan,
        edits=edits,
        queues=queues.rows,
        lost=builder.lost,
        index_alone=index_alone(snapshot, closed, kept.unplaced, behind, gone),
        groups=builder.groups,
        index=index,
        items=builder.all_items,
        checkpoint=checkpoint if changed else None,
        complete_checkpoint=checkpoint,
        index_tags=rules.index_tags,
        counts_puts=rules.counts_puts,
        completed=queues.completed,
        shifted=queues.shifted,
        stale=log.stale,
        tail_bytes=log.tail_bytes,
        dispatched=builder.dispatched if builder.waits else plan.log_end,
        beyond=plan.beyond + queues.beyond,
        restored=kept.restored,
        files=kept.queue,
        fills=kept.fills,
        gone=[fill.gap for fill in kept.gone if fill.gap.begin >= log.end or options.policy is Policy.BROKER],
        cut=kept.cut,
        resent=kept.resent,
        lost_end=kept.lost_end,
        database=fix,
        exact_alone=asked or kept.exact_alone or builder.exact_alone,
    )


def _wants_index(snapshot: Snapshot, switches: Switches, options: RecoveryOptions) -> tuple[bool, bool]:
    """Whether the index is repaired, and whether only because of `RecoveryOptions.exact`. An index that may never have
    existed is left to `repair --index`: a broker without one has lost nothing.
    """
    missed = not options_of(snapshot.layout).message_index.is_guess or snapshot.abort
    wanted = switches.message_index_enable and (missed or options.exact)
    return wanted, wanted and not missed


def _with_existing_lmq(
    snapshot: Snapshot, outcome: Outcome, verified: VerifiedLog | None
) -> tuple[Switches, VerifiedLog | None]:
    """Return switches and verified log that keep existing LMQs if the option is off: a broker leaves them as they are.
    The verified log does not know their units and is dropped then.
    """
    lmq = [queue for queue in snapshot.queues if queue.topic.startswith(LMQ_PREFIX)]
    if not lmq or outcome.switches.multi_dispatch:
        return outcome.switches, verified
    at_zero = all(queue.queue_id == 0 for queue in lmq)
    return outcome.switches._replace(multi_dispatch=True, lmq_zero=at_zero), None


def _keep(
    task: _Task, queue: MappedFileQueue, look: Callable[..., None]
) -> tuple[KeptLog, PlanBuilder | None, Brought | None]:
    """Read the log and plan it under `keep`, with its builder if one pass is enough. Raises Refused, Unreadable."""
    snapshot, profile, outcome, options, (observers, _, verified), progress = task
    if snapshot.layout.dledger is not None:
        return _keep_entries(task, queue, look)
    verifies, brought = outcome.switches.demand_crc(profile.record), None
    if options.replica:
        brought, queue = _from_replica(task, queue, look)
        observers, verified = (), None
    finder = gap_finder(snapshot, profile, verify=verifies)
    finder.files |= {file.start for file in queue.files}
    as_it_is = LogPlan(outcome.log_start, outcome.log_end, False, [], 0)
    commit_log = commit_log_of(snapshot.layout, queue)
    # if the broker cuts good records off, their queues count, too
    reach = 0 if verified is None else verified.reach
    cuts, whole = reach > as_it_is.end, as_it_is._replace(end=max(reach, as_it_is.end))
    guess = task.builder(whole, GroupLoss({} if cuts else progress), verified)
    look(commit_log, [finder, guess, *observers], verified=verified)
    if max(finder.end, as_it_is.end) != whole.end:
        cuts, whole = True, as_it_is._replace(end=max(finder.end, as_it_is.end))
        guess = task.builder(whole, GroupLoss({}), verified)
        look(commit_log, [guess], crc=False, verified=verified)
    guess = _without_dead_tail(task, guess, finder, commit_log, partial(look, crc=False, verified=verified))
    silent = [*guess.nameless, *finder.silent]
    elsewhere = wrong_offsets(commit_log, guess.queues, finder.misplaced, silent)
    pieces = brought.pieces if brought else ()
    seen = SeenLog(snapshot, queue, finder, guess.queues, verified)
    kept = keep_log(seen, options.forms, elsewhere, pieces)
    changed = kept.fills or kept.restored or kept.cut or kept.numbered
    same_ends = (kept.plan.start, kept.plan.end) == (as_it_is.start, as_it_is.end)
    kept = kept._replace(exact_alone=guess.exact_alone, torn=finder.torn)
    return kept, None if changed or cuts or not same_ends else guess, brought


def _from_replica(
    task: _Task, queue: MappedFileQueue, look: Callable[..., None], *, compared_only: bool = False
) -> tuple[Brought, MappedFileQueue]:
    from .bring_back import with_replica

    snapshot, profile, outcome, options, (observers, *_), _ = task
    how: dict[str, Any] = {"verify": outcome.switches.demand_crc(profile.record), "record_rules": profile.record}
    how |= {"look": look, "observers": observers, "compared_only": compared_only}
    return with_replica(snapshot, queue, options.replica, **how)


def _keep_entries(
    task: _Task, queue: MappedFileQueue, look: Callable[..., None]
) -> tuple[KeptLog, PlanBuilder | None, Brought | None]:
    """As `_keep` for a DLedger log. Raises Refused, Unreadable."""
    snapshot, profile, _, options, (observers, *_), progress = task
    if options.replica:
        raise Refused("a DLedger log takes nothing from a replica", path=snapshot.layout.dledger)
    delivered = delay_progress(snapshot.layout, config_rules(profile)) or {}
    log = commit_log_of(snapshot.layout, queue)
    finder = EntryFinder(profile.record, delivered, queue.start)
    look(log, [finder, *observers])
    as_it_is = LogPlan(queue.start, finder.end, False, [], 0)
    guess = task.builder(as_it_is, GroupLoss(progress), None)
    look(log, [guess], crc=False, progress=None)
    elsewhere = wrong_offsets(log, guess.queues, (), [*guess.nameless, *finder.silent])
    kept = keep_entries(snapshot, queue, options.forms, finder, elsewhere, places(guess.queues))
    return kept._replace(torn=finder.torn), None if kept.written else guess, None


def _without_dead_tail(
    task: _Task, guess: PlanBuilder, finder: GapFinder, log: CommitLog, look: Callable[..., None]
) -> PlanBuilder:
    """Return a builder that has seen the log without a dead tail, if there is one, else `guess`."""
    counted_again = any(audit.irregular for audit in guess.queues.values())
    if not counted_again or guess.snapshot.batch_queues:
        return guess
    tail = DeadTail(guess.queues)
    look(log, [tail])
    end = tail.begin(log)
    if end is None:
        return guess
    finder.give_up(end)
    again = task.builder(guess.log._replace(end=end, again=True), GroupLoss({}), None)
    look(log, [again])
    return again


def _without_log(task: _Task, edits: list[Edit], database: Path | None) -> Plan:
    """Return the plan of a store that has no log and is missing none. database: of queues. Raises Refused."""
    snapshot, lost, groups = task.snapshot, Tally(), GroupLoss(task.progress)
    for messages in named_messages(snapshot):
        groups.add(messages)
        lost.add(messages)
    at_end = lost_end(snapshot.layout, snapshot.checkpoint, 0, snapshot.log_file_bytes)
    new = new_checkpoint(Checkpoint(**snapshot.checkpoint), task.profile, -1, 0, 0, at_end.stop)
    if traces_of_log(snapshot):
        edits = [*edits, *put_away(snapshot, database)]
    if edits or snapshot.layout.commit_log_directories[0].is_dir():  # the directory can hold the start barrier
        edits = [*edits, *ending(snapshot, new)]
    _check_kinds(snapshot.layout.root, edits)
    # without queues, only the index names messages
    indexed = 0 if lost.messages else index_alone(snapshot, (), (), (0, -1))
    plan = Plan(task.options.policy, 0, 0, edits, lost=lost, index_alone=indexed, groups=groups)
    return replace(plan, lost_end=at_end, checkpoint=new, complete_checkpoint=new)


def _check_kinds(root: Path, edits: Iterable[Edit]) -> None:
    """Check that everything to be changed can be kept: files, directories, links. Raises Refused."""
    for path in dict.fromkeys(edit.path for edit in edits):
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            continue
        except OSError as error:
            wrong = from_os_error(error, path)
            if wrong.path is None or wrong.path == path:
                raise wrong from error
            raise in_the_way(wrong.message, wrong.path, root) from error
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
            raise Refused("neither file nor directory", path=path, hint="remove it")


@dataclass
class _Queues:
    """The edits of queues and the fields of `Plan` about them."""

    edits: list[Edit] = field(default_factory=list)
    rows: list[QueueEnds] = field(default_factory=list)
    shifted: list[QueueId] = field(default_factory=list)
    completed: int = 0
    beyond: int = 0


def _queue_edits(
    snapshot: Snapshot, builder: PlanBuilder, log: CommitLog, profile: Profile, database: QueueDatabase
) -> _Queues:
    found, stores = _Queues(), database.stores
    for name in sorted(builder.queues):
        if stores.deleted(name.topic):
            continue
        audit = builder.queues[name]
        fix = audit.finish(log)
        if audit.holes and profile.queues.batches and name in snapshot.batch_queues:
            raise Refused(
                f"the messages of {name.topic} are batches, but its queue.type says otherwise",
                path=snapshot.layout.batch_consume_queue / name.topic,
                hint="correct the topic's queue.type in topics.json",
            )
        directory = name.below(snapshot.layout.consume_queue)
        entries = snapshot.queues.get(name, ())
        if stores.in_files(name.topic) and not audit.is_sound:
            found.edits += queue_edits(fix, entries, directory, snapshot.queue_file_bytes)
        first = audit.first_in_log(fix)
        if first is None:
            first = 0 if profile.queues.min_offset is MinOffset.LINEAR else fix.end
        row = QueueEnds(*name, first, fix.end)
        end = 0 if row.max_offset else database.end_without_units(name)
        found.rows.append(QueueEnds(*name, end, end) if end else row)
        found.completed += fix.missing
        found.beyond += fix.beyond
        if fix.shifted:
            found.shifted.append(name)
    for batches, of_batch, its_edits in builder.batches.finish():
        found.edits += its_edits
        found.rows.append(QueueEnds(*batches.queue, batches.min_offset, batches.max_offset))
        found.completed += of_batch.missing
    return found


def _checkpoint(
    snapshot: Snapshot, fix: IndexFix | None, builder: PlanBuilder, profile: Profile, log: KeptLog
) -> Checkpoint:
    old, index = Checkpoint(**snapshot.checkpoint), builder.index.files
    kept = index.files[: len(index.files) - len(fix.gone)] if fix else index.files
    full = [file.header.end_timestamp for file in kept if file.header.index_count >= index.geometry.items]
    reached = log.lost_end.stop if log.lost_end.stop > log.plan.end else 0  # what the plan cuts off is lost, too
    last, time = builder.last_record, builder.last_timestamp
    return new_checkpoint(old, profile, last, time, full[-1] if full else 0, reached)
