"""Store locations: directories, patterns, lists, object storage; how to read files there; and the options of a read.

Logs are read in place, by ranges (`open_log`). Queues, index, timer log and configuration are small beside them, and
findings need the whole store: these are copied for the time of a task.

Object storage is what `pyarrow.fs` can read: `s3://bucket/store`, `gs://…`. Compressed files of a log are decompressed
by the task that reads. `file:///data/store` is an ordinary directory.

The options of a source (`spark.read`) are parsed and checked once (`ReadOptions`).
"""

from __future__ import annotations

import json
import os
import shutil
from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from glob import glob, has_magic
from io import BufferedReader
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO, Any, Self
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from ..broker.snapshot import lacks_log
from ..counted import counted
from ..disk.broker_conf import BrokerConfig
from ..disk.byte_reader import COMPRESSED, Unread
from ..disk.compressed import AnyPacked, PackedFile, is_compressed_name, plain_name
from ..disk.file_queue import ForeignEntry, MappedFile, MappedFileQueue, in_order, size_of, start_of, without_overlaps
from ..disk.layout import COMMIT_LOG, DLEDGER_PREFIX, Layout, is_uri
from ..errors import InvalidInput, Missing, NoSpace, StoreError, Unreadable, UnreadableRange, Unsupported, os_errors
from ..log.commit_log import CommitLog
from ..offsets.positions import CONSUMED as OFFSETS
from ..offsets.positions import TABLES as OFFSET_TABLES
from ..queues.references import commit_log_of
from ..search.selection import TimeRange, parse_range

LIST = "@"
"""A word with this prefix names a file that lists a store on each line."""
_COMMENT = "#"
_LIST_BYTES_MAX = 64 << 20


def as_path(store: str) -> Path:
    """A path for a store: the store's path, or one made from its URI."""
    return Path(_absolute("/" + store.replace("://", "/")) if is_uri(store) else store)


def place_of(store: str) -> str:
    """What identifies a store: a link to it and its `file:///…` URI give the same."""
    place = _place_of_uri(store) if is_uri(store) else store
    return place if is_uri(place) else os.path.realpath(place)


def _place_of_uri(uri: str) -> str:
    """The path of a `file:///…` URI, or another URI without its last slash."""
    if not uri.startswith("file:///"):
        return uri.rstrip("/")
    return _absolute(unquote(uri.removeprefix("file://"), errors="surrogateescape"))


def stores_of(words: Iterable[str]) -> list[str]:
    """The stores that words name, in order, each once under its first name; local ones as absolute paths.

    A word is a directory, a shell pattern (`/data/*/store`), a URI, or `@FILE`: a file with one word on each line, in
    which empty lines and lines with `#` first are skipped. A directory need not exist: reading it reports that. Raises
    Missing for a pattern without a match and for a list that does not exist, Unreadable, and InvalidInput if there is
    no store at all.
    """
    found: dict[str, str] = {}
    for store in (store for word in words for store in _expanded(word)):
        found.setdefault(place_of(store), store)
    if not found:
        raise InvalidInput("no store is named")
    return list(found.values())


def _expanded(word: str) -> Iterator[str]:
    if word.startswith(LIST):
        for line in _words_in(Path(word[len(LIST) :])):
            yield from _expanded(line)
    elif is_uri(word):
        yield _place_of_uri(word)
    elif has_magic(word) and not Path(word).exists():
        found = sorted(glob(word))  # noqa: PTH207 - Path.glob takes no absolute pattern
        directories = [path for path in found if Path(path).is_dir()]
        if not directories:
            raise Missing("no directory has such a name", path=word)
        yield from map(_absolute, directories)
    elif word:
        yield _absolute(word)


def _absolute(path: str) -> str:
    if "\0" in path:
        raise InvalidInput("a path with a zero byte in it", path=path)
    # not resolve(): it fails at a loop of links, which Layout reports better
    return os.path.abspath(path)  # noqa: PTH100


def _words_in(path: Path) -> list[str]:
    with os_errors(path), path.open("rb") as file:
        data = file.read(_LIST_BYTES_MAX + 1)
    if len(data) > _LIST_BYTES_MAX:
        raise InvalidInput(f"a list of stores of more than {_LIST_BYTES_MAX} bytes", path=path)
    lines = [line.strip() for line in os.fsdecode(data).splitlines()]
    wanted = [line for line in lines if line and not line.startswith(_COMMENT)]
    if any(line.startswith(LIST) for line in wanted):
        raise InvalidInput("a list of stores names another list", path=path)
    return wanted


@dataclass(frozen=True)
class StoreLocation:
    """Where the files of a store can be read. root: the name of the store. folder: its directory, or that of a copy."""

    root: str
    folder: Path

    def text(self, text: str) -> str:
        """Replace the path of the copy in a text by the store's name."""
        return text.replace(str(self.folder), self.root)

    def named(self, value: Any) -> Any:
        """Replace it in all texts of a value, also in lists and mappings."""
        if str(self.folder) == self.root:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.named(one) for one in value]
        if isinstance(value, Mapping):
            return {name: self.named(one) for name, one in value.items()}
        return value


@contextmanager
def in_directory(root: str, parts: Collection[str] | None = None) -> Iterator[StoreLocation]:
    """Give a store as a directory: its own, or a temporary copy from object storage.

    parts: names in the store's directory whose files are needed, None for all. Raises Missing, Unreadable, NoSpace if
    the copy does not fit. Errors of the block name the store instead of the copy.
    """
    if not is_uri(root):
        yield StoreLocation(root, Path(root))
        return
    with TemporaryDirectory(prefix="mqstore-store-") as name:
        place = StoreLocation(root, Path(name))
        try:
            _copy_store(root, place.folder, parts)
            yield place
        except StoreError as error:
            raise type(error)(place.text(str(error))) from error


def _copy_store(root: str, target: Path, parts: Collection[str] | None) -> None:
    place, base, found = _listed(root)
    files = []
    for info in found:
        inside = PurePosixPath(info.path).relative_to(base)
        if ".." in inside.parts:
            continue
        path = target.joinpath(*inside.parts)
        is_file = info.type is fs.FileType.File
        with os_errors(path, "cannot write"):
            (path.parent if is_file else path).mkdir(parents=True, exist_ok=True)
        if is_file and (parts is None or inside.parts[0] in parts):
            files.append((info, path))
    needed = sum(info.size for info, _ in files)
    if needed > shutil.disk_usage(target).free:
        raise NoSpace(f"no room for a copy of {counted(needed, 'byte')}", path=root)
    for info, path in files:
        _fetch(place, info, path)


def _listed(root: str, part: str = "") -> tuple[fs.FileSystem, str, list[fs.FileInfo]]:
    """All below a URI, or the entries of one directory of the store. Raises Missing, Unreadable."""
    try:
        place, path = fs.FileSystem.from_uri(root)
        base = str(PurePosixPath(path, part))
        found = place.get_file_info(fs.FileSelector(base, recursive=not part))
    except FileNotFoundError:
        raise Missing(f"no {part} here" if part else "no such directory", path=root) from None
    except (OSError, pa.ArrowException) as error:
        raise Unreadable(f"cannot list ({error})", path=root) from error
    if not found and not part:
        raise Missing("no such directory", path=root)
    return place, base, found


def _fetch(place: fs.FileSystem, info: fs.FileInfo, path: Path) -> None:
    """Copy one file with its modification time."""
    with _read_errors(info.path):
        source = place.open_input_file(info.path)
    with os_errors(path, "cannot write"):
        with source, path.open("xb") as copy:
            for begin in range(0, info.size, _BLOCK_BYTES):
                copy.write(_range(source, info.path, begin, min(_BLOCK_BYTES, info.size - begin)))
        if info.mtime_ns is not None:
            os.utime(path, ns=(info.mtime_ns, info.mtime_ns))


_BLOCK_BYTES = 1 << 20
"""Bytes fetched where a few are wanted: around damage a few are wanted many times."""
_BLOCKS = 8


def open_log(root: str, config: BrokerConfig) -> CommitLog:
    """Open the commit log of a store. Raises Missing, NotAStore, Unsupported (no file has a name of a log file; a
    DLedger log in object storage), Unreadable, and Refused if the log had files and has none, or a directory of it.
    """
    if is_uri(root):
        _refuse_dledger(root, config)
        return _require_readable_names(CommitLog(RemoteFiles(root)))
    layout = Layout.open(root, config)
    log = _require_readable_names(commit_log_of(layout))
    if lacks_log(layout):  # rare, so this module, which looks at whole stores, is imported only here
        from ..plan.normalize import refuse_to_read

        refuse_to_read(layout)
    return log


def _refuse_dledger(root: str, config: BrokerConfig) -> None:
    """Raise Unsupported if the log continues in a DLedger log, which is not read here; nothing else would show that."""
    if not config.get_bool("enableDLegerCommitLog", True):
        return
    with suppress(Missing):  # the missing log itself is reported
        names = [info.base_name for info in _listed(root, ".")[2] if info.type is fs.FileType.Directory]
        alone = f", or read {COMMIT_LOG}/ alone with --set enableDLegerCommitLog=false" if COMMIT_LOG in names else ""
        if name := next((name for name in names if name.startswith(DLEDGER_PREFIX)), ""):
            what = f"the log of {name} is not read in object storage"
            raise Unsupported(what, path=root, hint=f"copy the store to a disk{alone}")


def _require_readable_names(log: CommitLog) -> CommitLog:
    """Raise Unsupported if no file has a name of a log file: nothing else would show that all messages are missing."""
    if (others := log.misnamed) and not log.files:
        hint = f"a name must be digits, optionally with {' or '.join(COMPRESSED)} behind them"
        raise Unsupported("no file of the log has a name that can be read", path=others[0][1], hint=hint)
    return log


def log_sizes(roots: Iterable[str], config: BrokerConfig) -> tuple[dict[str, int], dict[str, StoreError]]:
    """(bytes of the log by store, errors by store whose log cannot be read)."""
    sizes: dict[str, int] = {}
    unread: dict[str, StoreError] = {}
    for root in roots:
        try:
            with open_log(root, config).queue as files:
                sizes[root] = files.size
        except StoreError as error:
            unread[root] = error
    return sizes, unread


class RemoteFiles(MappedFileQueue):
    """The files of a log in object storage, read by ranges."""

    def __init__(self, root: str) -> None:
        """The log of the store at a URI. Raises Missing, Unreadable."""
        self._place, _, found = _listed(root, COMMIT_LOG)
        self._packed = {info.path: _PackedObject(root, self._place, info) for info in found}
        files, foreign = list[MappedFile](), list[ForeignEntry]()
        for info in found:
            start = start_of(plain_name(info.base_name))
            if info.type is not fs.FileType.File:
                foreign.append(ForeignEntry(info.path, "not a file"))
            elif start is None:
                foreign.append(ForeignEntry(info.path, "its name is not a number"))
            else:
                files.append(MappedFile(info.path, start, info.size, is_compressed_name(info.base_name)))
        files = in_order(files, self.packed)
        size = size_of(files)
        super().__init__((), without_overlaps(files, size, foreign), size, foreign)
        self._opened: dict[str, Any] = {}
        self._blocks: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    def packed(self, file: MappedFile) -> AnyPacked:
        return self._packed[file.path]

    def read_file(self, file: MappedFile, offset: int, size: int) -> bytes:
        if file.compressed:
            return super().read_file(file, offset, size)
        end = min(file.size, offset + size)
        if offset >= end:
            return b""
        if offset // _BLOCK_BYTES != (end - 1) // _BLOCK_BYTES:
            return self._fetch(file, offset, end - offset)
        start = offset - offset % _BLOCK_BYTES
        block = self._blocks.get((file.path, start))
        if block is None:
            while len(self._blocks) >= _BLOCKS:
                self._blocks.popitem(last=False)
            block = self._fetch(file, start, min(_BLOCK_BYTES, file.size - start))
            self._blocks[file.path, start] = block
        return block[offset - start : end - start]

    def _fetch(self, file: MappedFile, offset: int, size: int) -> bytes:
        """Read a range with one request."""
        with _read_errors(file.path):
            if file.path not in self._opened:
                self._opened[file.path] = self._place.open_input_file(file.path)
        return _range(self._opened[file.path], file.path, offset, size)

    def fill(self, file: MappedFile, offset: int, buffer: memoryview) -> tuple[int, list[Unread]]:
        """Fill `buffer` with one file from `offset` on. Return how many bytes there were, and no unread ranges."""
        if file.compressed:
            return super().fill(file, offset, buffer)
        data = self.read_file(file, offset, len(buffer))
        buffer[: len(data)] = data
        return len(data), []

    def next_data(self, file: MappedFile, offset: int) -> int | None:
        """Object storage has no holes; a decompressed file has."""
        if file.compressed:
            return super().next_data(file, offset)
        return offset if offset < file.size else None

    def data_end(self, file: MappedFile, offset: int) -> int:
        return super().data_end(file, offset) if file.compressed else file.size

    def descriptor(self, file: MappedFile) -> int:
        """The descriptor of a decompressed file. Raises Unsupported for a plain one, which has none."""
        if file.compressed:
            return super().descriptor(file)
        raise Unsupported("object storage is read by ranges only", path=file.path)

    def close(self) -> None:
        """Close the files; a later read opens them again."""
        super().close()
        while self._opened:
            self._opened.popitem()[1].close()


class _PackedObject(PackedFile):
    """A compressed file in object storage."""

    def __init__(self, root: str, place: fs.FileSystem, info: fs.FileInfo) -> None:
        super().__init__(info.path)
        self._root = root
        self._place = place
        self._info = info

    def identity(self) -> Hashable:
        return self._root, self._info.path, self._info.size, self._info.mtime_ns

    def head(self, size: int) -> bytes:
        return self._part(0, size)

    def tail(self, size: int) -> bytes:
        return self._part(max(0, self._info.size - size), size)

    def _part(self, offset: int, size: int) -> bytes:
        with self._opened() as source:
            return _range(source, self._info.path, offset, min(size, self._info.size - offset))

    def open(self) -> IO[bytes]:
        return BufferedReader(self._opened(), _BLOCK_BYTES)

    def _opened(self) -> Any:
        with _read_errors(self._info.path):
            return self._place.open_input_file(self._info.path)


def changed(path: str) -> Unreadable:
    """The error for an object that differs from its listing; reading on would look like the end of the log."""
    return Unreadable("the file has changed since it was listed", path=path, hint="try again when nobody writes to it")


def _range(source: Any, path: str, offset: int, size: int) -> bytes:
    """A range within the listed size of an object. Raises Unreadable."""
    with _read_errors(path):
        data: bytes = source.read_at(size, offset)
    if len(data) < size:
        raise changed(path)
    return data


@contextmanager
def _read_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unreadable(f"cannot read ({error})", path=path) from error


REPORT = "report"
FAIL = "fail"
FAIL_UNREADABLE = "fail-unreadable"
NO_BODY, PLAIN_BODY, STORED_BODY = "none", "plain", "stored"
LOG = "log"
DAMAGE_OF = (LOG, "queue", "index", "timer", "offsets", "lag")
"""What may be asked for damage (`damage_rows`)."""
_ALL = "*"
_SEPARATOR = ","
ALWAYS = TimeRange()
BODY, BODY_CRC_OK, RAW = "body", "body_crc_ok", "raw"
DAY_FOLDERS = "date"
"""The prefix of folders in an export by day, `date=2026-01-31`."""
_NOTES = {STORED_BODY: (BODY_CRC_OK, RAW), PLAIN_BODY: (BODY_CRC_OK, "body_compression", "body_error")}
"""The columns beside a body that say whether it is sound and how a writer must take it."""
OPTIONS = frozenset(
    {"path", "paths", "fields", "topics", "queue_id", "since", "until", "body", "on_damage"}
    | {"pushdown", "split_bytes", "rate", "broker_config", "quick", "tables", "of", "tails"}
)


@dataclass(frozen=True)
class ReadOptions:
    """The options of a read.

    stores: root directories or URIs. fields: column names, None for the usual ones. topics: names or shell patterns,
    none for all. times: store times. body: `none`, `plain` (decompressed) or `stored`; `fields` that name the body
    override `none`. on_damage: `report` gives a row for what cannot be read, `fail` ends the query, `fail-unreadable`
    ends it only for bytes that the disk does not return. pushdown: let Spark push filters down; its session must allow
    that, and the DataFrame must serve a single query (see `PushingLogReader`). split_bytes: the size of a task's part,
    None to choose it. rate_bytes: limit of reading of a Spark task, per second. config: of the brokers, as in
    broker.conf. quick: findings of structure and file ends only. tables: kinds of offsets, from `OFFSET_TABLES`.
    of_what: files whose damage is asked for, from `DAMAGE_OF`. tails: report also what follows the last message of a
    log as damage.
    """

    stores: tuple[str, ...]
    fields: tuple[str, ...] | None = None
    topics: tuple[str, ...] = ()
    queue_id: int | None = None
    times: TimeRange = ALWAYS
    body: str = NO_BODY
    on_damage: str = REPORT
    pushdown: bool = False
    split_bytes: int | None = None
    rate_bytes: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    quick: bool = False
    tables: tuple[str, ...] = (OFFSETS,)
    of_what: tuple[str, ...] = (LOG,)
    tails: bool = True

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """From Spark's options, whose names it may have put in lower case.

        Raises InvalidInput, and what `stores_of` raises.
        """
        given = {name.lower(): value for name, value in options.items()}
        if unknown := sorted(given.keys() - OPTIONS):
            known = ", ".join(sorted(OPTIONS))
            raise InvalidInput(f"no option {unknown[0]!r} here", hint=f"there are {known}")
        body = one_of(given, "body", (NO_BODY, PLAIN_BODY, STORED_BODY))
        return cls(
            stores=tuple(stores_of(_paths(given))),
            fields=with_notes(_list(given, "fields"), body) or None,
            topics=_list(given, "topics"),
            queue_id=_number(given, "queue_id"),
            times=parse_range(given.get("since"), given.get("until")),
            body=body,
            on_damage=one_of(given, "on_damage", (REPORT, FAIL, FAIL_UNREADABLE)),
            pushdown=one_of(given, "pushdown", ("false", "true")) == "true",
            split_bytes=_split_bytes(given),
            rate_bytes=_number(given, "rate") or None,
            config=parse_config(given),
            quick=one_of(given, "quick", ("false", "true")) == "true",
            tables=_some_of(given, "tables", OFFSET_TABLES),
            of_what=_some_of(given, "of", DAMAGE_OF),
            tails=one_of(given, "tails", ("true", "false")) == "true",
        )

    @property
    def broker_config(self) -> BrokerConfig:
        return BrokerConfig(dict(self.config))

    @property
    def fails(self) -> bool:
        """Whether damage ends the query."""
        return self.on_damage == FAIL

    def fails_at(self, error: StoreError) -> bool:
        """Whether this error ends the query."""
        gone = self.on_damage == FAIL_UNREADABLE and isinstance(error, UnreadableRange)
        return self.fails or gone

    def columns(self, known: Iterable[str], usual: Iterable[str]) -> tuple[str, ...]:
        """The columns asked for. Raises InvalidInput for an unknown one."""
        if self.fields is None:
            return tuple(usual)
        names = tuple(known)
        if unknown := [name for name in self.fields if name not in names]:
            raise InvalidInput(f"no column {unknown[0]!r} here", hint=f"there are {', '.join(names)}")
        return tuple(dict.fromkeys(self.fields))


def with_notes(fields: tuple[str, ...], body: str) -> tuple[str, ...]:
    """Add to columns that include a body the ones that say how to take it. body: as `ReadOptions.body`.

    >>> with_notes(("topic", "body"), "plain")
    ('topic', 'body', 'body_crc_ok', 'body_compression', 'body_error')
    """
    notes = _NOTES.get(body, _NOTES[PLAIN_BODY]) if BODY in fields else ()
    return tuple(dict.fromkeys((*fields, *notes)))


def _paths(given: Mapping[str, str]) -> list[str]:
    """The words given to `load`: one, several lines, or several strings."""
    several = json.loads(given["paths"]) if given.get("paths") else []
    words = [*given.get("path", "").splitlines(), *several]
    if not words:
        raise InvalidInput("no path is given", hint='write .load("/data/store")')
    return words


def _list(given: Mapping[str, str], name: str) -> tuple[str, ...]:
    parts = (part.strip() for part in given.get(name, "").split(_SEPARATOR))
    return tuple(part for part in parts if part)


def _some_of(given: Mapping[str, str], name: str, values: tuple[str, ...]) -> tuple[str, ...]:
    """Some of the values, or all for `*`; the first is the default. Raises InvalidInput."""
    wanted = _list(given, name) or values[:1]
    if unknown := [one for one in wanted if one not in (*values, _ALL)]:
        known = f"{', '.join(values)} or {_ALL}"
        raise InvalidInput(f"option {name}: no {unknown[0]!r} there", hint=f"there are {known}")
    return values if _ALL in wanted else tuple(dict.fromkeys(wanted))


def _number(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not is_number(text):
        raise InvalidInput(f"option {name}: not a number: {text!r}")
    return int(text)


def is_number(text: str) -> bool:
    """Whether an option is a number, not negative, that an int64 has room for."""
    return text.isascii() and text.isdigit() and len(text) < _DIGITS_MAX


_DIGITS_MAX = 19


def _split_bytes(given: Mapping[str, str]) -> int | None:
    """The size of a part. Raises InvalidInput for a tiny one: the user probably meant another unit."""
    size = _number(given, "split_bytes")
    if size is not None and size < _SPLIT_BYTES_LEAST:
        raise InvalidInput(f"option split_bytes: {size} is below {_SPLIT_BYTES_LEAST} bytes")
    return size


_SPLIT_BYTES_LEAST = 4096


def one_of(given: Mapping[str, str], name: str, values: tuple[str, ...]) -> str:
    """The value of an option, one of `values`; the first is the default. Raises InvalidInput."""
    value = given.get(name, values[0]).lower()
    if value not in values:
        raise InvalidInput(f"option {name}: not one of {', '.join(values)}: {value!r}")
    return value


def parse_config(given: Mapping[str, str]) -> dict[str, str]:
    """The JSON object in the option `broker_config`, its values as texts. Raises InvalidInput."""
    try:
        found: Any = json.loads(given.get("broker_config", "{}"))
    except ValueError as error:
        raise InvalidInput(f"option broker_config: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidInput("option broker_config: not a JSON object")
    return {str(key): str(value) for key, value in found.items()}
