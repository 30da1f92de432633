"""`mqstore offsets`: show how far behind groups are, compare two stores, plan and make moves of positions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from .change_options import Change, agree, files_of
from .declared import Argument, Exit, Options, bad_parameter, flag, option
from .exit_codes import ExitCode
from .options import PASSED_OVER, Common, shared
from .record_types import columns_of

if TYPE_CHECKING:
    from ..store.disk.layout import Layout
    from ..store.offsets.lag import LagQuery
    from ..store.offsets.move import Moves
    from ..store.session.apply import Applied
    from ..store.session.journal import Fingerprint
    from .progress import Progress

BY = ("group", "topic", "queue")
TAKE = ("max", "min")


class OffsetsOptions(Options):
    by: str | None = option("--by", metavar="WHAT", help=f"One line per {', '.join(BY)} (default: topic).")
    group: str | None = option("--group", "-g", metavar="NAME", help="Only this group, or a pattern.")
    topic: str | None = option("--topic", "-t", metavar="NAME", help="Only this topic, or a pattern.")
    behind: bool = flag("--behind", help="Only positions that are behind, out of range or otherwise odd.")
    quick: bool = flag("--quick", help="Read only the ends of queues: no bytes, no ages.")
    now: str | None = option("--now", metavar="TIME", help="Count ages up to TIME (default: now).")

    def wanted(self) -> LagQuery:
        """The options as a query. Raises BadParameter, InvalidInput."""
        from ..store.offsets.lag import LagQuery
        from ..store.search.selection import parse_time

        by = "topic" if self.by is None else self.by
        if by not in BY:
            raise bad_parameter(f"--by: one of {', '.join(BY)}")
        now_ms = parse_time("now" if self.now is None else self.now)
        return LagQuery(now_ms, by, self.group, self.topic, self.behind, self.quick)


class MoveOptions(Options):
    """Comparison with another store, and which positions are moved."""

    compare: Path | None = option(
        "--compare",
        metavar="OTHER",
        help="Say which is ahead: this store, or OTHER (a store, its config/ or consumerOffset.json).",
    )
    reset: list[str] | None = option(
        "--reset",
        metavar="TOPIC[/QUEUE]@GROUP=TO",
        help="Move GROUP to an offset (any number), earliest, latest or a time; TOPIC may be a pattern.",
    )
    merge: Path | None = option("--merge", metavar="OTHER", help="Take positions from OTHER; see --take.")
    take: str | None = option(
        "--take", metavar="max|min", help="The position that --merge takes of two: the higher or the lower one."
    )

    @property
    def plans(self) -> bool:
        """Whether positions are to be moved."""
        return bool(self.reset) or self.merge is not None

    def check(self, stores: list[Path], shown: OffsetsOptions, change: Change) -> None:
        """Raises BadParameter for options that cannot be combined."""
        if self.plans and (shown.by is not None or shown.behind or shown.quick):
            raise bad_parameter("--by, --behind and --quick cannot be combined with --reset or --merge")
        if self.plans and self.compare is not None:
            raise bad_parameter("--compare cannot be combined with --reset or --merge")
        if (self.plans or self.compare is not None) and len(stores) > 1:
            raise bad_parameter("name one STORE only with --compare, --reset and --merge")
        if (self.merge is None) != (self.take is None):
            raise bad_parameter("--merge OTHER and --take max or min need each other")
        if self.take is not None and self.take not in TAKE:
            raise bad_parameter("--take: max or min")
        if change.apply and not self.plans:
            raise bad_parameter("--apply needs --reset or --merge")


@shared(unread=PASSED_OVER)
def offsets(
    stores: Annotated[list[Path], Argument(metavar="STORE...", help="Root directories of stores.")],
    *,
    shown: OffsetsOptions,
    moving: MoveOptions,
    change: Change,
    common: Common,
) -> None:
    """Show how far each consumer group is: messages, bytes and time behind, and what is out of range.

    The positions shown are those that a broker takes when it starts: from config/, in files or in a RocksDB, or
    from the .bak where a broker takes that one. Pull groups, POP groups, LMQs (light message queues) and delay
    levels (which have no group) are included. lag counts the messages up to the end of the queue, also those at the
    end of the log that have no queue unit yet; its age is that of the oldest unread message. UNKNOWN is a queue
    whose end is not known; sums leave it out. For a position out of range you see what a consumer would do. Also
    shown: groups without a subscription, queues of a topic in which a group has no position, groups that never
    committed (broadcast consumers keep their own positions), and positions lower than in the .bak.

    --compare shows which of two stores is ahead. --reset and --merge plan new positions, always inside the queues,
    and show the plan; --apply writes it. The old positions are kept in STORE/.mqstore, or in --journal DIR; mqstore
    undo restores them. Stop the broker first: a running broker overwrites the new positions with its own. --group
    and --topic limit the plan. Groups that belong to the broker itself are merged only if --group names them. If
    queues are behind the log, run mqstore recover first. Messages that POP consumers have received but not
    acknowledged come back as well: see mqstore inspect --pop.

    If --apply is interrupted, run the command again. An earlier change that was interrupted is finished first; an
    interrupted undo you have to run again yourself.

    Exit code: 0 shown, moved, or nothing to move; 1 --compare found a difference, or there is no such group or
    queue; 3 with --reset or --merge, without --apply: positions would move, or a change of the store was
    interrupted; with or without --apply: queues are behind the log. If positions are only shown, queues behind the
    log are a warning.

    \b
    Examples:
      mqstore offsets /data/store
      mqstore offsets /data/store --group billing --by queue
      mqstore offsets /data/*/store --behind --format ndjson
      mqstore offsets /data/store --compare /backup/store/config/consumerOffset.json
      mqstore offsets /data/store --reset orders@billing=2026-11-20T08:00:00Z
      mqstore offsets /data/store --reset '*@billing=latest' --apply
      mqstore offsets /data/store --merge /data/slave --take max --apply --yes
    """
    wanted = shown.wanted()
    moving.check(stores, shown, change)
    change.check()
    if moving.plans:
        _plan(stores[0], moving, wanted, change, common)
    elif moving.compare is not None:
        _compare(stores[0], moving.compare, wanted, common)
    else:
        _show(stores, wanted, common)


def _show(stores: list[Path], wanted: LagQuery, common: Common) -> None:
    """Print the positions of each store in turn; a store that cannot be read ends the command."""
    from ..store.offsets.lag import COLUMNS, offsets_of
    from ..store.search.store import StoreReader
    from .offsets_text import lag_text, totals_text

    columns, several = COLUMNS[wanted.by], len(stores) > 1
    total, named, hint = 0, False, ""

    def bar(total: int) -> Progress:
        return common.progress("counting unread messages", total)

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal total, named, hint
        for path in stores:
            with StoreReader(path, common.config()) as store:
                found = offsets_of(store, str(path), wanted, bar)
            for note in found.notes:
                common.warn(f"{path}: {note}")
            total += len(found.rows)
            named = named or found.named
            hint = hint or found.hint
            yield from found.rows

    with common.open_output() as output:
        output.check(columns)
        output.records(rows(), text=lambda row: lag_text(row, common.utc, with_store=several), columns=columns)
    if not total:
        common.warn(totals_text(wanted, named, hint))
    if not named and (wanted.group is not None or wanted.topic is not None):
        raise Exit(ExitCode.NO)


def _compare(path: Path, other: Path, wanted: LagQuery, common: Common) -> None:
    """Print the comparison with another store. Raises Exit; the code is 1 if any position differs."""
    from ..store.offsets.move import Ahead, compare, is_named, open_side, side_of
    from ..store.offsets.positions import Only
    from ..store.search.store import StoreReader
    from .offsets_text import compared_text, totals_text

    only = Only(wanted.group, wanted.topic)
    with StoreReader(path, common.config()) as store:
        here, there = side_of(store), open_side(other, common.config())
        named = is_named(store, only, here.positions.rows, there.positions.rows)
    for note in (*here.positions.notes, *there.positions.notes):
        common.warn(note)
    rows = [row for row in compare(here, there) if only.has(row.key[1:])]
    different = [row for row in rows if row.ahead is not Ahead.SAME]
    shown = different if wanted.odd or not common.verbose else rows
    with common.open_output() as output:
        output.records(
            ({"type": "compared_offset", **row.to_json()} for row in shown),
            text=compared_text,
            columns=columns_of("compared_offset"),
        )
    if not named:
        hint = only.hint((*here.positions.rows, *there.positions.rows))
        common.warn(totals_text(wanted, named, hint))
    else:
        common.warn(f"{len(different)} different, {len(rows) - len(different)} the same")
    raise Exit(ExitCode.NO if different or not named else ExitCode.DONE)


def _plan(path: Path, moving: MoveOptions, wanted: LagQuery, change: Change, common: Common) -> None:
    """Show what moves, and move it with --apply. Raises Exit, and what `apply` raises."""
    from ..store.errors import Unclean
    from ..store.session.apply import refuse_in_use
    from ..store.session.journal import Fingerprint
    from .offsets_text import moves_text

    output = common.checked_output("offsets_plan")
    layout = change.open(path, common)
    applied = _go_on(layout, change, common)
    lost = applied.lost if applied is not None else 0
    if applied is not None:
        layout = change.open(path, common)
    seen = Fingerprint.of(layout)
    try:
        found = _planned(layout, moving, wanted, common)
    except Unclean:
        if change.apply:  # a broker that runs on the store may not have written its queues yet
            refuse_in_use(layout)
        raise
    if change.apply and found.moves:
        if change.asks:
            plan = moves_text(found, layout, None, common.verbose)
            agree("Move them?", plan, common, ExitCode.UNCLEAN)
        applied = _apply(layout, found, seen, moving, wanted, change, common)
    code = ExitCode.UNCLEAN if found.moves and not change.apply else ExitCode.NO if lost else ExitCode.DONE
    record = {
        "type": "offsets_plan",
        "store": str(layout.root),
        "moves": [move.to_json() for move in found.moves],
        "left_out": found.left_out,
        "edits": [
            {**edit, "path": edit["path"].removeprefix(f"{layout.root}/")}
            for edit in (each.to_json() for each in found.plan.edits)
        ],
        "session": applied.session if applied is not None else None,
    }
    if applied is not None and applied.session:
        output.note_done(f"the positions were moved, in session {applied.session}")
    with output:
        output.record(record, text=lambda _: moves_text(found, layout, applied, common.verbose), verdict=code)
    raise Exit(code)


def _go_on(layout: Layout, change: Change, common: Common) -> Applied | None:
    """Finish an interrupted change of the store, before which no plan is made. Raises Exit, Unclean, and as `apply`."""
    from ..store.counted import counted
    from ..store.disk.lock import holder
    from ..store.errors import Unclean
    from ..store.session.apply import finish_interrupted
    from ..store.session.journal import InterruptedChange, left_over

    unfinished = left_over(layout)
    if unfinished is None or (not change.apply and holder(layout.lock) is not None):
        return None
    if not change.apply:
        hint = f"run: {unfinished.command(layout)}"
        before = ": no plan is made before it is finished" if isinstance(unfinished, InterruptedChange) else ""
        raise Unclean(f"{unfinished}{before}", path=layout.root, hint=hint)
    if (
        change.asks
        and isinstance(unfinished, InterruptedChange)
        and not unfinished.undoing
        and unfinished.journal is None
    ):
        agree("Finish it, and then make the plan?", f"{unfinished}.", common, ExitCode.UNCLEAN)
    ended = finish_interrupted(layout, files_of(layout, change.follow_links), wait_seconds=change.wait)
    lost = f", {counted(ended.lost, 'message')} lost" if ended is not None and ended.lost else ""
    common.warn(f"{layout.root}: {unfinished}: finished now{lost}")
    return ended if ended is not None and ended.session else None


def _planned(layout: Layout, moving: MoveOptions, wanted: LagQuery, common: Common) -> Moves:
    from ..store.offsets.move import Merge, WhichPosition, open_side, parse_reset, plan_moves
    from ..store.offsets.positions import Only
    from ..store.search.store import StoreReader

    resets = [parse_reset(text) for text in moving.reset or ()]
    merge = None
    if moving.merge is not None:
        other = open_side(moving.merge, common.config())
        for note in other.positions.notes:
            common.warn(note)
        merge = Merge(other.positions.rows, WhichPosition(moving.take or ""))
    with StoreReader(layout, common.config()) as store:
        return plan_moves(store, resets, merge, wanted.now_ms, Only(wanted.group, wanted.topic))


def _apply(
    layout: Layout,
    found: Moves,
    seen: Fingerprint | None,
    moving: MoveOptions,
    wanted: LagQuery,
    change: Change,
    common: Common,
) -> Applied:
    from ..store.disk.layout import Layout
    from ..store.session.apply import apply

    def again() -> Any:
        fresh = Layout.open(layout.root, layout.broker_config)
        made = _planned(fresh, moving, wanted, common)
        return found.plan if made.same_as(found) else made.plan

    files = files_of(layout, change.follow_links)
    return apply(layout, found.plan, again, files, seen=seen, wait_seconds=change.wait, command="offsets")
