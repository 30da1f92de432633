"""What the next start of a broker would do, as findings (I-180 … I-190): group `start`.

`store/recover` simulates the start, in a process of its own; its findings and those of the other groups make one
verdict.

`ProofOfLog` finds in the pass over the log what is in order for a start and a plan (`audit/verified.py`), so that
`store/recover` does not read the log again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..broker.snapshot import lacks_log
from ..counted import counted, listed
from ..disk.byte_reader import reading_rate
from ..disk.workers import beside
from ..errors import Missing, Refused, StoreError
from ..findings.catalogue import Severity, group_of
from ..findings.findings import Finding
from ..findings.next_commands import CUT, QUEUE
from ..log.commit_log import Batch, Extent
from ..session.journal import HalfStore, InterruptedChange, left_over
from ..settings.generation import generation_of
from .context import Mergeable, Predicted, Scope, VerifyContext
from .register import after

if TYPE_CHECKING:
    from ..audit.messages import Messages
    from ..audit.prove import ComparedUnits, Proof, Prover
    from ..audit.verified import VerifiedLog, VerifiedRun
    from ..broker.dispatch import Dispatched
    from ..broker.snapshot import QueueId
    from ..disk.file_queue import MappedFileQueue
    from ..disk.layout import Layout
    from ..plan.plan import Plan
    from ..queues.units import Units
    from ..recover.predict import Prediction
    from ..recover.recovery import Recovery
    from ..start.config import ConfigStart


class _ProofExport(NamedTuple):
    """What is proved of a part: its runs and BLANKs, the end up to which they have no hole, and its reach."""

    items: list[VerifiedRun | Extent]
    end: int
    reach: int


class ProofOfLog(Mergeable):
    """Proves the log while it is read. proof: None if that would be of no use."""

    def __init__(self, proof: Proof | None) -> None:
        self._proof = proof
        self._prover: Prover | None = None
        self._verified: VerifiedLog | None = None

    @classmethod
    def fresh(cls, context: VerifyContext) -> ProofOfLog:
        """Return the proof for the store of a run, empty if `recover` refuses the store."""
        from ..start.log import proof_of

        try:
            layout, scope = context.store.layout, context.scope
            return cls(proof_of(layout, scope.broker_version, context.copied, anew=scope.anew))
        except StoreError:  # `recover` refuses the store, too
            return cls(None)

    def see(self, item: Batch | Extent, dispatched: Dispatched | None = None) -> None:
        """Take the next item of the log. dispatched: what its records add to queues, if that is known."""
        if self._proof is None:
            return
        if self._prover is None:
            begin = item.position if isinstance(item, Extent) else int(item.position[0])
            self._prover = self._proof.at(begin)
        try:
            self._prover.see(item, dispatched)
        except StoreError:  # of a queue, which has its own checks
            self._give_up()

    def laid(self, messages: Messages, files: MappedFileQueue) -> Units | None:
        """Return the units of messages of a queue, if the proof has just read them."""
        known = self._prover and self._prover.laid.get(messages.queue)
        return known.of(files, messages) if known else None

    def settled(self, messages: int) -> list[dict[QueueId, ComparedUnits]] | None:
        """Return what `Prover.settled` has of all messages since the last call, None if they are not so many."""
        if self._prover is None:
            return None
        try:
            found = self._prover.settled()
        except StoreError:
            self._give_up()
            return None
        if found is None or sum(laid.messages.messages for group in found for laid in group.values()) != messages:
            return None
        return found

    def done(self) -> VerifiedLog | None:
        """Return what is in order of all that was seen; None if that is not known."""
        if self._prover is not None:
            try:
                part, self._prover = self._prover.done(), None
            except StoreError:
                self._give_up()
            else:
                self._verified = part if self._verified is None else part.after(self._verified)
        return self._verified

    def _give_up(self) -> None:
        self._proof = self._prover = self._verified = None

    def export(self) -> _ProofExport:
        verified = self.done()
        return _ProofExport(verified.items, verified.end, verified.reach) if verified else _ProofExport([], -1, 0)

    def merge(self, context: VerifyContext, exported: _ProofExport) -> None:
        from ..audit.prove import units_by
        from ..audit.verified import VerifiedLog

        before = self.done()
        proof = self._proof
        if proof is None or not (exported.items or before):
            return
        making = units_by(proof.making)
        part = VerifiedLog(exported.items, exported.end, proof.index, making, proof.copied, reach=exported.reach)
        self._verified = part if before is None else part.after(before)


def proved_of(context: VerifyContext) -> VerifiedLog | None:
    """Return what is in order in the log that a run has read; None if that is not known."""
    found = context.states().get(ProofOfLog)
    return found.done() if isinstance(found, ProofOfLog) else None


GROUP = "start"
_SMALL_BYTES = 4 << 20
"""Size of a log for which a fork costs more than reading it."""


def findings_of_start(found: Recovery) -> Iterator[Finding]:
    """Yield what a start would do to a store that `analyze` has seen."""
    root, worst, plan = found.layout.root, found.prediction, found.plan
    yield from unfinished_change(root, left_over(found.layout))
    if found.refusal is not None and not found.interrupted:
        yield Finding.of("I-187", root, f"recovery is not possible yet: {found.refusal}")
    brought = plan.brought if plan is not None and found.options.policy != "keep" else None
    if brought is not None and brought.parted_at is not None:
        yield Finding.of("I-182", root, brought.never_follows)
    mend = CUT if better_cut(found) else None
    yield from _of_prediction(found.layout, worst, "" if found.not_by_files else mend)
    yield from _of_what_waits(found)
    if plan is not None and plan.lost_end:
        yield end_is_gone(found.layout, plan.lost_end, plan.resent)
    if plan is not None and not worst.lost.messages and (count := _without_record(plan)):
        are = counted(count, "message that queue units name is", "messages that queue units name are", form=",")
        yield Finding.of("I-186", root, f"{are} gone", count=count, repair=mend)


def end_is_gone(layout: Layout, part: range, messages: int) -> Finding:
    """Return the finding that a log has lost its end. part: of the log. messages: number of those that units name."""
    size = counted(len(part), "byte", form=",")
    named = f" ({counted(messages, 'message that queue units name', 'messages that queue units name', form=',')})"
    text = f"the log has lost its end, {size} from {part.start:,} on{named if messages else ''}"
    text += f": they are gone, unless {layout.master} sends them again"
    return Finding.of("I-191", layout.root, text, count=max(messages, 1))


def better_cut(found: Recovery) -> bool:
    """Whether the plan makes the log of one of several DLedger nodes differ from the others for ever, where a start
    cuts it and the leader sends the rest again.
    """
    plan = found.plan if found.options.policy == "keep" and found.layout.has_peers else None
    start, cuts = found.prediction, plan is not None and bool(plan.fills or plan.cut)
    return cuts and start.starts and start.lost.messages > 0 and not found.interrupted


def _without_record(plan: Plan) -> int:
    """Return the number of lost messages but those with unusable properties, which I-044 and I-045 report."""
    from ..audit.messages import UNUSABLE

    there = sum(share.messages for share in plan.lost if share.reason == UNUSABLE)
    return plan.lost.messages - plan.lost_compacted - there


def would_not_start(root: Path, version: str, reason: object, repair: str | None = None) -> Finding:
    """Return the finding that a broker of a version does not start."""
    return Finding.of("I-180", root, f"a broker {version} would not start: {reason}", repair=repair)


def unfinished_change(root: str | Path, left: InterruptedChange | HalfStore | None) -> Iterator[Finding]:
    """Yield a finding about an unfinished change of mqstore. left: what it left."""
    if left is None:
        return
    elsewhere = left.journal if isinstance(left, InterruptedChange) else None
    text = str(left) if elsewhere is None else f"{left}; its journal is in {elsewhere}"
    yield Finding.of("I-185", root, text, repair=left.cure)


def _of_prediction(layout: Layout, worst: Prediction, repair: str | None) -> Iterator[Finding]:
    """Yield findings. repair: of what is lost, or keeps a broker from its start; "" if no change of files is one."""
    from ..audit.messages import BEHIND_HOLE, IN_FRONT, UNSERVED
    from ..recover.broker_bugs import BETWEEN_BATCHES, MADE_AGAIN, WITHOUT_COMPACTION_LOG

    root, broker = layout.root, f"a broker {worst.broker_version}"
    if worst.outcome == "refuses":
        yield would_not_start(root, worst.broker_version, worst.reason, repair=repair)
    elif worst.outcome == "hangs":
        yield Finding.of("I-180", root, f"{broker} would hang at its start: {worst.reason}")
    if lost := worst.lost.messages:
        topics = counted(worst.lost.topics, "topic")
        text = f"{broker} would lose {counted(lost, 'message', form=',')} of {topics}"
        text += f", unless {layout.master} sends them again" if layout.follows_master else ""
        yield Finding.of("I-181", root, text, count=lost, repair=repair)
    if hidden := worst.hidden:
        by_chance = all(f"({MADE_AGAIN}:" in share.reason for share in worst.invisible)
        text = f"{broker} {'may' if by_chance else 'would'} leave {counted(hidden, 'message', form=',')} unread"
        ways = {
            WITHOUT_COMPACTION_LOG: "with enableCompaction=false they are served like others",
            BETWEEN_BATCHES: "the topic needs queues in files (repair --queues --as files)",
        }
        groups = {IN_FRONT: "groups that are past it miss them", BEHIND_HOLE: "groups that are past it get them"}
        for reason, way in {**ways, **groups}.items():
            if count := sum(share.messages for share in worst.invisible if share.reason.startswith(reason)):
                part = "these" if count == hidden else f"{count:,} of these"
                text += f": {part} are {reason}; {way}"
        if all(share.reason in ways for share in worst.invisible):
            repair = ""
        if all(share.reason == UNSERVED for share in worst.invisible):
            text, repair = f"{text}: {UNSERVED}", "compaction"
        shifted = {share.queue for share in worst.invisible if share.reason.startswith(IN_FRONT)}
        if shifted and all(share.queue in shifted for share in worst.invisible):
            repair = QUEUE  # no recovery: one that names the queues gives their units other queue offsets
        yield Finding.of("I-182", root, text, count=hidden, repair=repair)
    timers = worst.timers
    if timers is not None and (text := timers.unfired_text):
        mend, severity = None if timers.in_files else "", None if timers.unfired else Severity.WARNING
        text, count = f"{broker} would {text}", max(timers.never_fired, 1)
        yield Finding.of("I-183", root, text, count=count, severity=severity, repair=mend)
    if timers is not None and timers.fired_twice:
        text = f"{broker} would fire {timers.twice_text}"
        mends = timers.in_files and "B34" in timers.bugs  # what was delivered since timercheck was written stays
        yield Finding.of("I-184", root, text, count=timers.fired_twice, repair=None if mends else "")
    if worst.config is not None:
        yield from forgotten(root, worst.config)


def _of_what_waits(found: Recovery) -> Iterator[Finding]:
    """Yield what waits where the start does not read it."""
    for reason, count, groups in (each for each in found.unread if each.waiting):
        what, ways = f"ask for the decision of {counted(count, 'open transaction', form=',')}", "decided"
        if groups:
            many = counted(count, "message", form=",")
            what = f"give again {many} that POP consumers of {listed(groups, _GROUPS_NAMED)} have"
            ways = "acknowledged, or set the groups back (offsets --reset)"
        text = f"a broker {found.prediction.broker_version} would never {what}: {reason}"
        text += f"; first run a broker that reads them until they are {ways}"
        yield Finding.of("I-190", found.layout.root, text, count=count)


_GROUPS_NAMED = 3


def forgotten(root: Path, config: ConfigStart) -> Iterator[Finding]:
    """Yield what a start would lose of the configuration of the store at `root`."""
    if config.forgets:
        text = f"a broker {config.version} would forget configuration: {config.sentence}"
        yield Finding.of("I-188", root, text)


def predict(layout: Layout, version: str | None, verified: VerifiedLog | None, now_ms: int) -> Predicted:
    """Simulate the start. version: of the broker, None to guess. verified: as for `analyze`. now_ms: time of the
    request.

    Raise Unreadable.
    """
    from ..plan.observer import Policy, RecoveryOptions
    from ..recover.recovery import ProvedLog, analyze, facts_of, losses_of

    proved = None if verified is None else ProvedLog(verified, None)
    try:
        found = analyze(layout, version, options=RecoveryOptions(Policy.KEEP, now_ms, applicable=False), proved=proved)
    except StoreError as error:
        findings = [*unfinished_change(layout.root, left_over(layout)), *refused_by_config(layout, version)]
        return Predicted(findings, error.message)
    facts = (*facts_of(found), *losses_of(found))
    unknown = next((each.reason for each in found.unread if not each.waiting), "")
    return Predicted(list(findings_of_start(found)), unknown, facts, found.recovered, found.config)


def refused_by_config(layout: Layout, version: str | None) -> Iterator[Finding]:
    """Yield what keeps a broker from its start whatever log and queues are. Raise Unreadable."""
    from ..broker.profiles import profile_of
    from ..start.config import config_start

    profile = profile_of(version or generation_of(layout).version)
    if reason := config_start(layout, profile, {}).refuses:
        yield would_not_start(layout.root, profile.version, reason)


def _left_out_by(scope: Scope) -> str:
    """Return the option that limits a run to a part of the store, so that it cannot know what a start does."""
    limits = {
        "--quick": scope.quick,
        "--topic": scope.topic is not None,
        "--since": scope.since_ms is not None,
        "--sample": scope.sample_percent is not None,
        "--max-duration": scope.max_duration_s is not None,
    }
    return next((option for option, given in limits.items() if given), "")


def why_not(context: VerifyContext) -> str | None:
    """Return why no start is predicted: "" while somebody writes; None if a start is predicted."""
    return "" if context.live else _left_out_by(context.scope) or None


@contextmanager
def start_beside(context: VerifyContext) -> Iterator[None]:
    """Predict the start of a context's store in another process, for the check of this group, after the pass over the
    log.

    Nothing is predicted for a store in use, nor in a run over only a part of a store.
    """
    reason = why_not(context)
    if GROUP not in context.groups or reason is not None:
        layout = context.store.layout
        found = list(_without_prediction(layout)) if GROUP in context.groups and reason else []
        context.start = lambda: Predicted(found, reason or "")
        yield
        return
    layout, version = context.store.layout, context.scope.broker_version
    asked = partial(predict, layout, version, proved_of(context), context.now_ms)
    # another process is faster for a large log; it would have the limit of `at_rate` for itself
    large = reading_rate() is None and layout.commit_log_files().size > _SMALL_BYTES
    with beside(asked, worth=large) as start:
        context.start = start
        yield


def _without_prediction(layout: Layout) -> Iterator[Finding]:
    """Yield what keeps a store from its start or its recovery and shows without a prediction."""
    yield from unfinished_change(layout.root, left_over(layout))
    if lacks_log(layout):
        from ..plan.normalize import refuse_to_read  # rare, and it imports much

        try:
            refuse_to_read(layout)
        except Missing:  # a broker makes the directory
            return
        except Refused as error:
            yield Finding.of("I-187", layout.root, f"recovery is not possible yet: {error}")


@after(*(code for code, group in group_of().items() if group == GROUP))
def a_start_does_no_harm(context: VerifyContext) -> None:
    reason = context.stopped()
    found = context.predicted = Predicted([], reason) if reason else context.start()
    for one in found.findings:
        context.findings.add(one.code, one.path, one.message, count=one.count, severity=one.severity, repair=one.repair)
    if found.why_not:
        context.unread.append(f"what a broker's start does: {found.why_not}")
