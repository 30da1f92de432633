"""Which runs make up the log, and which lie beside it: duplicates, conflicts, doubts.

The log is a layer: runs that do not overlap. A run whose bytes the layer has at the same positions is
a duplicate. Records that claim a place where others lie go to the next layer, and nothing is thrown
away. Runs that are damaged or odd begin in the layer behind the log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from ...formats.derive.ragged import Ints
from .runs import Grade, Run, windows_of
from .source import Sources

_FEW = 16
LARGEST_GAP_FILES = 1000
"""Files of the log that may be missing in a row; what lies farther away is another log."""


class Layer:
    """Runs that do not overlap, by log position."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self._starts: list[int] = []

    def overlapping(self, position: int, end: int) -> list[Run]:
        """The runs that share a byte with [position, end)."""
        first = bisect_left(self._starts, position)
        if first and self.runs[first - 1].end > position:
            first -= 1
        return self.runs[first : bisect_left(self._starts, end)]

    def add(self, run: Run) -> None:
        """Add a run that overlaps none."""
        at = bisect_left(self._starts, run.position)
        self._starts.insert(at, run.position)
        self.runs.insert(at, run)

    @property
    def records(self) -> int:
        """Number of records in it."""
        return sum(run.records for run in self.runs)


@dataclass
class Arranged:
    """layers: the log, then what lies beside it. duplicates: runs that another one has already."""

    layers: list[Layer] = field(default_factory=lambda: [Layer()])
    duplicates: list[Run] = field(default_factory=list)


def arrange(runs: list[Run], sources: Sources, accepted: Grade) -> Arranged:
    """Sort runs into layers. accepted: the worst grade that the log takes.

    The best and longest come first: of two records that claim a place the one with more around it
    is likelier to belong there. Raises Unreadable.
    """
    found = Arranged()
    for run in sorted(runs, key=_rank):
        aside = run.odd or run.grade > accepted
        _place(run, 1 if aside else 0, found, sources)
    for layer in found.layers:
        layer.runs[:] = list(_joined(layer.runs))
    return found


def _rank(run: Run) -> tuple[int, ...]:
    """The best first, then the longest, roughly: few records are as good as one."""
    few = run.records < _FEW
    return run.grade, run.odd, 0 if few else -run.length.bit_length(), run.source, run.at


def _place(run: Run, number: int, found: Arranged, sources: Sources) -> None:
    """Put a run into a layer, and those records for which there is no room into later ones."""
    pending = [(number, run)]
    while pending:
        number, run = pending.pop()
        while len(found.layers) <= number:
            found.layers.append(Layer())
        layer = found.layers[number]
        above = found.layers[0] if number else layer
        if not layer.overlapping(run.position, run.end) and not (
            number and above.overlapping(run.position, run.end)
        ):
            layer.add(run)
            continue
        for verdict, part in _parts(run, layer, above, sources):
            if verdict == _FREE:
                layer.add(part)
            elif verdict == _SAME:
                found.duplicates.append(part)
            else:
                pending.append((number + 1, part))


_FREE, _SAME, _OTHER = 0, 1, 2


def _parts(run: Run, layer: Layer, above: Layer, sources: Sources) -> Iterator[tuple[int, Run]]:
    """The records of a run by what its layer, or the log, has in their place, as runs."""
    for positions, ends in record_places(run, sources):
        begin, behind = int(positions[0]), int(ends[-1])
        together = _verdict(run, begin, behind, layer, above, sources)
        alone = together == _FREE and not above.overlapping(begin, behind)
        if alone or together == _SAME:
            yield together, run.part(begin, behind, len(positions))
            continue
        verdicts = [
            _verdict(run, position, end, layer, above, sources)
            for position, end in zip(positions.tolist(), ends.tolist(), strict=True)
        ]
        row = 0
        for verdict, same in groupby(verdicts):
            count = len(list(same))
            begin, behind = int(positions[row]), int(ends[row + count - 1])
            yield verdict, run.part(begin, behind, count)
            row += count


def _verdict(
    run: Run, position: int, end: int, layer: Layer, above: Layer, sources: Sources
) -> int:
    there = layer.overlapping(position, end)
    others = above.overlapping(position, end) if above is not layer else []
    if not there and not others:
        return _FREE
    for other in (*others, *there):
        if other.position <= position and end <= other.end:
            own = sources[run.source].bytes_at(position - run.shift, end - position)
            if own == sources[other.source].bytes_at(position - other.shift, end - position):
                return _SAME
    return _OTHER if there else _FREE


def record_places(run: Run, sources: Sources) -> Iterator[tuple[Ints, Ints]]:
    """Where the records of a run begin and end in the log, int64[n] each, window by window."""
    for window, starts, stop in windows_of(run, sources):
        positions = starts + window.position
        yield positions, np.append(positions[1:], stop + window.position)


def _joined(runs: list[Run]) -> Iterator[Run]:
    """Neighbours that were one run before they were cut."""
    last: Run | None = None
    for run in runs:
        if last is not None and last.followed_by(run) and last.odd == run.odd:
            last = last._replace(
                length=last.length + run.length, records=last.records + run.records
            )
            continue
        if last is not None:
            yield last
        last = run
    if last is not None:
        yield last


def split_far(layer: Layer, file_bytes: int) -> tuple[Layer, list[Layer]]:
    """A layer whose runs are far apart, as several: the one with most records, and the others."""
    groups: list[list[Run]] = []
    reach = None
    for run in layer.runs:
        if reach is None or run.position - reach > LARGEST_GAP_FILES * file_bytes:
            groups.append([])
        groups[-1].append(run)
        reach = run.end
    layers = []
    for group in groups:
        made = Layer()
        for run in group:
            made.add(run)
        layers.append(made)
    layers.sort(key=lambda each: -each.records)
    return (layers[0] if layers else layer), layers[1:]
