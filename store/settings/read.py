"""The files of `config/`: records of their tables, and which of file and .bak a broker reads.

A file that is broken gives what can be read of it. Nothing is written. Spec 05, 5.2 and 5.3.

A broker with a controller keeps two more: brokerIdentity, read as its BrokerMetadata does (spec 06, 6.3), and
epochFileCheckpoint, as its CheckpointFile does (spec 06, 6.2). Nothing raises there: what is wrong, and where, is told
beside what can be read. Of what is no number a broker does not recover: it does not even look at the .bak then.

`inspect` has one line for each file (`summaries_of`).

Consumer groups and their progress: `config/consumerOffset.json` and what stands in its place. A broker with
`enableLmq` keeps `lmqConsumerOffset.json` instead, with the groups of LMQs beside the others; one whose
configuration is a RocksDB keeps it there (spec 05, 5.3, 5.4).

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
from .parse import CONFIG_VALUE, Grammar, ParsedConfig, entries, parse

if TYPE_CHECKING:
    from ..broker.snapshot import QueueId

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


class ConfigProblem(NamedTuple):
    """What is wrong with a file: from `position` on `size` bytes cannot be read.

    gives_up: a broker does not look at the .bak then. noted: whoever collects what a disk does not give has it already.
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
                yield {"type": CONFIG_VALUE, **head, "name": str(name), "value": value}


class ConfigContent(NamedTuple):
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


def read_content(path: Path) -> ConfigContent:
    """Read a file of JSON as a broker's `file2String` does: measured with 4.9.7, 5.3.3, 5.5.0.

    Raises Missing, Unreadable.
    """
    data = read_regular(path, LARGEST_BYTES + 1)
    if len(data) <= LARGEST_BYTES:
        return ConfigContent(data, len(data))
    size = os.stat(path).st_size  # noqa: PTH116
    # of a huge file of holes, mebibytes of NULs would be looked at one by one
    there = ConfigContent(data[:LARGEST_BYTES].rstrip(b"\0"), size)
    taken = size % _ONE_READ
    many = counted(size, "byte")
    if not taken:
        return there._replace(problem=f"{many}: a broker takes the file as empty", empty=True)
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

    One that a disk does not give counts as broken, and is noted. Raises UnreadableRange where nobody notes it.
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
        parsed = ParsedConfig(parsed.value, reason, LARGEST_BYTES)
    elif content.problem:
        parsed = ParsedConfig(parsed.value, content.problem, gives_up=content.dies)
    value = parsed.value if isinstance(parsed.value, dict) else {}
    problem = None
    if parsed.problem:
        left = content.size - parsed.position
        problem = ConfigProblem(parsed.position, left, parsed.problem, parsed.gives_up)
    return ConfigFile(path, kind, value, problem, parsed.note, larger=content.larger)


def _properties(data: bytes) -> ParsedConfig:
    return ParsedConfig(parse_properties(data.decode("iso-8859-1")))


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
    with os_errors(directory), os.scandir(directory) as found:
        names = sorted(entry.name for entry in found if is_file(entry))
    for name in names:
        plain = name.removesuffix(BACKUP).removesuffix(TEMPORARY)
        if plain in FILES:
            yield FILES[plain], directory / name, plain


_NUMBER = re.compile(r"[+-]?\d{1,19}")
_LONG_MOST = (1 << 63) - 1


def parse_identity(data: bytes) -> ParsedConfig:
    """The table of `formats.broker_identity` by its member."""
    # as Java splits: empty parts at the end are none
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
    """A line of which a number cannot be read."""


def parse_epochs(data: bytes) -> ParsedConfig:
    """The tables of `formats.epoch_file` by their members."""
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
            header[name] = _number(line, _INT_MOST, name)
            at = found[min(len(header), len(found) - 1)][0]
        if len(header) < 2:
            raise _WrongNumber("it ends in its header" if data else "empty")
        for (at, _), line in zip(found[2:], lines[2:], strict=True):
            if (entry := _entry(line)) is not None:
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
    return ParsedConfig(value, note=_note([entry for _, entry in rows]))


def _number(text: str, most: int, what: str) -> int:
    if not _NUMBER.fullmatch(text) or not -most - 1 <= int(text) <= most:
        raise _WrongNumber(f"the {what} is not a number")
    return int(text)


def _entry(line: str) -> tuple[int, int] | None:
    """Epoch and start offset; None for a line that has not two parts, which is passed over."""
    parts = line.rstrip(EPOCH_SEPARATOR).split(EPOCH_SEPARATOR)
    if len(parts) != 2:
        return None
    return _number(parts[0], _INT_MOST, "epoch"), _number(parts[1], _EPOCH_MOST, "start offset")


def _note(rows: list[tuple[int, int]]) -> str:
    """What is odd but taken: entries that do not follow one another."""
    for (epoch, offset), (later, start) in pairwise(rows):
        if later <= epoch:
            return f"epoch {later} follows epoch {epoch}"
        if start < offset:
            return f"epoch {later} begins before the epoch above it"
    return ""


WHOLE, BROKEN, MISSING, UNREAD = "whole", "broken", "missing", "unread"
_NOT_COUNTED = ("data_version", "config_value")


class ConfigSummary(NamedTuple):
    """One file or RocksDB. state: `whole`, `broken`, `missing` (its .bak is there), `unread`.

    entries: record type → number. text: the same in words, with what a broker does.
    """

    file: str
    state: str
    entries: dict[str, int]
    text: str


def summary_of(file: ConfigFile) -> ConfigSummary:
    """Of a file that was read."""
    counts = Counter(record["type"] for record in file.records())
    entries = {name: count for name, count in counts.items() if name not in _NOT_COUNTED}
    told = entries_text(entries)
    if file.problem is None:
        text = (told or "no entries") + (f"; {file.note}" if file.note else "")
        return ConfigSummary(file.path.name, WHOLE, entries, text)
    parts = [f"broken at byte {file.problem.position} ({file.problem.reason})"]
    if file.larger:
        parts = [file.problem.reason]
    if told:
        parts.append(f"{told} before that")
    if file.larger:
        return ConfigSummary(file.path.name, UNREAD, entries, "; ".join(parts))
    if not file.path.name.endswith(BACKUP):
        parts.append(stand_in(file, file.path, file.kind))
    return ConfigSummary(file.path.name, BROKEN, entries, "; ".join(parts))


def summaries_of(directory: Path) -> Iterator[ConfigSummary]:
    """Of each file without its .bak, of what only the .bak has, then of RocksDBs.

    Raises Missing, Unreadable.
    """
    found = list(config_files(directory))
    names = {path.name for _, path, _ in found}
    for kind, path, name in found:
        if path.name == name:
            yield summary_of(read_config_file(path, kind))
        elif name not in names:
            names.add(name)
            instead = stand_in(None, path.with_name(name), kind)
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
    """The RocksDBs in a directory, sorted."""
    from ..queues.rocksdb import is_rocksdb

    return sorted(path for path in directory.iterdir() if path.is_dir() and is_rocksdb(path))


def count_entries(path: Path) -> dict[str, int]:
    """Records of a RocksDB by their type. Raises Unsupported, Unreadable."""
    from ..queues.rocksdb import RocksDb
    from .rocksdb import read_entries

    counts: Counter[str] = Counter()
    with RocksDb.open(path) as database:
        for entry in read_entries(database):
            counts.update(record["type"] for record in entry.records)
    return dict(counts)


def entries_text(entries: dict[str, int]) -> str:
    """`2 topic configs, 1 forbidden`."""
    return ", ".join(counted(count, *_thing(name)) for name, count in entries.items())


def _thing(record_type: str) -> tuple[str, str]:
    """What one of these, and more of them, are called."""
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
"""Per queue and group the next queue offset to consume."""


class _OffsetTable(NamedTuple):
    """What one file says, and when it was written (ms, 0: not known)."""

    progress: dict[QueueId, dict[str, int]]
    written_ms: int = 0


def read_progress(config: Path, options: Mapping[str, str] | None = None) -> Progress:
    """The progress of all groups; of a file that cannot be read its `.bak`; empty without.

    Of two files that name the same group the one written later counts. options: of the broker.
    """
    tables = [table for name in (OFFSETS, LMQ_OFFSETS) if (table := _read(config, name)) is not None]
    tables.sort(key=lambda table: table.written_ms)
    tables += _of_rocksdb(config, options)
    progress: dict[QueueId, dict[str, int]] = {}
    for table in tables:
        for queue, offsets in table.progress.items():
            progress.setdefault(queue, {}).update(offsets)
    return progress


def _read(config: Path, file_name: str) -> _OffsetTable | None:
    """A file, or its `.bak`, as a broker takes it; None where neither can be read."""
    for name in (file_name, f"{file_name}.bak"):
        try:
            data = read_regular(config / name, _LARGEST_OFFSETS_BYTES)
        except StoreError:
            continue
        found = _parse(data)
        if found is not None:
            return found
    return None


def _parse(data: bytes) -> _OffsetTable | None:
    try:
        table = loads(data.decode("utf-8", "replace"))
        rows = [*_rows(table[OFFSET_TABLE]), *_lmq_rows(table.get(LMQ_OFFSET_TABLE) or {})]
        version = table.get(DATA_VERSION.member)
        written_ms = int(version["timestamp"]) if isinstance(version, dict) else 0
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None
    found = _OffsetTable({}, written_ms)
    for queue, group, offset in rows:
        found.progress.setdefault(queue, {})[group] = offset + steps_to_next(group)
    return found


def _rows(table: Mapping[str, Any]) -> Iterator[tuple[QueueId, str, int]]:
    from ..broker.snapshot import QueueId  # with numpy, which few readers of config/ need

    for name, offsets in table.items():
        topic, _, group = name.rpartition("@")
        for queue_id, offset in offsets.items():
            yield QueueId(topic, int(queue_id)), group, int(offset)


def _lmq_rows(table: Mapping[str, Any]) -> Iterator[tuple[QueueId, str, int]]:
    """An LMQ has one queue, number 0."""
    from ..broker.snapshot import QueueId

    for name, offset in table.items():
        topic, _, group = name.rpartition("@")
        yield QueueId(topic, 0), group, int(offset)


def _of_rocksdb(config: Path, options: Mapping[str, str] | None) -> Iterator[_OffsetTable]:
    """The same of a RocksDB, where there is one that can be read."""
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
        return  # what the files say is better than nothing
    for row in rows:
        if row.get("type") == "consumer_offset" and row["table"] == OFFSET_TABLE:
            queue = QueueId(str(row["topic"]), int(row["queue_id"]))
            group = str(row["group"])
            found.progress.setdefault(queue, {})[group] = int(row["offset"]) + steps_to_next(group)
    yield found


_PERHAPS_NUMBER = re.compile(r"(?:[-+]?\d[\dA-Fa-fXx.,-]*|null|true|false)?")
"""Texts that a broker of some version takes for a number."""


def read_pop(tag: str, body: bytes, grammar: Grammar) -> tuple[dict[str, Any] | None, str]:
    """The fields of a record of POP, None for what is none; and why no broker reads it, "" where one does: the broker
    stops its queue of the revive topic there for good.
    """
    fields = parse_body(tag, body)
    if fields is not None or tag not in BODIES:
        return fields, ""
    read = parse(java_string(body).encode(), grammar)
    # unlike in files of config/ fastjson2 refuses here names without quotes
    if read.problem or (read.bare and grammar is Grammar.FASTJSON_2):
        return None, "it is no JSON"
    for field in BODIES[tag]:
        if _is_refused(field, read.value.get(field.name), grammar):
            return None, f"its member {field.name} has a value of another type"
    return fields_of(tag, read.value), ""


def _is_refused(field: JsonField, value: Any, grammar: Grammar) -> bool:
    """The parser makes no value of the field's type of it. What some version takes counts as taken."""
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
    """Of numbers that are too large a fastjson2 takes some."""
    if isinstance(item, str) and not item.removeprefix("-").isdecimal():
        return not _PERHAPS_NUMBER.fullmatch(item)
    return grammar is Grammar.FASTJSON and isinstance(item, int | str) and not field.holds(item)


def _is_beyond(field: JsonField, number: int | str, grammar: Grammar) -> bool:
    """The number is beyond the bits of the field. By fastjson one of 64 bits runs over, and counts where what is left
    is not negative.
    """
    if field.holds(number):
        return False
    runs_over = grammar is Grammar.FASTJSON and field.bits == 64 and not (isinstance(number, str) and number[_LONGEST:])
    return not (runs_over and abs(int(number)) & (1 << 64) - 1 < 1 << 63)


_LONGEST = 1000
"""Digits of a text that is looked at as a number."""
