"""Text output of records, one line each. A record type that is not listed here prints as name=value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..store.counted import counted
from .terminal import escape, time_text

Record = Mapping[str, Any]

_BODY_CHARS = 60
_PLACE = 12


class RecordText:
    """Makes the lines; times are in UTC or local time."""

    def __init__(self, utc: bool) -> None:
        self._utc = utc
        self._lines: dict[str, Callable[[Record], str]] = {
            "message": self._message,
            "damage": self._damage,
            "blank": self._blank,
            "consume_queue_unit": self._unit,
        }

    def __call__(self, record: Record) -> str:
        """The line of a record, escaped: always one line, even if the record has line ends in its texts."""
        return escape(self._lines.get(record["type"], self._any)(record))

    def _message(self, record: Record) -> str:
        position = record.get("position", record["physical_offset"])
        parts = [
            f"{position:>{_PLACE}}",
            f"{record['topic']}/{record['queue_id']} @{record['queue_offset']}",
            self._time(record["store_timestamp"]),
        ]
        parts += [
            f"{name}={record[name] if isinstance(record[name], str) else ' '.join(record[name])}"
            for name in ("tags", "keys")
            if record.get(name)
        ]
        return "  ".join([*parts, _body(record), *_marks(record)])

    def _damage(self, record: Record) -> str:
        size = counted(record["size"], "byte")
        return f"{record['position']:>{_PLACE}}  -- damage: {size}, {record['reason']}"

    def _blank(self, record: Record) -> str:
        position = record["position"] if "position" in record else record["physical_offset"]
        size = counted(record["size"], "byte")
        return f"{position:>{_PLACE}}  -- blank: {size} to the end of the file"

    def _unit(self, record: Record) -> str:
        topic, queue_id = record.get("topic"), record.get("queue_id")
        queue = f"{topic}/{queue_id} " if topic is not None else ""
        state = f"  {record['state']}" if "state" in record else ""
        return (
            f"{queue}@{record['queue_offset']}  -> {record['physical_offset']}"
            f"  {counted(record['size'], 'byte')}"
            f"  tags_code={record['tags_code']}{_ext(record)}{state}"
        )

    def _any(self, record: Record) -> str:
        fields = (
            f"{name}={self._value(name, value)}"
            for name, value in record.items()
            if name != "type" and value is not None
        )
        return f"{record['type'].replace('_', ' ')}  {'  '.join(fields)}"

    def _value(self, name: str, value: Any) -> str:
        if name.endswith("_timestamp") and isinstance(value, int) and value > 0:
            return f"{value} ({self._time(value)})"
        if isinstance(value, dict | list | bool):
            from .json_text import dumps

            return dumps(value)
        return str(value)

    def _time(self, epoch_ms: int) -> str:
        return time_text(epoch_ms, self._utc)


def _body(record: Record) -> str:
    """The beginning of the body, and its length if it is cut."""
    text = record.get("body")
    if text is None:
        encoded = record.get("body_base64", "")
        size = len(encoded) * 3 // 4 - encoded[-2:].count("=")
        size_text = f"({counted(size, 'byte')}, not text)"
        return size_text if not record.get("body_error") else "(not readable)"
    shown = text if len(text) <= _BODY_CHARS else f"{text[:_BODY_CHARS]}…"
    return f'"{shown}" ({len(text)} characters)' if shown != text else f'"{shown}"'


def _marks(record: Record) -> list[str]:
    """Remarks on a record that is not an ordinary message."""
    marks = [name.replace("_", " ") for name in ("after_damage", "tombstone", "filler") if record.get(name)]
    if "stale" in record:
        marks.append(f"stale: {record['stale'].replace('_', ' ')}")
    if record.get("body_crc_ok") is False:
        marks.append("wrong body CRC")
    if "inner_number" in record:
        marks.append(f"{record['inner_number'] + 1} of {record['batch_size']} in one record")
    if record.get("body_error"):
        marks.append(record["body_error"])
    return [f"[{', '.join(marks)}]"] if marks else []


def _ext(record: Record) -> str:
    """What consumequeue_ext has for the unit."""
    if "ext_address" not in record:
        return ""
    if "ext_problem" in record:
        return f" (an ext address: {record['ext_problem']})"
    bits = record["ext_bit_map"]
    return f" (ext: tags_code={record['ext_tags_code']}" + (f" bit_map={bits})" if bits else ")")
