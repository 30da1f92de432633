"""Ways to spoil bytes: each touches what it says, and nothing else, wherever the bytes lie."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from mqstore.store.damage.scenarios import (
    LIES,
    PAGE_BYTES,
    Spot,
    flip_bit,
    garbage,
    torn_tail,
    truncate,
    wrong_size,
    zero_page,
)
from mqstore.store.disk.files import Edit

FILE = random.Random(1).randbytes(3 * PAGE_BYTES - 100)


@st.composite
def spots(draw: st.DrawFn) -> Spot:
    """A record in a file of three pages, the last one of which is short; it says its size."""
    size = draw(st.integers(8, 6000) | st.sampled_from([lie for lie in LIES if 8 <= lie <= 6000]))
    begin = draw(st.integers(0, len(FILE) - size))
    return Spot("file", len(FILE), begin, size.to_bytes(4) + FILE[begin + 4 : begin + size])


CHANCES = st.integers(0, 1 << 32).map(random.Random)


def file_of(spot: Spot) -> bytes:
    """The file with the record in it."""
    return FILE[: spot.begin] + spot.data + FILE[spot.begin + len(spot.data) :]


def differing(spot: Spot, edit: Edit) -> list[int]:
    """Bytes that are others after a write, which stays inside the file."""
    before = file_of(spot)
    assert edit.kind == "write" and edit.offset + edit.length <= len(before)
    data = bytes(edit.length) if edit.data is None else bytes(edit.data)
    assert len(data) == edit.length
    after = before[: edit.offset] + data + before[edit.offset + edit.length :]
    return [at for at, (one, other) in enumerate(zip(before, after, strict=True)) if one != other]


@given(spots(), CHANCES)
def test_one_bit_of_the_record_flips(spot: Spot, chance: random.Random) -> None:
    edit = flip_bit(spot, chance)
    (at,) = differing(spot, edit)
    assert spot.begin <= at < spot.begin + len(spot.data)
    assert isinstance(edit.data, bytes) and (edit.data[0] ^ spot.data[at - spot.begin]).bit_count() == 1


@given(spots(), CHANCES)
def test_the_size_that_is_written_is_never_the_right_one(spot: Spot, chance: random.Random) -> None:
    edit = wrong_size(spot, chance)
    changed = differing(spot, edit)
    assert changed and set(changed) <= set(range(spot.begin, spot.begin + 4))


@given(spots(), CHANCES, st.integers(1, 7))
def test_only_the_front_of_a_torn_record_stays(spot: Spot, chance: random.Random, least: int) -> None:
    edit = torn_tail(spot, chance, least)
    assert edit.data is None and edit.offset + edit.length == spot.begin + len(spot.data)
    assert least <= edit.offset - spot.begin < len(spot.data)


@given(spots(), CHANCES)
def test_a_page_and_garbage_begin_in_the_record_and_end_in_the_file(spot: Spot, chance: random.Random) -> None:
    page = zero_page(spot, chance)
    assert page.offset % PAGE_BYTES == 0 and page.length == min(PAGE_BYTES, len(FILE) - page.offset)
    assert page.offset < spot.begin + len(spot.data) and spot.begin < page.offset + page.length
    assert differing(spot, page)
    noise = garbage(spot, chance)
    assert spot.begin <= noise.offset < spot.begin + len(spot.data) and 0 < noise.length <= PAGE_BYTES
    assert set(differing(spot, noise)) <= set(range(noise.offset, noise.offset + noise.length))


@given(spots(), CHANCES)
def test_a_cut_file_ends_in_the_record(spot: Spot, chance: random.Random) -> None:
    edit = truncate(spot, chance)
    assert (edit.kind, edit.data) == ("truncate", None)
    assert spot.begin <= edit.length < spot.begin + len(spot.data)
