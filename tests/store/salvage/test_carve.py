"""What carving finds among other bytes, and what it does not believe."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mqstore.formats.commit_log import PLAIN
from mqstore.formats.hashing import crc31
from mqstore.formats.message import MAGIC_V1, MAGIC_V2
from mqstore.store.salvage import carve as carving
from mqstore.store.salvage.runs import LARGEST_RECORD, Grade
from tests.slices import rng, share
from tests.stores import NAMES, unpack

from .images import fake, found_in, image, noise, places, records_of

SIZE_LIES = (-(2**31), -1, 0, 1, 90, 91, 2**16, LARGEST_RECORD, LARGEST_RECORD + 1, 2**31 - 1)


@pytest.mark.parametrize("name", ["4.3.1-clean", "4.9.7-ipv6", "5.3.3-v2", "5.5.0-propcrc"])
def test_every_record_of_a_store_is_found_whole(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    found = found_in(root / "commitlog")
    assert sum(run.records for run in found.runs) == len(records_of(name, root))
    assert {run.grade for run in found.runs} == {Grade.WHOLE}
    assert (found.split, found.embedded) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in NAMES if n.endswith("-clean")])
def test_every_record_of_every_clean_store(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    found = found_in(root / "commitlog")
    assert sum(run.records for run in found.runs) == len(records_of(name, root))


def test_records_anywhere_among_other_bytes(records: list[tuple[int, bytes]], tmp_path: Path) -> None:
    chance = rng("anywhere")
    data, wanted = bytearray(), []
    for position, record in records[:60]:
        data += noise(chance, chance.randrange(200))
        wanted.append((len(data), position, len(record)))
        data += record
    data += noise(chance, 100)
    found = found_in(image(tmp_path, bytes(data)))
    pieces = []
    for run in found.runs:  # records without noise between them are one run
        at = run.at
        while at < run.at_end:
            size = next(length for begin, _, length in wanted if begin == at)
            pieces.append((at, run.position + at - run.at, size))
            at += size
    assert pieces == wanted
    assert found.split == 0


def test_windows_cut_records_anywhere(
    records: list[tuple[int, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b"".join(record for _, record in records[:40])
    path = image(tmp_path, b"\1" * 7 + data + b"\1" * 9)
    whole = places(found_in(path).runs)
    for size in (200, 333, 1024, 4096):
        monkeypatch.setattr(carving, "WINDOW_BYTES", size)
        found = found_in(path)
        assert places(found.runs) == whole, size
        assert found.split == 0, size


def test_a_record_longer_than_a_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = random.Random(1).randbytes(100_000)
    record = fake(4096, body, crc=crc31(body))
    monkeypatch.setattr(carving, "WINDOW_BYTES", 4096)
    found = found_in(image(tmp_path, bytes(5000) + record + bytes(5000)))
    assert places(found.runs) == [(5000, 4096, len(record))]


def test_a_record_in_another_ones_body_is_its_content(tmp_path: Path) -> None:
    inner = fake(0, b"inner", crc=crc31(b"inner"))
    body = b"x" * 500 + inner + b"y" * 500
    outer = fake(8192, body, crc=crc31(body))
    found = found_in(image(tmp_path, outer + outer[:40]))
    assert places(found.runs) == [(0, 8192, len(outer))]
    assert found.embedded == 0


def test_a_record_in_a_damaged_ones_body_is_told(tmp_path: Path) -> None:
    inner = fake(0, b"inner", crc=crc31(b"inner"))
    outer = bytearray(fake(8192, b"x" * 500 + inner + b"y" * 500, crc=1))
    found = found_in(image(tmp_path, bytes(outer)))
    assert [run.grade for run in found.runs] == [Grade.STRUCTURE]
    assert (found.embedded, found.fragments[0].position) == (1, 0)


def test_a_head_whose_body_does_not_follow(records: list[tuple[int, bytes]], tmp_path: Path) -> None:
    """The blocks of a file lie apart: the first half here, the second half there."""
    (first, whole), (second, cut) = records[0], records[1]
    data = whole + cut[:95] + noise(random.Random(3), 3000) + cut[95:]
    found = found_in(image(tmp_path, data))
    assert places(found.runs)[:1] == [(0, first, len(whole))]
    assert [(f.at, f.position, f.size, f.embedded) for f in found.fragments] == [(len(whole), second, len(cut), False)]


@pytest.mark.parametrize("magic", [MAGIC_V1, MAGIC_V2])
@pytest.mark.parametrize("lie", SIZE_LIES)
def test_sizes_that_lie(magic: int, lie: int, tmp_path: Path) -> None:
    """Heads everywhere, all with the same lie: nothing is found and nothing allocated for it."""
    record = bytearray(fake(0, b"z" * 30, crc=0))
    record[: PLAIN.magic_offset] = lie.to_bytes(4, "big", signed=True)
    record[PLAIN.magic_offset : PLAIN.magic_offset + 4] = magic.to_bytes(4, "big")
    path = image(tmp_path, bytes(record) * 500)
    assert found_in(path).runs == []
    nothing = image(tmp_path, magic.to_bytes(4, "big") * 20_000, "magics")
    assert found_in(nothing).runs == []


def test_nested_records_that_all_fit(tmp_path: Path) -> None:
    """Each in the body of the one before, none with its CRC: the outermost counts, once."""
    record = b""
    for number in range(60):
        record = fake(number, record, crc=7)
    found = found_in(image(tmp_path, record))
    assert [(run.records, run.grade) for run in found.runs] == [(1, Grade.STRUCTURE)]
    assert found.embedded == 59


def _random_image(path: Path, size: int, seed: str) -> int:
    """Random bytes with whole records that embed whole fakes; returns how many are real."""
    chance, real = random.Random(seed), 0
    with path.open("wb") as file:
        while file.tell() < size:
            file.write(chance.randbytes(chance.randrange(1, 1 << 16)))
            inner = fake(chance.randrange(1 << 40), chance.randbytes(90), crc=chance.randrange(9))
            body = chance.randbytes(50) + inner + chance.randbytes(50)
            whole = chance.random() < 0.5
            file.write(fake(chance.randrange(1 << 40), body, crc=crc31(body) if whole else 3))
            real += whole
    return real


@pytest.mark.parametrize("size", [1 << 22, pytest.param(1 << 30, marks=pytest.mark.slow)])
def test_nothing_in_random_bytes_is_taken_for_whole(size: int, tmp_path: Path) -> None:
    path = tmp_path / "image"
    real = _random_image(path, share(size) if size > 1 << 22 else size, f"random {size}")
    found = found_in(path)
    assert sum(run.records for run in found.runs if run.grade is Grade.WHOLE) == real
    path.unlink()
