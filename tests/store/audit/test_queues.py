"""A queue on disk against the log: what it lacks is filled in, what belongs to nothing goes, all else stays."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import create_autospec

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.consume_queue import UNIT_BYTES
from mqstore.formats.derive.ragged import Ints
from mqstore.store.audit.messages import Messages
from mqstore.store.audit.queues import QueueAudit
from mqstore.store.broker.snapshot import QueueId
from mqstore.store.disk.file_queue import MappedFileQueue, file_name
from mqstore.store.log.commit_log import CommitLog
from mqstore.store.queues.edits import QueueFix
from mqstore.store.queues.units import UNIT_DTYPE, FileUnits, Units, is_pre_fill, is_used, is_valid, joined, pre_fill

from ..made_log import MadeLog

QUEUE = QueueId("T", 0)
COUNT, ROOM = 12, 20
OFFSETS = np.arange(COUNT)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[CommitLog, Units]:
    """A log of one queue, and its units."""
    log = MadeLog(1 << 13)
    for number in range(COUNT):
        log.append(b"x" * (30 + number), topic=b"T")
    units = np.zeros(COUNT, UNIT_DTYPE)
    units["physical_offset"], units["size"] = np.array(log.spans).T
    return log.log(tmp_path_factory.mktemp("log")), units


def audited(
    folder: Path,
    there: Units,
    made: tuple[CommitLog, Units],
    seen: slice = slice(None),
    log_start: int = 0,
    further: int = 0,
    offsets: Ints = OFFSETS,
) -> QueueFix:
    """What becomes of a queue with these units on disk, of a log that has some of the messages.

    further: bytes of the log behind the last one. offsets: queue offsets of all messages.
    """
    log, units = made
    (folder / file_name(0)).write_bytes(there.tobytes().ljust(ROOM * UNIT_BYTES, b"\0"))
    end = int(units["physical_offset"][-1] + units["size"][-1])
    stream = FileUnits(MappedFileQueue.open(folder, ROOM * UNIT_BYTES))
    audit = QueueAudit(QUEUE, stream, log_start, end + further)
    offset, unit = offsets[seen], units[seen]
    position, size = (unit[name].astype(np.int64) for name in ("physical_offset", "size"))
    zeros, good = np.zeros(len(unit), np.int64), np.ones(len(unit), np.bool_)
    audit.add(Messages(QUEUE, offset, position, size, zeros, zeros, good, ~good))
    return audit.finish(log)


def patched(there: Units, fix: QueueFix) -> Units:
    """The queue once that is done."""
    found = np.zeros(ROOM, UNIT_DTYPE)
    found[: len(there)] = there
    found[fix.offsets] = fix.units
    found[fix.end :] = np.zeros(1, UNIT_DTYPE)
    return found


WRONG = {
    "zeros": (0, 0),
    "behind the log": (1 << 40, 100),
    "behind the last number": ((1 << 63) - 1, 100),
    "no size": (100, 0),
    "negative": (-5, 100),
    "no record": (17, 100),
}


@given(st.dictionaries(st.integers(0, COUNT - 1), st.sampled_from([*WRONG]), max_size=COUNT))
def test_whatever_units_are_damaged_the_queue_is_that_of_the_log(
    made: tuple[CommitLog, Units], damage: dict[int, str]
) -> None:
    there = made[1].copy()
    for number, kind in damage.items():
        there["physical_offset"][number], there["size"][number] = WRONG[kind]
    with TemporaryDirectory() as folder:
        fix = audited(Path(folder), there, made)
    assert not fix.shifted and fix.end == COUNT
    assert set(fix.offsets.tolist()) == set(damage) and fix.missing == len(damage)
    assert (patched(there, fix)[:COUNT] == made[1]).all()


def test_logs_are_longer_than_the_largest_size(made: tuple[CommitLog, Units], tmp_path: Path) -> None:
    there = made[1].copy()
    there[3:5] = np.zeros(1, UNIT_DTYPE)
    fix = audited(tmp_path, there, made, slice(3, None), further=3 << 30)
    assert (fix.end, fix.missing, len(fix.offsets)) == (COUNT, 2, 2)


EXPIRED = 6


@given(st.dictionaries(st.integers(0, EXPIRED - 1), st.sampled_from([kind for kind in WRONG if kind != "no record"])))
def test_units_of_expired_messages_name_places_below_the_log(
    made: tuple[CommitLog, Units], damage: dict[int, str]
) -> None:
    """A start ends the queue before one that is invalid, or that reaches beyond the end of the log."""
    start, there = int(made[1]["physical_offset"][EXPIRED]), made[1].copy()
    for number, kind in damage.items():
        there["physical_offset"][number], there["size"][number] = WRONG[kind]
    with TemporaryDirectory() as folder:
        fix = audited(Path(folder), there, made, slice(EXPIRED, None), start)
    assert not fix.shifted and fix.end == COUNT and set(fix.offsets.tolist()) == set(damage)
    found = patched(there, fix)[:COUNT]
    assert is_valid(found).all()
    used = found["physical_offset"][is_used(found)].astype(np.int64)
    assert (np.diff(used) > 0).all()
    assert (found["physical_offset"][:EXPIRED] < start).all()
    filled = int(is_pre_fill(found).sum())
    assert is_pre_fill(found[:filled]).all(), "nothing but the front is pre-filled"


@pytest.mark.parametrize("lost", [1, 3])
def test_units_of_lost_records_stay_between_those_of_others(
    lost: int, made: tuple[CommitLog, Units], tmp_path: Path
) -> None:
    """Behind the last message, too, where nothing contradicts them; a unit that is gone repeats the one before."""
    fix = audited(tmp_path, made[1], made, slice(0, COUNT - lost))
    assert (fix.end, len(fix.offsets)) == (COUNT - lost, 0), "these records are whole: they are of no queue"
    there = made[1].copy()
    there["physical_offset"][-lost:] += 1  # where no record begins
    fix = audited(tmp_path, there, made, slice(0, COUNT - lost))
    assert (fix.end, len(fix.offsets)) == (COUNT - 1, 0), "the last one reaches behind the log"


@pytest.mark.parametrize("filled", [1, 4])
def test_no_queue_ends_with_pre_fill(filled: int, made: tuple[CommitLog, Units], tmp_path: Path) -> None:
    """It would get no unit of what is stored then; between units of lost records it may stand."""
    there = joined([made[1], pre_fill(filled)])
    fix = audited(tmp_path, there, made)
    assert (fix.end, fix.missing, len(fix.offsets)) == (COUNT, 0, 0)
    there["physical_offset"][COUNT - 2] += 1  # where no record begins
    there[[COUNT - 3, COUNT - 1]] = pre_fill(2)
    fix = audited(tmp_path, there, made, slice(0, COUNT - 3))
    assert (fix.end, len(fix.offsets)) == (COUNT - 1, 0)


def test_units_behind_the_end_of_the_log_are_counted_and_go(made: tuple[CommitLog, Units], tmp_path: Path) -> None:
    there = np.zeros(COUNT + 3, UNIT_DTYPE)
    there[:COUNT] = made[1]
    there["physical_offset"][COUNT:] = (1 << 30) + np.arange(3) * 100
    there["size"][COUNT:] = 100
    fix = audited(tmp_path, there, made)
    assert (fix.end, fix.beyond, fix.missing) == (COUNT, 3, 0)


def test_a_queue_that_was_shifted_keeps_its_numbers(
    made: tuple[CommitLog, Units], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Consumers know them; the message that has no place gets one behind the others."""
    there = np.delete(made[1], 5)
    read = create_autospec(FileUnits.read, side_effect=FileUnits.read)
    monkeypatch.setattr(FileUnits, "read", read)
    fix = audited(tmp_path, there, made)
    assert fix.shifted and fix.end == COUNT - 1
    assert (patched(there, fix)[: COUNT - 1] == there).all()
    assert (
        sum(call.args[1] == 0 for call in read.call_args_list) == 4
    )  # against the log, its last unit, all of them, the last of these


@pytest.mark.parametrize("more", [0, 2])
def test_a_unit_behind_offsets_given_twice_stays_at_its_own_offset(more: int, tmp_path: Path) -> None:
    """A start that cut the queue in memory alone left it in the file, and the next one takes it up again (B9)."""
    log, offsets = MadeLog(1 << 13), np.array([*range(8), 5, 6, 8, 9])
    for offset in offsets.tolist():
        log.append(b"x", topic=b"T", queue_offset=offset)
    units = np.zeros(COUNT, UNIT_DTYPE)
    units["physical_offset"], units["size"] = np.array(log.spans).T
    there = units[[0, 1, 2, 3, 4, 8, 9, 7, 10, 11][: 8 + more]]
    fix = audited(tmp_path, there, (log.log(tmp_path / "log"), units), slice(10 + more), offsets=offsets)
    assert fix.end == 8 + more
    assert (patched(there, fix)[: fix.end] == there).all()
