"""The timer log: where its units may lie, what its entries name, and the names of what is cancelled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.hashing import java_hash
from mqstore.formats.timer_log import UNIT_BYTES
from mqstore.store.disk.file_queue import MappedFile
from mqstore.store.findings.catalogue import Severity
from mqstore.store.findings.findings import Finding
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.context import Scope, VerifyContext
from mqstore.store.verify.run import verify
from mqstore.store.verify.timer_log import _HASH_BASE, TimerLog, timer_files

from ...stores import unpack
from .mutations import NOW_MS, copied, original
from .mutations.timer import Timer


@given(st.lists(st.text(max_size=40), min_size=1, max_size=6), st.text(max_size=9))
def test_a_hash_behind_a_text(texts: list[str], front: str) -> None:
    """The hash of a text behind another is the other's times that power, and its own."""
    units = np.array([len(text.encode("utf-16-be", "surrogatepass")) // 2 for text in texts], np.int64)
    with np.errstate(over="ignore"):
        found = np.array([java_hash(front)], np.int64).astype(np.uint32) * np.power(_HASH_BASE, units.astype(np.uint32))
        found += np.array([java_hash(text) for text in texts], np.int64).astype(np.uint32)
    assert found.view(np.int32).tolist() == [java_hash(front + text) for text in texts]


SIZES = st.lists(st.integers(1, 5 * UNIT_BYTES), max_size=5)


@given(SIZES, st.integers(0, 300), st.lists(st.integers(-9, 3000), max_size=30))
def test_places_in_files_of_any_length(sizes: list[int], begin: int, positions: list[int]) -> None:
    files: list[MappedFile] = []
    for size in sizes:
        start = files[-1].end if files else begin
        files.append(MappedFile(f"f{start}", start, size))
    log = TimerLog(files)
    assert log.start == (begin if files else 0)
    for position, aligned in zip(positions, log.aligned(np.array(positions, np.int64)).tolist(), strict=True):
        file = log.file_of(position)
        assert (file is not None) == any(each.start <= position < each.end for each in files)
        if file is not None:
            assert aligned == ((position - file.start) % UNIT_BYTES == 0)
        elif not files or position < begin:
            assert aligned, "it is in no file"


@pytest.mark.parametrize("name", ["5.3.3-timer-clean", "5.5.0-timer-killed"])
def test_each_entry_names_a_record_of_the_timer_topic(name: str, tmp_path: Path) -> None:
    """As the real broker left them; and the wheel leads to entries."""
    with StoreReader(unpack(name, tmp_path)) as store:
        files = timer_files(VerifyContext(store, Scope(), NOW_MS))
        assert files.there and files.has_check
        log = files.log
        assert len(log.entries) and log.aligned(log.entries.position).all()
        assert log.end == int(log.entries.position[-1]) + UNIT_BYTES
        records = store.log.records(log.entries.offset_py)
        assert records.columns.ints("total_size").tolist() == log.entries.size_py.tolist()
        assert set(records.columns.ragged("topic").tolist()) == {b"rmq_sys_wheel_timer"}
        used = files.slots
        assert len(used) and log.entries.at(used.last[used.num > 0])[1].all()


def test_a_store_without_a_timer(tmp_path: Path) -> None:
    with StoreReader(unpack("4.9.7-clean", tmp_path)) as store:
        files = timer_files(VerifyContext(store, Scope(), NOW_MS))
        assert not files.there and not files.has_check
        assert (files.wheel_bytes, len(files.slots), len(files.log.entries), files.log.end) == (0, 0, 0, 0)


@pytest.fixture
def timer(tmp_path: Path) -> Timer:
    """A store that was stopped in order."""
    return Timer(copied(original("5.3.3-timer-clean", tmp_path), tmp_path))


def said(timer: Timer) -> list[Finding]:
    """What verify says of entries."""
    with StoreReader(timer.store) as store:
        found = verify(store, Scope(groups=frozenset({"timer"})), now_ms=NOW_MS).findings
    return [finding for finding in found if finding.code in ("I-126", "I-127", "I-128", "I-129")]


def test_entries_are_told_where_they_lie(timer: Timer) -> None:
    assert said(timer) == []
    path, offset = timer.place(2)
    timer.set_entry(2, "offset_py", int(timer.entries.offset_py[2]) + 1)
    found = said(timer)
    assert "I-128" in {f.code for f in found}
    assert {(f.path, f.offset, f.length) for f in found} == {(str(path), offset, UNIT_BYTES)}


def test_an_entry_whose_tick_was_read_is_no_error(timer: Timer) -> None:
    """Its message was cut off, and others stand in its place: no broker reads it again. Not so if it is torn (B36)."""
    read = timer.entries.tick_ms < timer.check.last_read_time_ms
    first, pending = int(np.flatnonzero(read)[0]), int(np.flatnonzero(~read)[0])
    for row, name, value, level in (
        (first, "offset_py", 1, Severity.INFO),
        (pending, "offset_py", 1, Severity.ERROR),
        (first, "size_py", 0, Severity.ERROR),
    ):
        timer.set_entry(row, name, value)
        assert [f.severity for f in said(timer) if f.offset == timer.place(row)[1]] == [level]


def test_an_entry_of_another_size_ends_what_can_be_read(timer: Timer) -> None:
    """It is no unit: a range between the entries around it."""
    path, offset = timer.place(2)
    timer.set_entry(2, "size", UNIT_BYTES + 1)
    (finding,) = [f for f in said(timer) if f.code == "I-126"]
    assert finding.path == str(path) and finding.offset == offset
