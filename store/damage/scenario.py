"""Scenarios: their type and register, the scene that they see of a store, and helpers that make edits."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ...formats.kinds import KINDS
from ..counted import counted
from ..disk.file_queue import MappedFile, MappedFileQueue
from ..disk.files import Edit
from ..errors import NotFound
from ..log.batch import good_records
from ..search.store import StoreReader
from ..settings.read import read_config_file

ISSUES = "https://github.com/apache/rocketmq/issues/"
_LARGEST_FILE = 1 << 30
"""Only the front of a larger log file is looked at."""


class RecordPlace(NamedTuple):
    """A record: its file, its first byte there, its size."""

    file: MappedFile
    offset: int
    size: int


@dataclass(frozen=True)
class Scene:
    """A store that is to be damaged, and the only source of chance. Nothing here writes."""

    store: StoreReader
    rng: random.Random

    @cached_property
    def log(self) -> list[MappedFile]:
        """The files of the commit log with good records. Raises NotFound for a log without records."""
        end = self.store.log_end.position
        found = [file for file in self.store.log_files.files if file.size and file.start < end]
        if not found:
            raise NotFound("the log has no record", path=self.store.layout.root)
        return found

    def records(self, file: MappedFile) -> list[RecordPlace]:
        """Return the good records of a log file, in order."""
        stop = min(self.store.log_end.position, file.start + min(file.size, _LARGEST_FILE))
        found = []
        for batch in good_records(self.store.log.scan(file.start, stop, crc=False, reuse=True)):
            sizes = batch.columns.ints("total_size").tolist()
            begins = (batch.position - file.start).tolist()
            found += [RecordPlace(file, at, size) for at, size in zip(begins, sizes, strict=True)]
        return found

    def record(self) -> RecordPlace:
        """Return any good record; the last one of its file only if there is no other."""
        for file in self.rng.sample(self.log, len(self.log)):
            if found := self.records(file):
                return self.rng.choice(found[:-1] or found)
        raise NotFound("the log has no record", path=self.store.layout.root)

    def last_record(self) -> RecordPlace:
        """Return the last good record of the log."""
        for file in reversed(self.log):
            if found := self.records(file):
                return found[-1]
        raise NotFound("the log has no record", path=self.store.layout.root)

    def bytes_of(self, place: RecordPlace) -> bytes:
        """Return the bytes of a record."""
        return self.store.log_files.read_file(place.file, place.offset, place.size)

    def file_of(self, pattern: str, what: str) -> Path:
        """Return any file with content below the root. Raises NotFound without one."""
        found = self.files_of(pattern)
        if not found:
            raise NotFound(f"the store has no {what}", path=self.store.layout.root)
        return self.rng.choice(found)

    def files_of(self, pattern: str) -> list[Path]:
        """Return the files with content below the root, by name."""
        found = sorted(self.store.layout.root.glob(pattern))
        return [path for path in found if path.is_file() and path.stat().st_size]

    def queue(self, units: int = 1) -> tuple[MappedFileQueue, int, int]:
        """Return any consume queue in files with at least `units` units: its files, first and end offset."""
        directories = list(self.store.queues) if not self.store.layout.rocksdb_queues else []
        for directory in self.rng.sample(directories, len(directories)):
            with self.store.queues.open(directory.topic, directory.queue_id) as queue:
                found = queue.summary()
                if found.max_offset - found.min_offset >= units:
                    return MappedFileQueue.open(directory.path), found.min_offset, found.max_offset
        text = f"the store has no consume queue of {counted(units, 'unit')} in files"
        raise NotFound(text, path=self.store.layout.root)

    def table_of(self, kind: str, member: str) -> tuple[Path, dict[str, Any], dict[str, Any]]:
        """Return a JSON file of the configuration: path, its content, one member of it. Raises NotFound."""
        path = self.store.layout.config / str(KINDS[kind].file)
        found = read_config_file(path, kind) if path.is_file() else None
        table = found.value.get(member) if found is not None and not found.problem else None
        if found is None or not isinstance(table, dict) or not table:
            raise NotFound(f"the store has no {member} in its configuration", path=path)
        return path, found.value, table


Plan = Callable[[Scene], Iterator[Edit]]


class Scenario(NamedTuple):
    """name: as on the command line. summary: one line. plan: gives the edits for a store. links: incidents."""

    name: str
    summary: str
    plan: Plan
    links: tuple[str, ...]


REGISTER: dict[str, Scenario] = {}
"""Scenarios by name; `scenarios` returns all of them."""


def scenario(name: str, *issues: int) -> Callable[[Plan], Plan]:
    """Decorator: register a plan; its docstring is the summary. issues: numbers in apache/rocketmq."""

    def register(plan: Plan) -> Plan:
        summary = (plan.__doc__ or "").strip().splitlines()[0]
        links = tuple(f"{ISSUES}{number}" for number in issues)
        REGISTER[name] = Scenario(name, summary, plan, links)
        return plan

    return register


def write(path: str | os.PathLike[str], offset: int, data: bytes, reason: str) -> Edit:
    """Return an edit that overwrites bytes."""
    return Edit("write", os.fspath(path), reason, (), offset, len(data), data)


def zeros(path: str | os.PathLike[str], offset: int, size: int, reason: str) -> Edit:
    """Return an edit that zeroes bytes."""
    return Edit("write", os.fspath(path), reason, (), offset, size)


def remove(path: str | os.PathLike[str], reason: str) -> Edit:
    """Return an edit that removes a file."""
    return Edit("remove", os.fspath(path), reason, (), 0, Path(path).stat().st_size)


def cut(path: str | os.PathLike[str], size: int, reason: str) -> Edit:
    """Return an edit that makes a file shorter."""
    return Edit("truncate", os.fspath(path), reason, (), 0, size)


def create(path: str | os.PathLike[str], data: bytes, reason: str, size: int | None = None) -> Edit:
    """Return an edit that makes a file; size: of the file, if larger than `data`."""
    pieces = ((0, data),) if data else ()
    length = len(data) if size is None else size
    return Edit("create", os.fspath(path), reason, (), 0, length, None, pieces)


def replace(path: Path, data: bytes, reason: str) -> Iterator[Edit]:
    """Yield edits that give a file other content."""
    yield cut(path, 0, reason)
    yield write(path, 0, data, reason)


def killed(scene: Scene) -> Iterator[Edit]:
    """Yield the edit that makes the store look like that of a killed broker: `abort` exists."""
    if not scene.store.layout.abort.exists():
        yield create(scene.store.layout.abort, b"", "the broker did not stop in order")
