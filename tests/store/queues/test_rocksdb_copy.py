"""Units of a RocksDB as files: the same units, the same holes, and nothing left behind.

What the files of real RocksDBs prove: nothing is lost of those that a broker left, and each loss is told.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import rocksdict

from mqstore.formats.rocksdb_consume_queue import UNIT, unit_key
from mqstore.store.broker.snapshot import QueueId
from mqstore.store.queues.rocksdb import RocksDb, RocksdbConsumeQueue
from mqstore.store.queues.rocksdb_copy import CopiedQueues, CutShort, DatabaseLoss, database_loss, loss_or_cut
from mqstore.store.queues.rocksdb_write import table_options
from mqstore.store.queues.units import UNIT_DTYPE

from ... import stores

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


STORES = ("5.3.3-rocksdb", "5.5.0-rocksdb-killed", "5.5.0-clean", "5.5.1-config-single", "5.5.1-config-v2")


@pytest.mark.parametrize("name", [*STORES, "5.5.1-rocks-trans-open", "5.5.1-combine-finished"])
def test_real_databases_have_lost_nothing(name: str, tmp_path: Path) -> None:
    root = stores.unpack(name, tmp_path)
    found = [current.parent for current in root.rglob("CURRENT")]
    assert found
    for path in found:
        assert database_loss(path) is None, path


@pytest.fixture
def topics(tmp_path: Path) -> Path:
    """The RocksDB of the topics of a killed broker: two tables, MANIFEST-000005, and a log of four records."""
    return stores.unpack("5.5.0-rocksdb-killed", tmp_path) / "config/topics"


def lost(path: Path) -> DatabaseLoss:
    found = database_loss(path)
    assert found is not None
    return found


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def cut(path: Path, length: int) -> None:
    path.write_bytes(path.read_bytes()[:length])


NEW = bytes.fromhex("c4c19f5b060001020003020400")
"""The MANIFEST that a real broker left whose start failed for want of CURRENT (5.5.1)."""


def test_current_leads_to_another_manifest(topics: Path) -> None:
    """It is lost, or names the MANIFEST that a failed start has made."""
    current, own = topics / "CURRENT", topics / "MANIFEST-000005"
    with RocksDb.open(topics) as opened:
        rows = list(opened.items("default"))
    current.unlink()
    assert lost(topics) == DatabaseLoss("it has no CURRENT", own.name, opens=False)
    current.write_text("MANIFEST-000099\n")
    assert lost(topics).text == "CURRENT names 'MANIFEST-000099', which is not there"
    (topics / "000004.log").unlink()  # has once more what the tables have
    other = topics / "MANIFEST-000001"
    other.write_bytes(NEW)
    current.write_text(f"{other.name}\n")
    assert lost(topics).manifest == own.name
    with RocksDb.open(topics, manifest=own.name) as right, RocksDb.open(topics) as wrong:
        assert list(right.items("default")) == rows
        assert len(list(wrong.items("default"))) < len(rows)
    cut(own, 40)
    assert lost(topics).manifest == ""


def test_a_manifest_that_is_older_than_the_tables(topics: Path) -> None:
    own = topics / "MANIFEST-000005"
    cut(own, own.stat().st_size // 2)
    (topics / "000004.log").unlink()
    assert lost(topics) == DatabaseLoss("MANIFEST-000005 is older than the tables beside it")


def test_a_log_that_is_missing(topics: Path) -> None:
    (topics / "000010.log").unlink()
    assert lost(topics) == DatabaseLoss("a write-ahead log of MANIFEST-000005 is missing", sure=False)


CHANGES: dict[str, Callable[[Path], None]] = {
    "damaged at 0": lambda log: flip(log, 20),
    "damaged at 451": lambda log: flip(log, log.stat().st_size - 1),
}


@pytest.mark.parametrize("text", CHANGES)
def test_a_log_that_is_damaged(text: str, topics: Path) -> None:
    CHANGES[text](topics / "000010.log")
    assert lost(topics).text == f"its write-ahead log 000010.log is {text}, and is not read from there on"


def test_an_end_that_is_cut_is_what_a_kill_leaves(topics: Path) -> None:
    """Not of a log that has a later one behind it."""
    log = topics / "000010.log"
    cut(log, 500)
    assert database_loss(topics) is None
    assert loss_or_cut(topics) == CutShort(log.name, 451)
    (topics / "000011.log").touch()
    assert lost(topics).text.startswith("its write-ahead log 000010.log is cut short at 451")


def test_a_log_that_nobody_needs_any_more(topics: Path) -> None:
    """Its entries are in tables: it waits to be deleted."""
    flip(topics / "000004.log", 20)
    assert database_loss(topics) is None


def test_a_table_that_its_manifest_names(topics: Path) -> None:
    """Without it, or with one that was cut, a broker does not open what is left."""
    table = max(topics.glob("*.sst"))
    cut(table, 100)
    assert lost(topics) == DatabaseLoss(
        f"its table {table.name} does not have the length that its MANIFEST says", opens=False
    )
    table.unlink()
    assert lost(topics) == DatabaseLoss(f"its table {table.name} is missing", opens=False)


def test_no_database(tmp_path: Path) -> None:
    assert database_loss(tmp_path / "none") is None
    assert database_loss(tmp_path) is None
    new = database(tmp_path / "new", ())
    assert database_loss(new) is None
    (new / "CURRENT").unlink()
    (new / "CURRENT").mkdir()  # whoever opens it tells that
    assert database_loss(new) is None
