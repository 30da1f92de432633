"""Logs and MANIFESTs: schema and quick form say the same, real records both ways, and where a log ends early."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.fixed import numbers_of
from mqstore.formats.rocksdb import EDIT, LOG_BLOCK_BYTES, LOG_PART, LogRecords, manifest_of, read_log

from .. import stores

pytestmark = pytest.mark.long

HEAD = LOG_PART.sizeof()


@given(st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 16) - 1), st.integers(0, 255))
def test_a_part(crc: int, length: int, kind: int) -> None:
    data = LOG_PART.build({"crc": crc, "length": length, "type": kind})
    assert numbers_of(LOG_PART).unpack(data) == (crc, length, kind)
    assert data == crc.to_bytes(4, "little") + length.to_bytes(2, "little") + bytes([kind])
    assert LOG_PART.parse(data).type == kind


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The RocksDB of the topics of a killed broker: a log of four records, some of them in no table."""
    return stores.unpack("5.5.0-rocksdb-killed", tmp_path_factory.mktemp("store")) / "config/topics"


def test_real_edits_are_read_and_built(topics: Path) -> None:
    (path,) = topics.glob("MANIFEST-*")
    found = read_log([path.read_bytes()], keep=True)
    assert len(found.records) > 3
    for record in found.records:
        assert EDIT.build(EDIT.parse(record)) == record
    content = manifest_of([path.read_bytes()])
    assert content is not None and not content.torn
    assert content.tables == {int(table.stem): table.stat().st_size for table in topics.glob("*.sst")}
    assert (content.first_log, content.open_log, content.next_file) == (10, 10, 13)


def test_a_manifest_that_nobody_can_read(topics: Path) -> None:
    (path,) = topics.glob("MANIFEST-*")
    data = bytearray(path.read_bytes())
    data[HEAD + 2] ^= 1
    assert manifest_of([bytes(data)]) is None
    assert manifest_of([]) is None


def test_a_log_ends_early(topics: Path) -> None:
    """A wrong byte is damage, wherever it is; an end that is cut is none, if nothing good is behind it."""
    data = (topics / "000010.log").read_bytes()
    whole = read_log([data], keep=True)
    assert len(whole.records) == 4 and whole[1:] == (None, None)
    places = [0]
    for record in whole.records:
        places.append(places[-1] + HEAD + len(record))
    for at in range(len(data)):
        wrong = bytearray(data)
        wrong[at] ^= 4
        begin = max(place for place in places if place <= at)
        found = read_log([bytes(wrong)], keep=False)
        length_of_last = begin == places[3] and at - begin in (4, 5)
        assert found == LogRecords([], begin) or (length_of_last and found == LogRecords([], None, begin)), at
        cut = read_log([data[:at]], keep=False)
        assert cut == LogRecords([], None, None if at in places else begin), at


def test_zeros_behind_a_log(topics: Path) -> None:
    data = (topics / "000010.log").read_bytes()
    assert read_log([data + bytes(100)], keep=False) == LogRecords([], None, len(data))
    filled = (data + bytes(LOG_BLOCK_BYTES))[:LOG_BLOCK_BYTES]
    assert read_log([filled, data], keep=False) == read_log([filled + data], keep=False) == LogRecords([], len(data))
