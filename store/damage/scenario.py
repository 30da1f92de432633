"""Scenarios: their type and register, the scene that they see of a store, helpers that make edits, and `drill`, which
carries out a scenario on a copy.

In the copy holes stay holes, times stay, and links become what they point to.
"""

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
from ..disk.byte_reader import data_ranges, open_regular, read
from ..disk.file_queue import MappedFile, MappedFileQueue, is_directory, is_file
from ..disk.files import Edit, Files, confine
from ..disk.layout import JOURNAL
from ..disk.lock import check_empty, new_directory
from ..errors import Denied, NotFound, Refused, Unreadable, Unsupported, from_os_error, os_errors
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
        return self.store.log_files.read_file(place.file, place.offset, place.size)

    def file_of(self, pattern: str, what: str, fits: Callable[[Path], bool] = lambda _: True) -> Path:
        return self.rng.choice(self.files_of(pattern, what, fits))

    def files_of(self, pattern: str, what: str, fits: Callable[[Path], bool] = lambda _: True) -> list[Path]:
        """Return the files with content below the root that fit, by name. Raises NotFound without any."""
        paths = sorted(self.store.layout.root.glob(pattern))
        found = [path for path in paths if path.is_file() and path.stat().st_size and fits(path)]
        if not found:
            raise NotFound(f"the store has no {what}", path=self.store.layout.root)
        return found

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
    """name: as on the command line. summary: one line. plan: gives the edits for a store. links: incidents. kills: as
    of `scenario`.
    """

    name: str
    summary: str
    plan: Plan
    links: tuple[str, ...]
    kills: bool


REGISTER: dict[str, Scenario] = {}
"""Scenarios by name; `scenarios` returns all of them."""


def scenario(name: str, *issues: int, kills: bool = False) -> Callable[[Plan], Plan]:
    """Decorator: register a plan; its docstring is the summary. issues: numbers in apache/rocketmq. kills: the store
    also looks like that of a killed broker: `abort` exists.
    """

    def register(plan: Plan) -> Plan:
        summary = (plan.__doc__ or "").strip().splitlines()[0]
        links = tuple(f"{ISSUES}{number}" for number in issues)
        REGISTER[name] = Scenario(name, summary, plan, links, kills)
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


def replace(path: Path, data: bytes, reason: str) -> Iterator[Edit]:
    """Yield edits that give a file other content."""
    yield cut(path, 0, reason)
    yield write(path, 0, data, reason)


_CHUNK_BYTES = 4 << 20


def check_target(source: Path, target: Path) -> None:
    """Raise Refused for a target inside or around the source, InvalidInput for a target that holds something."""
    inner, outer = target.resolve(), source.resolve()
    if inner == outer or inner.is_relative_to(outer) or outer.is_relative_to(inner):
        raise Refused("the copy would lie in the store or around it", path=target)
    check_empty(target)


def copy_store(
    source: Path, target: Path, files: Files, told: Callable[[int], None], *, readable: bool = False
) -> list[str]:
    """Copy all files and directories except sessions of mqstore. told: called with the bytes of each file.

    Returns entries that are neither file nor directory, which are left out, too, and with `readable` files that cannot
    be read. Raises Unreadable, NoSpace: part of the copy is there then.
    """
    files.make_directory(target)
    left_out: list[str] = []
    for path, relative, directory in _entries(source, left_out):
        if directory:
            files.make_directory(target / relative)
        elif not copy_if(readable, path, target / relative, files, told):
            left_out.append(str(relative))
    files.sync_directory(target)
    return left_out


def _entries(source: Path, left_out: list[str]) -> Iterator[tuple[Path, Path, bool]]:
    """Yield all entries below `source`, directories before their content; do not follow a loop of links."""
    pending = [(source, Path(), {os.path.realpath(source)})]
    while pending:
        folder, relative, above = pending.pop()
        with os_errors(folder), os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            path, place = Path(entry.path), relative / entry.name
            real = os.path.realpath(path)
            if place.parts[0] == JOURNAL:
                continue
            if is_directory(entry) and real not in above:
                yield path, place, True
                pending.append((path, place, above | {real}))
            elif is_file(entry):
                yield path, place, False
            else:
                left_out.append(str(place))


def copy_if(readable: bool, source: Path, target: Path, files: Files, told: Callable[[int], None]) -> bool:
    """Copy a file. readable: return False if it cannot be read, and leave nothing of it. Raises as `copy_file`."""
    try:
        copy_file(source, target, files, told)
    except (Denied, Unreadable) as error:
        if not readable or error.path != os.fspath(source):
            raise
        if target.exists():
            files.unlink(target)
        return False
    return True


def copy_file(source: Path, target: Path, files: Files, told: Callable[[int], None]) -> None:
    """Copy a file with its holes and times. Raises Unreadable, NoSpace."""
    descriptor = open_regular(source)
    try:
        status = os.fstat(descriptor)
        with files.create(target, like=source) as file:
            file.truncate(status.st_size)
            for begin, end in data_ranges(descriptor, 0, status.st_size):
                for at in range(begin, end, _CHUNK_BYTES):
                    file.pwrite(read(descriptor, min(_CHUNK_BYTES, end - at), at, str(source), end=end), at)
            file.sync()
        files.set_times(target, status.st_atime_ns, status.st_mtime_ns)
        told(status.st_size)
    except OSError as error:
        raise from_os_error(error, source) from error
    finally:
        os.close(descriptor)


class Drill(NamedTuple):
    """What was done. edits: with paths in the copy. left_out: entries that were not copied."""

    scenario: Scenario
    seed: int
    edits: list[Edit]
    left_out: list[str]


def plan(store: StoreReader, scenario: Scenario, seed: int) -> list[Edit]:
    """Return the edits of a scenario for this store, the same for the same seed. Nothing is written.

    Raises NotFound if the store lacks what the scenario damages.
    """
    edits = list(scenario.plan(Scene(store, random.Random(f"{seed} {scenario.name}"))))
    if scenario.kills and not store.layout.abort.exists():
        edits.append(Edit.create(store.layout.abort, b"", "the broker did not stop in order"))
    return edits


def drill(
    store: StoreReader,
    target: Path,
    scenario: Scenario,
    seed: int,
    files: Files,
    told: Callable[[int], None] = lambda _: None,
) -> Drill:
    """Copy a store to `target`, a new or empty directory, and damage the copy.

    told: called with the bytes of each copied file. Raises NotFound before anything is written, Refused and
    InvalidInput for an unsuitable target, Unsupported for a store that lies in several places.
    """
    root = store.layout.root
    check_target(root, target)
    outside = [d for d in store.layout.commit_log_directories if not _inside(d, root)]
    if outside:
        raise Unsupported("log directories outside the store are not copied", path=outside[0])
    confine(Files(), store.layout, follow_links=True)
    edits = [
        edit._replace(path=os.fspath(target / os.path.relpath(edit.path, root))) for edit in plan(store, scenario, seed)
    ]
    with new_directory(target, files, like=root):
        left_out = copy_store(root, target, files, told)
        for edit in edits:
            apply_edit(edit, files)
    return Drill(scenario, seed, edits, left_out)


def _inside(path: Path, root: Path) -> bool:
    return Path(os.path.abspath(path)).is_relative_to(os.path.abspath(root))  # noqa: PTH100


def apply_edit(edit: Edit, files: Files) -> None:
    """Make one edit; an existing file keeps its times."""
    path = Path(edit.path)
    if edit.kind == "remove":
        files.unlink(path)
        return
    if edit.kind == "create":
        with files.create(path) as file:
            file.truncate(edit.length)
            for at, data in edit.pieces:
                file.pwrite(data, at)
            file.sync()
        files.sync_directory(path.parent)
        return
    status = path.stat()
    with files.open(path) as file:
        if edit.kind == "truncate":
            file.truncate(edit.length)
        else:
            file.pwrite(bytes(edit.length) if edit.data is None else edit.data, edit.offset)
        file.sync()
    files.set_times(path, status.st_atime_ns, status.st_mtime_ns)
