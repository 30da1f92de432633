"""Salvage from beginning to end: carve, arrange, write a new store and its manifest."""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from ..counted import counted
from ..damage.drill import check_empty
from ..disk.broker_conf import BrokerConfig
from ..disk.file_queue import file_name
from ..disk.files import Files, new_directory
from ..disk.layout import COMMIT_LOG
from ..errors import NotFound, Refused
from .arrange import Arranged, Layer, arrange, split_far
from .carve import Found, carve, join
from .manifest import Manifest, Selection, Written, write_compact
from .original import Restored, check_layer, close_holes, complete, file_bytes_of, write_log
from .runs import Grade, Run, mark_odd
from .source import Source, Sources

CONFLICTS = "conflicts"
_CHUNK_BYTES = 4 << 20


class LayoutKind(StrEnum):
    """What the new store looks like."""

    ORIGINAL = "original"
    COMPACT = "compact"


@dataclass(frozen=True)
class Wanted:
    """What is asked for. grade: the worst that the new store takes. version: of the brokers that
    will run on it, None for a guess. rate_bytes: most that is read a second."""

    layout: LayoutKind = LayoutKind.ORIGINAL
    grade: Grade = Grade.BODY
    selection: Selection = field(default_factory=Selection)
    version: str | None = None
    config: BrokerConfig = field(default_factory=BrokerConfig)
    rate_bytes: int | None = None


Told = Callable[[str, int], None]
"""Hears of a step's name and of so many more bytes that are done."""


@dataclass
class Salvaged:
    """What was found and what was made of it. Counts are of records.

    aside: records that lie in `conflicts`. unreadable: bytes that a device did not give.
    """

    sources: Sources
    found: Found
    arranged: Arranged
    aside: list[Layer]
    file_bytes: int
    unreadable: int
    restored: Restored | None = None
    written: Written | None = None

    @property
    def log(self) -> Layer:
        """What the new store holds."""
        return self.arranged.layers[0]

    @property
    def grades(self) -> dict[str, int]:
        """Records found by grade."""
        counts: Counter[Grade] = Counter()
        for run in self.found.runs:
            counts[run.grade] += run.records
        return {grade.label: counts[grade] for grade in Grade}

    @property
    def complete(self) -> bool:
        """Every record found is whole and in its place."""
        left = self.restored is not None and (self.restored.left or self.restored.unplaced)
        refused = self.written is not None and self.written.refused
        damaged = self.grades["body"] + self.grades["structure"] + self.found.split
        aside = any(layer.runs for layer in self.aside)
        return not (left or refused or damaged or aside or self.unreadable)


def look(images: Iterable[Path], paths: list[Path], wanted: Wanted, told: Told) -> Salvaged:
    """Find all records and say what would become of them. Nothing is written.

    Raises NotFound where there is no record, Missing, Unreadable.
    """
    sources = Sources(paths)
    found, unreadable = Found(), 0
    for number in range(len(sources)):
        source = sources[number]
        assert isinstance(source, Source)
        carve(source, number, found, lambda size: told("searching", size), wanted.rate_bytes)
        unreadable += sum(end - begin for begin, end in source.unreadable)
    if not found.runs:
        named = ", ".join(map(str, images))
        raise NotFound(f"no record in {counted(found.bytes, 'byte')}", path=named)
    join(found, sources)
    mark_odd(found.runs)
    arranged = arrange(found.runs, sources, wanted.grade)
    file_bytes = file_bytes_of(arranged.layers[0].runs, sources, found.blanks, wanted.config)
    log, far = split_far(arranged.layers[0], file_bytes)
    arranged.layers[0] = log
    aside = [*arranged.layers[1:], *far]
    return Salvaged(sources, found, arranged, aside, file_bytes, unreadable)


def check_target(images: Iterable[Path], target: Path) -> None:
    """Raises Refused for a target in what is salvaged, InvalidInput for one that holds something."""
    check_empty(target)
    above = next(path for path in (target, *target.resolve().parents) if path.exists())
    for image in images:
        if not image.exists():
            continue
        status = image.stat()
        if stat.S_ISBLK(status.st_mode) and status.st_rdev == above.stat().st_dev:
            hint = "every write there may destroy what is looked for: name another disk"
            raise Refused("the new store would lie on the device itself", path=target, hint=hint)
        if image.is_dir() and target.resolve().is_relative_to(image.resolve()):
            raise Refused("the new store would lie in what is salvaged", path=target)


def write(salvaged: Salvaged, target: Path, wanted: Wanted, files: Files, told: Told) -> None:
    """Make the new store at `target`, `conflicts` beside its parts, and the manifest.

    Raises Refused, InvalidInput, NoSpace: nothing is there then.
    """
    if wanted.layout is LayoutKind.ORIGINAL and salvaged.log.runs:
        check_layer(salvaged.log, salvaged.file_bytes)
    with new_directory(target, files):
        _write(salvaged, target, wanted, files, told)


def _write(salvaged: Salvaged, target: Path, wanted: Wanted, files: Files, told: Told) -> None:
    log, sources = salvaged.log, salvaged.sources
    selection, version = wanted.selection, wanted.version

    def writing(size: int) -> None:
        told("writing", size)

    if wanted.layout is LayoutKind.COMPACT:
        with Manifest(target, sources, files) as manifest:
            salvaged.written = write_compact(
                log, sources, target, wanted.config, version, selection, manifest, files, writing
            )
            _beside(salvaged, target, manifest, files)
        return
    if log.runs:
        write_log(log, sources, target / COMMIT_LOG, salvaged.file_bytes, files, writing)
        restored, offsets = close_holes(
            log, salvaged.found.blanks, target, salvaged.file_bytes, files
        )
        salvaged.restored = complete(target, restored, offsets, wanted.config, version, files)
    with Manifest(target, sources, files) as manifest:
        manifest.runs(log.runs, "kept")
        _beside(salvaged, target, manifest, files)


def _beside(salvaged: Salvaged, target: Path, manifest: Manifest, files: Files) -> None:
    """Duplicates and fragments are told; what has no place in the log lies in files of its own."""
    for number, layer in enumerate((each for each in salvaged.aside if each.runs), 1):
        folder = f"{CONFLICTS}/{number}"
        files.make_directory(target / folder)
        for run in layer.runs:
            _write_run(run, salvaged.sources, target / folder / file_name(run.position), files)
        files.sync_directory(target / folder)
        manifest.runs(layer.runs, "aside", folder)
    manifest.runs(salvaged.arranged.duplicates, "duplicate")
    for fragment in salvaged.found.fragments:
        manifest.fragment(fragment)


def _write_run(run: Run, sources: Sources, path: Path, files: Files) -> None:
    with files.create(path) as file:
        for at in range(0, run.length, _CHUNK_BYTES):
            data = sources[run.source].bytes_at(run.at + at, min(_CHUNK_BYTES, run.length - at))
            file.pwrite(data, at)
        file.sync()
