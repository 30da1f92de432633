"""Carry out a scenario: plan its edits on the store, copy the store, edit the copy.

In the copy holes stay holes, times stay, and links become what they point to.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ..disk.byte_reader import data_ranges, open_regular, read
from ..disk.file_queue import is_directory, is_file
from ..disk.files import Edit, Files, OpenFile, confine, write_new
from ..disk.layout import JOURNAL
from ..disk.lock import check_empty, new_directory
from ..errors import InvalidInput, Refused, Unsupported, from_os_error, os_errors
from ..search.store import StoreReader
from .scenario import Scenario, Scene
from .scenarios import scenarios

_CHUNK_BYTES = 4 << 20


def check_target(source: Path, target: Path) -> None:
    """Raise Refused for a target inside or around the source, InvalidInput for a target that holds something."""
    inner, outer = target.resolve(), source.resolve()
    if inner == outer or inner.is_relative_to(outer) or outer.is_relative_to(inner):
        raise Refused("the copy would lie in the store or around it", path=target)
    check_empty(target)


def copy_store(source: Path, target: Path, files: Files, told: Callable[[int], None]) -> list[str]:
    """Copy all files and directories except sessions of mqstore. told: called with the bytes of each file.

    Returns entries that are neither file nor directory, which are left out, too. Raises Unreadable, NoSpace: part of
    the copy is there then.
    """
    files.make_directory(target)
    left_out: list[str] = []
    for path, relative, directory in _entries(source, left_out):
        if directory:
            files.make_directory(target / relative)
        else:
            copy_file(path, target / relative, files, told)
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


def copy_file(source: Path, target: Path, files: Files, told: Callable[[int], None]) -> None:
    """Copy a file with its holes and times. Raises Unreadable, NoSpace."""
    descriptor = open_regular(source)
    try:
        status = os.fstat(descriptor)
        with files.create(target, like=source) as file:
            file.truncate(status.st_size)
            for begin, end in data_ranges(descriptor, 0, status.st_size):
                _copy_range(descriptor, str(source), file, begin, end)
            file.sync()
        files.set_times(target, status.st_atime_ns, status.st_mtime_ns)
        told(status.st_size)
    except OSError as error:
        raise from_os_error(error, source) from error
    finally:
        os.close(descriptor)


def _copy_range(descriptor: int, source: str, file: OpenFile, begin: int, end: int) -> None:
    for at in range(begin, end, _CHUNK_BYTES):
        file.pwrite(read(descriptor, min(_CHUNK_BYTES, end - at), at, source, end=end), at)


class Drill(NamedTuple):
    """What was done. edits: with paths in the copy. left_out: entries that were not copied."""

    scenario: Scenario
    seed: int
    edits: list[Edit]
    left_out: list[str]


def scenario_of(name: str) -> Scenario:
    """Return a scenario by its name. Raises InvalidInput."""
    found = scenarios().get(name)
    if found is None:
        raise InvalidInput(f"no such scenario: {name!r}", hint="mqstore damage --list names them")
    return found


def plan(store: StoreReader, scenario: Scenario, seed: int) -> list[Edit]:
    """Return the edits of a scenario for this store, the same for the same seed. Nothing is written.

    Raises NotFound if the store lacks what the scenario damages.
    """
    return list(scenario.plan(Scene(store, random.Random(f"{seed} {scenario.name}"))))


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
    with new_directory(target, files):
        left_out = copy_store(root, target, files, told)
        for edit in edits:
            _apply(edit, files)
    return Drill(scenario, seed, edits, left_out)


def _inside(path: Path, root: Path) -> bool:
    return Path(os.path.abspath(path)).is_relative_to(os.path.abspath(root))  # noqa: PTH100


def _apply(edit: Edit, files: Files) -> None:
    """Make one edit; an existing file keeps its times."""
    path = Path(edit.path)
    if edit.kind == "remove":
        files.unlink(path)
        return
    if edit.kind == "create":
        write_new(files, path, edit.pieces[0][1] if edit.pieces else b"")
        if edit.pieces and len(edit.pieces[0][1]) < edit.length:
            with files.open(path) as file:
                file.truncate(edit.length)
        return
    status = path.stat()
    with files.open(path) as file:
        if edit.kind == "truncate":
            file.truncate(edit.length)
        else:
            file.pwrite(bytes(edit.length) if edit.data is None else edit.data, edit.offset)
        file.sync()
    files.set_times(path, status.st_atime_ns, status.st_mtime_ns)
