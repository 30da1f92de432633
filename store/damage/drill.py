"""Carrying a scenario out: the edits are planned on the store, the copy gets them."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ..disk.confine import confine
from ..disk.edits import Edit
from ..disk.files import Files, write_new
from ..disk.new_directory import new_directory
from ..errors import InvalidInput, Unsupported
from ..search.store import Store
from .copy import check_target, copy_store
from .scenario import Scenario, Scene, scenarios


@dataclass(frozen=True)
class Drill:
    """What was done. edits: with paths in the copy. left_out: entries that were not copied."""

    scenario: Scenario
    seed: int
    edits: list[Edit]
    left_out: list[str]


def scenario_of(name: str) -> Scenario:
    """A scenario by its name. Raises InvalidInput."""
    found = scenarios().get(name)
    if found is None:
        raise InvalidInput(f"no such scenario: {name!r}", hint="mqstore damage --list names them")
    return found


def plan(store: Store, scenario: Scenario, seed: int) -> list[Edit]:
    """The edits of a scenario for this store: the same for the same seed. Nothing is written.

    Raises NotFound where the store has not what the scenario damages.
    """
    return list(scenario.plan(Scene(store, random.Random(f"{seed} {scenario.name}"))))


def drill(
    store: Store,
    target: Path,
    scenario: Scenario,
    seed: int,
    files: Files,
    told: Callable[[int], None] = lambda _: None,
) -> Drill:
    """Copy a store to `target`, a new or empty directory, and damage the copy.

    told: hears of so many more bytes copied. Raises NotFound before anything is written, Refused
    and InvalidInput for a target that will not do, Unsupported for a store that lies in several places.
    """
    root = store.layout.root
    check_target(root, target)
    outside = [d for d in store.layout.commit_log_directories if not _inside(d, root)]
    if outside:
        raise Unsupported("a log directory outside the store is not copied", path=outside[0])
    confine(Files(), store.layout, follow_links=True)
    edits = [
        replace(edit, path=os.fspath(target / os.path.relpath(edit.path, root)))
        for edit in plan(store, scenario, seed)
    ]
    with new_directory(target, files):
        left_out = copy_store(root, target, files, told)
        for edit in edits:
            _apply(edit, files)
    return Drill(scenario, seed, edits, left_out)


def _inside(path: Path, root: Path) -> bool:
    return Path(os.path.abspath(path)).is_relative_to(os.path.abspath(root))  # noqa: PTH100


def _apply(edit: Edit, files: Files) -> None:
    """Do one edit; a file that is there keeps its times."""
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
