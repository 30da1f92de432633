"""The text output of `mqstore offsets`: lags, comparisons, plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..store.counted import bytes_text, counted
from .plan_text import folded
from .terminal import escape, page_of, time_text

if TYPE_CHECKING:
    from ..store.disk.layout import Layout
    from ..store.offsets.lag import LagQuery
    from ..store.offsets.move import Move, Moves
    from ..store.session.apply import Applied

_ROWS = 20
"""Moves of a plan that are listed without --verbose."""
_PARTS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"))
_AHEAD = {
    "here": "this store is ahead",
    "other": "the other is ahead",
    "only_here": "only in this store",
    "only_other": "only in the other",
    "same": "the same",
}


def age_text(age_ms: int) -> str:
    """A length of time by its two largest parts.

    >>> age_text(93_784_000), age_text(61_500), age_text(12)
    ('1d 2h', '1m 1s', '0s')
    """
    sign, rest_ms = "-" if age_ms < 0 else "", abs(age_ms)
    found: list[str] = []
    for part_ms, name in _PARTS:
        count, rest_ms = divmod(rest_ms, part_ms)
        if count or found:
            found.append(f"{count}{name}")
    return sign + " ".join([part for part in found[:2] if part[0] != "0"] or ["0s"])


def lag_text(row: Mapping[str, Any], utc: bool, *, with_store: bool) -> str:
    """A line for the record of a group, or of one of its topics or queues."""
    lag = "-" if row["lag"] is None else f"{row['lag']:,}"
    size = "" if row["lag_bytes"] is None else bytes_text(row["lag_bytes"])
    age = "" if row["lag_ms"] is None else age_text(row["lag_ms"])
    name = " ".join(filter(None, _names(row)))
    store = f"  {escape(row['store'])}" if with_store else ""
    notes = "; ".join(_queue_notes(row, utc) if "state" in row else _sum_notes(row))
    return f"{lag:>12} {size:>10} {age:>8}  {name}{store}{'  ' if notes else ''}{notes}"


def _names(row: Mapping[str, Any]) -> Iterator[str]:
    yield "(delay levels)" if row["group"] is None else escape(row["group"])
    if row.get("topic") is not None:
        topic = escape(row["topic"])
        yield f"{topic}/{row['queue_id']}" if row.get("queue_id") is not None else topic
    if row.get("mode"):
        yield f"({row['mode']})"


def _queue_notes(row: Mapping[str, Any], utc: bool) -> Iterator[str]:
    if row["offset"] is not None and row["max_offset"] is not None:
        yield f"at {row['offset']:,} of {row['min_offset']:,} … {row['max_offset']:,}"
    elif row["offset"] is not None:
        yield f"at {row['offset']:,}"
    if row["table"] not in (None, "offset", "delay"):
        yield f"table {row['table']}"
    if row["state"] not in ("current", "behind"):
        yield row["state"].replace("_", " ").upper()
    yield from _shared_notes(row)
    if row["oldest_unread_timestamp"] is not None:
        yield f"oldest {time_text(row['oldest_unread_timestamp'], utc)}"
    if row["next"]:
        at = "" if row["next_offset"] is None else f" ({row['next_offset']:,})"
        yield f"{escape(row['next'])}{at}"


def _sum_notes(row: Mapping[str, Any]) -> Iterator[str]:
    if row.get("topics"):
        yield f"{counted(row['topics'], 'topic')}, {counted(row['queues'], 'queue')}"
    elif row["queues"] != 1:
        yield counted(row["queues"], "queue")
    for state, count in row["states"].items():
        if state not in ("current", "behind"):
            several = count > row["queues"] > 0  # a queue can have a position in each of several tables
            left_out = ", not counted" if state == "unknown" and row["lag"] is not None else ""
            yield f"{count}{' positions' if several else ''} {state.replace('_', ' ').upper()}{left_out}"
    yield from _shared_notes(row)


def _shared_notes(row: Mapping[str, Any]) -> Iterator[str]:
    if row["expired"]:
        yield f"{counted(row['expired'], 'message', form=',')} expired before being read"
    if row["moved_back"]:
        yield f"{row['moved_back']:,} lower than in the .bak"
    if row["subscribed"] is False:
        yield "no subscription"


def totals_text(wanted: LagQuery, named: bool, hint: str) -> str:
    """The sentence if no line was printed. named: a position of the given group and topic exists, but is not odd. hint:
    a similar name if none does.
    """
    if wanted.odd and named:
        return "no group is behind or out of range"
    text = "no positions" + (" of such a group or topic" if wanted.group or wanted.topic else "")
    return f"{text}; {hint}" if hint else text


def compared_text(row: Mapping[str, Any]) -> str:
    here, there = ("-" if row[name] is None else f"{row[name]:,}" for name in ("offset", "other_offset"))
    by = "" if not row["difference"] else f" by {abs(row['difference']):,}"
    group = "(delay level)" if row["group"] is None else escape(row["group"])
    table = "" if row["table"] in ("offset", "delay") else f" (table {row['table']})"
    place = f"{escape(row['topic'])}/{row['queue_id']}"
    return f"{here:>12} {there:>12}  {group} {place}{table}: {_AHEAD[row['ahead']]}{by}"


def moves_text(found: Moves, layout: Layout, applied: Applied | None, every: bool) -> str:
    """The page of a plan. applied: None if the plan was not carried out. every: list all moves."""
    moves = found.moves
    if not moves:
        head = "Nothing to move: every position is already right."
    elif applied is not None:
        head = f"Done: {counted(len(moves), 'position')} moved. A broker continues from there."
    else:
        head = f"{counted(len(moves), 'position')} to move. Nothing is written without --apply."
    lines = [head, *([""] if moves else []), *folded(moves, None if every else _ROWS, _move_text)]
    skipped, again = (sum(getattr(m, name) for m in moves) for name in ("skipped", "again"))
    if skipped or again:
        lines += ["", f"Messages skipped: {skipped:,}. Messages delivered again: {again:,}."]
    if found.left_out:
        what = counted(found.left_out, "position of a queue", "positions of queues")
        lines += ["", f"Left out: {what} that this store does not have."]
    if applied is not None:
        lines += ["", f"The original bytes are kept in {layout.journal / applied.session}"]
    return page_of(lines)


def _move_text(move: Move) -> str:
    before = "-" if move.before is None else f"{move.before:,}"
    place = f"{move.group} {move.topic}/{move.queue_id}"
    inside = "" if move.wished == move.after else f" (not {move.wished:,}, which is outside the queue)"
    return f"  {before:>12} -> {move.after:<12,} {place}{inside}"
