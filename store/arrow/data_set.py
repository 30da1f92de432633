"""The directory that exports write into: what it tells of itself, and what one more export may do.

    part-WRITER-N.FORMAT            of the first export
    part-SERIES-WRITER-N.FORMAT     of those that were added

Columns, format and where the export of each log ended stand as a note in every file of the newest
export; CSV and JSON have no room for it: there it is a file, whose name readers pass over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Self

import pyarrow as pa

from ..disk.layout import JOURNAL
from ..errors import Refused, Unreadable, from_os_error
from .export_ends import LogEnded
from .export_formats import NOTE, note_of
from .export_rows import ExportHow

NOTE_FILE = f"_{NOTE.decode()}"
_FILE = re.compile(
    r"(?:date=\d{4}-\d\d-\d\d/)?part-(?:(?P<series>\d+)-)?(?:\d+|none)-\d+\.(?P<form>[a-z]+)"
)
_VERSION = 1


class Mode(StrEnum):
    """What becomes of a data set that is there."""

    NEW = "new"
    """Refused: there must be none."""
    APPEND = "append"
    """More files stand beside those there are."""
    OVERWRITE = "overwrite"
    """It is replaced."""
    SINCE_LAST = "since-last"
    """Files are added with what stands behind the end of the last export."""


@dataclass(frozen=True)
class DataSet:
    """What a directory tells. note: None where it tells nothing. newest: series of its newest files.

    files: how many there are.
    """

    files: int = 0
    newest: int = 0
    note: Note | None = None

    @classmethod
    def at(cls, target: Path, *, note: bool = True) -> Self:
        """What is in a directory, or is not. note: read it.

        Raises Refused for files of others, Unreadable.
        """
        newest: tuple[int, str, Path] | None = None
        count = 0
        for path, name in _files_in(target):
            match = _FILE.fullmatch(name)
            if match is None:
                raise Refused(f"{name} in it is no file of an export", path=target, hint=_OTHER)
            count += 1
            newest = max(newest or (-1, "", path), (int(match["series"] or 0), match["form"], path))
        if newest is None:
            return cls()
        series, form, path = newest
        return cls(count, series, _read_note(target, path, form) if note else None)


_OTHER = "--to takes a new directory, or one that mqstore export made"


@dataclass(frozen=True)
class Note:
    """What stands in the newest files. columns: names and types."""

    form: str
    by_day: bool
    columns: list[tuple[str, str]]
    ended: dict[str, LogEnded] = field(default_factory=dict)

    @classmethod
    def of(cls, how: ExportHow, schema: pa.Schema, ended: dict[str, LogEnded]) -> Self:
        """Of an export."""
        columns = [(field.name, str(field.type)) for field in schema]
        return cls(how.kind.form, how.by_day, columns, ended)

    def to_text(self) -> str:
        """As it stands in a file."""
        ended = {root: one.to_json() for root, one in self.ended.items()}
        told = {"format": self.form, "by_day": self.by_day, "columns": self.columns}
        return json.dumps({"version": _VERSION, **told, "ended": ended})

    @classmethod
    def of_text(cls, text: str) -> Self:
        """What `to_text` gave. Raises ValueError, KeyError, TypeError for anything else."""
        found = json.loads(text)
        if found["version"] != _VERSION:
            raise ValueError(f"of version {found['version']}")
        columns = [(name, kind) for name, kind in found["columns"]]
        ended = {root: LogEnded.of_json(one) for root, one in found["ended"].items()}
        return cls(found["format"], found["by_day"], columns, ended)

    def require_like(self, other: Note, target: Path) -> None:
        """Raise Refused where files of another kind would come in."""
        for what, mine, its in (
            ("format", self.form, other.form),
            ("folders by day", self.by_day, other.by_day),
            *_columns_of(self, other),
        ):
            if mine != its:
                told = f"another {what}: {_word(mine)} there, {_word(its)} asked for"
                raise Refused(told, path=target, hint="--overwrite replaces what is there")


def _columns_of(one: Note, other: Note) -> Iterator[tuple[str, str | None, str | None]]:
    mine, its = dict(one.columns), dict(other.columns)
    for name in (*mine, *(name for name in its if name not in mine)):
        yield f"column {name}", mine.get(name), its.get(name)


def _word(value: object) -> str:
    if value is None:
        return "none"
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _files_in(target: Path) -> Iterator[tuple[Path, str]]:
    """The files of a data set, and their paths below it with `/`."""
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
        raise Unreadable(f"does not tell which export it is of ({error})", path=path) from error


def require_like(found: DataSet, wanted: Note, target: Path) -> None:
    """Raise Refused where files of another kind would come to those that are there."""
    if found.files and found.note is None:
        raise Refused(
            "nothing there tells of which columns it is, and where an export ended",
            path=target,
            hint="--overwrite replaces it",
        )
    if found.note is not None:
        found.note.require_like(wanted, target)
