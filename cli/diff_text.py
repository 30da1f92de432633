"""The answer of `diff` as text: a line or two for each record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..store.counted import bytes_text, counted
from .diff_options import MESSAGES
from .json_text import dumps
from .terminal import escape
from .unread import UNREAD, unread_text

_THINGS = {
    "log": ("range of the log", "ranges of the log"),
    "record": ("field of a record", "fields of records"),
    "epoch": ("epoch", ""),
    "queue": ("queue", ""),
    "unit": ("queue with different units", "queues with different units"),
    "index": ("part of the index", "parts of the index"),
    "offset": ("position", ""),
    "config": ("entry of the configuration", "entries of the configuration"),
    "timer": ("hour of timers", "hours of timers"),
}


def text_of(row: Mapping[str, Any]) -> str:
    """The text of a record, with dangerous characters escaped."""
    return escape(_line(row))


def _line(row: Mapping[str, Any]) -> str:
    if row["type"] == UNREAD:
        return unread_text(row)
    store = f"{row['store']}: " if row.get("store") else ""
    if row["type"] == "comparison":
        return f"{store}{_sentence(row)}"
    if row["type"] == "more":
        return f"  … {row['count']} more (--verbose shows all)"
    if row["type"] == "part_difference":
        return f"  {store}{_difference(row)}"
    first = {"only_a": "only in A", "only_b": "only in B", "changed": "the messages differ"}
    counts = f"{row['only_a']} only in A, {row['only_b']} only in B, {row['changed']} changed"
    return (
        f"  {store}messages {row['topic']}/{row['queue_id']} from {row['queue_offset']} on"
        f" ({first[row['how']]}): {counts}"
    )


def _sentence(row: Mapping[str, Any]) -> str:
    """The result for a pair of stores, and how much was compared."""
    looked = f"{bytes_text(row['bytes'])} of log compared byte by byte"
    alone = row["samples"] == 0 and row["same_log"] is None
    if row["samples"] == 0:
        looked = "only messages were compared" if alone else "no log was read"
    elif row["quick"]:
        looked = f"--quick compared ends, beginnings of files and samples: {bytes_text(row['bytes'])}"
    expired = [
        f"{bytes_text(row[key])} before them only in {side}"
        for key, side in (("expired_a", "A"), ("expired_b", "B"))
        if row[key]
    ]
    looked = "; ".join([looked, *expired])
    if row["same"]:
        return f"The same ({looked})"
    if not row["differences"]:
        parts = ", ".join(text.partition(":")[0] for text in row["unread"])
        compared = "" if alone and MESSAGES not in parts else f" ({looked})"  # nothing was compared
        return f"Unknown whether they are the same: {parts} could not be compared{compared}"
    differences = [
        counted(number, *_THINGS.get(part, ("queue with different messages", "queues with different messages")))
        for part, number in row["differences"].items()
    ]
    if alone:
        head = "Not the same"
    elif row["same_log"] is None:
        head = "Not the same: the logs have no bytes in common"
    elif not row["same_log"]:
        head = "Not the same: two different logs"
    elif row["first_difference"] is None:
        head = "The same log, but the stores differ"
    else:
        head = f"Two copies of one log, different from {row['first_difference']:,} on"
    return f"{head}: {', '.join(differences)} ({looked})"


def _difference(row: Mapping[str, Any]) -> str:
    what = f"{row['part']} {row['name']}"
    if row["part"] == "log" and row["position"] is not None:
        size = bytes_text(row["a"] if row["b"] is None else row["b"])
        side = {"only_a": "only in A", "only_b": "only in B", "changed": "not the same"}
        return f"{what}: {size} {side[row['how']]}"
    more = f" ({row['count']:,} in total)" if row["count"] > 1 else ""
    if row["how"] == "only_a":
        return f"{what}: only in A, {_value(row['a'])}{more}"
    if row["how"] == "only_b":
        return f"{what}: only in B, {_value(row['b'])}{more}"
    return f"{what}: A {_value(row['a'])}, B {_value(row['b'])}{more}"


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else "nothing" if value is None else dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


_LONGEST = 120
"""Characters of a value in a text."""
