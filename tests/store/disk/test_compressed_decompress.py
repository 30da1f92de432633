"""Unpacking gzip and zstd: all that can be had of whole, cut, changed and hostile files."""

from __future__ import annotations

import io
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.store.disk import compressed as module
from mqstore.store.disk.compressed import UnpackedSink, UnpackedTooLarge, decompress

from ...packing import PACKERS, gz, zst

_random = random.Random(7)
TEXT = b"".join(b"%d of the records\n" % _random.randrange(10**9) for _ in range(20_000))
CONTENTS = {
    "nothing": b"",
    "text": TEXT,
    "zeros inside": TEXT + bytes(1 << 20) + TEXT[:1000],
    "zeros at the end": TEXT + bytes(300_000),
    "noise": _random.randbytes(200_000),
}


def unpacked(packed: bytes) -> tuple[bytes, str]:
    """What comes out, and what is said to be wrong."""
    target = io.BytesIO()
    sink = UnpackedSink(target)
    problem = decompress(io.BytesIO(packed), sink)
    assert sink.size == len(target.getvalue())
    return target.getvalue(), problem


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("how", PACKERS)
def test_whole_files(how: str, content: str) -> None:
    data = CONTENTS[content]
    assert unpacked(PACKERS[how][1](data)) == (data, "")


@pytest.mark.parametrize("how", PACKERS)
def test_a_cut_gives_the_front(how: str) -> None:
    """Of every cut of a small file, of some of a large one: what comes out is the beginning."""
    small, large = TEXT[:300], CONTENTS["noise"] + TEXT
    for data, step in ((small, 1), (large, 9973)):
        packed = PACKERS[how][1](data)
        longest = 0
        for cut in range(0, len(packed), step):
            found, problem = unpacked(packed[:cut])
            assert data.startswith(found), cut
            assert problem or found == data or how.endswith(("members", "frames")), cut
            assert len(found) >= longest, cut
            longest = len(found)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["gzip", "zstd"])
def test_a_changed_byte_costs_what_is_behind_it(how: str) -> None:
    """The front up to the change comes out, and the change is told."""
    data = CONTENTS["noise"] + TEXT
    packed = bytearray(PACKERS[how][1](data))
    block = 1 << 17 if how == "zstd" else 1 << 10
    for at in range(100, len(packed) - 20, 20011):
        packed[at] ^= 0x10
        found, problem = unpacked(bytes(packed))
        packed[at] ^= 0x10
        pairs = enumerate(zip(found, data, strict=False))
        same = next((i for i, (a, b) in pairs if a != b), len(found))
        assert problem, at
        assert same >= min(at, len(data)) - block, at


@pytest.mark.parametrize("how", ["gzip", "zstd"])
def test_a_wrong_checksum_costs_nothing(how: str) -> None:
    packed = bytearray(PACKERS[how][1](TEXT))
    packed[-6 if how == "gzip" else -1] ^= 1
    found, problem = unpacked(bytes(packed))
    assert found == TEXT
    assert "check" in problem


@pytest.mark.parametrize("how", ["gzip", "zstd"])
def test_what_follows_the_end_is_told(how: str) -> None:
    found, problem = unpacked(PACKERS[how][1](TEXT) + b"something else")
    assert found == TEXT
    assert problem


def test_other_data_is_told() -> None:
    for data in (b"", b"x", b"plain text", bytes(100), b"BZh9"):
        assert unpacked(data) == (b"", "it is not gzip or zstd data")


@pytest.mark.parametrize("packed", [gz(bytes(5 << 20)), zst(bytes(5 << 20))], ids=["gzip", "zstd"])
def test_bombs_end_at_the_bound(packed: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST_BYTES", 4 << 20)
    with pytest.raises(UnpackedTooLarge):
        unpacked(packed)


def test_a_zstd_window_of_gigabytes_is_not_made() -> None:
    """A frame may ask for any amount of memory."""
    header = b"\x28\xb5\x2f\xfd" + bytes([0, 21 << 3])  # a window of 2 GiB
    raw_block = (4 << 3 | 1).to_bytes(3, "little") + b"text"
    found, problem = unpacked(header + raw_block)
    assert found == b""
    assert "memory" in problem


@given(st.binary(max_size=400))
def test_any_bytes(data: bytes) -> None:
    """No exception, whatever stands behind the magic numbers."""
    for head in (b"\x1f\x8b", b"\x1f\x8b\x08\0\0\0\0\0\0\3", b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18"):
        unpacked(head + data)
