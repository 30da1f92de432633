"""Records whose blocks lie apart: joined where checksums prove it, left alone where they do not.

A file system cuts a file at blocks. Where a record is cut, the log goes on somewhere else with the
record behind it: what stands right before that one is the end of the cut record. Of the places where
it can be cut exactly one must give a whole record; two that do prove nothing.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from ...formats.derive import decode
from ...formats.message import MESSAGE
from .carve import Found
from .grade import Grade, grades, structural
from .runs import Run
from .source import Sources

BLOCK_BYTES = 4096
"""The blocks of nearly all file systems that hold a store."""
_LARGEST_JOINED = 4 << 20
_JOINED_BYTES_MAX = 256 << 20
"""Joined records are held in memory: so much of them, and no more."""
_TRIED_BYTES_MAX = 4 << 30
"""An image may be made to have anything tried with anything."""
_FOLLOWING_MAX = 8


class _Cut(NamedTuple):
    """A record that is not whole where it begins."""

    source: int
    at: int
    position: int
    size: int


def join(found: Found, sources: Sources) -> int:
    """Replace cut records by joined ones, in place; returns how many. Raises Unreadable."""
    following: dict[int, list[Run]] = defaultdict(list)
    for run in found.runs:
        if run.grade is Grade.WHOLE:
            following[run.position].append(run)
    joined, done, trial = list[Run](), list[_Cut](), _Trial(sources)
    held = 0
    for cut in _cuts(found):
        behind = following.get(cut.position + cut.size, [])[:_FOLLOWING_MAX]
        if not behind or cut.size > _LARGEST_JOINED or held + cut.size > _JOINED_BYTES_MAX:
            continue
        record = trial.joined(cut, behind)
        if record is not None:
            number = sources.join(cut.source, record, cut.at)
            joined.append(Run(number, cut.at, cut.position, cut.size, 1, Grade.WHOLE))
            done.append(cut)
            held += cut.size
    _forget(done, found)
    found.runs += joined
    found.joined += len(joined)
    return len(joined)


def _cuts(found: Found) -> list[_Cut]:
    """Heads without a body, and single records that are damaged behind their head."""
    cuts = [_Cut(f.source, f.at, f.position, f.size) for f in found.fragments if not f.embedded]
    for run in found.runs:
        if run.grade is not Grade.WHOLE and run.records == 1:
            cuts.append(_Cut(run.source, run.at, run.position, run.length))
    return cuts


class _Trial:
    """Trying fronts with backs, until enough was tried."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._tried = 0

    def joined(self, cut: _Cut, following: list[Run]) -> bytes | None:
        """The only record that a cut one and what stands before the next one make together."""
        front = self._sources[cut.source].bytes_at(cut.at, cut.size)
        made: set[bytes] = set()
        for run in following:
            if run.source != cut.source or run.at < cut.size:
                continue
            back = self._sources[run.source].bytes_at(run.at - cut.size, cut.size)
            # cut at a block's end, and going on at a block's begin
            for head in range(-cut.at % BLOCK_BYTES, cut.size, BLOCK_BYTES):
                aligned = (run.at - cut.size + head) % BLOCK_BYTES == 0
                if not head or not aligned or self._tried > _TRIED_BYTES_MAX:
                    continue
                self._tried += cut.size
                record = front[:head] + back[head:]
                if _is_whole(record, cut):
                    made.add(record)
        return made.pop() if len(made) == 1 else None


def _is_whole(record: bytes, cut: _Cut) -> bool:
    if len(record) != cut.size:
        return False
    columns = decode(MESSAGE, np.frombuffer(record, np.uint8), np.array([0], np.int64))
    whole = bool(structural(columns)[0]) and int(columns.ends[0]) == cut.size
    return whole and grades(columns)[0] == Grade.WHOLE


def _forget(cuts: list[_Cut], found: Found) -> None:
    """The cut records are found: they are no fragments, and no damaged records any more."""
    gone = {(cut.source, cut.at) for cut in cuts}
    found.runs = [r for r in found.runs if r.grade is Grade.WHOLE or (r.source, r.at) not in gone]
    kept = [f for f in found.fragments if f.embedded or (f.source, f.at) not in gone]
    found.split -= len(found.fragments) - len(kept)
    found.fragments = kept
