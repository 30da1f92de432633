"""Seeded damage to a store directory, for any test that wants to see what becomes of it.

    victim = Victim.of("5.3.3-clean", root)
    hurt = damage(victim, rng, kind="wrong_size")
    assert hurt.spoiled                      # positions of the records that lost bytes

A kind edits the bytes of one file in place. What really changed is found by comparing, so
`spoiled` is exact: every other record of the log is still there, byte for byte.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mqstore.formats.blank import BLANK
from mqstore.formats.message import SMALLEST

from .stores import config, messages

PAGE_BYTES = 4096
SIZES_OF_LIARS = (-(2**31), -1, 0, 1, SMALLEST - 1, SMALLEST, 2**16, 2**30, 2**31 - 1)


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


#: Edits the bytes of a file; the places and sizes of its good records help to aim.
Edit = Callable[[bytearray, random.Random, list[tuple[int, int]]], None]


def _somewhere(data: bytearray, rng: random.Random, records: list[tuple[int, int]]) -> int:
    """A byte inside a record, where there is one: zeros behind the end are dull."""
    if records:
        offset, size = rng.choice(records)
        return offset + rng.randrange(size)
    return rng.randrange(len(data))


def flip_bit(data: bytearray, rng: random.Random, records: list[tuple[int, int]]) -> None:
    """One bit, anywhere in a record."""
    data[_somewhere(data, rng, records)] ^= 1 << rng.randrange(8)


def zero_page(data: bytearray, rng: random.Random, records: list[tuple[int, int]]) -> None:
    """A page that never reached the disk."""
    start = _somewhere(data, rng, records) // PAGE_BYTES * PAGE_BYTES
    end = min(start + PAGE_BYTES, len(data))
    data[start:end] = bytes(end - start)


def garbage(data: bytearray, rng: random.Random, records: list[tuple[int, int]]) -> None:
    """Up to a page of random bytes."""
    start = _somewhere(data, rng, records)
    end = min(start + rng.randint(1, PAGE_BYTES), len(data))
    data[start:end] = rng.randbytes(end - start)


def truncate(data: bytearray, rng: random.Random, records: list[tuple[int, int]]) -> None:
    """The file ends early."""
    del data[_somewhere(data, rng, records) :]


def torn_tail(data: bytearray, rng: random.Random, records: list[tuple[int, int]]) -> None:
    """Behind some byte of the last record there are zeros."""
    offset, size = records[-1] if records else (0, len(data))
    start = offset + rng.randrange(1, size)
    data[start:] = bytes(len(data) - start)


def wrong_size(data: bytearray, rng: random.Random, records: list[tuple[int, int]]) -> None:
    """The size field of a record lies: a little, or without any shame."""
    offset, size = rng.choice(records) if records else (_somewhere(data, rng, records), 0)
    lies = [lie for lie in (*SIZES_OF_LIARS, size - 1, size + 1, size * 2) if lie != size]
    field = BLANK.total_size.build(rng.choice(lies))[: len(data) - offset]
    data[offset : offset + len(field)] = field


def stale_record(data: bytearray, rng: random.Random, records: list[tuple[int, int]]) -> None:
    """A whole record once more, where it does not belong: over others, or behind the end."""
    offset, size = rng.choice(records) if records else (0, len(data) // 2)
    last = records[-1][0] + records[-1][1] if records else len(data)
    target = rng.choice([last, _somewhere(data, rng, records)])
    copied = data[offset : offset + size][: len(data) - target]
    data[target : target + len(copied)] = copied


KINDS: dict[str, Edit] = {
    edit.__name__: edit
    for edit in (flip_bit, zero_page, garbage, truncate, torn_tail, wrong_size, stale_record)
}
#: The file is gone, not its bytes.
DROP_FILE = "drop_file"
ALL_KINDS = (*KINDS, DROP_FILE)


def _difference(before: bytes, after: bytes) -> tuple[int, int]:
    """First differing byte and the byte behind the last; equal numbers where nothing differs."""
    shorter = min(len(before), len(after))
    left, right = (np.frombuffer(data, np.uint8, shorter) for data in (before, after))
    differing = np.flatnonzero(left != right)
    if len(before) != len(after):
        return int(differing[0]) if len(differing) else shorter, max(len(before), len(after))
    return (int(differing[0]), int(differing[-1]) + 1) if len(differing) else (0, 0)


def damage(
    victim: Victim, rng: random.Random, *, kind: str | None = None, path: Path | None = None
) -> Damage:
    """Damage one file (default: one of the log) in one way (default: any), and say what it cost."""
    kind = kind or rng.choice(ALL_KINDS)
    path = path or rng.choice(victim.log_files())
    before = path.read_bytes()
    spans = [s for s in victim.spans if s.path == path and s.offset + s.size <= len(before)]
    if kind == DROP_FILE:
        path.unlink()
        return Damage(kind, path, 0, len(before), frozenset(span.position for span in spans))
    data = bytearray(before)
    KINDS[kind](data, rng, [(span.offset, span.size) for span in spans])
    first, end = _difference(before, bytes(data))
    path.write_bytes(data)
    after = bytes(data)
    spoiled = frozenset(
        span.position
        for span in spans
        if before[span.offset : span.offset + span.size]
        != after[span.offset : span.offset + span.size]
    )
    return Damage(kind, path, first, end - first, spoiled)
