"""Recognise what a path is: a store or one kind of its files, by place, name and content.

A copy of a file has lost its place and often its name. Then its first bytes and its length decide, for a file of
`config/` the first bytes alone. Only a few bytes of a file are read, and no length in them is believed.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from construct import Construct, Struct

from ...formats import (
    batch_consume_queue,
    checkpoint,
    commit_log,
    consume_queue,
    consume_queue_ext,
    dledger,
    dledger_index,
    dledger_state,
    index_file,
    locked_range,
    tiered_index,
    tiered_index_file,
    timer_log,
    timer_wheel,
)
from ...formats.blank import MAGIC_BLANK
from ...formats.config import BACKUP
from ...formats.consumer_offset import OFFSET_TABLE
from ...formats.derive import columns_of
from ...formats.json_table import DATA_VERSION
from ...formats.kinds import KINDS, Syntax
from ...formats.message import LATEST_MS, MAGIC_V1, MAGIC_V2, SMALLEST
from ...formats.position_checkpoint import FILE as POSITION_CHECKPOINT
from ...formats.timer_check import FILE as TIMER_CHECK
from ..disk import byte_reader
from ..disk.broker_conf import BrokerConfig
from ..disk.compressed import open_any, plain_name
from ..disk.file_queue import start_of
from ..disk.layout import (
    BATCH_CONSUME_QUEUE,
    COMMIT_LOG,
    COMPACTION,
    COMPACTION_LOG,
    COMPACTION_QUEUES,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    DLEDGER_PREFIX,
    INDEX,
    ROCKSDB_CURRENT,
    TIERED_INDEX_FILES,
    TIMER_LOG,
    Layout,
    where_instead,
)
from ..errors import InvalidInput, Missing, NotAStore, Unsupported, from_os_error, os_errors
from ..tiered.segments import SEGMENTS, kind_of_place, queue_of_place

_ENTRY_HEADER = Struct(*dledger.ENTRY.subcons[:-1])
_CHECKPOINT_TIMES = [f.name for f in columns_of(checkpoint.FIELDS) if f.name.endswith("_timestamp")]


def _first(schema: Construct[Any, Any], fits: Callable[[Any, int], bool]) -> Callable[[bytes, int], bool]:
    """Return a test: the file begins with a whole `schema` (of fixed size) that `fits`, given the size of the file."""
    return lambda head, size: len(head) >= schema.sizeof() and fits(schema.parse(head), size)


def _is_commit_log(head: bytes, size: int) -> bool:
    """A record or BLANK at the front, or, if the front is damaged, a magic code soon after it."""
    if len(head) < commit_log.HEAD.sizeof():
        return False
    if commit_log.HEAD.parse(head).magic_code == MAGIC_BLANK:
        return True
    magics = (MAGIC_V1, MAGIC_V2)
    return any(commit_log.HEAD.magic_code.build(magic) in head for magic in magics)


def _is_checkpoint(head: bytes, size: int) -> bool:
    """One page: plausible times at its front, zeros behind the fields."""
    if size != checkpoint.PAGE_BYTES or any(head[checkpoint.FIELDS.sizeof() :]):
        return False
    fields = checkpoint.FIELDS.parse(head)
    times = [fields[name] for name in _CHECKPOINT_TIMES]
    return all(0 <= time < LATEST_MS for time in times) and any(times)


def _is_dledger_index(head: bytes, size: int) -> bool:
    """Whole units; the first two follow one another, or the only one is valid."""
    schema, step = dledger_index.UNIT, dledger_index.UNIT_BYTES
    if size % step or len(head) < min(size, 2 * step):
        return False
    units = [schema.parse(head[at : at + step]) for at in range(0, min(len(head), 2 * step), step)]
    if not units or not _is_dledger_unit(units[0]):
        return False
    first, second = units[0], units[-1]
    if len(units) == 1 or not second.magic:
        return True
    return bool(
        _is_dledger_unit(second)
        and second.index == first.index + 1
        and second.pos >= first.pos + first.size
        and second.term >= first.term
    )


def _is_dledger_unit(unit: Any) -> bool:
    return bool(
        dledger.MAGIC_ENTRY <= unit.magic <= dledger.MAGIC_CONFIG_CHANGE
        and unit.size >= dledger.HEADER_BYTES
        and min(unit.pos, unit.index, unit.term) >= 0
    )


def _is_consume_queue(head: bytes, size: int) -> bool:
    """Whole units; the first written ones point forward."""
    schema = consume_queue.UNIT
    if not head or size % consume_queue.UNIT_BYTES:
        return False
    units = [
        schema.parse(head[at : at + consume_queue.UNIT_BYTES])
        for at in range(0, min(len(head), 8 * consume_queue.UNIT_BYTES), consume_queue.UNIT_BYTES)
    ]
    written = [unit for unit in units if unit.size]
    offsets = [unit.physical_offset for unit in written]
    return (
        bool(written)
        and all(unit.size >= SMALLEST for unit in written)
        and offsets[0] >= 0
        and offsets == sorted(offsets)
    )


_TESTS: dict[str, Callable[[bytes, int], bool]] = {
    "lock": lambda head, size: head == locked_range.CONTENT,
    "timer-wheel": lambda head, size: size == timer_wheel.FILE_BYTES,
    "dledger": _first(
        _ENTRY_HEADER,
        lambda entry, size: (
            entry.magic == dledger.MAGIC_ENTRY
            and entry.size == dledger.HEADER_BYTES + entry.body_length
            and entry.index >= 0
            and entry.body_length >= SMALLEST
        ),
    ),
    "timer-log": _first(
        timer_log.UNIT,
        lambda unit, size: (
            unit.size == timer_log.UNIT_BYTES
            and 0 <= unit.magic <= timer_log.MAGIC_MAX
            and 0 < unit.curr_write_time < LATEST_MS
        ),
    ),
    "commit-log": _is_commit_log,
    "checkpoint": _is_checkpoint,
    "index-file": _first(
        index_file.HEADER,
        lambda header, size: (
            0 < header.begin_timestamp <= header.end_timestamp < LATEST_MS
            and 0 <= header.begin_physical_offset <= header.end_physical_offset
            and 0 < header.index_count <= index_file.items_of(size, 0)
            and 0 <= header.hash_slot_count <= header.index_count
        ),
    ),
    "tiered-index": _first(
        tiered_index.HEAD,
        lambda first, size: (
            first.header.magic == tiered_index.MAGIC_SEALED
            and tiered_index.slots_of(size, first.first_slot.position) is not None
        ),
    ),
    # a full file has the magic code of a sealed segment: only its place tells
    "tiered-index-file": _first(
        tiered_index_file.HEADER, lambda header, size: header.magic == tiered_index_file.MAGIC_OPEN
    ),
    "dledger-index": _is_dledger_index,
    # whole units, the first one as every broker writes it
    "batch-consume-queue": _first(
        batch_consume_queue.UNIT,
        lambda first, size: (
            size % batch_consume_queue.UNIT_BYTES == 0
            and first.physical_offset >= 0
            and first.size >= SMALLEST
            and 0 < first.store_time < LATEST_MS
            and first.msg_base_offset >= 0
            and first.batch_size > 0
            and (first.compacted_offset, first.reserved) == (-1, 0)
        ),
    ),
    # a unit with consistent sizes and a plausible time
    "consume-queue-ext": _first(
        consume_queue_ext.HEAD,
        lambda first, size: (
            first.bit_map_size >= 0
            and first.size == consume_queue_ext.UNIT_BYTES_MIN + first.bit_map_size <= size
            and 0 < first.msg_store_time < LATEST_MS
        ),
    ),
    "consume-queue": _is_consume_queue,
}
"""In this order: a DLedger entry contains the magic code of its record."""


_GROUP = re.compile(rb"[^\"]@[^\"]*\"\s*:")
_MEMBERS = {
    table.member: name
    for name, kind in reversed(KINDS.items())
    for table in kind.tables
    if kind.syntax is Syntax.JSON and table.member not in ("", DATA_VERSION.member)
}
"""Member of the JSON object → the first kind that has it."""
_EPOCHS = re.compile(rb"\d+\r?\n\d+\r?\n\d+-\d+\r?(\n|\Z)")


def kind_of_text(head: bytes) -> str | None:
    """Return the kind whose table or lines the first bytes show, or None."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text.startswith(b"{"):
        return "epoch-file" if _EPOCHS.match(head) else None
    found = [(text.find(f'"{member}"'.encode()), name) for member, name in _MEMBERS.items()]
    places = sorted((place, name) for place, name in found if place >= 0)
    if not places:
        return None
    names = {name for _, name in places}
    if "lmq-consumer-offset" in names:
        return "lmq-consumer-offset"
    if places[0][1] == _MEMBERS[OFFSET_TABLE] and not _GROUP.search(text):
        return "delay-offset"  # its keys are levels, not topic@group
    return places[0][1]


STORE = "store"
"""The kind of a store's root, besides those of `formats.kinds.KINDS`."""

QUEUES = {
    CONSUME_QUEUE: "consume-queue",
    BATCH_CONSUME_QUEUE: "batch-consume-queue",
    CONSUME_QUEUE_EXT: "consume-queue-ext",
    COMPACTION_LOG: "compaction-log",
    COMPACTION_QUEUES: "sparse-consume-queue",
}
"""Directories of directories of queues, and the kind of the files in them."""
_BY_DIRECTORY = QUEUES | {
    COMMIT_LOG: "commit-log",
    INDEX: "index-file",
    TIMER_LOG: "timer-log",
    TIERED_INDEX_FILES: "tiered-index-file",
}
_BY_FILE = {name: name for name in ("abort", "checkpoint", "lock")} | {
    "timerwheel": "timer-wheel",
    TIMER_CHECK: "timer-check",
}
_CONFIG = {kind.file: name for name, kind in KINDS.items() if kind.file}
_IN_CONFIG = [kind.file for kind in KINDS.values() if kind.file and kind.place == "config"]
_SUFFIXES = (BACKUP, ".tmp", "-temp")
_NOT_YET = (COMPACTION, "config")
_OF_COMPACTION = (COMPACTION_LOG, POSITION_CHECKPOINT)
DLEDGER_DATA = "data"
_HEAD_BYTES = 1 << 16


class Recognised(NamedTuple):
    """A path, its kind (`store` or a name in KINDS) and what it was recognised by."""

    path: Path
    kind: str
    reason: str

    @property
    def queue(self) -> tuple[str, int] | None:
        """Topic and queue id in the path of a consume queue, or None."""
        if self.kind in SEGMENTS.values():
            return queue_of_place(Path(*_parts(self.path)))
        parts = _parts(self.path)
        above = next((name for name in QUEUES if name in parts), None)
        if above is None:
            return None
        inside = parts[len(parts) - 1 - parts[::-1].index(above) + 1 :]
        if inside and not self.path.is_dir():
            inside = inside[:-1]
        if len(inside) < 2 or start_of(inside[-1]) is None:
            return None
        return "/".join(inside[:-1]), int(inside[-1])


def recognise(path: str | os.PathLike[str], kind: str | None = None, config: BrokerConfig | None = None) -> Recognised:
    """Return what `path` is. kind: overrides what it looks like.

    Raises Missing, Unreadable, NotAStore (an empty directory), Unsupported (a kind that is not handled, or none
    recognised), InvalidInput (no such kind).
    """
    path = Path(path)
    is_directory = _is_directory(path)
    if not is_directory and (path.parent / ROCKSDB_CURRENT).is_file():
        raise Unsupported("one file of a RocksDB", path=path, hint=f"name its directory, {path.parent}")
    if kind is not None:
        if kind not in KINDS and kind != STORE:
            raise InvalidInput(f"no such kind: {kind}", hint=f"kinds are {', '.join(KINDS)}")
        return Recognised(path, kind, "as asked for")
    found = _directory(path, config) if is_directory else _file(path)
    if found is None:
        place = next((part for part in _parts(path)[::-1] if part in _NOT_YET), None)
        text = f"files of {place}/ are not handled" if place else "cannot tell what this is"
        hint = "name its kind with --as; mqstore dump --help lists the kinds"
        raise Unsupported(text, path=path, hint=where_instead(path, hint) if is_directory and not place else hint)
    return found


def _is_directory(path: Path) -> bool:
    """Whether `path` is a directory, False for a file. Raises Missing, Unreadable, Unsupported."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        found = from_os_error(error, path)
        if not found.hint and isinstance(found, Missing):
            found.hint = where_instead(path, "")
        raise found from error
    except ValueError as error:  # a NUL in the name
        raise Missing("no such file or directory", path=path) from error
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise Unsupported("neither a file nor a directory", path=path)
    return stat.S_ISDIR(mode)


def _parts(path: Path) -> tuple[str, ...]:
    return Path(os.path.abspath(path)).parts  # noqa: PTH100 (a link's own name counts)


def _directory(path: Path, config: BrokerConfig | None) -> Recognised | None:
    name = _parts(path)[-1]
    if kind := kind_of_place(Path(*_parts(path))):
        return Recognised(path, kind, f"segments in {name}/")
    if name.startswith(DLEDGER_PREFIX) and (path / DLEDGER_DATA).is_dir():
        return Recognised(path, "dledger", f"its name {name}")
    if (path / ROCKSDB_CURRENT).is_file():
        return Recognised(path, "rocksdb", f"the file {ROCKSDB_CURRENT} in it")
    if name == COMPACTION and any((path / part).exists() for part in _OF_COMPACTION):
        return Recognised(path, "compaction-log", f"its name {name}")
    if name == INDEX and _parts(path)[-2].startswith(DLEDGER_PREFIX):
        return Recognised(path, "dledger-index", f"its place in {_parts(path)[-2]}/")
    if name in QUEUES:
        return Recognised(path, QUEUES[name], f"its name {name}")
    try:
        # a configured log does not make a store of the directory of another part
        Layout.open(path, None if name in _BY_DIRECTORY else config)
    except NotAStore:
        pass
    else:
        return Recognised(path, STORE, "it has the parts of a store")
    if name in _BY_DIRECTORY:
        return Recognised(path, _BY_DIRECTORY[name], f"its name {name}")
    if any((path / file).is_file() for file in _IN_CONFIG):
        return Recognised(path, "config", "configuration files in it")
    return _by_place(path, 2) or _by_first_file(path)


def _by_first_file(path: Path) -> Recognised | None:
    """Recognise a directory by the first file in it whose name is a number and whose content tells its kind."""
    with os_errors(path):
        names = sorted(child.name for child in path.iterdir())
    if not names:
        raise NotAStore("an empty directory", path=path)
    for name in names:
        if start_of(plain_name(name)) is not None and (path / name).is_file():
            first = _by_content(path / name)
            if first is not None:
                return Recognised(path, first.kind, f"the content of {name}")
    return None


def _by_place(path: Path, deepest: int) -> Recognised | None:
    """Recognise a path by the directories above it; a directory of queues is at most `deepest` levels up."""
    above = _parts(path)[:-1][::-1]
    if above[1:] and above[0] == INDEX and above[1].startswith(DLEDGER_PREFIX):
        return Recognised(path, "dledger-index", f"its place in {above[1]}/{above[0]}/")
    if above[:1] and above[0] in _BY_DIRECTORY and above[0] not in QUEUES:
        return Recognised(path, _BY_DIRECTORY[above[0]], f"its place in {above[0]}/")
    if above[1:] and above[0] == DLEDGER_DATA and above[1].startswith(DLEDGER_PREFIX):
        return Recognised(path, "dledger", f"its place in {above[1]}/{above[0]}/")
    for queues, kind in QUEUES.items():
        if queues in above[:deepest]:
            return Recognised(path, kind, f"its place in {queues}/")
    return None


def _file(path: Path) -> Recognised | None:
    """Recognise a file by its place if its name is a number, as in all directories of a store; by name; by content."""
    name = plain_name(path.name)
    if kind := kind_of_place(Path(*_parts(path))):
        return Recognised(path, kind, "a segment by its name and place")
    if start_of(name) is not None:
        found = _by_place(path, 4)
        if found is not None:
            return found
    whole = name
    for suffix in _SUFFIXES:
        whole = whole.removesuffix(suffix)
    if whole in dledger_state.FILES and _parts(path)[-2].startswith(DLEDGER_PREFIX):
        return Recognised(path, "dledger-state", f"its place in {_parts(path)[-2]}/")
    if whole in _CONFIG:
        return Recognised(path, _CONFIG[whole], f"its name {name}")
    plain = name.partition(".")[0]
    if plain in _BY_FILE and name != "abort.bak":
        return Recognised(path, _BY_FILE[plain], f"its name {name}")
    return _by_content(path)


def _by_content(path: Path) -> Recognised | None:
    """Recognise a file by its first bytes and its length."""
    descriptor = open_any(path)
    try:
        size = os.fstat(descriptor).st_size
        head = bytearray(min(_HEAD_BYTES, size))
        _, unread = byte_reader.fill_any(descriptor, memoryview(head), 0, str(path))
    finally:
        os.close(descriptor)
    for each in unread:
        byte_reader.note(each)
    kind = kind_of_text(bytes(head)) or next(
        (kind for kind, looks_like in _TESTS.items() if looks_like(bytes(head), size)), None
    )
    return Recognised(path, kind, "its content") if kind is not None else None
