"""`mqstore recover`: say what a broker's start would do to a store, and recover the store without that harm."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from .broker_version import BrokerVersion
from .change_options import Change, agree, files_of
from .declared import Argument, Exit, Format, Option, Options, bad_parameter, flag, option, path_text
from .exit_codes import ExitCode, exit_code_of_status
from .options import Common, shared
from .slave import SlaveOptions, print_cut

if TYPE_CHECKING:
    from ..store.disk.layout import Layout
    from ..store.findings.next_commands import Given
    from ..store.session.apply import Applied
    from ..store.verify.judged import JudgedRecovery
    from .output import Output
    from .plan_text import CarriedOut


PolicyChoice = StrEnum("PolicyChoice", "KEEP BROKER")
"""The policies of `store.plan.plan`, repeated here so that `--help` does not import it."""


class LossOptions(Options):
    replica: list[str] | None = option(
        "--replica",
        metavar="STORE2",
        parser=path_text,
        help="Restore damaged parts from a copy of the same log, a slave's or the master's: a store,"
        " a directory of log files, or several directories that hold one log (a:b).",
    )
    force_empty_log: bool = flag(
        "--force-empty-log",
        help="The log is lost for good: move queues, index, timer and rocksdbstore away and start empty.",
    )


@shared()
def recover(
    store: Annotated[Path, Argument(metavar="STORE", help="The store's root directory.")],
    policy: Annotated[
        PolicyChoice,
        Option(
            "--policy", help="keep: keep everything that can be read; broker: end the log where a broker would end it."
        ),
    ] = PolicyChoice.KEEP,
    lost_tag: Annotated[
        str,
        Option(
            "--lost-tag",
            metavar="TAG",
            help="Tag for the tombstones of lost messages, so that consumers can select them.",
        ),
    ] = "",
    broker_version: BrokerVersion = None,
    *,
    lost: LossOptions,
    as_slave: SlaveOptions,
    change: Change,
    common: Common,
) -> None:
    """Say what a broker's start would do to a store and lose, and plan its recovery.

    Without --apply nothing is written. With --apply the plan is carried out under the broker's lock. Lost records
    in the middle of the log are replaced by tombstones, so that all later records keep their places (--policy
    broker: the log ends where the broker would end it). Queues and index are completed from the log; abort is
    removed last. Damage that a broker's start does not look at is repaired, too, where the store shows how (as by
    repair --all): index items, tags of queue units, timer, configuration.

    The original bytes are kept in STORE/.mqstore, or in --journal DIR if the disk is full; mqstore undo restores
    them. If recover is interrupted, run it again.

    With --replica, damaged parts, missing files and a torn end are copied byte for byte from another copy of the
    log, where that copy is whole and both logs agree around the damage. The replica is only read. First files of the
    log that are lost are not copied: recover names the command that copies them, with their times. If there are two
    replicas, carry out the recovery once with each: the second brings back what the first one lacks. If a slave's log
    (--set brokerRole=SLAVE) and its master's have different messages from some place on, as after a master failed and
    its slave was promoted, the slave never follows: recover says where, and --policy broker --replica MASTER cuts the
    slave's log there, so that the master sends the rest. With --role slave
    --epoch FILE (brokers with a controller) recover only says what a new master would make this slave cut off.

    Exit code, without --apply: 0 safe to start; 1 the broker would not start, a start or the plan loses or hides
    messages or forgets configuration, or verify finds an error; 3 nothing is lost, but the store was not shut down
    cleanly. With --apply: 0 nothing is lost and the store is in order now; 1 something is lost or still wrong, and
    is named. Where a controller names the master, messages that only another broker can send again count as lost. If a
    broker left out the first message of the log when it filled a new RocksDB of queues (B40), that message is named
    but changes no exit code: a start hides nothing more, and --apply adds it to its queue. Messages in delay levels
    that messageDelayLevel does not have are named, too, and change none: no start takes them away. While a process
    uses the store, what a start after a kill would do is named, and changes none.

    \b
    Examples:
      mqstore recover /data/store
      mqstore recover /data/store --broker-version 5.3 --format json
      mqstore recover /data/store --apply
      mqstore recover /data/store --apply --policy broker
      mqstore recover /data/store --apply --journal /mnt/other-disk
      mqstore recover /data/store --replica /mnt/slave/store
      mqstore recover /data/store --role slave --epoch master/epochFileCheckpoint
    """
    change.check()
    if len(lost.replica or ()) > 1:
        raise bad_parameter(
            "only one --replica at a time: carry out the recovery once with each", param_hint="--replica"
        )
    if as_slave != SlaveOptions():
        if change.apply:
            raise bad_parameter("--role slave only reports: a slave cuts its log itself")
        print_cut(change.open(store, common), as_slave, common)
    from ..store.disk.layout import Layout
    from .plan_text import ROWS, CarriedOut

    out = common.checked_output("recovery")
    layout = change.open(store, common)
    asked = {"broker_version": broker_version, "policy": policy.value, "lost_tag": lost_tag}
    before = _analyze(layout, common, asked, replica="".join(lost.replica or ()), force_empty_log=lost.force_empty_log)
    found, done = before.recovery, None
    for note in found.notes:
        common.warn(note)
    code = exit_code_of_status(before.verdict.status)
    given = change.given(broker_version, common).at(layout)
    if common.format is Format.TEXT and not common.verbose:
        found.name_lost(ROWS + 1)  # few, for a folded list
    else:
        found.name_lost()
    if change.apply and (found.plan is None or not found.nothing_to_do):
        from .config_text import still_lost_config

        applied = _apply(layout, before, change, given, common)
        after = _analyze(Layout.open(layout.root, layout.broker_config), common, asked)
        done = CarriedOut(applied, after, still_lost_config(found.config, after.recovery.layout))
        gone = applied.lost or done.left is not None
        clean = exit_code_of_status(after.verdict.status) is ExitCode.DONE
        code = ExitCode.DONE if clean and not gone else ExitCode.NO
    if done is not None and done.applied.session:
        out.note_done(f"the store was recovered, in session {done.applied.session}")
    _print(before, done, given, code, common, out)
    raise Exit(code)


def _analyze(layout: Layout, common: Common, asked: Mapping[str, Any], **more: Any) -> JudgedRecovery:
    """Say what a start would do, and plan. asked, more: of `recovery`; what is empty or off is left to it."""
    from ..store.library import recovery

    options = {name: value for name, value in {**asked, **more}.items() if value}
    with common.reading("reading the log", layout.commit_log_files()) as tell:
        return recovery(layout, jobs=common.jobs, tell=tell, **options)


def _apply(layout: Layout, before: JudgedRecovery, change: Change, given: Given, common: Common) -> Applied:
    """Carry out the plan. Raises Refused, and what `apply` raises."""
    from ..store import library

    found = before.recovery
    if change.asks and (found.plan is not None or found.interrupted):
        from .recover_text import question, recovery_text

        plan = recovery_text(before, None, common, given, asking=True)
        agree(question(found), plan, common, exit_code_of_status(before.verdict.status))
    files = files_of(layout, change.follow_links)
    return library.apply(before, files, wait_seconds=change.wait)


def _print(
    before: JudgedRecovery,
    done: CarriedOut[JudgedRecovery] | None,
    given: Given,
    code: ExitCode,
    common: Common,
    out: Output,
) -> None:
    """Print the analysis, and after a plan was carried out what the next start does."""
    from .recover_text import beyond_repair, next_steps, recovery_text
    from .verdict_text import verdict_json

    record = before.recovery.to_json()
    record["verdict"] = verdict_json(before.verdict, before.recovery.layout.root)
    last = before if done is None else done.after
    record["next"] = [] if last.verdict.live else [str(step) for step in next_steps(last, given)]
    if done is not None:
        start, plan = last.recovery.prediction, last.recovery.plan
        record["applied"] = {
            "session": done.applied.session,
            "resumed": done.applied.resumed,
            "edits_left": len(plan.edits) if plan else None,
            "outcome": start.outcome,
            "lost": start.lost.messages,
            "lost_by_plan": done.applied.lost,
            "invisible": start.invisible.messages,
            "verdict": verdict_json(last.verdict, last.recovery.layout.root),
            "config": done.left.to_json() if done.left is not None else None,
        }
    if beyond := beyond_repair(last, given):
        record["beyond_repair"] = [row.to_json() for row in beyond]
    with out:
        out.record(record, text=lambda _: recovery_text(before, done, common, given), verdict=code)
