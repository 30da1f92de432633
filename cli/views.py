"""`inspect --delays`, `--timers`, …: views over messages of a broker's own topics, as text and JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from ..store.counted import counted
from ..store.search.store import StoreReader
from .options import Common
from .plan_text import folded
from .terminal import page_of, time_text

Record = Mapping[str, Any]
_SHOWN = 20
"""Rows of a list that are shown without --verbose."""


def print_views(store: StoreReader, names: list[str], now_ms: int, common: Common) -> None:
    """Print a record for each view that was asked for; a single view is one JSON object."""
    records = [_view(name, store, now_ms, common.warn) for name in names]

    def text(record: Record) -> str:
        return page_of(_TEXTS[record["type"]](record, common))

    with common.open_output() as out:
        if len(names) == 1:
            out.record(records[0], text=text)
        else:
            out.records(records, text=text, columns=list(dict.fromkeys(chain.from_iterable(records))))


def _view(name: str, store: StoreReader, now_ms: int, note: Callable[[str], None]) -> dict[str, Any]:
    from ..store.inspect.own_topics import delays
    from ..store.inspect.pop import pop
    from ..store.inspect.stats_dimensions import retries
    from ..store.inspect.timers import timers
    from ..store.inspect.transactions import transactions

    match name:
        case "retries":
            return retries(store, note).to_json()
        case "transactions":
            return transactions(store, note).to_json(now_ms)
        case "timers":
            return timers(store, now_ms, note).to_json()
        case "pop":
            return pop(store, now_ms, note).to_json()
        case _:
            return delays(store, now_ms, note).to_json()


def _delays_text(record: Record, common: Common) -> Iterator[str]:
    yield f"delays: {record['pending']:,} pending, {record['overdue']:,} of them overdue"
    yield from _again(record)
    for row in record["levels"]:
        wait = "unknown" if row["delay_ms"] is None else f"{row['delay_ms'] / 1000:g} s"
        first, last = row["first_deliver_timestamp"], row["last_deliver_timestamp"]
        due = f"{row['overdue']:,} overdue"
        if first is not None:
            due += f"  due {_time(first, common)} … {_time(last, common)}"
        elif row["pending"]:
            wait, due = "not in messageDelayLevel", "never delivered by a broker without the level"
        again = f"; {row['again']:,} delivered (again)" if row["again"] and not record["live"] else ""
        yield (
            f"  level {row['level']:>2} ({wait}): {counted(row['messages'], 'message', form=',')},"
            f" {row['pending']:,} pending, {due}{again}"
        )


def _again(record: Record) -> Iterator[str]:
    """What is delivered already and comes again, of delay levels or timers."""
    if record["again"]:
        when = "would be delivered once too often if the broker were killed now"
        when = when if record["live"] else "will be delivered once too often"
        yield f"  {record['again']:,} {when}{', if this node is elected' if record.get('if_elected') else ''}"


def _timers_text(record: Record, common: Common) -> Iterator[str]:
    counts = ", ".join(f"{record[state]:,} {state}" for state in _TIMER_STATES)
    where = " (in RocksDB)" if record["engine"] == "rocksdb" else ""
    yield f"timers{where}: {counts}; {record['overdue']:,} overdue at {_time(record['now'], common)}"
    rows, live = record["timers"], record["live"]
    yield from _again(record)
    if live:
        rows = [row | {"again": False} for row in rows]
    if rows:
        read = record["read_timestamp"]
        begin = _time(read, common) if read else "the first timer"
        goes_on = "after a kill a broker would continue" if live else "a broker continues"
        yield f"  {goes_on} at {begin}, in the timer queue at offset {record['queue_offset']:,}"
    for hour in record["hours"]:
        yield f"  due from {_time(hour['hour_timestamp'], common)}: {hour['messages']:,}"
    odd = [row for row in rows if row["state"] in ("never", "unknown") or row["overdue"] or row["again"]]
    yield from _folded(rows if common.verbose else odd, _timer, common)
    lost = [row for row in record["cancels"] if not row["effective"]]
    yield from _folded(lost, _cancel, common)


_TIMER_STATES = ("pending", "rolled", "delivered", "cancelled", "never", "unknown")


def _timer(row: Record, common: Common) -> str:
    due, place = row["deliver_timestamp"], (row["delivered"] or row["positions"])[-1]
    marks = "".join(f" ({mark})" for mark in ("overdue", "again") if row[mark])
    key = row["unique_key"] or "(no unique key)"
    name = f"{key}  {row['topic']}/{row['queue_id']}"
    when = "at no known time" if due is None else _time(due, common)
    if not row["topic"]:
        name, when = "(not known)", f"in the wheel at {_time(row['next_timestamp'], common)}"
    return (
        f"  {row['state']}{marks}  {name}  due {when}, record at {place}{': ' if row['reason'] else ''}{row['reason']}"
    )


def _cancel(row: Record, common: Common) -> str:
    return f"  cancels nothing  {row['cancels']}  at {row['position']}: {row['reason']}"


def _folded(rows: Iterable[Record], text: Callable[[Record, Common], str], common: Common) -> list[str]:
    """Lines for the first rows; with --verbose for all."""
    return folded(rows, None if common.verbose else _SHOWN, lambda row: text(row, common))


def _retries_text(record: Record, common: Common) -> Iterator[str]:
    yield f"retries: {record['retry']:,}; dead letters: {record['dead_letter']:,}"
    for row in record["groups"]:
        not_consumed = row["not_consumed"]
        waiting = "" if not_consumed is None else f", {not_consumed:,} not consumed"
        yield (
            f"  {row['kind'].replace('_', ' ')}  {row['group']}  of"
            f" {row['original_topic'] or '(unknown)'}:"
            f" {counted(row['messages'], 'message', form=',')}"
            f"{waiting}, retried up to {counted(row['most_reconsumed'], 'time')},"
            f" {_time(row['first_store_timestamp'], common)} …"
            f" {_time(row['last_store_timestamp'], common)}"
        )


def _pop_text(record: Record, common: Common) -> Iterator[str]:
    yield (
        f"pop: {counted(record['check_points'], 'check point', form=',')}"
        f" at {_time(record['now'], common)}:"
        f" {_pop_counts(record)}"
    )
    if again := record["again"]:
        given = counted(again, "message", form=",")
        yield f"  {given} would be given again by a start: the positions of the groups on disk are not past them"
    for name in ("stray_acks", "wrong_bodies"):
        if record[name]:
            yield f"  {record[name]:,} {name.replace('_', ' ')}"
    for row in record["groups"]:
        yield f"  group {row['group']}  {row['topic']}: {_pop_counts(row)}"
    for row in record["revive_queues"]:
        read = "not known" if row["reached"] is None else f"{row['reached']:,}"
        stop = (
            ""
            if row["stopped_at"] is None
            else (
                f"; it stops at {row['stopped_at']:,}, because it cannot read that body (record at {row['stopping']}):"
                " no message of this queue comes back"
            )
        )
        yield f"  {row['topic']}/{row['queue_id']}: a broker continues at {read}, the newest is {row['newest']:,}{stop}"
    rows = [row for row in record["messages"] if common.verbose or row["state"] != "returned"]
    yield from _folded(rows, _popped, common)


def _pop_counts(row: Record) -> str:
    return ", ".join(f"{row[state]:,} {state}" for state in _POP_STATES)


_POP_STATES = ("acked", "returned", "invisible", "due", "never", "unknown")


def _popped(row: Record, common: Common) -> str:
    place = "" if row["position"] is None else f", record at {row['position']}"
    back = "" if row["returned"] is None else f", came back at {row['returned']}"
    return (
        f"  {row['state']}  {row['topic']}/{row['queue_id']}/{row['queue_offset']}"
        f"{' of ' if row['broker_name'] else ''}{row['broker_name']}"
        f"  of {row['group']}, given out {_time(row['pop_timestamp'], common)},"
        f" invisible until {_time(row['visible_timestamp'], common)}{place}{back}"
        f"{': ' if row['reason'] else ''}{row['reason']}"
    )


def _transactions_text(record: Record, common: Common) -> Iterator[str]:
    unknown = f", {record['unknown']:,} unknown: rocksdbstore is missing or not whole" if record["unknown"] else ""
    now = record["now"]
    yield (
        f"transactions: {record['open']:,} open, {record['committed']:,} committed,"
        f" {record['rolled_back']:,} rolled back, {record['given_up']:,} given up{unknown}"
    )
    if again := record["asked_again"]:
        are = "is" if again == 1 else "are"
        why = "a start reads no op record of theirs; if the producer says commit, their messages are delivered again"
        yield f"  {again:,} of the committed ones {are} asked about again: {why}"
    rows = [{**row, "old": (row["give_up_timestamp"] or now) < now} for row in record["transactions"]]
    if old := sum(row["old"] for row in rows):
        are, hours = "is" if old == 1 else "are", counted(record["file_reserved_hours"], "hour")
        why = f"sent more than {hours} (fileReservedTime) ago"
        yield f"  {old:,} of the open ones {are} too old: {why}, and given up by the first check of a broker"
    rows = [row for row in rows if row["state"] in ("open", "given_up", "unknown")]
    yield from _folded(rows, _transaction, common)


def _transaction(row: Record, common: Common) -> str:
    return (
        f"  {row['state'].replace('_', ' ')}{' (too old)' if row['old'] else ''}  {row['unique_key']}"
        f"  {row['topic']}/{row['queue_id']}  {_time(row['store_timestamp'], common)}"
        f"  of {row['producer_group']}, {counted(row['checks'], 'check')},"
        f" half message at {row['positions'][-1]}"
    )


def _time(time_ms: int, common: Common) -> str:
    return time_text(time_ms, common.utc)


_TEXTS = {
    "delays": _delays_text,
    "timers": _timers_text,
    "retries": _retries_text,
    "pop": _pop_text,
    "transactions": _transactions_text,
}
