"""Parts of a log, cut anywhere, together give what one walk over the whole log gives."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.log.commit_log import (
    LOOK_BACK_BYTES,
    Batch,
    Extent,
    Mark,
    Split,
    in_step,
    scan_split,
    split_bytes_for,
    splits,
)
from mqstore.store.put.new_message import NewMessage
from mqstore.store.queues.references import commit_log_of

from ...stores import unpack
from ..put.writing import TINY, writer

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
LOOK_BACK = 8 << 10
OWN_POSITION = 28
"""Where a record names its position."""
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


LARGE = BrokerConfig({**TINY, "mappedFileSizeCommitLog": str(1 << 16)})


@pytest.mark.parametrize("topic", [b"orders", b"elsewhere"])
def test_records_in_the_body_of_a_record_larger_than_is_looked_back(topic: bytes, tmp_path: Path) -> None:
    """They name their own positions, as a producer can that knows where its messages are put; no queue names them."""
    with writer(tmp_path, "5.3", config=LARGE) as store:
        store.append(NewMessage(topic, b"first"))
        store.append(NewMessage(b"orders", b"second"))
        store.sync()
    log = commit_log_of(Layout.open(tmp_path, LARGE))
    first, begin = log.record(0), log.end().position
    copy = log.read(0, int(first.columns.ints("total_size")[0]))
    at = copy.index((0).to_bytes(8, "big"), OWN_POSITION)
    body_at = begin + copy.index(b"first")
    body = b"".join(
        copy[:at] + (body_at + n * len(copy)).to_bytes(8, "big") + copy[at + 8 :] for n in range((1 << 14) // len(copy))
    )
    with writer(tmp_path, "5.3", config=LARGE) as store:
        store.append(NewMessage(b"orders", body))
        store.append(NewMessage(b"orders", b"last"))
        store.sync()
    log = commit_log_of(Layout.open(tmp_path, LARGE))
    end = log.end().position
    whole = items(log.scan(crc=False), end)
    assert len(whole[0]) == 4 and len(log.record(body_at)) == 1
    for cut in range(begin + 1, end, 1000):
        bounds = (Split(log.min_offset, cut), Split(cut, log.max_file_end))
        parts = (item for part in bounds for item in scan_split(log, part, 1024))
        assert items(parts, end) == whole, f"cut at {cut}"


def test_no_more_is_read_where_queues_name_the_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first record that is found so far back is taken, wherever the cut is."""
    log = commit_log_of(Layout.open(unpack("5.3.3-clean", tmp_path)))
    records, _ = items(log.scan(crc=False), log.end().position)
    for cut in records[50::25]:
        begin = cut - LOOK_BACK
        if begin > (file := log.queue.file_at(cut)).start:  # type: ignore[union-attr]
            assert in_step(log, cut, LOOK_BACK) == next(each for each in records if each >= begin), (file, cut)


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
