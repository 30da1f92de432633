"""What a start does to a store and what was found of it, line by line, for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..counted import bytes_text
from ..start.log import by_source

if TYPE_CHECKING:
    from .recovery import Recovery

_DEAD = "records taken for cut off by an earlier start: too old behind a hole, or counted again"


def facts_of(found: Recovery) -> Iterator[tuple[str, str]]:
    """Lines with a label each; "" goes on with the line before."""
    worst, plan = found.prediction, found.plan
    guess = found.generation
    yield "broker", f"{worst.broker_version}{f' (a guess: {guess.reason})' if guess else ''}"
    if guess and not guess.certain:
        yield "", f"it may be {' or '.join(guess.candidates)}; the worst is shown"
    yield "last exit", "crashed: abort is there" if found.crashed else "clean"
    yield "case", f"{worst.case.label}: {worst.case.found}"
    if worst.start_file:
        yield "scan from", f"{worst.start_file}: {worst.start_reason}"
    if worst.log_end is not None:
        yield "log ends", f"at {worst.log_end:,}: {worst.log_end_reason}"
    other_end = plan is not None and worst.log_end is not None and plan.log_end != worst.log_end
    if plan is not None and other_end and not found.not_by_files:
        yield "", f"at {plan.log_end:,} by the plan"
    for told in by_source(found.layout, found.main_version):
        yield "by source", told
    if worst.delay_seconds:
        yield "delay", f"the start takes {worst.delay_seconds} s longer"
    damaged = f", and {found.damaged:,} with a damaged body" if found.damaged else ""
    yield "messages", f"{found.messages:,}{damaged}"
    if found.damaged_bytes:
        yield "damage", f"{bytes_text(found.damaged_bytes)} of the log are no records"
    if found.dead:
        yield "dead", f"{found.dead:,} {_DEAD}"
    if found.tombstones:
        yield "tombstones", f"{found.tombstones:,} for messages that were lost before"
