"""Parts of a log, cut anywhere, together give what one walk over the whole log gives."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.store.disk.layout import Layout
from mqstore.store.log.commit_log import (
    LOOK_BACK_BYTES,
    Batch,
    Extent,
    Mark,
    Split,
    scan_split,
    split_bytes_for,
    splits,
)
from mqstore.store.queues.references import commit_log_of

from ...stores import unpack

STORES = (
    "4.9.7-clean",
    "4.9.7-killed-bit",
    "4.9.7-killed-page",
    "4.9.7-killed-torn",
    "4.9.7-multipath",
    "5.3.3-dledger",
    "5.3.3-expired",
    "5.3.3-killed-hole-restarted",
    "5.3.3-killed-page-restarted",
    "5.3.3-v2",
)
LARGEST_RECORD = 64 << 10
"""No record of these stores is larger."""
SMALLER = 16
"""All records are larger than this."""


def items(found: Iterable[Batch | Extent], end: int) -> tuple[list[int], list[Extent]]:
    """Positions of the records before the log's end, and the extents sorted."""
    records: list[int] = []
    extents = []
    for item in found:
        if isinstance(item, Extent):
            extents.append(item)
        elif item.mark <= Mark.AFTER_DAMAGE:
            records += [position for position in item.position.tolist() if position < end]
    return records, sorted(extents, key=lambda extent: extent.position)


@pytest.mark.few(4)
@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("look_back", [SMALLER, LARGEST_RECORD, LOOK_BACK_BYTES])
def test_random_cuts(name: str, look_back: int, tmp_path: Path) -> None:
    log = commit_log_of(Layout.open(unpack(name, tmp_path)))
    end = log.end().position
    whole = items(log.scan(crc=False), end)
    rng = random.Random(name)
    for count in (1, 2, 3, 10, 40):
        cuts = [rng.randint(log.min_offset, log.max_file_end) for _ in range(count)]
        bounds = pairwise(sorted([log.min_offset, *cuts, log.max_file_end]))
        parts = (item for cut in bounds for item in scan_split(log, Split(*cut), look_back))
        assert items(parts, end) == whole, f"cut at {cuts}"


def test_cuts_at_records_and_beside_them(tmp_path: Path) -> None:
    """Where records begin is where an owner could be doubted."""
    log = commit_log_of(Layout.open(unpack("4.9.7-killed-page", tmp_path)))
    records, extents = items(log.scan(crc=False), log.end().position)
    rng = random.Random(2)
    edges = rng.sample(records, 10) + [extent.position for extent in extents]
    for edge in edges:
        for cut in (edge - 1, edge, edge + 1):
            if not log.min_offset <= cut <= log.max_file_end:
                continue
            bounds = (Split(log.min_offset, cut), Split(cut, log.max_file_end))
            parts = (item for part in bounds for item in scan_split(log, part, LARGEST_RECORD))
            assert items(parts, log.end().position) == (records, extents), f"cut at {cut}"


@pytest.mark.parametrize("name", ["4.9.7-clean", "5.3.3-dledger"])
def test_damage_beside_cuts_in_records_larger_than_is_looked_back(name: str, tmp_path: Path) -> None:
    """A part that begins in a whole record does not take what is broken behind it for a piece of that."""
    log = commit_log_of(Layout.open(unpack(name, tmp_path)))
    records, _ = items(log.scan(crc=False), log.end().position)
    at = records[len(records) // 2]
    before, behind = (records[len(records) // 2 + by] for by in (-1, 1))
    file = log.queue.file_at(at)
    assert file is not None
    with Path(file.path).open("r+b") as stream:
        stream.seek(at - file.start)
        stream.write(bytes(8))
    whole = items(log.scan(crc=False), log.end().position)
    assert at not in whole[0] and any(extent.position <= at < extent.end for extent in whole[1])
    for cut in (before + SMALLER + 1, at - 1, at, at + 1, behind):
        bounds = (Split(log.min_offset, cut), Split(cut, log.max_file_end))
        parts = (item for part in bounds for item in scan_split(log, part, SMALLER))
        assert items(parts, log.end().position) == whole, f"cut at {cut}"


@given(st.integers(0, 1 << 40), st.integers(0, 5000), st.integers(1, 1000))
def test_splits_cover_the_range_once(start: int, length: int, size: int) -> None:
    parts = list(splits(start, start + length, size))
    assert [stop for _, stop in parts[:-1]] == [begin for begin, _ in parts[1:]]
    assert (parts[0].start, parts[-1].stop) == (start, start + length) if parts else not length
    assert all(0 < stop - begin <= size for begin, stop in parts)
    assert all(begin % size == 0 for begin, _ in parts[1:])


def test_splits_give_every_core_work_within_what_pays() -> None:
    assert split_bytes_for(1 << 20, 8) == 32 << 20
    assert split_bytes_for(800 << 20, 8) == 100 << 20
    assert split_bytes_for(1 << 50, 8) == 256 << 20
