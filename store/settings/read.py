"""The files of `config/`: records of their tables, and which of file and .bak a broker reads.

A file that is broken gives what can be read of it. Nothing is written. Spec 05, 5.2 and 5.3.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...formats.json_table import JsonField, JsonTable, Member
from ...formats.kinds import KINDS, Syntax
from ..counted import counted
from ..disk.broker_conf import parse_properties
from ..disk.byte_reader import note, read_regular, unread_of
from ..disk.file_queue import is_file
from ..errors import Missing, UnreadableRange, from_os_error
from . import controller_files
from .parse import Parsed, parse

LARGEST_BYTES = 64 << 20
"""Of a larger file the rest is not read."""
_ONE_READ = 1 << 32
"""A broker reads a file at once, and takes its length for an int: what is above this counts no more."""
_HEAP_BYTES = 512 << 20
"""To read so many at once a broker needs a heap some times as large."""
BACKUP = ".bak"
TEMPORARY = ".tmp"
FILES: Mapping[str, str] = {kind.file: name for name, kind in KINDS.items() if kind.file}
"""Name of a file in `config/` → its kind."""
_VALUE = "config_value"


class ConfigProblem(NamedTuple):
    """What is wrong with a file: from `position` on `size` bytes cannot be read.

    gives_up: a broker does not look at the .bak then. noted: whoever collects what a disk does not
    give has it already.
    """

    position: int
    size: int
    reason: str
    gives_up: bool = False
    noted: bool = False


class ConfigFile(NamedTuple):
    """One file as it was read. problem: why a broker does not take it, None where it does.

    value: what could be read: of JSON its members, of properties their values. note: what is odd but
    taken. larger: nobody has looked at its end, so the problem is not one that a broker has.
    """

    path: Path
    kind: str
    value: dict[Any, Any]
    problem: ConfigProblem | None = None
    note: str = ""
    larger: bool = False

    def records(self) -> Iterator[dict[str, Any]]:
        """The entries of its tables, then members that belong to none."""
        tables = KINDS[self.kind].tables
        head = {"file": self.path.name}
        for table in tables:
            member = self.value.get(table.member) if table.member else self.value
            if member is not None:
                yield from entries(table, member, head)
        known = {table.member for table in tables}
        for name, value in self.value.items():
            if name not in known and "" not in known:
                yield {"type": _VALUE, **head, "name": str(name), "value": value}


class Content(NamedTuple):
    """What a broker reads of a file of `size` bytes, as far as it is looked at here.

    problem: why it takes nothing of it, for its size alone; data is then what there is. empty: it sees
    no byte. dies: of that problem, whatever the .bak has. larger: there is more than was looked at.
    """

    data: bytes
    size: int
    problem: str = ""
    empty: bool = False
    dies: bool = False
    larger: bool = False


def read_content(path: Path) -> Content:
    """Read a file of JSON as a broker's `file2String` does: measured with 4.9.7, 5.3.3, 5.5.0.

    Raises Missing, Unreadable.
    """
    data = read_regular(path, LARGEST_BYTES + 1)
    if len(data) <= LARGEST_BYTES:
        return Content(data, len(data))
    size = os.stat(path).st_size  # noqa: PTH116
    # of a huge file of holes, mebibytes of NULs would be looked at one by one
    there = Content(data[:LARGEST_BYTES].rstrip(b"\0"), size)
    taken = size % _ONE_READ
    many = counted(size, "byte")
    if not taken:
        return there._replace(problem=f"{many}: a broker takes it for empty", empty=True)
    if taken >= _ONE_READ // 2:
        return there._replace(problem=f"{many}: more than a broker can read")
    if taken >= _HEAP_BYTES:
        text = f"{many}: more than fits in a broker's heap (OutOfMemoryError)"
        return there._replace(problem=text, dies=True)
    if taken > LARGEST_BYTES:
        return there._replace(larger=True)
    return there._replace(data=data[:taken])


def read_config_file(path: Path, kind: str) -> ConfigFile:
    """Read one file. Raises Missing, Unreadable; what is in it raises nothing.

    One that a disk does not give counts as broken, and is noted. Raises UnreadableRange where nobody
    notes it.
    """
    if path.is_dir():  # a broker's read fails, as that of a broken file does
        return ConfigFile(path, kind, {}, ConfigProblem(0, 0, "not a file but a directory"))
    syntax = KINDS[kind].syntax
    try:
        content = read_content(path)
    except UnreadableRange as error:
        unread = unread_of(error)
        note(unread)
        reason = f"unreadable: {unread.reason}"
        lost = ConfigProblem(unread.offset, unread.length, reason, noted=True)
        return ConfigFile(path, kind, {}, lost)
    parsed = _PARSERS[syntax](content.data)
    if content.larger or (content.problem and syntax is not Syntax.JSON):
        reason = f"more than {LARGEST_BYTES} bytes: the rest was not read"
        parsed = Parsed(parsed.value, reason, LARGEST_BYTES)
    elif content.problem:
        parsed = Parsed(parsed.value, content.problem, gives_up=content.dies)
    value = parsed.value if isinstance(parsed.value, dict) else {}
    problem = None
    if parsed.problem:
        left = content.size - parsed.position
        problem = ConfigProblem(parsed.position, left, parsed.problem, parsed.gives_up)
    return ConfigFile(path, kind, value, problem, parsed.note, larger=content.larger)


def _properties(data: bytes) -> Parsed:
    return Parsed(parse_properties(data.decode("iso-8859-1")))


_PARSERS: Mapping[Syntax, Callable[[bytes], Parsed]] = {
    Syntax.JSON: parse,
    Syntax.PROPERTIES: _properties,
    Syntax.EPOCHS: controller_files.parse_epochs,
    Syntax.IDENTITY: controller_files.parse_identity,
}


def stand_in(file: ConfigFile | None, path: Path, kind: str) -> str:
    """What a broker does where a file cannot be read, or is not there: "" where it can.

    path: of the file itself, not of its .bak.
    """
    if file is not None and (file.problem is None or file.larger):
        return ""
    if not KINDS[kind].reads_backup:
        return "no broker reads its .bak"
    if file is not None and file.problem is not None and file.problem.gives_up:
        return "a broker does not read its .bak then"
    backup = path.with_name(path.name + BACKUP)
    try:
        found = read_config_file(backup, kind)
    except Missing:
        return f"there is no {backup.name}"
    if found.problem is None:
        return f"a broker reads {backup.name}, which is whole"
    return f"{backup.name} is broken too: {found.problem.reason}"


def config_files(directory: Path) -> Iterator[tuple[str, Path, str]]:
    """(kind, path, name of the file itself) of files and .bak that there are, by name.

    Raises Unreadable.
    """
    try:
        with os.scandir(directory) as found:
            names = sorted(entry.name for entry in found if is_file(entry))
    except OSError as error:
        raise from_os_error(error, directory) from error
    for name in names:
        plain = name.removesuffix(BACKUP).removesuffix(TEMPORARY)
        if plain in FILES:
            yield FILES[plain], directory / name, plain


def entries(table: JsonTable, value: Any, head: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Records of one table; what does not fit is a `config_value` that says so.

    head: fields in front of all others.
    """
    table_head = {**head, "table": table.member} if table.member else dict(head)
    for path, keys, entry in _walk(table, value):
        record = _record(table, table_head, keys, entry) if keys is not None else None
        if record is None:
            name = ".".join((table.member, *path))
            yield {
                "type": _VALUE,
                **head,
                "name": name,
                "value": entry,
                "problem": f"no {table.record_type.replace('_', ' ')}",
            }
        else:
            yield record


_Keys = dict[str, Any]


def _walk(table: JsonTable, value: Any) -> Iterator[tuple[tuple[str, ...], _Keys | None, Any]]:
    """(place, keys, entry) of all entries; keys None where the levels are not as declared."""
    level: list[tuple[tuple[str, ...], _Keys | None, Any]] = [((), {}, value)]
    for step in table.levels:
        level = [found for one in level for found in _down(step, *one)]
    return iter(level)


def _down(
    step: JsonField | tuple[JsonField, JsonField] | Member,
    place: tuple[str, ...],
    keys: _Keys | None,
    value: Any,
) -> Iterator[tuple[tuple[str, ...], _Keys | None, Any]]:
    if keys is None or not isinstance(value, dict):
        yield place, None, value
    elif isinstance(step, Member):
        inner = value.get(step.name)
        yield (*place, step.name), keys if isinstance(inner, dict) else None, inner
    else:
        for name, entry in value.items():
            found = _key(step, str(name))
            yield (*place, str(name)), None if found is None else keys | found, entry


def _key(step: JsonField | tuple[JsonField, JsonField], name: str) -> _Keys | None:
    """What one key gives to a record, None for one that is not as declared."""
    if not isinstance(step, JsonField):
        # a topic may have an @ or _ itself, a group or number has none
        first, separator, second = name.rpartition(step[1].after)
        last = _key(step[1], second)
        return {step[0].column: first} | last if separator and last is not None else None
    if step.type == "integer":
        plain = name.removeprefix("-")
        return {step.column: int(name)} if plain.isdecimal() and len(plain) < 20 else None
    return {step.column: name}


def _record(
    table: JsonTable, head: Mapping[str, Any], keys: _Keys, entry: Any
) -> dict[str, Any] | None:
    record = {"type": table.record_type, **head, **keys}
    if table.value is not None:
        return {**record, table.value.column: entry} if table.value.fits(entry) else None
    if not isinstance(entry, dict):
        return None
    more = dict(entry)
    for field in table.fields:
        if field.name in more and field.fits(more[field.name]):
            record[field.column] = more.pop(field.name)
    for field in table.keys:  # the broker writes some keys into the entry once more
        if more.get(field.name) == keys[field.column]:
            del more[field.name]
    return {**record, "more": more} if more else record
