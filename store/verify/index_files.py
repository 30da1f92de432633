"""Index files each for itself, and one after the other: names, lengths, headers (spec 3.1 … 3.4)."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Any

from ...formats.index_file import HEADER_BYTES, file_size
from ..counted import counted
from ..disk.file_queue import MappedFile, MappedFileQueue, is_zero
from ..errors import Missing, StoreError
from ..findings.catalogue import Severity
from ..index.compare import stored_as_told
from ..index.files import IndexFile
from .context import Scene
from .register import after, before

_NAME_DIGITS = 17
"""yyyyMMddHHmmssSSS."""


def index_files(scene: Scene) -> list[IndexFile]:
    """Index files with content, oldest first, read at the rate of the run."""
    return scene.kept("index files", lambda: _with_content(scene))


def _with_content(scene: Scene) -> list[IndexFile]:
    found = [file for file in scene.store.index.files if file.size]
    for file in found:
        file.rate_bytes = scene.store.rate_bytes
    return found


def add(scene: Scene, code: str, file: IndexFile, text: str, **more: Any) -> None:
    """A finding about an index file."""
    name = file.path.rpartition("/")[2]
    scene.findings.add(code, file.path, f"index file {name}: {text}", **more)


def header_only(scene: Scene, code: str, file: IndexFile, text: str, **more: Any) -> None:
    """A finding about its header."""
    add(scene, code, file, text, offset=0, length=HEADER_BYTES, **more)


@before("I-090", "I-091", "I-109")
def names_and_lengths(scene: Scene) -> None:
    """A name is a time, and a length that of so many slots and items; all files have the same."""
    if scene.scope.topic is not None:
        return
    index = scene.store.index
    for foreign in index.foreign:
        text = f"{os.path.basename(foreign.path)}: {foreign.reason}, a broker skips it"  # noqa: PTH119
        scene.findings.add("I-091", foreign.path, text)
    lengths = [file_size(file.slots, file.items) for file in index.files if file.size]
    usual = max(set(lengths), key=lengths.count, default=0)
    for number, file in enumerate(index.files):
        name = os.path.basename(file.path)  # noqa: PTH119
        if len(name) != _NAME_DIGITS:
            add(scene, "I-091", file, f"its name has not the {_NAME_DIGITS} digits of a time")
        if not file.size:
            newest = number == len(index.files) - 1 and scene.crashed
            text = "it is empty: the next start indexes records again that are indexed (B20)"
            add(scene, "I-109", file, text, severity=Severity.WARNING if newest else None)
        elif file.size != usual:
            text = f"{counted(file.size, 'byte')}, with its slots and items it should have {usual}"
            add(scene, "I-090", file, text)


@before("I-092", "I-103", "I-104")
def headers(scene: Scene) -> None:
    """Each header makes sense, only the newest file has room, and the files follow one another."""
    if scene.scope.topic is not None:
        return
    files = index_files(scene)
    for file in files:
        header = file.header
        if not 1 <= header.index_count <= file.items:
            fresh = file is files[-1] and _is_new(scene, file)
            items = counted(header.index_count, "item")
            text = f"its header counts {items}, it has room for {file.items}"
            text += ": new, nothing was put yet" if fresh else ""
            header_only(scene, "I-092", file, text, severity=Severity.INFO if fresh else None)
        for name in ("timestamp", "physical_offset"):
            begin, end = getattr(header, f"begin_{name}"), getattr(header, f"end_{name}")
            if begin > end:
                text = f"begin_{name} {begin} is greater than end_{name} {end}"
                back = name == "timestamp" and _clock_went_back(scene, file)
                text += ": the clock was set back between its messages" if back else ""
                severity = Severity.INFO if back else None
                header_only(scene, "I-092", file, text, severity=severity)
    for file in files[:-1]:
        if not file.full:
            count = file.header.index_count
            text = f"it has room ({count} of {file.items}), but a newer file follows"
            header_only(scene, "I-103", file, text)
    for older, newer in pairwise(files):
        if newer is files[-1] and _is_new(scene, newer):
            continue
        for name in ("timestamp", "physical_offset"):
            end = getattr(older.header, f"end_{name}")
            begin = getattr(newer.header, f"begin_{name}")
            if begin < end:
                text = f"begin_{name} {begin} is less than end_{name} {end} of the file before it"
                header_only(scene, "I-104", newer, text)


def _is_new(scene: Scene, file: IndexFile) -> bool:
    """Nothing was put yet. A writer puts the first item a moment after the file is there."""
    return file.header.index_count == 0 and (scene.live or not any(file.item(1)))


def _clock_went_back(scene: Scene, file: IndexFile) -> bool:
    """The first and the last message of the file were stored when its header says."""
    try:
        return stored_as_told(file.header, scene.store.log)
    except StoreError:
        return False  # it is told where the log is read


@before("I-107")
def unused_items(scene: Scene) -> None:
    """Behind the last item there are zeros."""
    if scene.scope.quick or scene.scope.topic is not None or scene.live:
        return
    for file in index_files(scene):
        try:
            with MappedFileQueue.of_file(file.path, 0) as files:
                at = _first_data(files, _unused_from(file))
        except Missing:
            continue  # expired while it was read
        if at is not None:
            text = "bytes behind its last item are not zero"
            add(scene, "I-107", file, text, offset=at)


def _unused_from(file: IndexFile) -> int:
    """Byte behind the last item."""
    return file_size(file.slots, max(1, file.last + 1))


_BLOCK_BYTES = 1 << 20


def _first_data(files: MappedFileQueue, start: int) -> int | None:
    """First byte from `start` on that is not zero."""
    file: MappedFile = files.files[0]
    at = files.next_data(file, start)
    while at is not None and at < file.size:
        data = files.read_file(file, at, _BLOCK_BYTES)
        rest = b"" if is_zero(data) else data.lstrip(b"\0")
        if rest or not data:
            return at + len(data) - len(rest) if rest else None
        at = files.next_data(file, at + len(data))
    return None


@after("I-105")
def index_end(scene: Scene) -> None:
    """The index does not reach beyond the log: it takes no message then until the log does (B30)."""
    files = index_files(scene)
    if scene.scope.topic is not None or scene.live or not scene.log.complete or not files:
        return
    for file in files:
        end = file.header.end_physical_offset
        if end >= scene.log.end:
            text = f"it ends with the record at {end}, the log ends at {scene.log.end}:"
            header_only(scene, "I-105", file, text + " what is stored before is not indexed (B30)")
