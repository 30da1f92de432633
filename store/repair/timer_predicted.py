"""The timer's files as they will be once `recover` has made them such that a broker loads them.

What is wrong inside of them is planned on that state: one run of a repair is enough. Spec 04, 4.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...formats.derive import dtype_of
from ...formats.timer_wheel import SLOT
from ..broker.delay_level import TIMER_TOPIC
from ..disk.byte_reader import Unread
from ..disk.edits import Content, Edit
from ..disk.file_bytes import Bytes, FileBytes
from ..disk.file_queue import MappedFile, MappedFileQueue, start_of
from ..disk.layout import Layout
from ..disk.snapshot import list_entries
from ..queues.units import UNIT_DTYPE, is_valid
from ..verify.context import Scene
from ..verify.timer_entries import TimerFiles


class PredictedTimer(TimerFiles):
    """The timer's files behind some edits. Memory: that of the files which these change."""

    def __init__(self, scene: Scene, edits: Iterable[Edit]) -> None:
        super().__init__(scene)
        self._changed: dict[str, Bytes | None] = {}
        for edit in edits:
            self._changed[edit.path] = self._behind(edit)

    def _behind(self, edit: Edit) -> Bytes | None:
        """The bytes of a file behind an edit, None where it is gone."""
        if edit.kind not in ("create", "truncate", "write"):
            return None
        old = np.zeros(0, np.uint8) if edit.kind == "create" else self.content(edit.path)
        size = max(len(old), edit.offset + edit.length) if edit.kind == "write" else edit.length
        new = np.zeros(size, np.uint8)
        kept = min(size, len(old))
        new[:kept] = old[:kept]
        if edit.kind == "write":
            data = bytes(edit.length) if edit.data is None else edit.data
            new[edit.offset : edit.offset + edit.length] = np.frombuffer(data, np.uint8)
        for offset, piece in edit.pieces:
            new[offset : offset + len(piece)] = np.frombuffer(piece, np.uint8)
        return new

    def content(self, path: str) -> Bytes | FileBytes:
        """The bytes of one of the files, none of one that is gone. Raises Unreadable."""
        if path not in self._changed:
            return FileBytes(path)
        found = self._changed[path]
        return np.zeros(0, np.uint8) if found is None else found

    @property
    def wheel_bytes(self) -> int:
        """Length of the wheel, 0 without one."""
        path = str(self.wheel_path)
        if path not in self._changed and not self.wheel_path.exists():
            return 0
        return len(self.content(path))

    def read_wheel(self) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.void]]]:
        """(numbers, slots) of the wheel."""
        content = self.content(str(self.wheel_path))
        slots = (content.sparse() if isinstance(content, FileBytes) else content).view(
            dtype_of(SLOT)
        )
        yield np.arange(len(slots), dtype=np.int64), slots

    def open_log(self) -> MappedFileQueue:
        """The files of the timer log. Raises Unreadable."""
        if not self._changed:
            return super().open_log()
        folder = str(self._layout.timer_log)
        files = [
            MappedFile(entry.path, start, len(self.content(entry.path)), False)
            for entry in list_entries(folder)
            if not entry.directory and (start := start_of(entry.name)) is not None
        ]
        there = sorted((f for f in files if f.size), key=lambda file: file.start)
        return _Files(self, folder, there)


class _Files(MappedFileQueue):
    """Files whose content is partly in memory."""

    def __init__(self, timer: PredictedTimer, folder: str, files: list[MappedFile]) -> None:
        super().__init__((folder,), files, max((file.size for file in files), default=0), [])
        self._timer = timer

    def read_file(self, file: MappedFile, offset: int, size: int) -> bytes:
        """Up to `size` bytes of one file from its byte `offset` on."""
        return self._timer.content(file.path)[offset : offset + size].tobytes()

    def fill(self, file: MappedFile, offset: int, buffer: memoryview) -> tuple[int, list[Unread]]:
        """The same into `buffer`."""
        data = self.read_file(file, offset, len(buffer))
        buffer[: len(data)] = data
        return len(data), []

    def next_data(self, file: MappedFile, offset: int) -> int | None:
        """There are no holes."""
        return offset if offset < file.size else None

    def data_end(self, file: MappedFile, offset: int) -> int:
        """There are no holes."""
        return file.size


class PlannedQueue(NamedTuple):
    """What becomes of the timer topic's queue. places: where the messages of new units lie.
    complete: nothing is left to be done to it.
    """

    places: npt.NDArray[np.int64]
    complete: bool


def planned_queue(layout: Layout, chosen: Iterable[Edit], whole: Iterable[Edit]) -> PlannedQueue:
    """chosen: the edits that are made; whole: all that the store needs."""
    places = _places(layout, chosen)
    return PlannedQueue(places, len(places) >= len(_places(layout, whole)))


def _places(layout: Layout, edits: Iterable[Edit]) -> npt.NDArray[np.int64]:
    """Where the messages lie whose units these edits write into the timer topic's queue."""
    folder = layout.consume_queue / TIMER_TOPIC / "0"
    found = [np.zeros(0, np.int64)]
    for edit in edits:
        if Path(edit.path).parent != folder:
            continue
        for data in (edit.data or b"", *(piece for _, piece in edit.pieces)):
            units = np.frombuffer(data, UNIT_DTYPE, len(data) // UNIT_DTYPE.itemsize)
            found.append(units["physical_offset"][is_valid(units)].astype(np.int64))
    return np.concatenate(found)


def joined(before: list[Edit], more: Iterable[Edit]) -> list[Edit]:
    """The edits, then further ones: what is written into a file that is made here is made with it."""
    found = list(before)
    made = {edit.path: number for number, edit in enumerate(found) if edit.kind == "create"}
    pieces: dict[int, list[tuple[int, Content]]] = {}
    for edit in more:
        if edit.kind == "write" and edit.path in made:
            piece = edit.offset, bytes(edit.length) if edit.data is None else edit.data
            pieces.setdefault(made[edit.path], []).append(piece)
            continue
        if edit.kind == "create":
            made[edit.path] = len(found)
        found.append(edit)
    for number, new in pieces.items():
        found[number] = replace(found[number], pieces=(*found[number].pieces, *new))
    return found
