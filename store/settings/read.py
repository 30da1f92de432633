"""The files of `config/`: their records, and whether a broker reads the file or its .bak (spec 05, 5.2 and 5.3).

A broken file gives what can be read of it. Nothing is written.

A broker with a controller has two more files: brokerIdentity, read as its BrokerMetadata does (spec 06, 6.3), and
epochFileCheckpoint, as its CheckpointFile does (spec 06, 6.2). Their parsers raise nothing: they return what can be
read, and what is wrong where. After a malformed number a broker does not even read the .bak.

`inspect` shows one line per file (`summaries_of`).

Progress of consumer groups: `config/consumerOffset.json` or its substitutes. A broker with `enableLmq` has
`lmqConsumerOffset.json` instead, with the groups of LMQs besides the others; a broker with its configuration in a
RocksDB has them there (spec 05, 5.3, 5.4).

Records of POP, which the same parsers read.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...formats.broker_identity import FIELDS, IDENTITY, SEPARATOR
from ...formats.config import BACKUP
from ...formats.consumer_offset import FILE as OFFSETS
from ...formats.consumer_offset import OFFSET_TABLE, steps_to_next
from ...formats.epoch_file import CRC_OK, CRC_UNCHECKED, EPOCHS, HEADER, LINE_END
from ...formats.epoch_file import SEPARATOR as EPOCH_SEPARATOR
from ...formats.hashing import crc31, java_string
from ...formats.json_table import DATA_VERSION, JsonField
from ...formats.kinds import KINDS, Syntax
from ...formats.lmq_consumer_offset import FILE as LMQ_OFFSETS
from ...formats.lmq_consumer_offset import LMQ_OFFSET_TABLE
from ...formats.pop import BODIES, fields_of
from ...formats.pop import parse as parse_body
from ..broker.topics import loads
from ..counted import counted
from ..disk.broker_conf import parse_properties
from ..disk.byte_reader import note, unread_of
from ..disk.compressed import read_regular
from ..disk.file_queue import is_file
from ..errors import Missing, StoreError, Unreadable, UnreadableRange, os_errors
from .parse import CONFIG_VALUE, NO_BYTE, Grammar, ParsedConfig, entries, parse

if TYPE_CHECKING:
    from ..broker.snapshot import QueueId

LARGEST_BYTES = 64 << 20
"""Most bytes that are read of a file."""
_INT_VALUES = 1 << 32
"""A broker reads a file at once and casts its length to an int: lengths count modulo this."""
_HEAP_BYTES = 512 << 20
"""To read so many bytes at once a broker needs a heap several times as large."""
EPOCH_FILE = "epoch-file"
"""The kind of an epochFileCheckpoint."""
TEMPORARY = ".tmp"
FILES: Mapping[str, str] = {kind.file: name for name, kind in KINDS.items() if kind.file}
"""File name in `config/` → kind."""


class ConfigProblem(NamedTuple):
    """What is wrong with a file: `size` bytes from `position` on cannot be read.

    gives_up: a broker then does not read the .bak. noted: the range is already among the noted unreadable ranges.
    """

    position: int
    size: int
    reason: str
    gives_up: bool = False
    noted: bool = False


class ConfigFile(NamedTuple):
    """One file as it was read.

    problem: why a broker does not accept it, None if it does. value: what could be read: members of JSON, values of
    properties. note: odd but accepted content. larger: the end was not read, so the problem is not a broker's problem.
    """

    path: Path
    kind: str
    value: dict[Any, Any]
    problem: ConfigProblem | None = None
    note: str = ""
    larger: bool = False

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the entries of its tables, then members that belong to no table."""
        tables = KINDS[self.kind].tables
        head = {"file": self.path.name}
        for table in tables:
            member = self.value.get(table.member) if table.member else self.value
            if member is not None:
                yield from entries(table, member, head)
        known = {table.member for table in tables}
        for name, value in self.value.items():
            if name not in known and "" not in known:
                yield {"type": CONFIG_VALUE, **head, "name": str(name), "value": value}


class ConfigContent(NamedTuple):
    """What a broker reads of a file of `size` bytes, as far as it is read here.

    problem: why a broker accepts nothing of the file, because of its size; data is then what was read. empty: the
    broker sees no byte. dies: the problem ends the broker, whatever the .bak has. larger: the file has more bytes.
    """

    data: bytes
    size: int
    problem: str = ""
    empty: bool = False
    dies: bool = False
    larger: bool = False


def read_content(path: Path) -> ConfigContent:
    """Read a JSON file as a broker's `file2String` does (measured with 4.9.7, 5.3.3, 5.5.0).

    Raises Missing, Unreadable.
    """
    data = read_regular(path, LARGEST_BYTES + 1)
    if len(data) <= LARGEST_BYTES:
        return ConfigContent(data, len(data))
    size = os.stat(path).st_size  # noqa: PTH116
    # the end of a huge sparse file would be mebibytes of NULs, examined one by one
    there = ConfigContent(data[:LARGEST_BYTES].rstrip(b"\0"), size)
    taken = size % _INT_VALUES
    many = counted(size, "byte")
    if not taken:
        return there._replace(problem=f"{many}: a broker takes the file as empty", empty=True)
    if taken >= _INT_VALUES // 2:
        return there._replace(problem=f"{many}: more than a broker can read")
    if taken >= _HEAP_BYTES:
        text = f"{many}: more than fits in a broker's heap (OutOfMemoryError)"
        return there._replace(problem=text, dies=True)
    if taken > LARGEST_BYTES:
        return there._replace(larger=True)
    return there._replace(data=data[:taken])


def read_config_file(path: Path, kind: str) -> ConfigFile:
    """Read one file. Raises Missing, Unreadable; malformed content raises nothing.

    A file with unreadable bytes counts as broken, and they are noted. Raises UnreadableRange where that is not allowed.
    """
    if path.is_dir():  # a broker fails to read it, as a broken file
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
        parsed = ParsedConfig(parsed.value, reason, LARGEST_BYTES)
    elif content.problem:
        parsed = ParsedConfig(parsed.value, content.problem, gives_up=content.dies)
    value = parsed.value if isinstance(parsed.value, dict) else {}
    problem = None
    if parsed.problem:
        remaining = content.size - parsed.position
        problem = ConfigProblem(parsed.position, remaining, parsed.problem, parsed.gives_up)
    return ConfigFile(path, kind, value, problem, parsed.note, larger=content.larger)


def read_if_there(path: Path, kind: str) -> ConfigFile | None:
    """Read one file, None if it is missing. Raises Unreadable."""
    try:
        return read_config_file(path, kind)
    except Missing:
        return None


def read_in_force(path: Path, kind: str) -> ConfigFile | None:
    """Read one file as a broker does: the .bak of a missing or broken one. None: both are. Raises Unreadable."""
    for each in (path, path.with_name(path.name + BACKUP)):
        file = read_if_there(each, kind)
        if file is not None and file.problem is None:
            return file
    return None


def read_epochs(path: Path) -> tuple[ConfigFile | None, ConfigFile | None]:
    """Read an epochFileCheckpoint: (the file, the one that a broker takes: its .bak if the file is missing or does not
    add up), None for what is missing (spec 06, 6.2). Raises Unreadable.
    """
    file = read_if_there(path, EPOCH_FILE)
    if file is not None and (file.problem is None or file.problem.gives_up):
        return file, file
    return file, read_if_there(path.with_name(path.name + BACKUP), EPOCH_FILE)


def _properties(data: bytes) -> ParsedConfig:
    return ParsedConfig(parse_properties(data.decode("iso-8859-1")))


def backup_note(file: ConfigFile | None, path: Path, kind: str) -> str:
    """What a broker does because a file is missing (None) or broken; "" if it can read the file.

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
    if found.problem.reason == NO_BYTE:
        return f"{backup.name} is empty: a broker begins with an empty table"
    return f"{backup.name} is broken too: {found.problem.reason}"


def config_files(directory: Path) -> Iterator[tuple[str, Path, str]]:
    """Yield (kind, path, name of the file itself) of files, .bak and .tmp that exist, by name. Raises Unreadable."""
    with os_errors(directory), os.scandir(directory) as found:
        names = sorted(entry.name for entry in found if is_file(entry))
    for name in names:
        plain = name.removesuffix(BACKUP).removesuffix(TEMPORARY)
        if plain in FILES:
            yield FILES[plain], directory / name, plain


_NUMBER = re.compile(r"[+-]?\d{1,19}")
_LONG_MOST = (1 << 63) - 1


def parse_identity(data: bytes) -> ParsedConfig:
    """Parse a brokerIdentity into the table of `formats.broker_identity`."""
    # Java's split drops empty parts at the end
    parts = data.decode("utf-8", "surrogateescape").rstrip(SEPARATOR).split(SEPARATOR)
    found: dict[str, Any] = {}
    value = {IDENTITY: found}
    if not data:
        return ParsedConfig(value, "empty")
    at = 0
    for field, part in zip(FIELDS, parts, strict=False):
        name = field.column.replace("_", " ")
        if not part:
            return ParsedConfig(value, f"the {name} is empty", at)
        if field.type == "integer" and not _is_number(part):
            return ParsedConfig(value, f"the {name} is not a number", at)
        found[field.name] = int(part) if field.type == "integer" else part
        at += len(part.encode("utf-8", "surrogateescape")) + len(SEPARATOR)
    if len(parts) < len(FIELDS) - 1:
        reason = f"{counted(len(parts), 'part')}, not the {len(FIELDS) - 1} of an identity"
        return ParsedConfig(value, reason, len(data))
    return ParsedConfig(value)


def _is_number(text: str) -> bool:
    return bool(_NUMBER.fullmatch(text)) and -_LONG_MOST - 1 <= int(text) <= _LONG_MOST


_LINE = re.compile(rb"([^\r\n]*)(?:\r\n|\r|\n|\Z)")
_INT_MOST, _EPOCH_MOST = (1 << 31) - 1, (1 << 63) - 1


class _WrongNumber(Exception):
    """A number in a line cannot be parsed."""


def parse_epochs(data: bytes) -> ParsedConfig:
    """Parse an epochFileCheckpoint into the tables of `formats.epoch_file`."""
    header: dict[str, Any] = {}
    epochs: dict[str, int] = {}
    value = {HEADER: header, EPOCHS: epochs}
    found = [(one.start(), one[1]) for one in _LINE.finditer(data) if one.start() < len(data)]
    try:
        lines = [line.decode("utf-8") for _, line in found]
    except UnicodeDecodeError:
        return ParsedConfig(value, "not UTF-8", 0)
    at, rows = 0, list[tuple[int, tuple[int, int]]]()
    try:
        for name, line in zip(("count", "crc"), lines, strict=False):
            header[name] = _epoch_number(line, _INT_MOST, name)
            at = found[min(len(header), len(found) - 1)][0]
        if len(header) < 2:
            raise _WrongNumber("it ends in its header" if data else "empty")
        for (at, _), line in zip(found[2:], lines[2:], strict=True):
            if (entry := _epoch_entry(line)) is not None:
                rows.append((at, entry))
                epochs[str(entry[0])] = entry[1]
    except _WrongNumber as wrong:
        return ParsedConfig(value, str(wrong), at, gives_up=True)
    if len(rows) != header["count"]:
        strange = {at for at, _ in found[2:]} - {at for at, _ in rows}
        reason = f"{counted(len(rows), 'entry', 'entries')}, not {header['count']} as its header says"
        return ParsedConfig(value, reason, min(strange, default=0))
    if header["crc"] != CRC_UNCHECKED:
        crc = crc31(b"".join(line + LINE_END for _, line in found[2:]))
        header[CRC_OK] = crc == header["crc"]
        if not header[CRC_OK]:
            return ParsedConfig(value, f"its CRC is {header['crc']}, but its lines have {crc}", found[1][0])
    return ParsedConfig(value, note=_note_on_epochs([entry for _, entry in rows]))


def _epoch_number(text: str, most: int, what: str) -> int:
    if not _NUMBER.fullmatch(text) or not -most - 1 <= int(text) <= most:
        raise _WrongNumber(f"the {what} is not a number")
    return int(text)


def _epoch_entry(line: str) -> tuple[int, int] | None:
    """(epoch, start offset) of a line; None if it does not have two parts, when brokers skip it."""
    parts = line.rstrip(EPOCH_SEPARATOR).split(EPOCH_SEPARATOR)
    if len(parts) != 2:
        return None
    return _epoch_number(parts[0], _INT_MOST, "epoch"), _epoch_number(parts[1], _EPOCH_MOST, "start offset")


def _note_on_epochs(rows: list[tuple[int, int]]) -> str:
    """Odd but accepted entries: epochs or offsets that do not increase."""
    for (epoch, offset), (later, start) in pairwise(rows):
        if later <= epoch:
            return f"epoch {later} follows epoch {epoch}"
        if start < offset:
            return f"epoch {later} begins before the epoch above it"
    return ""


WHOLE, BROKEN, MISSING, UNREAD = "whole", "broken", "missing", "unread"
_NOT_COUNTED = ("data_version", "config_value")


class ConfigSummary(NamedTuple):
    """One line on a file or RocksDB.

    state: `whole`, `broken`, `missing` (its .bak exists), `unread`. entries: record type → number. text: the same in
    words, with what a broker does.
    """

    file: str
    state: str
    entries: dict[str, int]
    text: str


def summary_of(file: ConfigFile) -> ConfigSummary:
    """The summary of a file that was read."""
    counts = Counter(record["type"] for record in file.records())
    entries = {name: count for name, count in counts.items() if name not in _NOT_COUNTED}
    entries_in_words = entries_text(entries)
    if file.problem is None:
        text = (entries_in_words or "no entries") + (f"; {file.note}" if file.note else "")
        return ConfigSummary(file.path.name, WHOLE, entries, text)
    parts = [f"broken at byte {file.problem.position} ({file.problem.reason})"]
    if file.larger:
        parts = [file.problem.reason]
    if entries_in_words:
        parts.append(f"{entries_in_words} before that")
    if file.larger:
        return ConfigSummary(file.path.name, UNREAD, entries, "; ".join(parts))
    if not file.path.name.endswith(BACKUP):
        parts.append(backup_note(file, file.path, file.kind))
    return ConfigSummary(file.path.name, BROKEN, entries, "; ".join(parts))


def summaries_of(directory: Path) -> Iterator[ConfigSummary]:
    """Yield summaries of files, of missing files that have a .bak, then of RocksDBs.

    Raises Missing, Unreadable.
    """
    found = list(config_files(directory))
    names = {path.name for _, path, _ in found}
    for kind, path, name in found:
        if path.name == name:
            yield summary_of(read_config_file(path, kind))
        elif name not in names:
            names.add(name)
            instead = backup_note(None, path.with_name(name), kind)
            yield ConfigSummary(name, MISSING, {}, f"missing; {instead}")
    for path in databases(directory):
        try:
            entries = count_entries(path)
        except StoreError as error:
            yield ConfigSummary(path.name, UNREAD, {}, str(error))
        else:
            entries = {name: n for name, n in entries.items() if name not in _NOT_COUNTED}
            yield ConfigSummary(path.name, WHOLE, entries, entries_text(entries) or "no entries")


def databases(directory: Path) -> list[Path]:
    """The RocksDBs in a directory, sorted. Raises OSError."""
    from ..queues.rocksdb import is_rocksdb

    return sorted(path for path in directory.iterdir() if path.is_dir() and is_rocksdb(path))


def count_entries(path: Path) -> dict[str, int]:
    """Number of records in a RocksDB by type. Raises Unsupported, Unreadable."""
    from ..queues.rocksdb import RocksDb
    from .rocksdb import read_entries

    counts: Counter[str] = Counter()
    with RocksDb.open(path) as database:
        for entry in read_entries(database):
            counts.update(record["type"] for record in entry.records)
    return dict(counts)


def entries_text(entries: dict[str, int]) -> str:
    """A text such as `2 topic configs, 1 forbidden`."""
    return ", ".join(counted(count, *_singular_and_plural(name)) for name, count in entries.items())


def _singular_and_plural(record_type: str) -> tuple[str, str]:
    """Singular and plural of a record type in words."""
    name = record_type.replace("_", " ")
    return name, f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"


_PARSERS: Mapping[Syntax, Callable[[bytes], ParsedConfig]] = {
    Syntax.JSON: parse,
    Syntax.PROPERTIES: _properties,
    Syntax.EPOCHS: parse_epochs,
    Syntax.IDENTITY: parse_identity,
}


_LARGEST_OFFSETS_BYTES = 256 << 20

Progress = Mapping["QueueId", Mapping[str, int]]
"""Queue → group → next queue offset to consume."""


class _OffsetTable(NamedTuple):
    """The offsets in one file, and when it was written (ms since 1970, 0: unknown)."""

    progress: dict[QueueId, dict[str, int]]
    written_ms: int = 0


def read_progress(config: Path, options: Mapping[str, str] | None = None) -> Progress:
    """The progress of all groups; empty if nothing can be read. An unreadable file is replaced by its `.bak`.

    If two files name the same group, the one written later counts; a RocksDB overrides both. options: of the broker.
    """
    tables = [table for name in (OFFSETS, LMQ_OFFSETS) if (table := _read_offsets(config, name)) is not None]
    tables.sort(key=lambda table: table.written_ms)
    tables += _offsets_in_rocksdb(config, options)
    progress: dict[QueueId, dict[str, int]] = {}
    for table in tables:
        for queue, offsets in table.progress.items():
            progress.setdefault(queue, {}).update(offsets)
    return progress


def _read_offsets(config: Path, file_name: str) -> _OffsetTable | None:
    """Read a file, or its `.bak`, as a broker does; None if neither can be read."""
    for name in (file_name, f"{file_name}{BACKUP}"):
        try:
            data = read_regular(config / name, _LARGEST_OFFSETS_BYTES)
        except StoreError:
            continue
        found = _parse_offsets(data)
        if found is not None:
            return found
    return None


def _parse_offsets(data: bytes) -> _OffsetTable | None:
    from ..broker.snapshot import QueueId  # imports numpy, which few readers of config/ need

    try:
        table = loads(data.decode("utf-8", "replace"))
        rows = [(name, *row) for name, offsets in table[OFFSET_TABLE].items() for row in offsets.items()]
        rows += [(name, 0, offset) for name, offset in (table.get(LMQ_OFFSET_TABLE) or {}).items()]
        version = table.get(DATA_VERSION.member)
        found = _OffsetTable({}, int(version["timestamp"]) if isinstance(version, dict) else 0)
        for name, queue_id, offset in rows:
            topic, _, group = name.rpartition("@")
            queue = QueueId(topic, int(queue_id))
            found.progress.setdefault(queue, {})[group] = int(offset) + steps_to_next(group)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None
    return found


def _offsets_in_rocksdb(config: Path, options: Mapping[str, str] | None) -> Iterator[_OffsetTable]:
    """Yield the offsets in a RocksDB, if there is one that can be read."""
    from ..broker.snapshot import QueueId
    from ..queues.rocksdb import readable
    from .rocksdb import rows_of, stand_ins

    path = stand_ins(config, options).get(OFFSETS)
    if path is None or not readable():
        return
    found = _OffsetTable({})
    try:
        rows = rows_of(path, OFFSETS)
    except Unreadable:
        return  # the files are better than nothing
    for row in rows:
        if row.get("type") == "consumer_offset" and row["table"] == OFFSET_TABLE:
            queue = QueueId(str(row["topic"]), int(row["queue_id"]))
            group = str(row["group"])
            found.progress.setdefault(queue, {})[group] = int(row["offset"]) + steps_to_next(group)
    yield found


_PERHAPS_NUMBER = re.compile(r"(?:[-+]?\d[\dA-Fa-fXx.,-]*|null|true|false)?")
"""Texts that a broker of some version parses as a number."""


def read_pop(tag: str, body: bytes, grammar: Grammar) -> tuple[dict[str, Any] | None, str]:
    """(fields of a POP record or None, why no broker reads it or ""). At a record that it cannot read, a broker stops
    reading its queue of the revive topic for good.
    """
    fields = parse_body(tag, body)
    if fields is not None or tag not in BODIES:
        return fields, ""
    read = parse(java_string(body).encode(), grammar)
    # unlike in files of config/, fastjson2 refuses names without quotes here
    if read.problem or (read.bare and grammar is Grammar.FASTJSON_2):
        return None, "it is no JSON"
    for field in BODIES[tag]:
        if _is_refused(field, read.value.get(field.name), grammar):
            return None, f"its member {field.name} has a value of another type"
    return fields_of(tag, read.value), ""


def _is_refused(field: JsonField, value: Any, grammar: Grammar) -> bool:
    """Whether no parser converts the value to the field's type; what some version accepts counts as accepted."""
    if field.type == "string":
        return False
    if isinstance(value, str):
        digits = value.removeprefix("-").isdecimal()
        return not _PERHAPS_NUMBER.fullmatch(value) or (
            digits and field.type == "integer" and _is_beyond(field, value, grammar)
        )
    if field.type == "array":
        return isinstance(value, list) and any(_is_refused_in_list(field, item, grammar) for item in value)
    if isinstance(value, list):
        return not value or grammar is Grammar.FASTJSON
    if isinstance(value, dict):
        return field.bits == 64 or grammar is Grammar.FASTJSON
    return isinstance(value, int) and _is_beyond(field, value, grammar)


def _is_refused_in_list(field: JsonField, item: Any, grammar: Grammar) -> bool:
    """`_is_refused` for an item of an array: fastjson2 accepts some numbers that are too large."""
    if isinstance(item, str) and not item.removeprefix("-").isdecimal():
        return not _PERHAPS_NUMBER.fullmatch(item)
    return grammar is Grammar.FASTJSON and isinstance(item, int | str) and not field.holds(item)


def _is_beyond(field: JsonField, number: int | str, grammar: Grammar) -> bool:
    """Whether a number is out of the field's range. In fastjson one of 64 bits overflows, and is accepted if the result
    is not negative.
    """
    if field.holds(number):
        return False
    runs_over = grammar is Grammar.FASTJSON and field.bits == 64 and not (isinstance(number, str) and number[_DIGITS:])
    return not (runs_over and abs(int(number)) & (1 << 64) - 1 < 1 << 63)


_DIGITS = 1000
"""Most digits of a text that is parsed as a number."""
