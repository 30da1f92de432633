"""The directory of an export: its files, its note, and what a further export into it may do.

    part-WRITER-N.FORMAT            of the first export
    part-SERIES-WRITER-N.FORMAT     of those that were added

The note holds the columns, the format and where the export of each log ended. It is in every file of the newest export;
for CSV and JSON, which have no room for it, it is a file whose name readers skip.

A position alone does not say where to continue: a broker may have truncated the log there and written on, or another
log may be at the path now. So a checksum of the last bytes before the position is kept too.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from ..disk.file_queue import MappedFileQueue
from ..disk.layout import JOURNAL, Layout, is_uri
from ..errors import Refused, StoreError, Unreadable, UnreadableRange, from_os_error
from ..log.commit_log import Split
from ..search.follow import end_of
from .export_files import ExportHow
from .export_formats import NOTE, note_of
from .log_rows import Damage
from .stores import ALWAYS, ReadOptions, open_log, place_of

_LAST_BYTES = 4096
"""Bytes before a position that identify a log: one record or more."""
EXPIRED = "files of the log have expired since the last export"


@dataclass(frozen=True)
class LogEnded:
    """Where an export of one log ended.

    position: after the last message, None if unknown, for the reason `why`. size, crc: of the bytes before it. topics,
    queue_id: what was exported.
    """

    position: int | None
    why: str = ""
    size: int = 0
    crc: int = 0
    topics: tuple[str, ...] = ()
    queue_id: int | None = None

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises TypeError, KeyError."""
        return cls(**{**found, "topics": tuple(found["topics"])})

    def to_json(self) -> dict[str, Any]:
        """As in the note of a data set."""
        return asdict(self)


@dataclass(frozen=True)
class LogRange:
    """The part of one log to export. split: None for all of it, if its end cannot be known.

    lost: what expired before it was exported. ended: what the note says afterwards. moved: the note must be written
    even without new messages: the file that holds the end of the last export may expire, or the log has changed.
    """

    split: Split | None
    lost: list[Damage]
    ended: LogEnded
    moved: bool = False


def ranges_of(
    ask: ReadOptions, before: Mapping[str, LogEnded], *, append: bool = False
) -> Iterator[tuple[str, LogRange]]:
    """Yield for each store the part to export: what follows the end of the last export, or else all.

    before: by `place_of`. append: export all, wherever the last export ended. Raises Refused if the part cannot be
    determined, StoreError for a log that cannot be read.
    """
    for root in ask.stores:
        last = before.get(place_of(root))
        if last is not None and not append:
            _require_same(root, ask, last)
        if is_uri(root):
            why = "logs in object storage have no known end"
            if last is not None and not append:
                raise Refused(why, path=root)
            yield root, LogRange(None, [], _log_ended(ask, None, why))
        else:
            yield root, _local(root, ask, last, before, append=append)


def _require_same(root: str, ask: ReadOptions, last: LogEnded) -> None:
    """Raise Refused if the last export was of other messages, or nobody knows where it ended."""
    if last.position is None:
        raise Refused(f"it is not known where the last export ended: {last.why}", path=root, hint=_CONTINUE)
    if (sorted(last.topics), last.queue_id) != (sorted(ask.topics), ask.queue_id):
        had = ", ".join(last.topics) or "all topics"
        raise Refused(f"the last export was of other messages: {had}", path=root, hint=_CONTINUE)


_CONTINUE = "a new DIR takes all messages; --append --since TIME adds to this one; --overwrite loses expired messages"
"""The ways to continue; the last one loses what has expired since it was exported."""
_CHANGED = "a broker start or mqstore (recover, repair, undo) changed the log, or it is another log"


def _local(
    root: str, ask: ReadOptions, last: LogEnded | None, before: Mapping[str, LogEnded], *, append: bool
) -> LogRange:
    try:
        end = end_of(Layout.open(root, ask.broker_config))
    except StoreError as error:
        error.store = root
        raise
    log = open_log(root, ask.broker_config)
    with log.queue:
        begin = first = log.min_offset
        lost, moved = list[Damage](), False
        changed = ""
        if last is not None and last.position is not None:
            changed = changed_before(log.queue, last.position, (last.size, last.crc), end, "exported")
        if append:
            moved = bool(changed)
        elif last is None:
            _refuse_moved(root, log.queue, before)
        elif changed:
            raise Refused(changed, path=root, hint=_CONTINUE)
        elif last.position is not None:
            begin = max(first, last.position)
            moved = log.queue.file_at(last.position - 1) != log.queue.file_at(end - 1)
            if first > last.position:
                lost = [Damage(root, last.position, first - last.position, EXPIRED)]
        end = max(begin, end)
        size, crc = last_bytes(log.queue, end)
    if ask.times.until_ms != ALWAYS.until_ms:
        return LogRange(Split(begin, end), lost, _log_ended(ask, None, "it took messages --until a time"))
    return LogRange(Split(begin, end), lost, _log_ended(ask, end, "", size, crc), moved)


def changed_before(queue: MappedFileQueue, position: int, last: tuple[int, int], end: int, done: str) -> str:
    """Say why a log that ends at `end` differs from when it was read up to `position`; "" if it does not.

    last: what `last_bytes` returned then. done: the participle for that reading, as in "exported".
    """
    if end < position:
        return f"the log ends at {end}, but was {done} up to {position}: {_CHANGED}"
    now = _sum_of(queue, position, last[0])
    if now[0] and now != last:
        return f"the bytes before {position}, up to which the log was {done}, have changed: {_CHANGED}"
    return ""


def last_bytes(queue: MappedFileQueue, position: int) -> tuple[int, int]:
    """Size and checksum of the bytes before a position that identify a log; (0, 0) if there are none."""
    file = queue.file_at(position - 1)
    return (0, 0) if file is None else _sum_of(queue, position, min(_LAST_BYTES, position - file.start))


def holds(queue: MappedFileQueue, position: int, last: tuple[int, int]) -> bool:
    """Whether a log has the bytes before a position that `last_bytes` saw in a log, so that it is the same log."""
    return last[0] > 0 and _sum_of(queue, position, last[0]) == last


def _refuse_moved(root: str, queue: MappedFileQueue, before: Mapping[str, LogEnded]) -> None:
    """Raise Refused if the log was exported from another path that no longer exists."""
    for place, last in before.items():
        if last.position is None or is_uri(place) or Path(place).exists():
            continue
        if holds(queue, last.position, (last.size, last.crc)):
            raise Refused(
                f"its log was exported from {place}, which no longer exists",
                path=root,
                hint="make that path a link to the store to continue the export; --append exports all of it",
            )


def _sum_of(queue: MappedFileQueue, position: int, size: int) -> tuple[int, int]:
    """Size and checksum of the bytes before a position; (0, 0) if they cannot all be read."""
    try:
        data = queue.read(position - size, size)
    except UnreadableRange:  # reading the log reports it
        return 0, 0
    return (size, zlib.crc32(data)) if len(data) == size else (0, 0)


def _log_ended(ask: ReadOptions, position: int | None, why: str = "", size: int = 0, crc: int = 0) -> LogEnded:
    return LogEnded(position, why, size, crc, ask.topics, ask.queue_id)


NOTE_FILE = f"_{NOTE.decode()}"
_FILE = re.compile(r"(?:date=[^/]+/)?part-(?:(?P<series>\d+)-)?(?:\d+|none)-\d+\.(?P<form>[a-z]+)")
_VERSION = 1


class Mode(StrEnum):
    """What to do with an existing data set."""

    NEW = "new"
    """Refuse: there must be none."""
    APPEND = "append"
    """Add files."""
    OVERWRITE = "overwrite"
    """Replace it."""
    SINCE_LAST = "since-last"
    """Add files with what follows the end of the last export."""


@dataclass(frozen=True)
class DataSet:
    """What a directory of exports holds. newest: the series of its newest files. note: None if there is none, or not
    read.

    files: how many.
    """

    files: int = 0
    newest: int = 0
    note: Note | None = None

    @classmethod
    def at(cls, target: Path, *, note: bool = True) -> Self:
        """Look at a directory, which need not exist. note: read the note.

        Raises Refused for a file that is not of an export, Unreadable.
        """
        newest: tuple[int, str, Path] | None = None
        count = 0
        for path, name in _files_in(target):
            match = _FILE.fullmatch(name)
            if match is None:
                raise Refused(f"{name} in it is not a file of an export", path=target, hint=_TARGET_HINT)
            count += 1
            newest = max(newest or (-1, "", path), (int(match["series"] or 0), match["form"], path))
        if newest is None:
            return cls()
        series, form, path = newest
        return cls(count, series, _read_note(target, path, form) if note else None)


_KIND_HINT = "--to takes a new directory; --overwrite replaces what is there"
_TARGET_HINT = "--to takes a new directory, or one that mqstore export made"


@dataclass(frozen=True)
class Note:
    """The note in the newest files. columns: names and types. ended: by `place_of` a store."""

    form: str
    by_day: bool
    columns: list[tuple[str, str]]
    ended: dict[str, LogEnded] = field(default_factory=dict)

    @classmethod
    def of(cls, how: ExportHow, schema: pa.Schema, ended: dict[str, LogEnded]) -> Self:
        columns = [(field.name, str(field.type)) for field in schema]
        return cls(how.kind.form, how.by_day, columns, ended)

    def to_text(self) -> str:
        """The text kept in a file."""
        ended = {root: one.to_json() for root, one in self.ended.items()}
        entries = {"format": self.form, "by_day": self.by_day, "columns": self.columns}
        return json.dumps({"version": _VERSION, **entries, "ended": ended})

    @classmethod
    def of_text(cls, text: str) -> Self:
        """The inverse of `to_text`. Raises ValueError, KeyError, TypeError for anything else."""
        found = json.loads(text)
        if found["version"] != _VERSION:
            raise ValueError(f"of version {found['version']}")
        columns = [(name, kind) for name, kind in found["columns"]]
        ended: dict[str, LogEnded] = {}
        for root, one in found["ended"].items():  # older notes may list a store twice, by a link and by its path
            last, known = LogEnded.of_json(one), ended.get(place_of(root))
            if known is None or (last.position or -1) > (known.position or -1):
                ended[place_of(root)] = last
        return cls(found["format"], found["by_day"], columns, ended)

    def require_like(self, other: Note, target: Path) -> None:
        """Raise Refused if the files of the two notes differ in kind."""
        for what, mine, theirs in (
            ("format", self.form, other.form),
            ("folders by day", self.by_day, other.by_day),
            *_columns_of(self, other),
        ):
            if mine != theirs:
                text = f"different {what}: {_value_text(mine)} there, {_value_text(theirs)} requested"
                raise Refused(text, path=target, hint=_KIND_HINT)


def _columns_of(one: Note, other: Note) -> Iterator[tuple[str, str | None, str | None]]:
    mine, theirs = dict(one.columns), dict(other.columns)
    for name in (*mine, *(name for name in theirs if name not in mine)):
        yield f"column {name}", mine.get(name), theirs.get(name)


def _value_text(value: object) -> str:
    if value is None:
        return "none"
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _files_in(target: Path) -> Iterator[tuple[Path, str]]:
    """The files of a data set, each with its relative path, separated by `/`."""
    for path in sorted(target.rglob("*")) if target.exists() else ():
        name = path.relative_to(target).as_posix()
        if name != NOTE_FILE and name.split("/")[0] != JOURNAL and not path.is_dir():
            yield path, name


def _read_note(target: Path, newest: Path, form: str) -> Note | None:
    beside = target / NOTE_FILE
    path = beside if beside.exists() else newest
    try:
        text = beside.read_text() if path is beside else note_of(newest, form)
        return None if text is None else Note.of_text(text)
    except OSError as error:
        raise from_os_error(error, path) from error
    except (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
        raise Unreadable(f"does not say which export it belongs to ({error})", path=path) from error


def require_like(found: DataSet, wanted: Note, target: Path) -> None:
    """Raise Refused if the new files would differ in kind from the existing ones."""
    if found.files and found.note is None:
        raise Refused("it does not say which columns it has and where an export ended", path=target, hint=_KIND_HINT)
    if found.note is not None:
        found.note.require_like(wanted, target)
