"""Seeded damage to a store directory, for any test that wants to see what becomes of it.

    victim = Victim.of("5.3.3-clean", root)
    hurt = damage(victim, rng, kind="wrong_size")
    assert hurt.spoiled                      # positions of the records that lost bytes

Most kinds are those of `mqstore.store.damage.scenarios`, done in place to one file. What really changed
is found by comparing, so `spoiled` is exact: every other record of the log is there, byte for byte.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mqstore.store.damage.scenario import write
from mqstore.store.damage.scenarios import Corrupt, Spot, flip_bit, garbage, torn_tail, truncate, wrong_size, zero_page
from mqstore.store.disk.files import Edit
from mqstore.store.queues.batches import BATCH_UNIT_DTYPE
from mqstore.store.queues.units import UNIT_DTYPE

from .stores import config, messages


@dataclass(frozen=True)
class Span:
    """One record: the position in the log and the place in its file."""

    position: int
    path: Path
    offset: int
    size: int


@dataclass(frozen=True)
class Victim:
    """A store and the records that are good in it. moments: store time and position of some."""

    root: Path
    spans: tuple[Span, ...]
    moments: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, name: str, root: Path) -> Victim:
        """The unpacked store of that name at `root`, with the records of its truth."""
        folders = [folder for folder in _log_directories(name, root) if folder.is_dir()]
        by_start = {int(p.name): p for folder in folders for p in folder.iterdir()}
        starts = sorted(by_start)
        spans = []
        for row in messages(name):
            position = row.get("position", row["physical_offset"])
            start = max(s for s in starts if s <= position)
            spans.append(Span(position, by_start[start], position - start, row["total_size"]))
        return cls(root, tuple(spans))

    def moved(self, root: Path) -> Victim:
        """The same for a copy of the store at `root`."""
        spans = (replace(span, path=root / span.path.relative_to(self.root)) for span in self.spans)
        return Victim(root, tuple(spans), self.moments)

    def log_files(self) -> list[Path]:
        """The commit log files that hold a record, in log order."""
        return list(dict.fromkeys(span.path for span in self.spans))


def _log_directories(name: str, root: Path) -> list[Path]:
    """Where the broker that made the store kept its commit log."""
    dledger = sorted(root.glob("dledger-*/data"))
    return dledger or [Path(p) for p in config(name, root)["storePathCommitLog"].split(",")]


@dataclass(frozen=True)
class Damage:
    """What was done: bytes [offset, offset + length) of `path` differ (or are gone)."""

    kind: str
    path: Path
    offset: int
    length: int
    spoiled: frozenset[int]

    def __str__(self) -> str:
        return f"{self.kind} at {self.path.name}:{self.offset}+{self.length}"


KINDS: dict[str, Corrupt | None] = {
    **{spoil.__name__: spoil for spoil in (flip_bit, zero_page, garbage, truncate, torn_tail, wrong_size)},
    "stale_record": None,
}
#: The file is gone, not its bytes.
DROP_FILE = "drop_file"
ALL_KINDS = (*KINDS, DROP_FILE)


def spoil_file(path: Path, kind: str, rng: random.Random, records: Sequence[tuple[int, int]] = ()) -> None:
    """Spoil one of the records (offset, size) of a file, or any bytes where it has none."""
    before = path.read_bytes()
    last = records[-1] if records and kind == torn_tail.__name__ else None
    begin, size = last or (rng.choice(records) if records else (0, len(before)))
    spot = Spot(str(path), len(before), begin, before[begin : begin + size])
    spoil = KINDS[kind]
    edit = spoil(spot, rng) if spoil else _stale_record(spot, rng, records)
    if edit.kind == "truncate":
        os.truncate(path, edit.length)
        return
    with path.open("r+b") as file:
        file.seek(edit.offset)
        file.write(bytes(edit.length) if edit.data is None else edit.data)


def _stale_record(spot: Spot, rng: random.Random, records: Sequence[tuple[int, int]]) -> Edit:
    """A whole record once more, where it does not belong: over others, or behind the end."""
    ends = [offset + size for offset, size in records[-1:]] or [spot.file_bytes]
    offset, size = rng.choice(records or [(0, spot.file_bytes)])
    at = rng.choice([ends[-1], offset + rng.randrange(size)])
    return write(spot.path, at, spot.data[: max(0, spot.file_bytes - at)], "a record once more")


def _difference(before: bytes, after: bytes) -> tuple[int, int]:
    """First differing byte and the byte behind the last; equal numbers where nothing differs."""
    shorter = min(len(before), len(after))
    left, right = (np.frombuffer(data, np.uint8, shorter) for data in (before, after))
    differing = np.flatnonzero(left != right)
    if len(before) != len(after):
        return int(differing[0]) if len(differing) else shorter, max(len(before), len(after))
    return (int(differing[0]), int(differing[-1]) + 1) if len(differing) else (0, 0)


def damage(victim: Victim, rng: random.Random, *, kind: str | None = None, path: Path | None = None) -> Damage:
    """Damage one file (default: one of the log) in one way (default: any), and say what it cost."""
    kind = kind or rng.choice(ALL_KINDS)
    path = path or rng.choice(victim.log_files())
    before = path.read_bytes()
    spans = [s for s in victim.spans if s.path == path and s.offset + s.size <= len(before)]
    if kind == DROP_FILE:
        path.unlink()
        return Damage(kind, path, 0, len(before), frozenset(span.position for span in spans))
    spoil_file(path, kind, rng, [(span.offset, span.size) for span in spans])
    after = path.read_bytes()
    first, end = _difference(before, after)
    spoiled = frozenset(
        span.position
        for span in spans
        if before[span.offset : span.offset + span.size] != after[span.offset : span.offset + span.size]
    )
    return Damage(kind, path, first, end - first, spoiled)


def cut_units(root: Path, begin: int) -> dict[str, int]:
    """Zero the units of records from a position of the log on, in queues of both kinds, as before a broker dispatched
    the records; return how many, by the directory of the queue.
    """
    found: dict[str, int] = {}
    for folder, dtype in (("batchconsumequeue", BATCH_UNIT_DTYPE), ("consumequeue", UNIT_DTYPE)):
        for path in sorted(path for path in (root / folder).rglob("*") if path.is_file()):
            units = np.fromfile(path, dtype)
            late = (units["size"] > 0) & (units["physical_offset"] >= begin)
            units[late] = np.zeros(1, dtype)
            units.tofile(path)
            queue = str(path.parent.relative_to(root))
            found[queue] = found.get(queue, 0) + int(np.count_nonzero(late))
    return {queue: count for queue, count in found.items() if count}
