"""Bodies: bounded, whole or as stored; no exception whatever they hold."""

from __future__ import annotations

import random
import tracemalloc
import zlib
from collections.abc import Callable

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.sys_flag import SysFlag
from mqstore.store.log.message import MAX_BODY_BYTES, Body, compression_of, pack, unpack
from mqstore.store.put.new_message import stored_body

COMPRESSED = int(SysFlag.COMPRESSED)
FLAGS = {"zlib": COMPRESSED | SysFlag.ZLIB, "lz4": COMPRESSED | SysFlag.LZ4, "zstd": COMPRESSED | SysFlag.ZSTD}
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "zlib": zlib.compress,
    "lz4": lz4.frame.compress,
    "zstd": zstandard.compress,
}
each_compression = pytest.mark.parametrize("name", FLAGS)


@pytest.mark.parametrize(
    ("sys_flag", "name"),
    [
        (0, ""),
        (0x300, ""),
        (0x1, "zlib"),
        (0x301, "zlib"),
        (0x309, "zlib"),
        (0x101, "lz4"),
        (0x201, "zstd"),
        (0x1 | 0x30, "zlib"),
        (0x401, ""),
        (0x701, ""),
    ],
)
def test_flags(sys_flag: int, name: str) -> None:
    """Spec 1.3: 4.3.1 sets 0x1 alone."""
    assert compression_of(sys_flag) == name


@pytest.mark.parametrize("kind", [4, 5, 6, 7])
def test_a_compression_that_clients_do_not_know(kind: int) -> None:
    """Clients from 4.9.7 to 5.5.1 get no message of such a record; measured."""
    stored, sys_flag = zlib.compress(b"body"), COMPRESSED | kind << 8
    found = unpack(stored, sys_flag)
    assert (found.data, found.compression) == (stored, "")
    assert found.error == f"has the compression type {kind}, which clients do not know"
    assert pack(stored, sys_flag) == stored


@given(st.binary(max_size=3000), st.sampled_from(sorted(FLAGS)))
def test_round_trip(data: bytes, name: str) -> None:
    for stored in (COMPRESS[name](data), pack(data, FLAGS[name])):
        found = unpack(stored, FLAGS[name])
        assert (found.data, found.compression, found.error) == (data, name, "")
        assert unpack(stored, FLAGS[name], len(data)).data == data


@each_compression
def test_large_bodies(name: str) -> None:
    data = random.Random(name).randbytes(1 << 20) * 3
    assert unpack(COMPRESS[name](data), FLAGS[name]).data == data


def test_not_compressed() -> None:
    stored = zlib.compress(b"as it is")
    assert unpack(stored, 0).data == stored
    assert pack(stored, 0) == stored


@pytest.mark.parametrize("sys_flag", [*FLAGS.values(), COMPRESSED | 7 << 8])
def test_an_empty_body_is_whole_as_it_is(sys_flag: int) -> None:
    """Clients from 4.3.1 to 5.5.1 decompress only bodies with a length above 0 (javap: MessageDecoder.decode)."""
    assert unpack(b"", sys_flag) == Body(b"")
    assert stored_body(b"", sys_flag, None, as_stored=False) == (b"", sys_flag)


@each_compression
def test_every_cut_is_noticed(name: str) -> None:
    """A stream without its end is shown as stored: half a body is no body."""
    stored = COMPRESS[name](b"some text, " * 300 + random.Random(1).randbytes(2000))
    for cut in range(1, len(stored)):
        found = unpack(stored[:cut], FLAGS[name])
        assert (found.data, found.compression) == (stored[:cut], ""), cut
        assert found.error.startswith(f"does not decompress with {name}: "), cut


def test_bytes_behind_a_zlib_stream_are_ignored() -> None:
    """As Java's inflater does, a second stream among them."""
    for rest in (b"rest", zlib.compress(b"more")):
        assert unpack(zlib.compress(b"body") + rest, FLAGS["zlib"]).data == b"body"


each_of_frames = pytest.mark.parametrize("name", ["lz4", "zstd"])
SKIPPED = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"abcde"


@each_of_frames
@pytest.mark.parametrize("size", [0, 3, 3000])
def test_every_frame_counts(name: str, size: int) -> None:
    """As the Java clients read them (measured with 4.9.7 to 5.5.1): all frames, without those to be skipped."""
    one, two = (random.Random(seed).randbytes(size) for seed in (1, 2))
    first, second = COMPRESS[name](one), COMPRESS[name](two)
    for stored, data in (
        (first + second, one + two),
        (SKIPPED + first, one),
        (first + SKIPPED, one),
        (first + SKIPPED + second, one + two),
    ):
        found = unpack(stored, FLAGS[name])
        assert (found.data, found.compression, found.error) == (data, name, "")
        assert unpack(stored, FLAGS[name], len(data)).data == data
        if data:
            assert unpack(stored, FLAGS[name], len(data) - 1).too_large


@each_of_frames
@pytest.mark.parametrize("rest", [b"r", b"rest", b"rest of it" * 100, "cut"])
def test_what_is_no_frame_behind_a_frame_is_an_error(name: str, rest: bytes | str) -> None:
    """A client gets no message there."""
    stored = COMPRESS[name](b"body")
    stored += stored[:-1] if isinstance(rest, str) else rest
    found = unpack(stored, FLAGS[name])
    assert (found.data, found.compression) == (stored, "")
    assert found.error.startswith(f"does not decompress with {name}: ")


@each_compression
@pytest.mark.parametrize("other", [*FLAGS, "none"])
def test_wrong_flags(name: str, other: str) -> None:
    if name == other:
        return
    stored = COMPRESS[other](b"body" * 50) if other in COMPRESS else b"plain text"
    found = unpack(stored, FLAGS[name])
    assert (found.data, found.compression) == (stored, "")
    assert name in found.error


@pytest.mark.few(1)
@each_compression
def test_bombs(name: str) -> None:
    """The bound is on what is unpacked, not on what is stored; memory stays near it."""
    bomb = COMPRESS[name](bytes(256 << 20))
    bound = 1 << 20
    tracemalloc.start()
    found = unpack(bomb, FLAGS[name], bound)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.data == bomb and found.too_large
    assert str(bound) in found.error
    assert peak < 48 << 20
    assert unpack(bomb, FLAGS[name]).error, "the default bound"
    assert MAX_BODY_BYTES < 256 << 20


@each_compression
@pytest.mark.parametrize("size", [0, 1, 2, 1000])
def test_the_bound_is_exact(name: str, size: int) -> None:
    stored = COMPRESS[name](b"x" * size)
    assert unpack(stored, FLAGS[name], size).data == b"x" * size
    if size:
        assert unpack(stored, FLAGS[name], size - 1).error


@given(st.binary(max_size=200), st.integers(0, 0x7FF))
def test_any_bytes(stored: bytes, sys_flag: int) -> None:
    found = unpack(stored, sys_flag, 1 << 20)
    assert (found.data == stored) if not found.compression else not found.error


@given(st.data(), st.sampled_from(sorted(FLAGS)))
def test_damaged_streams(data: st.DataObject, name: str) -> None:
    """Whatever a changed byte does, it does not raise."""
    stored = bytearray(COMPRESS[name](b"some text " * 20))
    at = data.draw(st.integers(0, len(stored) - 1))
    stored[at] ^= data.draw(st.integers(1, 255))
    found = unpack(bytes(stored), FLAGS[name], 1 << 20)
    assert bool(found.error) == (found.compression == "")


def test_headers_that_promise_too_much() -> None:
    """A frame header may ask for any window and any size."""
    for head in ("28b52ffde00000000000000010010000", "28b52ffd00ff010000", "28b52ffd00f8010000"):
        tracemalloc.start()
        assert unpack(bytes.fromhex(head), FLAGS["zstd"]).error
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
        tracemalloc.stop()
    frame = bytearray(lz4.frame.compress(b"x" * 100, store_size=True))
    frame[6:14] = (1 << 60).to_bytes(8, "little")
    assert unpack(bytes(frame), FLAGS["lz4"]).error
