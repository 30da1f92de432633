"""Units of a RocksDB as files: the same units, the same holes, and nothing left behind."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest
import rocksdict

from mqstore.formats.rocksdb_consume_queue import UNIT, unit_key
from mqstore.store.broker.snapshot import QueueId
from mqstore.store.queues.rocksdb import RocksDb, RocksdbConsumeQueue
from mqstore.store.queues.rocksdb_copy import CopiedQueues
from mqstore.store.queues.rocksdb_write import table_options
from mqstore.store.queues.units import UNIT_DTYPE

QUEUE = QueueId("topic", 2)
NUMBERS = (0, 1, 2, 5, 6, 9, 10, 11, 12, 40, 1000)
"""Of units in files of ten: with holes in, between and in place of files."""
FILE_BYTES = 200
NONE = np.empty(0, UNIT_DTYPE)


def database(path: Path, numbers: tuple[int, ...] = NUMBERS) -> Path:
    """A RocksDB of one queue; the unit 6 is zeros, 11 a value that is no unit."""
    options = table_options(rocksdict)
    options.create_if_missing(True)
    opened = rocksdict.Rdict(str(path), options)
    for number in numbers:
        fields = (number % 10**6 * 100, 90, number, 7) if number != 6 else (0, 0, 0, 0)
        value = UNIT.build(dict(zip(("physical_offset", "size", "tags_code", "store_timestamp"), fields, strict=True)))
        opened[unit_key(b"topic", 2, number)] = value if number != 11 else b"short"
    opened.close()
    return path


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_units_and_holes_are_those_of_the_database(tmp_path: Path, temporary: Path) -> None:
    with RocksDb.open(database(tmp_path / "db")) as opened:
        copied = CopiedQueues.of(opened, FILE_BYTES)
        there, made = RocksdbConsumeQueue(opened, *QUEUE).stream, copied.stream(*QUEUE)
        assert made is not None and copied.whole
        for first, stop in ((0, 2000), (1, 6), (6, 7), (3, 5), (12, 41), (1000, 1001), (2000, 9)):
            wanted = np.concatenate([units for _, units in there.windows(first, stop)] or [NONE])
            for reverse in (False, True):
                parts = list(made.windows(first, stop, reverse=reverse, most=3))
                numbers = [n + i for n, units in parts for i in range(len(units))]
                expected = [n for n in NUMBERS if first <= n < stop and n != 11]
                assert sorted(numbers) == expected, "other units are there"
                ordered = parts[::-1] if reverse else parts
                assert numbers == expected or reverse
                found = np.concatenate([units for _, units in ordered] or [NONE])
                assert found.tolist() == wanted.tolist()
            if stop > first:
                assert made.read(first, stop - first).tolist() == there.read(first, stop - first).tolist()
        assert copied.stream("topic", 3) is None


def test_numbers_without_a_place_in_a_file_are_told(tmp_path: Path, temporary: Path) -> None:
    with RocksDb.open(database(tmp_path / "db", (3, (1 << 63) - 2))) as opened:
        assert not CopiedQueues.of(opened, FILE_BYTES).whole


def test_files_go_with_the_object_not_with_a_pickle(tmp_path: Path, temporary: Path) -> None:
    with RocksDb.open(database(tmp_path / "db")) as opened:
        copied = CopiedQueues.of(opened, FILE_BYTES)
    path = Path(copied.entries[QUEUE][0].path)
    named = pickle.loads(pickle.dumps(copied))
    assert named.entries == copied.entries
    del named
    assert path.exists(), "what came from another process has taken the files away"
    del copied
    assert list(temporary.iterdir()) == []
