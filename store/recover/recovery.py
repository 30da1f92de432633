"""`analyze`: everything that `recover` reports about a store, from one pass over its log, and lines for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from ...formats.message_properties import RETRY_PREFIX
from ...formats.pop import REVIVE_GROUP, REVIVE_TOPIC
from ..audit.messages import Readability, scan_messages
from ..audit.prove import prove_log, with_verified_queues
from ..audit.verified import VerifiedLog
from ..broker.dispatch_record import Dispatching
from ..broker.profiles import Profile, is_exact, profile_of
from ..broker.snapshot import QueueId, Snapshot
from ..broker.system_topics import TIMER_TOPIC
from ..counted import bytes_text, counted, listed
from ..disk.byte_reader import refusing
from ..disk.layout import Layout
from ..disk.lock import holder
from ..disk.workers import cores
from ..errors import Refused
from ..findings.findings import Finding
from ..findings.next_commands import proposed
from ..index.read import sizes_of
from ..inspect.own_topics import has_own_records, messages_delayed_again
from ..inspect.pop import popped_again
from ..inspect.timer_records import DeliveredTimers
from ..inspect.transactions import asked_again
from ..plan.database import opened_database
from ..plan.gaps import Gap
from ..plan.lost_messages import MOST, LostMessages, messages_of_rows, name_all
from ..plan.normalize import front_without_files, lost_front_notes
from ..plan.observer import GroupLoss, Policy, RecoveryOptions, deleted_topics, expected_queues, topics_with_queues
from ..plan.plan import Plan, Reading, make_plan
from ..queues.references import commit_log_of
from ..queues.rocksdb_copy import CopiedQueues
from ..search.log_search import never_delivered
from ..search.store import StoreReader, clock_ms
from ..session.journal import Fingerprint, Journal, barriers_left, carried_out, unfinished
from ..settings.generation import Generation, generation_of
from ..settings.options import options_of
from ..settings.read import Progress, read_progress
from ..start.config import ConfigStart, config_start
from ..start.config_load import TOPICS, config_rules
from ..start.log import Switches, as_configured, by_source, proof_in, switches_of
from ..start.outcome import Outcome
from ..start.queue_stores import DIFFERS, queue_stores
from ..start.simulate import all_outcomes, simulate
from .broker_bugs import NeverRead, never_read
from .cases import Case, CaseFacts, case_of
from .predict import DeliveredAgain, Prediction, StartedCompaction, prediction, queue_ends


@dataclass(frozen=True)
class Recovery:
    """A store before its recovery. notes: further facts for the reader. predictions: one per generation that may have
    written it, the worst first. plan: None if none can be made; `refusal` says why. interrupted: a session that was.
    """

    layout: Layout
    crashed: bool
    generation: Generation | None
    notes: list[str]
    predictions: list[Prediction]
    plan: Plan | None
    plan_case: Case
    refusal: Refused | None
    messages: int
    damaged: int
    damaged_bytes: int
    tombstones: int
    #: Good records that nothing names and that are older than those before a hole, or have their queue offsets: an
    #: earlier start has cut them off. A clock that was set back looks the same.
    dead: int
    interrupted: Journal | None
    #: The version that the plan follows.
    main_version: str
    #: The start barrier of a finished session still exists: no broker loads before it is removed.
    barrier: bool
    #: The options of the plan.
    options: RecoveryOptions
    #: What waits where the worst start does not read it.
    unread: Sequence[NeverRead] = ()
    #: Fingerprint of the store that was read; None: it may change unnoticed.
    seen: Fingerprint | None = None
    #: The simulated start, for a plan that is made next.
    played: SimulatedStart | None = None
    #: The plan with `RecoveryOptions.exact`, if it was asked for.
    exact_plan: Plan | None = None
    #: Lost messages of the worst prediction and of the plan, after `name_lost`.
    named: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def prediction(self) -> Prediction:
        """The worst one."""
        return self.predictions[0]

    @property
    def config(self) -> ConfigStart:
        """The effect of the worst start on config/."""
        assert self.prediction.config is not None
        return self.prediction.config

    @property
    def nothing_to_do(self) -> bool:
        """The store is in order: no plan is needed."""
        planned = self.plan is not None and not self.plan.edits
        return planned and not self.interrupted and not self.barrier

    @property
    def recovered(self) -> bool | None:
        """Whether a recovery that keeps everything has nothing to do; None: unknown, as no such plan was made."""
        known = self.plan is not None and self.options.policy is Policy.KEEP
        return self.nothing_to_do if known else None

    @property
    def not_by_files(self) -> bool:
        """A start fails, or loses what no plan can keep: the files may be in order, but not for this configuration."""
        lost, by_options = bool(self.prediction.lost.messages), self.prediction.case.by_options
        kept = self.options.policy is Policy.KEEP and lost and by_options
        return kept or (self.nothing_to_do and (lost or by_options))

    @property
    def harmful(self) -> bool:
        """A start or the plan would lose or hide messages, or the broker would not start. Hidden are also timed
        messages that would never fire, and those of a topic, and a group's progress, that the configuration forgets.
        """
        worst = self.prediction
        hidden = worst.lost.messages or worst.hidden or worst.unfired or worst.forgets
        return bool(not worst.starts or hidden or self.plan is None or self.plan.lost_messages)

    def to_json(self) -> dict[str, Any]:
        worst, plan = self.prediction, self.plan
        lost = self._lost_json("prediction", worst.groups)
        row: dict[str, Any] = {
            "type": "recovery",
            "store": str(self.layout.root),
            "exit": "crashed" if self.crashed else "clean",
            "prediction": {**worst.to_json(), **lost},
            "plan": None if plan is None else self._plan_json(plan),
            "summary": {
                "messages": self.messages,
                "damaged": self.damaged,
                "damaged_bytes": self.damaged_bytes,
                "tombstones": self.tombstones,
                "dead": self.dead,
                "lost_by_broker": worst.lost.messages,
                "invisible_by_broker": worst.invisible.messages,
                "lost_by_plan": plan.lost_messages if plan else None,
            },
        }
        if len(self.predictions) > 1:
            row["candidates"] = [row["prediction"], *(p.to_json() for p in self.predictions[1:])]
        if self.generation is not None:
            row["broker_version_reason"] = self.generation.reason
        if self.refusal is not None:
            row["refusal"] = str(self.refusal)
        if noted := list(by_source(self.layout, self.main_version)):
            row["by_source"] = noted
        if self.interrupted:
            row["interrupted_session"] = self.interrupted.session
        return row

    def _plan_json(self, plan: Plan) -> dict[str, Any]:
        edits, root = carried_out(self.interrupted, plan), f"{self.layout.root}/"
        return {
            "policy": plan.policy,
            "case": self.plan_case.label,
            "log_start": plan.log_start,
            "log_end": plan.log_end,
            "edits": [{**edit.to_json(), "path": edit.path.removeprefix(root)} for edit in edits],
            "queues": [row._asdict() for row in plan.queues],
            "completed": plan.completed,
            "lost": plan.lost.to_json(),
            "groups": plan.groups.to_json(),
            **self._lost_json("plan", plan.groups, plan.lost.messages - plan.groups.lost.count),
            "damaged": [
                {"position": gap.begin, "size": gap.end - gap.begin, "messages": lost.messages}
                for gap, lost, *_ in plan.fills
            ],
            "torn_properties": [record.to_json() for record in plan.cut],
            **({"replica": plan.brought.to_json()} if plan.brought else {}),
        }

    def name_lost(self, most: int = MOST) -> None:
        """Find at most `most` lost messages per list for `to_json`; to be called before anything is applied: it reads
        the store on disk. Raises Unreadable.
        """
        lists: dict[str, tuple[LostMessages, Sequence[Gap]]] = {}
        lists["prediction"] = (self.prediction.groups.lost, ())
        if self.plan is not None:
            closed = (fill.gap for fill in self.plan.fills)
            lists["plan"] = (self.plan.groups.lost, [*closed, *self.plan.gone])
        self.named.update({whose: [] for whose in lists})
        if not any(lost.count or gaps for lost, gaps in lists.values()):
            return
        snapshot = Snapshot.of(self.layout)
        for whose, (lost, gaps) in lists.items():
            self.named[whose] = name_all(lost, snapshot, gaps, most)

    def _lost_json(self, whose: str, groups: GroupLoss, placeless: int = 0) -> dict[str, Any]:
        """Return the rows of `name_lost`, and the number of those left off. placeless: lost without a known record."""
        if whose not in self.named:
            return {}
        rows = self.named[whose]
        of_index = sum(row["known_from"] == "index" for row in rows)
        left_off = max(0, groups.lost.count - (messages_of_rows(rows) - of_index)) + max(0, placeless - of_index)
        return {"lost_messages": rows, "lost_messages_left_off": left_off}


class ProvedLog(NamedTuple):
    """The part of a log that is in order, proved with `proof_of`, and the fingerprint taken before. files: fingerprint
    of all files of the store; if it does not hold any more, nothing is proved. None: the caller answers for that.
    findings: of a `verify` of the whole store, None without one.
    """

    verified: VerifiedLog
    seen: Fingerprint | None
    files: Fingerprint | None = None
    findings: Sequence[Finding] | None = None


class SimulatedStart(NamedTuple):
    """The start that a plan goes by, and the part of the log that is in order."""

    snapshot: Snapshot
    outcome: Outcome
    verified: VerifiedLog | None


@refusing()
def analyze(
    layout: Layout,
    version: str | None = None,
    *,
    options: RecoveryOptions | None = None,
    jobs: int | None = None,
    tell: Callable[[int], None] | None = None,
    proved: ProvedLog | None = None,
    exact: bool = False,
) -> Recovery:
    """Predict a broker's start and plan the recovery. Writes nothing.

    version: the broker's, None: the guess, with all candidates. options: what is asked for; time and generations are
    filled in here. tell: called with the log position reached. proved: by a caller who has just read the log; None: the
    log is read here. exact: also make `exact_plan`. Raises Unreadable, Unsupported, InvalidInput, and for an unusable
    replica Missing, NotAStore.
    """
    options = options or RecoveryOptions()
    options.check(layout)
    layout.version_named = version or ""
    if layout.aside:  # what was proved, was proved of the log that readers see
        layout, proved = layout.as_started(), None
    if proved is not None and proved.files is not None and not proved.files.still_holds(layout):
        proved = None
    seen = None if options.replica else proved.seen if proved is not None else Fingerprint.of(layout)
    snapshot = Snapshot.of(layout)
    generation = None if version else generation_of(layout)
    config = layout.broker_config
    versions = generation.candidates if generation is not None else (version or "",)
    profiles = [as_configured(profile_of(each), config) for each in versions]
    main = profile_of(version or (generation.version if generation else ""))
    main = as_configured(main, config)
    switches = switches_of(snapshot)
    verified = proved.verified if proved else _verified(snapshot, main, switches, jobs, tell)
    verified = verified and with_verified_queues(verified, snapshot)
    outcomes = [
        outcome for profile in profiles for outcome in all_outcomes(snapshot, profile, switches, verified=verified)
    ]
    chosen = next(outcome for outcome in outcomes if outcome.profile == main)
    generations = tuple(profile.version for profile in profiles)
    options = options._replace(made_ms=options.made_ms or clock_ms(), generations=generations)
    progress = read_progress(layout.config, layout.broker_config)
    lmq = chosen.database is not None
    deleted = deleted_topics(layout, config_rules(main), topics_with_queues(snapshot))
    expected = expected_queues(snapshot, deleted, lmq=lmq)
    # otherwise the plan without `exact` would treat runs differently
    exact = exact and (verified is None or all(map(verified.is_exact, verified.runs)))
    planned = partial(make_plan, snapshot, main, chosen, progress=progress, deleted=deleted)
    plan, refusal, exact_plan = None, None, None
    for exactly in (True, False) if exact else (False,):  # after a refusal, try without
        watched = _watched(outcomes, progress, expected)
        observers = tuple(after for _, after, _ in watched)
        try:
            reading = Reading(observers, tell, verified)
            plan = planned(options=options._replace(exact=exactly), reading=reading)
            if exactly:
                exact_plan = plan
                if plan.exact_alone:
                    plan = planned(options=options, reading=Reading(verified=verified))
            break
        except Refused as error:
            refusal = None if exactly else error
    if refusal is not None:
        for observer in observers:
            observer.reset()
        if snapshot.log:
            scan_messages(commit_log_of(layout), [*observers], how=_every_message(layout, switches, main))
    found = _recovery(snapshot, generation, version, watched, main, plan, refusal, options)
    played = SimulatedStart(snapshot, chosen, verified)
    return replace(found, seen=seen, played=played, exact_plan=exact_plan)


_TOPICS_LISTED = 3
_Watched = tuple[Outcome, Readability, GroupLoss]
"""A start, what can be read after it, and what groups lose by it."""


def _watched(outcomes: Iterable[Outcome], progress: Progress, expected: Callable[[QueueId], bool]) -> list[_Watched]:
    """Return an observer of the log for each possible start."""
    watched = []
    for outcome in outcomes:
        groups = GroupLoss(progress)
        kept = [(file.start, file.start + file.wrote) for file in outcome.log.files]
        after = Readability(kept, outcome.served_queues, expected, StartedCompaction(outcome))
        after.on_lost, after.on_lost_run = groups.add, groups.add_run
        watched.append((outcome, after, groups))
    return watched


@refusing()
def replan(
    layout: Layout, version: str, options: RecoveryOptions | None = None, played: SimulatedStart | None = None
) -> Plan:
    """Plan as `analyze`, and raise as it does. played: the start with what was read for it; None: simulate it now."""
    profile = as_configured(profile_of(version), layout.broker_config)
    if played is None:
        snapshot = Snapshot.of(layout)
        switches = switches_of(snapshot)
        verified = _verified(snapshot, profile, switches, None, None)
        verified = verified and with_verified_queues(verified, snapshot)
        played = SimulatedStart(snapshot, simulate(snapshot, profile, switches, verified=verified), verified)
    progress = read_progress(layout.config, layout.broker_config)
    return make_plan(
        played.snapshot,
        profile,
        played.outcome,
        options=options,
        reading=Reading(verified=played.verified),
        progress=progress,
    )


def _verified(
    snapshot: Snapshot, profile: Profile, switches: Switches, jobs: int | None, tell: Callable[[int], None] | None
) -> VerifiedLog | None:
    """Return the part of the log that is in order, from its beginning; None if it would be of no use."""
    proof = proof_in(snapshot, profile, switches, _copied_queues(snapshot, profile))
    return None if proof is None else prove_log(proof, jobs or cores(), tell)


def _copied_queues(snapshot: Snapshot, profile: Profile) -> CopiedQueues | None:
    """Return the queues of a store that has all of them in a readable RocksDB, else None."""
    database = None
    if snapshot.layout.rocksdb_queues and snapshot.log:
        database = opened_database(queue_stores(snapshot.layout, profile))
    if database is None:
        return None
    with database:
        found = CopiedQueues.of(database, snapshot.queue_file_bytes)
    return found if found.whole else None


def _every_message(layout: Layout, switches: Switches, main: Profile) -> Dispatching:
    """Return the dispatching of messages that count if nothing is planned."""
    if main.database is not None and switches.multi_dispatch:
        return queue_stores(layout, main).making(switches.dispatching(main.dispatch))
    return Dispatching(multi_dispatch=False)


def _notes(layout: Layout, version: str | None, main: Profile, plan: Plan | None) -> Iterator[str]:
    if version and not is_exact(version):
        yield f"no profile of {version}: that of {main.version} is the nearest"
    if (pid := holder(layout.lock)) is not None:
        yield f"process {pid} uses the store: it changes while you read this"
    if barriers_left(layout):
        yield "a start barrier keeps brokers from starting until the interrupted change is finished"
    yield from options_of(layout).notes()
    if layout.dledger is not None:
        yield "a DLedger log: the prediction is for a single node; a follower takes over what its leader has"
    if plan and layout.has_peers and plan.dispatched < plan.log_end:
        yield (
            f"the group has not committed the records from {plan.dispatched:,} on: they get no queue units and no index"
            " items here, and the group keeps or replaces them"
        )
    guessed = options_of(layout).message_index.is_guess
    if plan and plan.index is None and guessed and plan.log_start < min(plan.dispatched, plan.log_end):
        yield (
            "there is no index, and no sign that there ever was one (messageIndexEnable=false?): "
            f"`{proposed(layout, 'repair', '--index')}` makes one from the log"
        )
    size = sizes_of(layout).consume_queue
    by_files = not layout.queues_for_rocksdb
    if plan and by_files and size.origin == "default" and plan.touches("consumequeue"):
        yield (
            f"the size of queue files is not known: {size.value} bytes, the broker's default, are assumed "
            "(else --set mappedFileSizeConsumeQueue=…)"
        )


def _without_wheel(outcome: Outcome) -> Iterator[str]:
    """Yield notes if the timer wheel is off: a broker then reads neither timed messages nor the revive topic."""
    layout = outcome.snapshot.layout
    if layout.broker_config.get_bool("timerWheelEnable", True):
        return
    if any(queue.topic == TIMER_TOPIC and state.max_offset for queue, state in outcome.read_queues.items()):
        yield "timed messages that are not delivered yet wait: with timerWheelEnable=false a broker delivers none"
    progress = read_progress(layout.config, layout.broker_config)
    queues = {q: state.max_offset for q, state in outcome.read_queues.items() if q.topic.startswith(REVIVE_TOPIC)}
    if unread := sum(end > progress.get(queue, {}).get(REVIVE_GROUP, 0) for queue, end in queues.items()):
        many = counted(unread, "queue of the revive topic has", "queues of the revive topic have")
        off = "with timerWheelEnable=false no broker reads them"
        yield f"{many} unread messages, and {off}: POP messages without an acknowledgement do not come back"


def _left_behind(outcome: Outcome) -> Iterator[str]:
    """Yield a note about messages in no queue: those of a deleted topic look the same as those of lost queues."""
    begins, counts = outcome.switches.begins, Counter[str]()
    for queue, count in begins.left.items() if begins else ():
        counts[queue.topic] += count
    if counts:
        yield (
            f"{counted(counts.total(), 'message', form=',')} in no queue ({_by_topic(counts)}): their topics were"
            " deleted and created again, or the queues were lost before a start; the queues begin behind these messages"
        )


def _by_topic(counts: Counter[str]) -> str:
    topics = [f"{topic}: {count:,}" for topic, count in counts.most_common(_TOPICS_LISTED)]
    more = [counted(len(counts) - len(topics), "more topic", form=",")] if len(counts) > len(topics) else []
    return ", ".join(topics + more)


def _unserved(layout: Layout, found: Prediction) -> Iterator[str]:
    """Yield a note about topics that no start serves; `widened` drops it if the plan has the code at its end."""
    if found.config is None:
        return
    topics = {topic: 1 for topic in found.config.unserved if not topic.startswith(RETRY_PREFIX)}  # made by its group
    if topics and profile_of(found.broker_version).dispatch.any_queue:
        with StoreReader(layout) as store:
            topics = {topic: 1 for topic in topics if has_own_records(store, topic)}
    named = listed([*topics], _TOPICS_LISTED)
    if topics and layout.copies_config:
        then = "if it may lead before that, first copy config/ from a broker that has them"
        until = "until this broker has copied it from its master"
        yield f"{TOPICS} lacks {counted(len(topics), 'topic')} ({named}) {until}; {then}"
    elif topics:
        messages = sum(each.max_offset - each.min_offset for each in found.queues if each.topic in topics)
        mends = TOPICS not in found.config.databases
        way = proposed(layout, "repair", "--config", "--apply") if mends else "mqstore explain I-150"
        many = f"{counted(messages, 'message', form=',')} of {counted(len(topics), 'topic')} without an entry"
        yield f"no broker serves {many} in {TOPICS} ({named}); if they were not deleted: `{way}` (I-150)"


def _may_differ(outcome: Outcome, watched: list[_Watched]) -> bool:
    """Whether a start fails only if a thread is very late, when both kinds of queues are compared: the usual start
    succeeds, and so does the next one. 160 real starts of such a store all succeeded.
    """
    refusal = outcome.refusal
    usual = next(other for other, *_ in watched if other.profile == outcome.profile)
    return refusal is not None and refusal.case == DIFFERS and usual.refusal is None


def _is_cut(plan: Plan, layout: Layout, outcome: Outcome) -> bool:
    """Whether a plan ends the log where no start ends it, so that it continues as a copy of another broker's."""
    parted = plan.brought is not None and plan.brought.parted_at == plan.log_end
    return parted or (layout.has_peers and plan.policy is not Policy.KEEP and plan.log_end < outcome.log_end)


def _recovery(
    snapshot: Snapshot,
    generation: Generation | None,
    version: str | None,
    watched: list[_Watched],
    main: Profile,
    plan: Plan | None,
    refusal: Refused | None,
    options: RecoveryOptions,
) -> Recovery:
    layout = snapshot.layout
    interrupted = unfinished(layout.root, layout.journal)
    predictions, may_fail, plan_case = list[Prediction](), list[Prediction](), None
    with StoreReader(layout) as store:
        delivered = DeliveredTimers(store)  # reads what all starts need of the log once
        undelivered, again = partial(never_delivered, store), DeliveredAgain()
        if options.applicable:
            made = {name: queue.max_offset for name, queue in watched[0][0].read_queues.items()}
            again = DeliveredAgain(messages_delayed_again(store), popped_again(store, made), asked_again(store, made))
        for outcome, after, groups in watched:
            shown = None if plan is not None and _is_cut(plan, layout, outcome) else plan
            case = case_of(CaseFacts(snapshot, outcome, after, shown, interrupted is not None))
            found = prediction(outcome, after, groups, case, options.made_ms, delivered)
            if sum(other.profile == outcome.profile for other, *_ in watched) > 1:
                found = replace(found, race=outcome.commit.value)
            ends = queue_ends(found, plan, snapshot)
            found = found.with_config(config_start(layout, outcome.profile, ends, undelivered), again)
            (may_fail if _may_differ(outcome, watched) else predictions).append(found)
            if outcome.profile == main and plan_case is None:
                plan_case = case
        predictions.sort(key=lambda p: (p.badness, p.broker_version == main.version), reverse=True)
        unread = list(never_read(store, options.made_ms) if predictions[0].starts else ())
    seen_records = watched[0][1]
    predictions += may_fail
    notes = list(_notes(layout, version, main, plan))
    with layout.commit_log_files() as files:
        notes += [
            f"the log is read from {ours.path}, not from {other.path}: look at both before --apply"
            for ours, other in snapshot.files_of_one_name(files)
        ]
    front = front_without_files(snapshot)
    notes += [*lost_front_notes(snapshot, front, options.replica or ""), *_without_wheel(watched[0][0])]
    notes += _left_behind(watched[0][0])
    if made_again := predictions[0].made_again:
        has = counted(made_again.total(), "message", form=",")
        notes.append(f"a start makes queues of deleted topics again, with {has} ({_by_topic(made_again)})")
    notes += [*_unserved(layout, predictions[0]), *(each.reason for each in unread if not each.waiting)]
    notes += [
        f"a start of {found.broker_version} can fail ({found.reason}): it compares the queues in files with"
        " those in the RocksDB while a thread still writes; if it fails, start it again"
        for found in may_fail
    ]
    assert plan_case is not None
    return Recovery(
        layout,
        snapshot.abort,
        generation,
        notes,
        predictions,
        plan,
        plan_case,
        refusal,
        seen_records.total,
        seen_records.damaged,
        seen_records.damaged_bytes,
        seen_records.tombstones,
        seen_records.dead,
        interrupted,
        version or main.version,
        bool(barriers_left(layout)),
        options,
        unread,
    )


_DEAD = "records that an earlier start cut off: too old behind a hole, or queue offsets that are used again"


def lost_topics(found: Recovery) -> list[tuple[str, int, int]]:
    """Return (topic, messages that a start loses, messages that the plan loses), the most first."""
    start = found.prediction.lost.by_topic()
    plan = found.plan.lost.by_topic() if found.plan is not None else Counter[str]()
    return sorted(((t, start[t], plan[t]) for t in start | plan), key=lambda row: (-row[1], -row[2], row[0]))


_TOPICS = 20
"""Topics with a line each."""


def losses_of(found: Recovery) -> Iterator[tuple[str, str]]:
    """Yield lines as `facts_of`: what a start loses, and what of it `recover` does not save."""
    rows = lost_topics(found)
    for number, (topic, start, plan) in enumerate(rows[:_TOPICS]):
        by_plan = f"; with recover {plan:,}" if found.plan is not None else ""
        yield "" if number else "loses", f"{counted(start, 'message', form=',')} of {topic}{by_plan}"
    if len(rows) > _TOPICS:
        yield "", f"and of {counted(len(rows) - _TOPICS, 'more topic')}"


def facts_of(found: Recovery) -> Iterator[tuple[str, str]]:
    """Yield lines with a label each; "" continues the line before."""
    worst, plan, guess = found.prediction, found.plan, found.generation
    yield "broker", f"{worst.broker_version}{f' (a guess: {guess.reason})' if guess else ''}"
    if guess and not guess.certain:
        yield "", f"it may be {' or '.join(guess.candidates)}; the worst case is shown"
    yield "last exit", "crashed: abort is there" if found.crashed else "clean"
    yield "case", f"{worst.case.label}: {worst.case.found}"
    if worst.start_file:
        yield "scan from", f"{worst.start_file}: {worst.start_reason}"
    if worst.log_end is not None:
        yield "log ends", f"at {worst.log_end:,}: {worst.log_end_reason}"
    other_end = plan is not None and worst.log_end is not None and plan.log_end != worst.log_end
    if plan is not None and other_end and not found.not_by_files:
        yield "", f"at {plan.log_end:,} by the plan"
    for line in by_source(found.layout, found.main_version):
        yield "by source", line
    if worst.delay_seconds:
        yield "delay", f"the start takes {worst.delay_seconds} s longer"
    damaged = f", and {found.damaged:,} with a damaged body" if found.damaged else ""
    yield "messages", f"{found.messages:,}{damaged}"
    if found.damaged_bytes:
        yield "damage", f"{bytes_text(found.damaged_bytes)} of the log are damaged"
    if found.dead:
        yield "dead", f"{found.dead:,} {_DEAD}"
    if found.tombstones:
        yield "tombstones", f"{found.tombstones:,} for messages that were lost before"
