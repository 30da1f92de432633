"""The manifest: a line for each record that was found, and for each head without a record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np

from ...formats.derive import Columns, decode
from ...formats.derive.ragged import Ints
from ...formats.message import MESSAGE
from ..disk.files import Files, OpenFile
from .carve import Fragment
from .reading import windows_of
from .runs import Run
from .source import Sources

NAME = "manifest.ndjson"
_BUFFER_BYTES = 1 << 20
_SPLIT = "a head whose body does not follow"
_EMBEDDED = "inside another record, which is damaged"


class Manifest:
    """A file of JSON lines in the directory of the new store; a context manager.

    It is made when there is something to write: a store begins in an empty directory.
    """

    def __init__(self, root: Path, sources: Sources, files: Files) -> None:
        self._path, self._files = root / NAME, files
        self._file: OpenFile | None = None
        self._sources = sources
        self._lines: list[str] = []
        self._bytes = self._at = 0

    def runs(self, runs: list[Run], fate: str, folder: str = "") -> None:
        """All records of some runs. folder: where they lie beside the new store."""
        for run in runs:
            for columns in batches_of(run, self._sources):
                to = columns.ints("physical_offset") if fate == "kept" else None
                self.records(run, columns, fate, to, folder)

    def records(
        self, run: Run, columns: Columns, fate: str, to: Ints | None = None, folder: str = ""
    ) -> None:
        """Records of a run. to: their places in the new store's log, int64[n]."""
        head: dict[str, Any] = {"type": "salvaged", "source": self._name(run.source)}
        tail: dict[str, Any] = {"grade": run.grade.label, "fate": fate}
        if folder:
            tail["folder"] = folder
        offsets = columns.ints("physical_offset") - run.shift
        names = ("total_size", "physical_offset", "queue_id", "queue_offset", "store_timestamp")
        numbers = [columns.ints(name).tolist() for name in names]
        topics = [topic.decode("utf-8", "replace") for topic in columns.ragged("topic").tolist()]
        places = [None] * len(topics) if to is None else np.asarray(to).tolist()
        for offset, topic, place, *row in zip(
            offsets.tolist(), topics, places, *numbers, strict=True
        ):
            record = {**head, "offset": offset, **dict(zip(names, row, strict=True))}
            record |= {"topic": topic, **tail}
            if place is not None:
                record["to"] = place
            self._add(record)

    def fragment(self, fragment: Fragment) -> None:
        """A head without a record of its own."""
        self._add(
            {
                "type": "fragment",
                "source": self._name(fragment.source),
                "offset": fragment.at,
                "total_size": fragment.size,
                "physical_offset": fragment.position,
                "reason": _EMBEDDED if fragment.embedded else _SPLIT,
            }
        )

    def _name(self, source: int) -> str:
        return str(self._sources.paths[source]).encode("utf-8", "backslashreplace").decode()

    def _add(self, record: dict[str, Any]) -> None:
        line = json.dumps(record, separators=(",", ":"))
        self._lines.append(line)
        self._bytes += len(line) + 1
        if self._bytes >= _BUFFER_BYTES:
            self._flush()

    def _flush(self) -> OpenFile:
        if self._file is None:
            self._file = self._files.create(self._path)
        if self._lines:
            data = "".join(f"{line}\n" for line in self._lines).encode()
            self._file.pwrite(data, self._at)
            self._at += len(data)
            self._lines, self._bytes = [], 0
        return self._file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._flush() as file:
            file.sync()


def batches_of(run: Run, sources: Sources) -> Iterator[Columns]:
    """The records of a run as columns, valid until the next ones are asked for."""
    for window, starts, _ in windows_of(run, sources):
        yield decode(MESSAGE, window.array, starts)
