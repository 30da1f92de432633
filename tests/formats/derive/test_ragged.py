"""Byte strings inside one buffer, against lists of bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.formats.derive import Ragged
from mqstore.formats.derive.ragged import overlapping, ragged_copy
from tests.slices import examples

STRINGS = st.lists(st.one_of(st.none(), st.binary(max_size=20), st.binary(max_size=600)), max_size=8)
#: Around the block sizes of the copy, and above the longest of them.
LENGTHS = [0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 255, 256, 4095, 4096, 4097, 8191, 8192, 8193, 20_000]


def filled(strings: list[bytes | None]) -> list[bytes]:
    return [string or b"" for string in strings]


@given(STRINGS)
def test_lists_and_back(strings: list[bytes | None]) -> None:
    ragged = Ragged.of(strings)
    assert len(ragged) == len(strings)
    assert ragged.tolist() == list(ragged) == filled(strings)
    assert [ragged[i] for i in range(len(strings))] == filled(strings)
    assert (ragged.length < 0).tolist() == [string is None for string in strings]


@given(STRINGS, st.data())
@settings(max_examples=examples(30))
def test_selections(strings: list[bytes | None], data: st.DataObject) -> None:
    ragged, plain = Ragged.of(strings), filled(strings)
    mask = data.draw(st.lists(st.booleans(), min_size=len(strings), max_size=len(strings)))
    index = np.flatnonzero(np.array(mask, np.bool_))[::-1]
    assert ragged[np.array(mask, np.bool_)].tolist() == [s for s, m in zip(plain, mask, strict=True) if m]
    assert ragged[index].tolist() == [plain[i] for i in index]
    assert ragged[1:].tolist() == plain[1:]


@given(STRINGS, STRINGS)
def test_packed_and_concat(first: list[bytes | None], second: list[bytes | None]) -> None:
    both = Ragged.concat([Ragged.of(first), Ragged.of(second)])
    assert both.tolist() == filled(first) + filled(second)
    assert (both.length < 0).tolist() == [string is None for string in first + second]
    packed = both[::-1].packed()
    assert packed.tolist() == both.tolist()[::-1]
    assert packed.buffer.tobytes() == b"".join(packed.tolist())
    assert packed.buffer.flags.owndata or not len(packed.buffer)


def test_concat_of_nothing() -> None:
    assert Ragged.concat([Ragged.of([])]).tolist() == []
    assert Ragged.concat([]).tolist() == []


def test_repeat() -> None:
    assert Ragged.repeat(b"ab", 3).tolist() == [b"ab"] * 3
    assert Ragged.repeat(b"", 2).packed().tolist() == [b"", b""]


@pytest.mark.parametrize("lengths", [[n] for n in LENGTHS] + [LENGTHS, LENGTHS[::-1], [5] * 9])
def test_copies_leave_everything_else_alone(lengths: list[int]) -> None:
    rng = np.random.default_rng(1)
    strings = [rng.bytes(n) for n in lengths]
    source = Ragged.of([b"front", *strings, b"end"])[1:-1]
    at = np.cumsum([3, *[n + 2 for n in lengths]])
    target = np.full(int(at[-1]) + 5, 0xEE, np.uint8)
    expected = bytearray(target.tobytes())
    for place, string in zip(at.tolist(), strings, strict=False):
        expected[place : place + len(string)] = string
    ragged_copy(target, at[:-1], source)
    assert target.tobytes() == bytes(expected)


@given(STRINGS)
def test_copy_of_any_lengths(strings: list[bytes | None]) -> None:
    source = Ragged.of(strings)
    target = np.zeros(int(np.maximum(source.length, 0).sum()) + 1, np.uint8)
    ends = np.cumsum(np.maximum(source.length, 0))
    ragged_copy(target, ends - np.maximum(source.length, 0), source)
    assert target.tobytes() == b"".join(filled(strings)) + b"\0"


@given(st.binary(max_size=12))
def test_overlapping(data: bytes) -> None:
    view = overlapping(np.frombuffer(data, np.uint8), np.dtype(">u4"))
    expected = [int.from_bytes(data[i : i + 4]) for i in range(len(data) - 3)]
    assert view.tolist() == expected
