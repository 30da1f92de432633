"""What is asked of a run of `verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .context import LogFacts


class Scope(NamedTuple):
    """What is asked for. quick: structure and ends only. topic, queue_id: one topic, one queue.

    groups: of the catalogue, None for all. since_ms: the log from the file on that has messages of
    that time. sample_percent: so much of the log. start: log position to begin at; earlier: what
    the runs before it have shown of the log up to there. max_duration_s: reading ends after it.
    broker_version: take the store for one of it. proof: tell what of the log is in order for a start,
    too (`Verdict.sound`).
    """

    quick: bool = False
    topic: str | None = None
    queue_id: int | None = None
    groups: frozenset[str] | None = None
    since_ms: int | None = None
    sample_percent: float | None = None
    start: int | None = None
    earlier: LogFacts | None = None
    max_duration_s: float | None = None
    broker_version: str | None = None
    proof: bool = False
