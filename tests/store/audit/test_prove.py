"""Units that were read for a proof are given to who asks for the same ones, and queues that have nothing
else are not read again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from mqstore.formats.consume_queue import UNIT_BYTES
from mqstore.store.audit import prove
from mqstore.store.audit.messages import Messages
from mqstore.store.audit.prove import ComparedUnits, UnitsAhead, prove_log, with_verified_queues
from mqstore.store.audit.verified import QueueRange, VerifiedQueue
from mqstore.store.broker.snapshot import DirectoryEntry, QueueId, Snapshot
from mqstore.store.disk.file_queue import MappedFile, MappedFileQueue
from mqstore.store.disk.layout import Layout
from mqstore.store.queues.units import UNIT_DTYPE, FileUnits, QueueNumbers
from mqstore.store.start.log import proof_of

from ... import failing_disk, stores


def _files(*names: str) -> MappedFileQueue:
    return MappedFileQueue((), [MappedFile(name, 0, 200) for name in names], 200, [])


def _messages(*offsets: int) -> Messages:
    """At these queue offsets, of records one behind the other."""
    offset, yes = np.array(offsets), np.ones(len(offsets), np.bool_)
    rows = np.arange(len(offset))
    return Messages(QueueId("T", 0), offset, rows, rows + 1, rows, rows, yes, ~yes)


def _range(first: int, behind: int) -> QueueRange:
    return QueueRange(first, behind, 0, behind - first, 1)


def test_units_of_the_same_files_are_given() -> None:
    units = np.zeros(4, UNIT_DTYPE)
    units["size"] = [1, 2, 3, 4]
    found = ComparedUnits(_files("a"), _range(7, 11), units).of(_files("a"), _messages(8, 9))
    assert found is not None
    assert found["size"].tolist() == [2, 3]


@pytest.mark.parametrize("offsets", [[6, 7], [10, 11], [7, 9], [8, 7], [7, 7]])
def test_others_are_to_be_read(offsets: list[int]) -> None:
    laid = ComparedUnits(_files("a"), _range(7, 11), np.zeros(4, UNIT_DTYPE))
    assert laid.of(_files("a"), _messages(*offsets)) is None


def test_those_of_other_files_are_to_be_read() -> None:
    laid, other = ComparedUnits(_files("a"), _range(7, 11), np.zeros(4, UNIT_DTYPE)), _files("a")
    assert laid.of(_files("a", "b"), _messages(7)) is None
    other.stop = 20
    assert laid.of(other, _messages(7)) is None


def test_messages_of_one_record_are_in_no_row() -> None:
    messages = _messages(7, 8)
    assert messages.in_a_row
    assert not messages.replace(position=np.array([5, 5])).in_a_row


def _sound_queues(root: Path) -> Mapping[QueueId, VerifiedQueue]:
    layout = Layout.open(root)
    snapshot = Snapshot.of(layout)
    proof = proof_of(layout, "5.3.3")
    assert proof is not None
    return with_verified_queues(prove_log(proof), snapshot).queues


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    return stores.unpack("5.3.3-clean", tmp_path)


def test_a_sound_queue_tells_its_last_unit_and_the_zeros_behind(clean: Path) -> None:
    found = _sound_queues(clean)
    snapshot = Snapshot.of(Layout.open(clean))
    assert set(snapshot.queues) == set(found)
    for queue in found.values():
        next_offset = queue.messages.next
        expected = FileUnits.of(queue.entries, snapshot.queue_file_bytes).read(next_offset - 1, 3)
        known = queue.units(next_offset - 1, 3)
        assert known is not None
        for name in ("physical_offset", "size"):
            assert known[name].tolist() == expected[name].tolist()
        behind = queue.units(next_offset, 2)
        assert behind is not None and not behind["size"].any()
        assert queue.units(next_offset - 2, 2) is None


def _write_behind(file: Path, end: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(end + 5 * UNIT_BYTES)
        opened.write(b"\1")


def _shorten(file: Path, end: int) -> None:
    os.truncate(file, file.stat().st_size - 1)


def _add_file(file: Path, end: int) -> None:
    size = file.stat().st_size
    shutil.copy(file, file.with_name(f"{int(file.name) + size:020d}"))


def _add_foreign(file: Path, end: int) -> None:
    file.with_name("core.123").write_bytes(b"x")


def _last_file(clean: Path) -> tuple[QueueId, Path, int]:
    """Of a sound queue: its last file, and where its last unit ends in there."""
    name, queue = min(_sound_queues(clean).items())
    last = Path(queue.entries[-1].path)
    return name, last, queue.messages.next * UNIT_BYTES - int(last.name)


@pytest.mark.parametrize("spoil", [_write_behind, _shorten, _add_file, _add_foreign])
def test_a_queue_with_something_else_is_not_sound(clean: Path, spoil: Callable[[Path, int], None]) -> None:
    name, file, end = _last_file(clean)
    spoil(file, end)
    assert name not in _sound_queues(clean)


def test_a_queue_with_much_behind_its_end_is_for_others_to_read(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, *_ = _last_file(clean)
    monkeypatch.setattr(prove, "_TAIL_BYTES", 0)
    assert name not in _sound_queues(clean)


def test_units_that_are_read_ahead_are_those_of_the_file(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In whatever order they are asked for, and behind the end of the files."""
    queues = QueueNumbers.of(Snapshot.of(Layout.open(clean)))
    monkeypatch.setattr(prove, "_AHEAD_UNITS", 7 * len(queues))
    ahead, random = UnitsAhead(queues), np.random.default_rng(3)
    for _ in range(400):
        number, first, count = random.integers(0, len(queues)), random.integers(0, 40), random.integers(1, 9)
        units = np.zeros(count, UNIT_DTYPE)
        ahead.fill(int(number), int(first), units)
        assert units.tobytes() == queues.stream(int(number)).read(int(first), int(count)).tobytes()


def test_a_byte_that_cannot_be_read_ahead_keeps_nobody_from_the_units_before_it(clean: Path) -> None:
    queues = QueueNumbers.of(Snapshot.of(Layout.open(clean)))
    name, file, end = _last_file(clean)
    number, units = queues.names.index(name), np.zeros(1, UNIT_DTYPE)
    failing_disk.fail_here(file, end, UNIT_BYTES)
    try:
        UnitsAhead(queues).fill(number, (int(file.name) + end) // UNIT_BYTES - 1, units)
    finally:
        failing_disk.mend_here()
    assert units["size"][0] > 0


def test_no_hole_is_read_ahead(clean: Path) -> None:
    """A byte there that cannot be read is no matter of the units before it."""
    queues = QueueNumbers.of(Snapshot.of(Layout.open(clean)))
    _, file, end = _last_file(clean)
    os.truncate(file, end)
    os.truncate(file, end + (1 << 20))  # all behind the last unit, but for the rest of its block
    entries = (DirectoryEntry(file.name, str(file), end + (1 << 20), False),)
    files = FileUnits.of(entries, end + (1 << 20)).files
    first = int(file.name) // UNIT_BYTES
    try:
        count = UnitsAhead(queues)._count(files, first, 1)
    finally:
        files.close()
    assert end // UNIT_BYTES <= count <= (end + (1 << 16)) // UNIT_BYTES
