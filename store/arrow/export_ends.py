"""Where an export of a log ended, as its data set tells, and where the next one goes on.

A position alone tells nothing: a broker may have cut the log there and written on, or another log
may lie at the path now. So a checksum of the last bytes before it is kept beside it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from ..disk.file_queue import MappedFileQueue
from ..disk.layout import Layout, is_uri
from ..errors import Refused, UnreadableRange
from ..log.splits import Split
from ..search.live_end import end_of
from .ask import ALWAYS, Ask
from .log_rows import Damage
from .remote import open_log

_LAST_BYTES = 4096
"""Bytes before a position that tell which log it is: a record or more."""
EXPIRED = "its files have expired since the last export"


@dataclass(frozen=True)
class LogEnded:
    """Where an export of one log ended.

    position: behind the last message, None where nobody knows, for the reason `why`. size, crc: of
    the bytes before. topics, queue_id: what was exported.
    """

    position: int | None
    why: str = ""
    size: int = 0
    crc: int = 0
    topics: tuple[str, ...] = ()
    queue_id: int | None = None

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> Self:
        """What `to_json` gave. Raises TypeError, KeyError."""
        return cls(**{**found, "topics": tuple(found["topics"])})

    def to_json(self) -> dict[str, Any]:
        """For the note in a data set."""
        return asdict(self)


@dataclass(frozen=True)
class LogRange:
    """What of one log is exported. split: None for all that is there, where no end can be told.

    lost: what has expired before it was exported. ended: what the data set tells then; moved: it
    has to, since the file in which the last export ended may expire.
    """

    split: Split | None
    lost: list[Damage]
    ended: LogEnded
    moved: bool = False


def ranges_of(ask: Ask, before: Mapping[str, LogEnded]) -> Iterator[tuple[str, LogRange]]:
    """By store what is to be exported: behind where the last export ended, else all of it.

    Raises Refused where that cannot be told, StoreError for a log that cannot be read.
    """
    for root in ask.stores:
        last = before.get(root)
        if last is not None:
            _require_same(root, ask, last)
        yield root, _remote(root, ask, last) if is_uri(root) else _local(root, ask, last)


def _require_same(root: str, ask: Ask, last: LogEnded) -> None:
    """Raise Refused where another export than the last one is asked for."""
    if last.position is None:
        raise Refused(f"nobody knows where the last export ended: {last.why}", path=root, hint=_NEW)
    if (sorted(last.topics), last.queue_id) != (sorted(ask.topics), ask.queue_id):
        had = ", ".join(last.topics) or "all topics"
        raise Refused(f"the last export was one of other messages: {had}", path=root, hint=_NEW)


_NEW = "--overwrite begins anew"


def _remote(root: str, ask: Ask, last: LogEnded | None) -> LogRange:
    assert last is None or last.position is not None
    why = "logs in object storage have no end that could be told"
    if last is not None:
        raise Refused(why, path=root)
    return LogRange(None, [], _ended(ask, None, why))


def _local(root: str, ask: Ask, last: LogEnded | None) -> LogRange:
    end = end_of(Layout.open(root, ask.broker_config))
    log = open_log(root, ask.broker_config)
    with log.queue:
        begin = first = log.min_offset
        lost, moved = list[Damage](), False
        if last is not None and last.position is not None:
            _require_there(root, log.queue, last, end)
            begin = max(first, last.position)
            moved = log.queue.file_at(last.position - 1) != log.queue.file_at(end - 1)
            if first > last.position:
                lost = [Damage(root, last.position, first - last.position, EXPIRED)]
        end = max(begin, end)
        file = log.queue.file_at(max(first, end - 1))
        size = min(_LAST_BYTES, end - file.start) if file is not None and end > first else 0
        size, crc = _sum_of(log.queue, end, size)
    if ask.times.until_ms != ALWAYS.until_ms:
        return LogRange(
            Split(begin, end), lost, _ended(ask, None, "it took messages --until a time")
        )
    return LogRange(Split(begin, end), lost, _ended(ask, end, "", size, crc), moved)


def _require_there(root: str, queue: MappedFileQueue, last: LogEnded, end: int) -> None:
    """Raise Refused where the log is not the one that was exported."""
    assert last.position is not None
    if end < last.position:
        raise Refused(
            f"the log ends at {end}, and was exported to {last.position}: a broker has cut it, or it "
            "is another one",
            path=root,
            hint=_NEW,
        )
    there = _sum_of(queue, last.position, last.size)
    if there[0] and there != (last.size, last.crc):
        raise Refused(
            f"other bytes stand before {last.position}, to which the log was exported: a broker has "
            "cut it, or it is another one",
            path=root,
            hint=_NEW,
        )


def _sum_of(queue: MappedFileQueue, position: int, size: int) -> tuple[int, int]:
    """Size and checksum of the bytes before a position; 0 of both where they are not there."""
    try:
        there = queue.read(position - size, size)
    except UnreadableRange:  # whoever reads the log tells of it
        return 0, 0
    return (size, zlib.crc32(there)) if len(there) == size else (0, 0)


def _ended(ask: Ask, position: int | None, why: str = "", size: int = 0, crc: int = 0) -> LogEnded:
    return LogEnded(position, why, size, crc, ask.topics, ask.queue_id)
