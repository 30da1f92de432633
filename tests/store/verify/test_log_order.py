"""Unique keys that were met before, in batches and in parts, and times that fall."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mqstore.formats.derive import Ragged
from mqstore.store.findings.catalogue import Severity
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.context import Scope
from mqstore.store.verify.log_order import SeenKeys, key_numbers
from mqstore.store.verify.run import verify

from ...stores import unpack
from .mutations.edit import records

TOPICS = [b"a", b"b", b"RMQ_SYS"]
ROWS = st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=40)), max_size=20)


@given(ROWS, ROWS)
@example([], [(0, b"\0")])
def test_numbers_are_equal_for_equal_keys_of_a_topic(
    one: list[tuple[int, bytes]], other: list[tuple[int, bytes]]
) -> None:
    """Whatever batch they come in, and in which order it has its topics."""
    rows = [*one, *other]
    if not rows:
        return
    keys, ids = Ragged.of([key for _, key in rows]), np.array([topic for topic, _ in rows], np.int64)
    numbers = key_numbers(keys, ids, TOPICS).tolist()
    assert len(set(numbers)) == len(set(rows))
    backwards = key_numbers(keys[::-1], 2 - ids[::-1], TOPICS[::-1]).tolist()
    assert backwards[::-1] == numbers


BATCHES = st.lists(st.lists(st.integers(0, 30), max_size=12), max_size=5)


def spread(batch: list[int]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Numbers that have places of their own."""
    return np.array(batch, np.uint64) * np.uint64(0x0123456789ABCDEF) + np.uint64(1 << 40)


@given(BATCHES, BATCHES)
def test_keys_are_told_that_were_met_before(front: list[list[int]], behind: list[list[int]]) -> None:
    """And a part that was looked at alone tells what it met in itself; the rest shows where it is taken on."""
    whole, part, met = SeenKeys(), SeenKeys(behind=True), set[int]()
    for number, batch in enumerate([*front, *behind]):
        position = np.arange(len(batch), dtype=np.int64) + 100 * number
        found = whole.add(spread(batch), position).tolist()
        wanted = []
        for key in batch:
            wanted.append(key in met)
            met.add(key)
        assert found == wanted
    own = set[int]()
    for number, batch in enumerate(behind):
        found = part.add(spread(batch), np.arange(len(batch), dtype=np.int64) + 100 * number).tolist()
        for key, again in zip(batch, found, strict=True):
            assert again is (key in own)
            own.add(key)
    left = part.export()
    assert set(left.numbers.tolist()) == set(spread(sorted(own)).tolist())


def test_a_time_that_falls_is_told_where_it_does(tmp_path: Path) -> None:
    root = unpack("5.3.3-clean", tmp_path)
    scope = Scope(groups=frozenset({"commit_log"}))
    with StoreReader(root) as store:
        assert not [f for f in verify(store, scope).findings if f.code in ("I-028", "I-031")]
    place = records(root)[20]
    place.set("store_timestamp", int(place.values["store_timestamp"]) - 3_600_000)
    place.set("queue_offset", int(place.values["queue_offset"]) + 5)
    with StoreReader(root) as store:
        found = {f.code: f for f in verify(store, scope).findings}
    assert (found["I-028"].path, found["I-028"].offset) == (str(place.path), place.offset)
    assert "I-031" in found and found["I-031"].path == str(place.path)


@pytest.mark.parametrize(
    ("name", "earlier_ms", "severity"),
    [
        ("5.3.3-dledger", 999, Severity.INFO),
        ("5.3.3-dledger", 1000, Severity.WARNING),
        ("5.3.3-clean", 1, Severity.WARNING),
    ],
)
def test_threads_of_a_dledger_broker_wait_for_the_lock(
    name: str, earlier_ms: int, severity: Severity, tmp_path: Path
) -> None:
    root = unpack(name, tmp_path)
    before, place = records(root)[19:21]
    place.set("store_timestamp", int(before.values["store_timestamp"]) - earlier_ms)
    with StoreReader(root) as store:
        found = [f for f in verify(store, Scope(groups=frozenset({"commit_log"}))).findings if f.code == "I-028"]
    assert [(one.severity, one.offset) for one in found] == [(severity, place.offset)]
