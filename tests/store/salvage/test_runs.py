"""Sources of bytes, how much is believed of a record, and records that do not fit in between others."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mqstore.formats.hashing import crc31
from mqstore.formats.message import MESSAGE
from mqstore.store.errors import Missing
from mqstore.store.salvage import carve as carving
from mqstore.store.salvage.carve import Carved
from mqstore.store.salvage.runs import Grade, SalvageSource

from .images import fake, found_in, image


def test_a_record_in_a_hole_of_others_is_odd(records: list[tuple[int, bytes]], tmp_path: Path) -> None:
    """Its outer one has lost its head: what lies around says that it is none of them."""
    inner = fake(123_456, b"inner", crc=crc31(b"inner"))
    around = [record for _, record in records[:5]]
    around[2] = (bytes(20) + inner).ljust(len(around[2]), b"\0")
    data = b"".join(around)
    found = found_in(image(tmp_path, data))
    assert [run.odd for run in found.runs] == [False, True, False]


@pytest.mark.parametrize("filler", [b"\0", b"\xfe"])
@pytest.mark.parametrize("cut", range(60, 210, 10))
def test_the_front_of_a_record_is_never_whole(
    records: list[tuple[int, bytes]], cut: int, filler: bytes, tmp_path: Path
) -> None:
    """Wherever it ends, whatever comes behind: body or properties tell."""
    data = records[1][1]
    found = found_in(image(tmp_path, data[:cut] + filler * 1000))
    assert all(run.grade is not Grade.WHOLE for run in found.runs)


def test_torn_properties_are_no_whole_record(records: list[tuple[int, bytes]], tmp_path: Path) -> None:
    record = next(r for _, r in records if len(MESSAGE.parse(r).properties) > 50)
    found = found_in(image(tmp_path, record[:-20] + bytes(20)))
    assert [run.grade for run in found.runs] == [Grade.BODY]


def test_a_nul_that_a_client_sent_is_no_damage(records: list[tuple[int, bytes]], tmp_path: Path) -> None:
    values = MESSAGE.parse(records[0][1])
    record = MESSAGE.build({**values, "total_size": None, "properties": b"a\x01\0b\x02" + b"n\x01\0\x02"})
    assert [run.grade for run in found_in(image(tmp_path, record)).runs] == [Grade.WHOLE]


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(Missing):
        found_in(tmp_path / "nothing")
    assert found_in(image(tmp_path, b"")).runs == []


def test_blocks_that_a_disk_does_not_give(
    records: list[tuple[int, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They read as zeros, and are told; what lies around them is found."""
    data = b"".join(record for _, record in records[:100])
    path, bad = image(tmp_path, data), range(8192, 12288)
    read = os.preadv

    def broken(descriptor: int, buffers: list[memoryview], at: int) -> int:
        if at < bad.stop and at + len(buffers[0]) > bad.start:
            raise OSError(errno.EIO, "Input/output error")
        return read(descriptor, buffers, at)

    monkeypatch.setattr(os, "preadv", broken)
    found = Carved()
    source = SalvageSource(path)
    carving.carve(source, 0, found)
    source.close()
    assert source.unreadable == [(bad.start, bad.stop)]
    at, whole = 0, 0
    for _, record in records[:100]:
        whole += at + len(record) <= bad.start or at >= bad.stop
        at += len(record)
    assert sum(run.records for run in found.runs if run.grade is Grade.WHOLE) == whole
