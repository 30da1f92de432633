"""Lags as records: one for each group and queue, or added up by group and topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ..search.selection import matches
from ..search.store import Store
from .groups import groups_of
from .lag import Bar, Lag, State, behind_log, lags_of, measure, no_bar, queue_ends
from .positions import DELAYED, Position, positions_of

BY = ("group", "topic", "queue")
"""What one record is about; of the first two the queues are added up."""
COLUMNS = {
    "queue": (
        *("type", "store", "group", "topic", "queue_id", "table", "file", "mode", "state"),
        *("offset", "min_offset", "max_offset", "lag", "lag_bytes", "oldest_unread_timestamp"),
        *("lag_ms", "expired", "backup_offset", "moved_back", "subscribed", "next_offset", "next"),
    ),
    "topic": (
        *("type", "store", "group", "topic", "mode", "queues", "lag", "lag_bytes"),
        *("oldest_unread_timestamp", "lag_ms", "expired", "moved_back", "subscribed", "states"),
    ),
    "group": (
        *("type", "store", "group", "topics", "queues", "lag", "lag_bytes"),
        *("oldest_unread_timestamp", "lag_ms", "expired", "moved_back", "subscribed", "states"),
    ),
}
"""Fields of a record, by what it is about."""


class Wanted(NamedTuple):
    """What is asked for. group, topic: names or patterns, None for all. odd: only what is behind or needs
    a look. quick: neither bytes nor times. now_ms: what ages are counted to.
    """

    now_ms: int
    by: str = "topic"
    group: str | None = None
    topic: str | None = None
    odd: bool = False
    quick: bool = False


class Found(NamedTuple):
    """The records of a store, and what is to be known of their files. named: there is a position, or a
    group, of the names that were asked for, wanted or not.
    """

    rows: list[dict[str, Any]]
    notes: list[str]
    named: bool = True


def offsets_of(store: Store, name: str, wanted: Wanted, bar: Bar = no_bar) -> Found:
    """How far each group of a store is. name: of the store in the records. bar: as of `measure`.

    Raises Unreadable.
    """
    layout, version = store.layout, store.generation.version
    if not layout.config.is_dir():
        return Found([], ["no config/ here: nothing says how far groups have come"], named=False)
    positions, ends = positions_of(layout, version), queue_ends(store)
    named = [
        lag
        for lag in lags_of(positions.rows, ends, groups_of(layout, version))
        if _is_named(lag, wanted)
    ]
    notes, unread = list(positions.notes), bool(store.queues_unread and not ends)
    behind = None if unread else behind_log(store, ends)
    for lag in named:
        lag.ends_known = not unread and behind is None
    lags = [lag for lag in named if not wanted.odd or _is_odd(lag)]
    if behind is not None and named:
        notes.append(
            f"the queues are behind the log, from {behind} on: where they end is not known before a start"
            " has dispatched the rest"
        )
    if unread and lags:
        notes.append(f"{store.queues_unread}: where queues end is not known")
    if not wanted.quick:
        measure(store, lags, bar)
        if not store.has_log:
            notes.append("no commit log here: how old messages are is not known")
    if wanted.by == "queue":
        lags.sort(key=lambda lag: (lag.position.group, lag.position.topic, *lag.position.key))
        made = [_row(lag, name, wanted.now_ms, version) for lag in lags]
        return Found(made, notes, bool(named))
    rows = list(_sums(lags, name, wanted))
    rows.sort(key=lambda row: (-row["lag"], row["group"] or "", row.get("topic") or ""))
    return Found(rows, notes, bool(named))


def _is_named(lag: Lag, wanted: Wanted) -> bool:
    one = lag.position
    if wanted.group is not None and not matches(one.group, wanted.group):
        return False
    return wanted.topic is None or matches(one.topic, wanted.topic)


def _is_odd(lag: Lag) -> bool:
    odd = lag.state is not State.CURRENT or lag.moved_back or lag.subscribed is False
    return bool(odd)


def _group(one: Position) -> str | None:
    """Its name, which may be empty; None for a delay level."""
    return None if one.table == DELAYED else one.group


def _row(lag: Lag, store: str, now_ms: int, version: str) -> dict[str, Any]:
    one, queue = lag.position, lag.queue
    next_offset, why = lag.goes_on(version)
    oldest = lag.unread.oldest_ms if lag.unread is not None else None
    return {
        "type": "group_offset",
        "store": store,
        "group": _group(one),
        "topic": one.topic or None,
        "queue_id": one.queue_id if one.queue_id >= 0 else None,
        "table": one.table or None,
        "file": one.file or None,
        "mode": lag.mode or None,
        "state": str(lag.state),
        "offset": lag.offset,
        "min_offset": queue.min_offset if queue is not None else None,
        "max_offset": queue.max_offset if queue is not None else None,
        "lag": lag.messages,
        "lag_bytes": lag.unread.size_bytes if lag.unread is not None else None,
        "oldest_unread_timestamp": oldest,
        "lag_ms": None if oldest is None else now_ms - oldest,
        "expired": lag.expired,
        "backup_offset": one.backup,
        "moved_back": lag.moved_back,
        "subscribed": lag.subscribed,
        "next_offset": next_offset,
        "next": why or None,
    }


def _sums(lags: Iterable[Lag], store: str, wanted: Wanted) -> Iterator[dict[str, Any]]:
    """One record for each group, or for each of its topics."""
    groups: dict[tuple[str | None, ...], list[Lag]] = {}
    for lag in lags:
        one = lag.position
        names = _group(one), one.topic
        groups.setdefault(names[: 1 if wanted.by == "group" else 2], []).append(lag)
    for key, mine in groups.items():
        yield {**_names(key, mine, store), **_counts(mine, wanted)}


def _names(key: tuple[str | None, ...], lags: list[Lag], store: str) -> dict[str, Any]:
    head: dict[str, Any] = {"type": "group_lag", "store": store, "group": key[0]}
    if len(key) == 1:
        return {**head, "topics": len({lag.position.topic for lag in lags} - {""})}
    modes = {lag.mode for lag in lags} - {""}
    return {**head, "topic": key[1] or None, "mode": ",".join(sorted(modes)) or None}


def _counts(lags: list[Lag], wanted: Wanted) -> dict[str, Any]:
    """Sums over queues where the group has a position; states count all."""
    measured = [lag for lag in lags if lag.committed and lag.position.table != "pull"]
    unread = [lag.unread for lag in measured if lag.unread is not None]
    oldest = min((one.oldest_ms for one in unread if one.oldest_ms is not None), default=None)
    states: dict[str, int] = {}
    for lag in lags:
        states[str(lag.state)] = states.get(str(lag.state), 0) + 1
    subscribed = {lag.subscribed for lag in lags}
    return {
        "queues": len({(lag.position.topic, lag.position.queue_id) for lag in measured}),
        "lag": sum(max(0, lag.messages or 0) for lag in measured),
        "lag_bytes": None if wanted.quick else sum(one.size_bytes for one in unread),
        "oldest_unread_timestamp": oldest,
        "lag_ms": None if oldest is None else wanted.now_ms - oldest,
        "expired": sum(lag.expired for lag in measured),
        "moved_back": sum(lag.moved_back for lag in lags),
        "subscribed": None if subscribed == {None} else False not in subscribed,
        "states": states,
    }
