"""The page that `mqstore repair` prints: the verdict, the changes, and what comes next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .recover_text import ROWS, folded, steps_text
from .terminal import escape

if TYPE_CHECKING:
    from ..store.next_commands import Given
    from ..store.recovery.apply import Applied
    from ..store.repair.beyond import Beyond
    from ..store.repair.repair import Repair
    from .options import Common


def repair_text(
    found: Repair,
    applied: Applied | None,
    after: Repair | None,
    beyond: Sequence[Beyond],
    common: Common,
    given: Given,
    *,
    asking: bool = False,
) -> str:
    """The whole page. after: the store once the plan was carried out. beyond: what stays wrong.
    given: options that the command which is proposed needs as well. asking: whether to carry it out
    is asked next.
    """
    rows = None if common.verbose else ROWS
    lines = [
        _verdict(found, applied, after, asking),
        *_edits(found, applied, rows),
        *_offsets(found, rows),
    ]
    lines += _beyond(beyond)
    if applied is not None and applied.session:
        kept = found.layout.journal / applied.session
        lines += ["", f"What was there before is in {kept}"]
    elif not found.nothing_to_do and not asking:
        lines += ["", *_next(found, given)]
    return "\n".join(lines)


def _verdict(found: Repair, applied: Applied | None, after: Repair | None, asking: bool) -> str:
    lost = found.plan.lost.messages
    loses = f" {lost:,} message{'s are' if lost != 1 else ' is'} lost." if lost else ""
    if applied is not None:
        done = "went on with what was cut off" if applied.resumed else "repaired"
        left = len(after.plan.edits) if after is not None else 0
        again = f" {left} changes follow from these: run it again." if left else ""
        return f"Done: {done}.{loses}{again}"
    if found.interrupted:
        return "A change of this store was cut off. Run it again with --apply before any start."
    if found.nothing_to_do:
        return f"Nothing to repair in {_parts(found)}."
    files = len({edit.path for edit in found.plan.edits})
    unasked = "" if asking else " Nothing is written without --apply."
    return f"{files} file{'s' * (files != 1)} to repair.{loses}{unasked}"


def _parts(found: Repair) -> str:
    choice = found.request.choice
    if choice.everything:
        return "the whole store"
    from ..store.repair.parts import queue_text

    queues = [f"queue {escape(queue_text(queue))}" for queue in choice.queues]
    return ", ".join([*queues, *sorted(choice.parts - ({"queue"} if queues else set()))])


def _edits(found: Repair, applied: Applied | None, rows: int | None) -> Iterator[str]:
    edits = found.plan.edits
    if not edits:
        return
    yield ""
    yield "What was done:" if applied else "The plan:"
    steps = list(steps_text(edits, found.layout, rows is None))
    yield from folded(steps, len(steps), rows)


def _offsets(found: Repair, rows: int | None) -> Iterator[str]:
    """Offsets that are brought inside their queues, with both values."""
    if not found.clamped:
        return
    yield ""
    yield "Offsets outside of their queue:"
    lines = (
        f"  {row.before:>12,} -> {_after(row.after)} {escape(row.group or 'delay level')}"
        f" in {escape(str(row.queue))}"
        for row in found.clamped
    )
    yield from folded(lines, len(found.clamped), rows)


def _after(offset: int | None) -> str:
    return f"{offset:<12,}" if offset is not None else f"{'taken out':<12}"


def _beyond(beyond: Sequence[Beyond]) -> Iterator[str]:
    """What no repair mends, each with its reason and what is left to do."""
    if not beyond:
        return
    yield ""
    yield "Beyond repair:"
    for row in beyond:
        more = f" ({row.findings:,} times)" if row.findings > 1 else ""
        yield f"  {row.code}  {escape(row.path)}: {escape(row.message)}{more}"
        yield f"         {row.why}"
        yield f"         what now: {escape(row.now)}"


def _next(found: Repair, given: Given) -> Iterator[str]:
    from ..store.next_commands import repair_command
    from ..store.repair.parts import queue_text

    choice = found.request.choice
    parts = () if choice.everything else choice.parts
    queues = [queue_text(queue) for queue in choice.queues]
    yield f"Next: {repair_command(found.layout.root, parts, queues, given)}"
