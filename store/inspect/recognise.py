"""What a path is: a store, or one kind of its files, told from place, name and content.

A copy of a file somewhere else has lost its place, often its name; then its first bytes decide.
Nothing here believes a length: only a few bytes of a file are looked at.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from ...formats import dledger_state
from ...formats.kinds import KINDS
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
    TIMER_LOG,
    Layout,
)
from ..errors import InvalidInput, Missing, NotAStore, Unsupported, from_os_error
from ..tiered.segments import SEGMENTS, kind_of_place, queue_of_place
from .recognise_bytes import kind_of_bytes
from .recognise_text import kind_of_text

STORE = "store"
"""The kind of a store's root, beside those of `formats.kinds.KINDS`."""

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
}
_BY_FILE = {name: name for name in ("abort", "checkpoint", "lock")} | {
    "timerwheel": "timer-wheel",
    "timercheck": "timer-check",
}
_CONFIG = {kind.file: name for name, kind in KINDS.items() if kind.file}
_IN_CONFIG = [kind.file for kind in KINDS.values() if kind.file and kind.place == "config"]
_SUFFIXES = (".bak", ".tmp", "-temp")
_NOT_YET = (COMPACTION, "config")
_OF_COMPACTION = (COMPACTION_LOG, "position-checkpoint")
DLEDGER_DATA = "data"
_HEAD_BYTES = 1 << 16


@dataclass(frozen=True)
class Recognised:
    """A path, its kind (`store` or a name in KINDS) and what told it."""

    path: Path
    kind: str
    reason: str

    @property
    def queue(self) -> tuple[str, int] | None:
        """Topic and queue id that the place of a consume queue names; None where it names none."""
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


def recognise(
    path: str | os.PathLike[str], kind: str | None = None, config: BrokerConfig | None = None
) -> Recognised:
    """What `path` is; `kind` overrides what it looks like.

    Raises Missing, Unreadable, NotAStore (an empty directory), Unsupported (a kind that is not
    handled, or no kind at all), InvalidInput (no such kind).
    """
    path = Path(path)
    is_directory = _is_directory(path)
    _refuse_strangers(path)
    if kind is not None:
        if kind not in KINDS and kind != STORE:
            raise InvalidInput(f"no such kind: {kind}", hint=f"kinds are {', '.join(KINDS)}")
        return Recognised(path, kind, "as asked for")
    found = _directory(path, config) if is_directory else _file(path)
    if found is None:
        place = next((part for part in _parts(path)[::-1] if part in _NOT_YET), None)
        raise Unsupported(
            f"files of {place}/ are not handled" if place else "cannot tell what this is",
            path=path,
            hint="name its kind with --as; mqstore dump --help lists the kinds",
        )
    return found


def _is_directory(path: Path) -> bool:
    """Whether `path` is a directory, False for a file. Raises Missing, Unreadable, Unsupported."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise from_os_error(error, path) from error
    except ValueError as error:  # a NUL in the name
        raise Missing("no such file or directory", path=path) from error
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise Unsupported("neither a file nor a directory", path=path)
    return stat.S_ISDIR(mode)


def _refuse_strangers(path: Path) -> None:
    """Files that have the place of a kind, but are something else. Raises Unsupported."""
    if not path.is_dir() and (path.parent / ROCKSDB_CURRENT).is_file():
        hint = f"name its directory, {path.parent}"
        raise Unsupported("one file of a RocksDB", path=path, hint=hint)


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
        # the log of a configuration does not make a store of the directory of another part
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
    """A directory, by the first file in it whose name is a number."""
    try:
        names = sorted(child.name for child in path.iterdir())
    except OSError as error:
        raise from_os_error(error, path) from error
    if not names:
        raise NotAStore("an empty directory", path=path)
    for name in names:
        if start_of(plain_name(name)) is not None and (path / name).is_file():
            first = _by_content(path / name)
            if first is not None:
                return Recognised(path, first.kind, f"the content of {name}")
    return None


def _by_place(path: Path, deepest: int) -> Recognised | None:
    """By the directory that holds it, at most `deepest` levels below one of a store."""
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
    """By place if its name is a number, as in all directories of a store; by name; by content."""
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
    """By the first bytes of a file, and its length."""
    descriptor = open_any(path)
    try:
        size = os.fstat(descriptor).st_size
        head = bytearray(min(_HEAD_BYTES, size))
        _, unread = byte_reader.fill_any(descriptor, memoryview(head), 0, str(path))
    finally:
        os.close(descriptor)
    for each in unread:
        byte_reader.note(each)
    kind = kind_of_text(bytes(head)) or kind_of_bytes(bytes(head), size)
    return Recognised(path, kind, "its content") if kind is not None else None
