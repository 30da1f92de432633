"""Filters that Spark pushes down to the log: what they leave out need not become rows.

Spark checks them again on the rows that are left: a condition here may let too much through, but never leave out too
much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from ...store.arrow.log_rows import Pushed
from ...store.search.selection import ANY_TAG, TAG_SEPARATOR, Selection, TimeRange

_EARLIEST_MS, _BEHIND_ALL_MS = -(1 << 63), 1 << 63
"""A damaged record may have any time that a long holds."""
_UNKNOWN = "\N{REPLACEMENT CHARACTER}"
"""Stands in a column for bytes that are no text."""


def take_filters(filters: Iterable[Filter]) -> tuple[Pushed, list[Filter]]:
    """Return what the filters, all of which must hold, ask for, and the filters that Spark must check again: all."""
    kept = list(filters)
    pushed = Pushed()
    for one in kept:
        pushed = _with(pushed, one)
    return pushed, kept


def _with(pushed: Pushed, one: Filter) -> Pushed:
    column: tuple[str, ...] = getattr(one, "attribute", ())
    either: list[Selection | None] = []
    if column == ("store_timestamp",):
        either = [Selection(times=bounds)] if (bounds := _bounds(one)) else []
    elif len(column) == 1 and (make := _SELECTIONS.get(column[0])):
        either = [make(value) for value in _values(one)]
    if not either or None in either:
        return pushed
    return replace(pushed, conditions=[*pushed.conditions, [each for each in either if each is not None]])


def _values(one: Filter) -> list[Any]:
    """Return the values of which a column must have one; empty for another kind of filter."""
    if isinstance(one, EqualTo):
        return [one.value]
    return list(one.value) if isinstance(one, In) else []


def _bounds(one: Filter) -> TimeRange | None:
    if isinstance(one, GreaterThan):
        return TimeRange(int(one.value) + 1, _BEHIND_ALL_MS)
    if isinstance(one, GreaterThanOrEqual):
        return TimeRange(int(one.value), _BEHIND_ALL_MS)
    if isinstance(one, LessThan):
        return TimeRange(_EARLIEST_MS, int(one.value))
    if isinstance(one, LessThanOrEqual):
        return TimeRange(_EARLIEST_MS, int(one.value) + 1)
    return None


def _text(make: Callable[[str], Selection]) -> Callable[[Any], Selection | None]:
    """Make conditions only for values that stand for themselves."""

    def condition(value: Any) -> Selection | None:
        return make(value) if isinstance(value, str) and value and _UNKNOWN not in value else None

    return condition


def _tag(value: Any) -> Selection | None:
    text = _text(lambda tag: Selection(tag=tag))(value)
    odd = text is None or TAG_SEPARATOR in value or value.strip() in ("", ANY_TAG)
    return None if odd or value != value.strip() else text


_SELECTIONS: Mapping[str, Callable[[Any], Selection | None]] = {
    "topic": _text(lambda topic: Selection(topic=topic)),
    "unique_key": _text(lambda key: Selection(unique_key=key)),
    "queue_id": lambda value: Selection(queue_id=value) if isinstance(value, int) else None,
    "tags": _tag,
}
