"""`mqstore repair`: mend what is wrong beside the log, and nothing else."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .broker_version import BrokerVersion, tell_nearest
from .change_options import (
    Apply,
    FollowLinks,
    JournalDirectory,
    Wait,
    Yes,
    agree,
    asks_before,
    files_of,
    reading_the_log,
)
from .exit_codes import ExitCode
from .options import Common, command_app, keep_journal_in, shared

if TYPE_CHECKING:
    from ..store.layout import Layout
    from ..store.next_commands import Given
    from ..store.recovery.apply import Applied
    from ..store.repair.beyond import Beyond
    from ..store.repair.parts import Choice
    from ..store.repair.repair import Repair

app = command_app()


@app.command()
@shared()
def repair(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="A store's root directory.")],
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", metavar="TOPIC[/ID]", help="Queues of a topic, or one of them."),
    ] = None,
    index: Annotated[bool, typer.Option("--index", help="The index files.")] = False,
    checkpoint: Annotated[bool, typer.Option("--checkpoint", help="The checkpoint.")] = False,
    config: Annotated[
        bool, typer.Option("--config", help="Broken files of config/, offsets outside a queue.")
    ] = False,
    timer: Annotated[bool, typer.Option("--timer", help="Timer log and timer wheel.")] = False,
    ext: Annotated[bool, typer.Option("--ext", help="consumequeue_ext.")] = False,
    compaction: Annotated[bool, typer.Option("--compaction", help="Compaction topics.")] = False,
    all_: Annotated[
        bool, typer.Option("--all", help="All of that, and what `recover` does to the log.")
    ] = False,
    finding: Annotated[
        list[str] | None,
        typer.Option("--finding", metavar="CODE", help="The part that mends it, e.g. I-064."),
    ] = None,
    broker_version: BrokerVersion = None,
    apply: Apply = False,
    yes: Yes = False,
    wait: Wait = 0,
    journal: JournalDirectory = None,
    follow_links: FollowLinks = False,
    *,
    common: Common,
) -> None:
    """Rebuild what is wrong in queues, index, checkpoint, timer and configuration, from the log.

    Only what is wrong is written anew, and no message changes its queue offset, but in a queue that an
    earlier broker had shifted and that is named by topic and number. It takes the place
    of "delete all consumequeues and restart". Without an option for a part the plan of --all is
    shown. Nothing is written without --apply; then what was there is kept in STORE/.mqstore, or in
    DIR, and mqstore undo takes it back. A part alone leaves the log and abort as they are; where the
    log itself is damaged, mqstore recover comes first. What stays wrong with a whole store is named,
    with the reason why no repair mends it, and what is left to do.

    Exit code: 0 nothing to do, or applied; 1 the plan loses messages; 3 there is something to do.

    \b
    Examples:
      mqstore repair /data/store
      mqstore repair /data/store --queue orders/3 --apply
      mqstore repair /data/store --queue '%RETRY%billing' --index
      mqstore repair /data/store --finding I-101 --apply --yes
      mqstore repair /data/store --config --format json
    """
    flags = {
        "index": index,
        "checkpoint": checkpoint,
        "config": config,
        "timer": timer,
        "ext": ext,
        "compaction": compaction,
    }
    choice = _choice(flags, queue or [], finding or [], all_)
    if apply and choice.everything and not all_:
        raise typer.BadParameter("--apply: say which part, or --all")
    asks = asks_before(apply, yes)
    from ..store.layout import Layout

    layout = Layout.open(store, common.config())
    if journal is not None:
        keep_journal_in(layout, journal)
    tell_nearest(broker_version, common)
    found = _examine(layout, choice, broker_version, common)
    applied = after = None
    if apply and not found.nothing_to_do:
        applied = _apply(layout, found, asks, wait, follow_links, common)
        after = _examine_again(found, common)
    given = common.given(broker_version, journal, follow_links)
    _print(found, applied, after, _beyond(after or found, common), given, common)
    raise typer.Exit(_code(found, after))


def _choice(flags: dict[str, bool], queues: list[str], codes: list[str], all_: bool) -> Choice:
    """What the options ask for. Raises InvalidInput."""
    from ..store.repair.parts import Choice, Part, chosen, part_of_code, queue_of

    if all_:
        if queues or codes or any(flags.values()):
            raise typer.BadParameter("--all takes every part: no other can be named beside it")
        return Choice()
    parts = {Part(name) for name, wanted in flags.items() if wanted}
    parts |= {part_of_code(code) for code in codes}
    return chosen(parts, tuple(queue_of(text) for text in queues))


def _examine(layout: Layout, choice: Choice, version: str | None, common: Common) -> Repair:
    from ..store.repair.repair import examine

    with reading_the_log(layout, common) as tell:
        now_ms = time.time_ns() // 1_000_000
        return examine(layout, choice, version, now_ms, tell, common.jobs)


def _examine_again(found: Repair, common: Common) -> Repair:
    from ..store.repair.again import examine_again

    with reading_the_log(found.layout, common) as tell:
        return examine_again(found, tell, common.jobs)


def _beyond(last: Repair, common: Common) -> list[Beyond]:
    """What stays wrong where the whole store was asked for and nothing is left to do."""
    from ..store.repair.beyond import beyond_repair

    if not last.request.choice.everything or not last.nothing_to_do or last.in_order:
        return []
    with reading_the_log(last.layout, common) as tell:
        return beyond_repair(last.layout, last.request.version, tell)


def _code(found: Repair, after: Repair | None) -> ExitCode:
    """after: the store once the plan was carried out, None where it was not."""
    if found.plan.lost.messages:
        return ExitCode.NO
    return ExitCode.DONE if (after or found).nothing_to_do else ExitCode.UNCLEAN


def _apply(
    layout: Layout, found: Repair, asks: bool, wait: float, follow_links: bool, common: Common
) -> Applied:
    """Carry the plan out. Raises Refused and all that `apply` does."""
    from ..store.layout import Layout
    from ..store.recovery.apply import apply
    from ..store.repair.repair import plan_again

    if asks:
        what = f"{len(found.plan.edits)} changes. Carry them out?"
        if found.interrupted:
            what = "Go on with what was cut off?"
        from .repair_text import repair_text

        agree(what, repair_text(found, None, None, (), common, common.given(), asking=True))

    def again() -> Any:
        return plan_again(Layout.open(layout.root, layout.broker_config), found.request)

    shown = None if found.interrupted else found.plan
    files = files_of(layout, follow_links)
    return apply(layout, shown, again, files, seen=found.seen, wait_seconds=wait, command="repair")


def _print(
    found: Repair,
    applied: Applied | None,
    after: Repair | None,
    beyond: list[Beyond],
    given: Given,
    common: Common,
) -> None:
    from .repair_text import repair_text

    record = found.to_json()
    if applied is not None and after is not None:
        record["applied"] = {
            "session": applied.session,
            "resumed": applied.resumed,
            "edits_left": len(after.plan.edits),
        }
    if beyond:
        record["beyond_repair"] = [row.to_json() for row in beyond]
    with common.open_output() as out:
        out.record(record, text=lambda _: repair_text(found, applied, after, beyond, common, given))
