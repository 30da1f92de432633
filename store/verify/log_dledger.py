"""The entries around the records of a DLedger log, and their index (docs/invariants.md, I-052, I-053)."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ...formats.commit_log import DLEDGER
from ...formats.derive import decode
from ...formats.derive.ragged import Ints
from ...formats.dledger import ENTRY
from ...formats.dledger_index import UNIT_BYTES
from ..columns.ordered import Flags
from ..disk.broker_conf import parse_properties
from ..disk.file_queue import MappedFileQueue
from ..disk.regular_file import read_regular
from ..errors import Missing
from ..tiered.dledger_index import index_units
from .context import Scene
from .records import Records
from .register import after, of_records

_STATE_BYTES_MAX = 4096
_INDEX = "index"


@dataclass
class _Entries:
    """What has been read of the entries: position and size by number, and the last of them."""

    first: int | None = None
    index: int | None = None
    term: int = 0
    #: Log position behind the last one.
    end: int = 0
    position: list[Ints] = field(default_factory=list)
    size: list[Ints] = field(default_factory=list)
    term_of: list[Ints] = field(default_factory=list)
    #: The numbers do not rise by one: the index cannot be compared.
    broken: bool = False


@of_records("I-052")
def entries(scene: Scene, records: Records) -> None:
    """Entries are numbered, name their place, and hold one record each; terms do not fall."""
    file = scene.store.log_files.file_at(int(records.position[0]))
    if file is None or scene.store.log.frame_of(file) is not DLEDGER:
        return
    body = records.columns.ragged("body")
    starts = records.columns.starts - DLEDGER.payload
    columns = decode(ENTRY, body.buffer, starts)
    state = scene.kept(_Entries, _Entries)
    index, term = (columns.ints(n).astype(np.int64) for n in ("index", "term"))
    position = records.position - DLEDGER.payload
    skipped = not scene.log.complete and int(position[0]) != state.end
    first = state.index is None or skipped  # a part of the log was left out
    before = np.concatenate([[index[0] - 1 if first else state.index], index[:-1]])
    _rows(scene, records, index != before + 1, "the number does not follow", index)
    own = columns.ints("pos")
    _rows(scene, records, own != position, "it says that it stands at", own)
    earlier = np.concatenate([[state.term], term[:-1]])
    _rows(scene, records, term < earlier, "a term below that of the entry before:", term)
    size = columns.ints("size").astype(np.int64)
    whole = records.ints("total_size") + DLEDGER.payload
    _rows(scene, records, size != whole, "it does not hold just one record: size", size)
    state.broken |= bool((index != before + 1).any())
    state.first = int(index[0]) if state.first is None else state.first
    state.index, state.term = int(index[-1]), int(term[-1])
    state.end = int(records.ends[-1])
    state.position.append(position)
    state.size.append(size)
    state.term_of.append(term)


def _rows(scene: Scene, records: Records, wrong: Flags, text: str, values: Ints) -> None:
    if wrong.any():
        scene.log_rows(
            "I-052",
            wrong,
            records.position - DLEDGER.payload,
            records.ends,
            lambda row: f"entry at {records.position[row] - DLEDGER.payload}: {text} {values[row]}",
        )


@after("I-053")
def index_of_entries(scene: Scene) -> None:
    """The index names the place of each entry, and the state says how far it goes."""
    directory = scene.store.layout.dledger
    if directory is None or scene.live:
        return
    state = scene.kept(_Entries, _Entries)
    if state.first is None or state.broken or not scene.read_at_once:
        return
    wanted = {
        "pos": np.concatenate(state.position),
        "size": np.concatenate(state.size),
        "term": np.concatenate(state.term_of),
    }
    end = state.first + len(wanted["pos"])
    seen = np.zeros(end - state.first, np.bool_)
    with MappedFileQueue.open(directory.parent / _INDEX) as files:
        for part in index_units(files):
            inside = (part.number >= state.first) & (part.number < end)
            number, units = part.number[inside], part.units[inside]
            rows = number - state.first
            wrong = units["index"] != number
            for name, column in wanted.items():
                wrong |= units[name] != column[rows]
            seen[rows] = True
            for at in np.flatnonzero(wrong).tolist():
                text = f"unit {number[at]} of the DLedger index is not that of its entry"
                _of_index(scene, files, int(number[at]), text)
            for number_behind in part.number[part.number >= end].tolist()[:1]:
                text = f"the DLedger index goes on behind the last entry, {end - 1}"
                _of_index(scene, files, number_behind, text)
        for row in np.flatnonzero(~seen)[:1].tolist():
            text = f"entry {state.first + row} has no unit in the DLedger index"
            _of_index(scene, files, state.first + row, text)
    _state(scene, directory.parent, end - 1)


def _of_index(scene: Scene, files: MappedFileQueue, number: int, text: str) -> None:
    file = files.file_at(number * UNIT_BYTES)
    path = file.path if file else os.fspath(files.directories[0])
    offset = number * UNIT_BYTES - (file.start if file else 0)
    scene.findings.add("I-053", path, text, offset=offset, length=UNIT_BYTES)


def _state(scene: Scene, directory: Path, last: int) -> None:
    """committedIndex ≤ endIndex ≤ number of the last entry."""
    path = directory / "checkpoint"
    try:
        text = read_regular(path, _STATE_BYTES_MAX).decode("latin-1")
    except Missing:
        return
    told = parse_properties(text)
    end, committed = told.get("endIndex", ""), told.get("committedIndex", "")
    numbers = [int(n) if n.lstrip("-").isdigit() else None for n in (committed, end)]
    if None in numbers or not -1 <= numbers[0] <= numbers[1] <= last:  # type: ignore[operator]
        text = f"committedIndex {committed!r}, endIndex {end!r}, the last entry is {last}"
        scene.findings.add("I-053", os.fspath(path), text)
