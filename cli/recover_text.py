"""The page of `mqstore recover`: the verdict, then the reasons, the losses, the plan, the next steps."""

from __future__ import annotations

from ..store.audit.messages import Share, Tally
from ..store.broker.profiles import VERSIONS, profile_of
from ..store.counted import bytes_text, counted
from ..store.findings.catalogue import Severity
from ..store.findings.next_commands import (
    MENDS,
    Given,
    NextCommand,
    command,
    cure_of,
    cutting,
    going_on,
    next_commands,
    repair_command,
)
from ..store.recover.recovery import Recovery, facts_of, lost_topics
from ..store.repair.recheck import EVERYTHING, Unrepairable, unrepairable_of
from ..store.session.journal import carried_out
from ..store.settings.generation import generation_of
from ..store.verify.judged import JudgedRecovery
from ..store.verify.start import better_cut, findings_of_start
from ..store.verify.verdict import (
    ELSE_ALONE,
    OTHERS_FIRST,
    UNREAD,
    Status,
    but_unserved,
    first_sentence,
    give_levels,
    harmless,
    lacks_first_files,
    starts_last,
)
from .config_text import bare_lines, config_lines, not_back
from .loss_text import cut_lines, last_lines, lost_lines, replica_lines, slave_lines, timer_lines
from .options import Common
from .plan_text import ROWS, CarriedOut, section, steps_text
from .terminal import page_of, time_text
from .verdict_text import NEXT_IN_USE, alone_text, beyond_lines, cut_text, error_lines, next_lines, started_text

_PLAN = "The plan (nothing is written without --apply):"


def recovery_text(
    before: JudgedRecovery,
    done: CarriedOut[JudgedRecovery] | None,
    common: Common,
    given: Given,
    *,
    asking: bool = False,
) -> str:
    """The whole page. given: options that a proposed command repeats. asking: the page is shown before the question
    whether to carry out the plan.
    """
    found, rows = before.recovery, None if common.verbose else ROWS
    lines = [_verdict(before, done, given), *_losses(found, rows), ""]
    lines += (f"  {label:<10} {text}" for label, text in facts_of(found))
    worst = found.prediction
    does = "changes" if done is None else "would have changed"
    changes = (f"  {one.change:<10} {one.path}  [{one.begin:,}, {one.end:,})" for one in worst.files)
    lines += section(f"A start of {worst.broker_version} {does} these files:", changes, rows)
    loses = "loses" if done is None else "would have lost"
    lines += _tally(f"Messages that a start {loses}:", worst.lost, common, rows)
    stay = "stay but cannot" if done is None else "would have stayed but could not"
    lines += _tally(f"Messages that {stay} be read:", worst.invisible, common, rows)
    lines += _groups(found)
    lines += timer_lines(found)
    waits = (f"  {each.message}" for each in before.verdict.findings if each.code == UNREAD)
    lines += section("What waits where a start does not read it:", waits, rows)
    lines += config_lines(found.config, rows)
    lines += _given_up(found, common, rows)
    lines += lost_lines(found, common)
    lines += _group_lines(found) if found.layout.has_peers else [*last_lines(found), *slave_lines(found)]
    lines += cut_lines(found, rows)
    lines += replica_lines(found, rows)
    title = "What is wrong, and what a broker does with it:"
    lines += _wrong(title if done is None else "What was wrong:", before, rows, given)
    lines += _plan(found, done, rows, asking)
    lines += bare_lines(found)
    if done is not None:
        lines += _wrong("What is still wrong:", done.after, rows, given)
    if not asking:
        lines += ["", *_next(before if done is None else done.after, given)]
    return page_of(lines)


def _group_lines(found: Recovery) -> list[str]:
    """Lines about damage in the log of one of several DLedger nodes, as `slave_lines`."""
    plan, start = found.plan, found.prediction
    if plan is None or found.options.policy != "keep":
        return []
    lines, filled, cut = list[str](), bool(plan.fills or plan.cut), bool(start.lost.messages)
    if filled:
        lines = [
            "",
            "Tombstones, fillers and separators make this log differ from those of the other nodes for ever: DLedger",
            "does not compare these records, and a node that is elected sends its own to nodes that lack them.",
        ]
    if filled or cut:
        lines += [
            "",
            "The leader sends again what follows the end of this log, if the leader's log still reaches back to there:",
            f"a start ends the log at {start.log_end:,}." if cut else "a start does not notice the damage.",
            "`--policy broker` ends the log before the first damaged record, and can be taken back.",
        ]
    return lines


def _wrong(title: str, seen: JudgedRecovery, rows: int | None, given: Given) -> list[str]:
    """Errors that `verify` finds, by code; if there is nothing left to do, the reasons why no repair mends them."""
    if seen.recovery.recovered:
        return list(beyond_lines(beyond_repair(seen, given)))
    return section(title, error_lines(seen.verdict, seen.recovery.layout.root), rows)


def beyond_repair(seen: JudgedRecovery, given: Given) -> list[Unrepairable]:
    """What stays wrong, if there is nothing left to do."""
    if not seen.recovery.recovered:
        return []
    return unrepairable_of(seen.verdict, seen.recovery.layout, EVERYTHING, given)


def _verdict(before: JudgedRecovery, done: CarriedOut[JudgedRecovery] | None, given: Given) -> str:
    """The first line: the sentence of `verify` and the command that helps, or what was done."""
    found = before.recovery
    if done is not None:
        applied, after = done.applied, done.after
        ended = "finished the interrupted recovery" if applied.resumed else "recovered"
        told = not applied.lost and (after.recovery.prediction.unfired or lacks_first_files(after.verdict))
        gone = "" if told else f", {_messages(applied.lost)} lost"
        now = started_text(after.verdict, after.recovery.layout.root)
        return f"Done: {ended}{gone}{_sent_again(before)}.{not_back(found.config, done.left)} {now}"
    sentence = first_sentence(before.verdict, found.layout.root)
    return f"{sentence}. {_remedy(before, given)}".rstrip()


def question(found: Recovery) -> str:
    if found.interrupted:
        return "Continue the interrupted recovery?"
    assert found.plan is not None
    if not found.plan.edits:
        return "Remove the start barrier?"
    lost = found.plan.lost_messages
    return f"{counted(len(found.plan.edits), 'change')}, {_messages(lost)} lost. Carry them out?"


def _remedy(before: JudgedRecovery, given: Given) -> str:
    """The command that helps, and what it loses."""
    found = before.recovery
    resuming = going_on(before.verdict.findings, found.layout.root, given)
    if found.interrupted or resuming is not None:
        ends = resuming or _command(found, given)
        return f"`{ends}` continues it." if ends.ends else ""
    if found.plan is None:
        return ""
    live, damaged = before.verdict.live, before.verdict.status is Status.DAMAGED
    if live and not damaged and (harm := _harm_of_start(found)):
        return f"After a kill now {harm}."
    if found.not_by_files:
        if writer := _newer_writer(found):
            begin = "No file needs repair" if found.nothing_to_do else "No repair helps"
            return (
                f"{begin}: a broker {writer} wrote the store, and {found.main_version} does not know all its records."
            )
        if found.nothing_to_do:
            return "No file needs repair: the broker's configuration does not fit this store."
        return "First correct the broker's configuration, which does not fit this store."
    steps = next_steps(before, given)
    if not any(step.changes for step in steps):
        unserved = "No file needs repair." if but_unserved(before.verdict) else "Nothing to do."
        return "No repair can fix it." if damaged else unserved
    if before.verdict.status is Status.CLEAN:
        then = ", once no process uses the store" if live else f": `{steps[0]}`"
        if found.plan.brought and (back := found.plan.brought.records):
            return f"{counted(back, 'message comes', 'messages come', form=',')} back from the replica{then}."
        return f"{counted(len(found.plan.edits), 'change', form=',')} would tidy up{then}."
    if live and not found.plan.edits:
        return "The next step needs a store that no process uses."
    if live:
        loses = f"loses {_messages(found.plan.lost_messages)}{_behind_the_log(before)}"
        return f"The plan {loses}; it needs a store that no process uses."
    if better_cut(found):
        return cut_text(steps[0])
    lost = _messages(found.plan.lost_messages)
    loses = f" loses {lost}{_left_unfired(before)}{_left_unread(before)}" if found.plan.edits else " is next"
    if lacks_first_files(before.verdict):
        loses = " does not bring them back: first look for the files, or for a replica that has them (--replica)"
    return f"`{steps[0]}`{loses}{_behind_the_log(before)}."


def _harm_of_start(found: Recovery) -> str:
    """The first error among the findings of the next start, "" without one."""
    told = (each.message for each in findings_of_start(found) if each.severity >= Severity.ERROR)
    return next(told, "")


def _newer_writer(found: Recovery) -> str:
    """The version that wrote a store of which the broker's version, an older one, loses messages; "" if the broker's
    options are the reason, or if that version may have written the store.
    """
    if not found.prediction.lost.messages or found.prediction.case.by_options:
        return ""
    written = generation_of(found.layout)
    own = VERSIONS.index(profile_of(found.main_version).version)
    return written.version if own < VERSIONS.index(written.candidates[0]) else ""


def _left_unfired(before: JudgedRecovery) -> str:
    """The fate of timed messages, if the plan leaves the timer's files, or if damaged timer log entries were theirs."""
    plan, timers = before.recovery.plan, before.recovery.prediction.timers
    if timers is None or not timers.unfired:
        return ""
    if plan is not None and not any(map(plan.touches, ("timerlog", "timerwheel", "timercheck"))):
        return "; timed messages stay unfired"
    damaged = any(each.code == "I-126" for each in before.verdict.findings)
    return " of the log; timed messages of damaged timer log entries may stay unfired" if damaged else ""


def _left_unread(before: JudgedRecovery) -> str:
    left = (each for each in before.verdict.serious if each.code == "I-070" and cure_of(each) not in MENDS)
    many = sum(each.count for each in left)
    return f"; {counted(many, 'message stays', 'messages stay', form=',')} unread" if many else ""


def _behind_the_log(before: JudgedRecovery) -> str:
    """What the master of a slave sends again; else how many units point behind the end of the log, unless the plan
    counts their records: a start cut them off.
    """
    plan, start = before.recovery.plan, before.recovery.prediction
    if plan is not None and before.recovery.layout.follows_master:
        return _sent_again(before)
    if plan is not None and (plan.gone or plan.brought or plan.without_log or plan.log_end != start.log_end):
        return ""
    behind = sum(each.count for each in before.verdict.findings if each.code == "I-067")
    point = counted(behind, "queue unit points", "queue units point", form=",")
    return f"; {point} behind the end of the log" if behind else ""


def _sent_again(before: JudgedRecovery) -> str:
    """What the master of a slave sends again."""
    plan, layout = before.recovery.plan, before.recovery.layout
    if plan is None or not layout.follows_master:
        return ""
    if before.recovery.options.policy != "keep" and plan.lost_messages:
        return f"; {layout.master} sends again those that it has"
    come = counted(plan.resent, "message comes", "messages come", form=",")
    return f"; {come} again from {layout.master}, if still there" if plan.resent else ""


def next_steps(seen: JudgedRecovery, given: Given) -> list[NextCommand]:
    """The commands that mend the store, in order, with the options of this command where they need them."""
    found = seen.recovery
    if (resuming := going_on(seen.verdict.findings, found.layout.root, given)) is not None:
        return [resuming]
    if found.not_by_files or (found.refusal is not None and not found.interrupted):
        return []
    root, to_do = found.layout.root, not found.nothing_to_do
    steps = next_commands(
        seen.verdict.findings, root, given, recovered=found.recovered or None, to_renumber=seen.verdict.to_renumber
    )
    by_hand = [step for step in steps if step.by_hand]
    if to_do:  # other steps are shown after this one was carried out
        return [cutting(root, given) if better_cut(found) else _command(found, given), *by_hand]
    return steps


def _command(found: Recovery, given: Given) -> NextCommand:
    words = ["--apply"]
    if found.options.policy != "keep":
        words += ["--policy", found.options.policy]
    if found.options.lost_tag:
        words += ["--lost-tag", found.options.lost_tag]
    if found.options.force_empty_log:
        words.append("--force-empty-log")
    if found.options.replica:
        words += ["--replica", found.options.replica]
    return command("recover", found.layout.root, *words, given=given)


def _messages(count: int) -> str:
    return "no message" if not count else counted(count, "message", form=",")


def _losses(found: Recovery, rows: int | None) -> list[str]:
    lost = lost_topics(found)
    if not lost:
        return []
    if not found.prediction.lost.messages and found.options.policy == "keep":
        by_plan = (f"  {plan:>9,}  {topic}" for topic, _, plan in lost)
        return section(f"  {'lost':>9}  messages of topic", by_plan, rows)
    if found.not_by_files:  # the plan changes nothing
        by_start = (f"  {start:>9,}  {topic}" for topic, start, _ in lost)
        return section(f"  {'a start':>9}  messages lost of topic", by_start, rows)
    unknown = "?" if found.plan is None else None
    table = (f"  {start:>9,}  {unknown or f'{plan:,}':>9}  {topic}" for topic, start, plan in lost)
    return section(f"  {'a start':>9}  {'the plan':>9}  messages lost of topic", table, rows)


def _given_up(found: Recovery, common: Common, rows: int | None) -> list[str]:
    """Messages that the plan does not keep. Those lost under `keep` are unreadable, so their times are unknown; the
    shares have the times of the tombstones.
    """
    if found.plan is None or not found.plan.lost_messages:
        return []
    if found.options.policy != "keep":
        return _tally("Messages that the plan loses:", found.plan.lost, common, rows)
    lines = [f"{_size_of(share)}{_reason(share)}" for share in found.plan.lost]
    if found.plan.index_alone:
        lines.append(f"  {found.plan.index_alone:>9,}  {'':>9}  known from the index only")
    return section("Messages whose records are damaged or missing:", lines, rows)


def _tally(title: str, tally: Tally, common: Common, rows: int | None) -> list[str]:
    return section(title, (_share(each, common) for each in tally), rows)


def _size_of(share: Share) -> str:
    return f"  {share.messages:>9,}  {bytes_text(share.bytes):>9}  {share.queue}"


def _share(share: Share, common: Common) -> str:
    first = time_text(share.first_store_timestamp, common.utc)
    last = time_text(share.last_store_timestamp, common.utc)
    span = f"{first} … {last}" if first != last else first
    return f"{_size_of(share)}  {span}{_reason(share)}"


def _reason(share: Share) -> str:
    return f"  {share.reason}" if share.reason else ""


def _groups(found: Recovery) -> list[str]:
    groups = found.prediction.groups.to_json()
    lines = (f"  {row['unconsumed_lost']:>9,}  {row['group']} of {row['topic']}" for row in groups)
    return section("Lost before a group had consumed them:", lines, None)


def _plan(found: Recovery, done: CarriedOut[JudgedRecovery] | None, rows: int | None, asking: bool) -> list[str]:
    edits = carried_out(found.interrupted, found.plan)
    if not edits:
        return []
    title = "What was done:" if done else "The plan:" if asking else _PLAN
    lines = section(title, steps_text(edits, found.layout, rows is None), rows)
    if done is not None:
        lines.append(f"  the original bytes are kept in {found.layout.journal / done.applied.session}")
    return lines


def _next(seen: JudgedRecovery, given: Given) -> list[str]:
    found = seen.recovery
    if (resuming := going_on(seen.verdict.findings, found.layout.root, given)) is not None:
        return [f"Next: {resuming}"]
    if found.refusal is not None and not found.interrupted:
        return ["Next: fix the problem named above, then run this command again."]
    if found.not_by_files:
        unfit = "start the broker" if found.nothing_to_do else "run this command again, and start the broker,"
        writer = _newer_writer(found)
        fitting = f"of version {writer} or later" if writer else "with a configuration that fits this store"
        return [f"Next: {unfit} {fitting}."]
    steps = next_steps(seen, given)
    shifted = [str(queue) for queue in found.plan.shifted] if found.plan is not None else []
    notes = [_OTHER_NUMBERS] if shifted and found.nothing_to_do else []
    if seen.verdict.live:
        return [NEXT_IN_USE if steps else "Next: nothing to do; a process uses the store."]
    if any(step.changes for step in steps):
        alone = [alone_text(_command(found, given))] if better_cut(found) else []
        return [*notes, *next_lines(steps), *alone]
    if notes:
        renumber = repair_command(found.layout.root, ("queue",), shifted, given)
        return [*notes, f"Next: start the broker, or renumber the units as in the log: {renumber}"]
    if seen.verdict.status is not Status.DAMAGED:
        levels = give_levels(seen.verdict)
        ahead = found.plan is not None and found.plan.brought is not None and found.plan.brought.ends_at is not None
        start = f"start the broker{', unless its master is as that replica is' if ahead else ''}"
        return [f"Next: {levels}. Then {start}." if levels else f"Next: {start}."]
    looks = [f"To see the details: {step}" for step in steps]
    if starts_last(seen.verdict):
        return [f"Next: {OTHERS_FIRST}; {ELSE_ALONE}.", *looks]
    if harmless(seen.verdict):
        return ["Next: start the broker; its start makes nothing worse.", *looks]
    return [f"Next: mqstore explain {seen.verdict.serious[0].code}", *looks]


_OTHER_NUMBERS = (
    "Some units have other queue offsets than their messages: push consumers go by those of the messages, "
    "pull consumers and POP by those of the units."
)
