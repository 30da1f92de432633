"""What `inspect` says of a directory or a file that is no whole store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .terminal import bytes_text, time_text

if TYPE_CHECKING:
    from ..store.recognise import Recognised
    from .options import Common

_LABEL = 24


def summary(what: Recognised, common: Common) -> dict[str, Any]:
    """The kind, why it was taken for that, its size, and what is in it."""
    files = [what.path] if what.path.is_file() else _files_below(what.path)
    return {
        "type": "file",
        "path": str(what.path),
        "kind": what.kind,
        "kind_reason": what.reason,
        "files": len(files),
        "bytes": sum(path.stat().st_size for path in files),
        **_CONTENTS[what.kind](what, common),
    }


def summary_text(record: Mapping[str, Any], utc: bool) -> str:
    """One line for each field."""
    return "\n".join(
        f"{name.replace('_', ' '):<{_LABEL}}{_value(name, value, utc)}"
        for name, value in record.items()
        if name != "type" and value is not None
    )


def _value(name: str, value: Any, utc: bool) -> str:
    if name.endswith("_timestamp"):
        return time_text(value, utc) if value > 0 else "never"
    if name == "bytes":
        return bytes_text(value)
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def _files_below(path: Path) -> list[Path]:
    return [child for child in path.rglob("*") if child.is_file()]


def _log(what: Recognised, common: Common) -> dict[str, Any]:
    """Records from the first to the last one; all of it is walked, without the bodies' CRCs."""
    from ..store.commit_log import Batch
    from .dump_log import open_log

    log = open_log(what, common)
    messages, damaged, reasons = 0, 0, dict[str, int]()
    times: list[int] = []
    end = log.min_offset
    with common.progress("walking", sum(file.size for file in log.files)) as progress:
        for item in log.scan(crc=False):
            if isinstance(item, Batch):
                messages += len(item)
                column = item.columns.ints("store_timestamp")
                times = [times[0] if times else int(column[0]), int(column[-1])]
                end = item.end
                progress.advance(end - int(item.position[0]))
                continue
            progress.advance(item.size)
            reasons[item.kind.value] = reasons.get(item.kind.value, 0) + 1
            damaged += item.size if item.kind.value in ("damage", "missing", "torn_tail") else 0
    first, last = times or (None, None)
    return {
        "log_start": log.min_offset,
        "log_end": end,
        "messages": messages,
        "damaged_bytes": damaged,
        "extents": [f"{count} {kind}" for kind, count in reasons.items()],
        "first_store_timestamp": first,
        "last_store_timestamp": last,
    }


def _queues(what: Recognised, common: Common) -> dict[str, Any]:
    """Units of all queues there are; of one queue also its offsets."""
    from ..store.consume_queue import ConsumeQueue
    from .dump_files import queue_files

    found = []
    for topic, queue_id, files in queue_files(what):
        with ConsumeQueue(topic or "", queue_id or 0, files) as queue:
            found.append(queue.summary())
    if len(found) == 1:
        (one,) = found
        unit = {} if one.end_position is None else {"highest_position": one.end_position}
        return {
            "topic": one.topic or None,
            "queue_id": one.queue_id if one.topic else None,
            "min_offset": one.min_offset,
            "max_offset": one.max_offset,
            **unit,
        }
    return {
        "topics": len({queue.topic for queue in found}),
        "queues": len(found),
        "messages": sum(queue.max_offset - queue.min_offset for queue in found),
        "highest_position": max((q.end_position for q in found if q.end_position), default=0),
    }


def _index(what: Recognised, common: Common) -> dict[str, Any]:
    """The header of one file, of several the items and times of all."""
    from .dump_files import index_files

    files = index_files(what.path, common.config())
    headers = [file.header for file in files]
    shape = {"slots": files[0].slots, "items": files[0].items} if files else {}
    for file in files:
        file.close()
    if len(files) == 1:
        return {**shape, **headers[0]._asdict()}
    used = [header for header in headers if header.index_count > 1]
    return {
        **shape,
        "index_items": sum(header.index_count - 1 for header in used),
        "begin_timestamp": min((header.begin_timestamp for header in used), default=0),
        "end_timestamp": max((header.end_timestamp for header in used), default=0),
    }


def _one_record(what: Recognised, common: Common) -> dict[str, Any]:
    """Files that are one record: all its fields."""
    from . import dump_files

    read = dump_files.checkpoint if what.kind == "checkpoint" else dump_files.text_file
    (record,) = (record for chunk in read(what) for record in chunk.records())
    return {name: value for name, value in record.items() if name != "type"}


def _timer_log(what: Recognised, common: Common) -> dict[str, Any]:
    from . import dump_files

    counts: dict[str, int] = {}
    for chunk in dump_files.timer_log(what, None):
        for record in chunk.records():
            counts[record["type"]] = counts.get(record["type"], 0) + 1
    return {
        "timer_log_units": counts.get("timer_log_unit", 0),
        "blanks": counts.get("blank", 0),
        "damaged_ranges": counts.get("damage", 0),
    }


def _timer_wheel(what: Recognised, common: Common) -> dict[str, Any]:
    from ..store.timer import timer_wheel

    used, messages, ticks = 0, 0, list[int]()
    for part in timer_wheel(what.path):
        used += len(part.number)
        messages += int(part.slots["num"].sum())
        ticks += [int(part.slots["time"].min()), int(part.slots["time"].max())]
    return {
        "slots_used": used,
        "messages": messages,
        "first_tick": min(ticks, default=None),
        "last_tick": max(ticks, default=None),
    }


_CONTENTS: Mapping[str, Callable[[Recognised, Common], dict[str, Any]]] = {
    "commit-log": _log,
    "dledger": _log,
    "consume-queue": _queues,
    "index-file": _index,
    "checkpoint": _one_record,
    "abort": _one_record,
    "lock": _one_record,
    "timer-log": _timer_log,
    "timer-wheel": _timer_wheel,
}
