"""The answer of `trace`, as records and as text."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from ..store.counted import counted
from ..store.search.store import StoreReader
from ..store.trace.trace import TraceQuestion, trace
from .declared import Format
from .options import Common, say
from .plan_text import first_ones
from .record_types import columns_of
from .searched_text import check_log, scanning, searched_text
from .terminal import page_of, time_text

Record = Mapping[str, Any]
COLUMNS = columns_of("trace")
CSV_COLUMNS = (
    *("unique_key", "topic", "queue_id", "queue_offset", "position", "row", "at_timestamp"),
    *("name", "group", "text", "where", "next_command"),
)
"""Columns of a CSV, which has a row for each event and each verdict."""
_SHOWN = 20
_PLACE = 12


def answer(store: Path, question: TraceQuestion, limit: int, common: Common) -> bool:
    """Print the answer; return whether a message was found. limit: number of messages.

    Raises Missing, Refused, Unreadable.
    """
    common.open_output().check(COLUMNS)
    with StoreReader(store, common.config()) as opened, scanning(opened, common):
        check_log(opened.layout, common)
        opened.layout.version_named = question.given.version
        question = question._replace(given=question.given.at(opened.layout))
        found = trace(opened, question, common.warn)
        shown = list(islice(found, min(limit, sys.maxsize)))
        more = next(found, None) is not None
        searched = "" if shown else searched_text(opened, common.utc)
    if more:
        common.warn(f"more than {counted(limit, 'message')} found; --limit shows more of them")
    _print([one.to_json() for one in shown], common)
    if not shown:
        say(f"nothing has the key, id or place {question.asked.text!r}: {searched}")
    return bool(shown)


def _print(records: list[Record], common: Common) -> None:
    with common.open_output() as out:
        if common.format == Format.CSV and not common.fields:
            rows = (row for record in records for row in flat(record))
            out.records(rows, text=str, columns=CSV_COLUMNS)
        elif len(records) == 1:
            out.record(records[0], text=lambda r: _text(r, common), columns=COLUMNS)
        else:
            out.records(records, text=lambda r: _text(r, common), columns=COLUMNS)


def flat(record: Record) -> Iterator[Record]:
    head = {"unique_key": record["unique_key"]}
    for event in record["events"]:
        row = {name: event[name] for name in ("topic", "queue_id", "queue_offset", "position")}
        texts = {"name": event["event"], "text": event["text"], "where": event["path"]}
        yield {**head, **row, "row": "event", "at_timestamp": event["timestamp"], "group": event["group"], **texts}
    for group in record["groups"]:
        row = {name: group[name] for name in ("topic", "queue_id", "queue_offset", "group")}
        facts = "; ".join(f"{one['fact']} ({one['where']})" for one in group["evidence"])
        yield {
            **head,
            **row,
            "position": record["position"],
            "row": "verdict",
            "at_timestamp": group["until_timestamp"],
            "name": group["verdict"],
            "text": group["reason"],
            "where": facts,
            "next_command": group["next_command"],
        }


def _text(record: Record, common: Common) -> str:
    return page_of(_lines(record, common))


def _lines(record: Record, common: Common) -> Iterator[str]:
    yield _head(record)
    events = [e for e in record["events"] if common.verbose or e["event"] != "indexed"]
    for event in events:
        yield _event(event, common)
    if items := len(record["events"]) - len(events):
        yield f"  ({counted(items, 'index item names', 'index items name')} it: --verbose lists them)"
    if record["for_all"] is not None:
        yield ""
        yield from _verdict("no group gets it now", record["for_all"], common, "")
    if record["groups"]:
        yield ""
        yield "groups:"
    shown, more = first_ones(record["groups"], None if common.verbose else _SHOWN)
    for group in shown:
        yield from _verdict(group["group"], group, common, "  ")
    yield from more
    if record["other_groups"]:
        others = counted(record["other_groups"], "other group in config/ has", "other groups in config/ have")
        yield f"  ({others} no connection with the topic; --group shows one of them)"
    yield from _end(record)


def _head(record: Record) -> str:
    queue_id, offset = record["queue_id"], record["queue_offset"]
    place = record["topic"] or "(topic not known)"
    if queue_id is not None:
        place += f"/{queue_id}"
    if offset is not None:
        place += f"/{offset}"
    key = f", unique key {record['unique_key']}" if record["unique_key"] else ""
    where = "" if record["position"] is None else f", record at {record['position']}"
    how = f"found by {record['found_by']} ({record['via']})"
    return f"message {place}{key}{where}; {how}"


def _event(event: Record, common: Common) -> str:
    at = event["timestamp"]
    when = "-" if at is None else time_text(at, common.utc)
    place = "" if event["position"] is None else str(event["position"])
    queue = ""
    if event["topic"] is not None and event["event"] not in ("named", "not_named"):
        queue = f"{event['topic']}/{event['queue_id']}/{event['queue_offset']}: "
    group = f" [{event['group']}]" if event["group"] else ""
    file = f"  ({event['path']})" if event["path"] else ""
    name = event["event"].replace("_", " ")
    return f"  {when}  {place:>{_PLACE}}  {name}{group}: {queue}{event['text']}{file}"


def _verdict(name: str, group: Record, common: Common, indent: str) -> Iterator[str]:
    verdict = group["verdict"].replace("_", " ")
    until = group["until_timestamp"]
    when = "" if until is None else f", {time_text(until, common.utc)}"
    bug = f" ({group['bug']})" if group["bug"] else ""
    yield f"{indent}{name}: {verdict}{bug}: {group['reason']}{when}"
    for one in group["evidence"]:
        yield f"{indent}    {one['fact']}  ({one['where']})"


def _end(record: Record) -> Iterator[str]:
    start = record["next_start"]
    if start is not None:
        version = f" of {start['broker_version']}" if start["broker_version"] else ""
        if start["broker_version_reason"] is not None:
            others = " or ".join(v for v in start["broker_versions"] if v != start["broker_version"])
            version += f" (a guess; it may be {others})" if others else " (a guess)"
        fate = start["fate"].replace("_", " ")
        yield f"next start{version}: {fate}: {start['reason']}"
    for command in record["next_commands"]:
        yield f"next: {command}"
