"""What `inspect` prints of a directory or a file that is not a whole store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..store.counted import bytes_text, counted
from ..store.inspect.recognise import Recognised
from .file_kinds import file_kind
from .options import Common
from .terminal import page_of, time_text

_LABEL = 28


def summary(what: Recognised, common: Common) -> dict[str, Any]:
    files = [what.path] if what.path.is_file() else [child for child in what.path.rglob("*") if child.is_file()]
    return {
        "type": "file",
        "path": str(what.path),
        "kind": what.kind,
        "kind_reason": what.reason,
        "files": len(files),
        "bytes": sum(path.stat().st_size for path in files),
        **file_kind(what.kind).summary(what, common),
    }


def summary_text(record: Mapping[str, Any], utc: bool) -> str:
    """A line for each field; the field `contents` has a line for each of its parts."""
    lines = []
    for name, value in record.items():
        if name == "type" or value is None:
            continue
        first, *more = value or ["nothing"] if name == "contents" else [_value(name, value, utc)]
        lines += [f"{name.replace('_', ' '):<{_LABEL}}{first}", *(f"{'':{_LABEL}}{each}" for each in more)]
    return page_of(lines)


def damage_in(record: Mapping[str, Any]) -> str:
    """One line on the damage in a summary, "" for none; `dump` shows the places."""
    from ..store.settings.read import BROKEN

    if record.get("state") == BROKEN:
        return f"{record['path']}: {record['contents'][0]}"
    things = {"damaged_ranges": "damaged range", "damaged_bytes": "damaged byte", "damaged_files": "damaged file"}
    damage = [counted(record[name], thing) for name, thing in things.items() if record.get(name)]
    return f"{', '.join(damage)} (dump shows them)" if damage else ""


def _value(name: str, value: Any, utc: bool) -> str:
    if name.endswith("_timestamp"):
        return time_text(value, utc) if value > 0 else "never"
    if name == "bytes":
        return bytes_text(value)
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)
