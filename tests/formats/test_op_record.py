"""Bodies of op records: one form for each generation, and bytes that no broker has written."""

from __future__ import annotations

import pytest

from mqstore.formats.op_record import OFFSET_BYTES, offset_text, offsets_in

LARGEST = (1 << 63) - 1


@pytest.mark.parametrize("offset", [0, 7, LARGEST])
@pytest.mark.parametrize("ended", [True, False])
def test_what_is_written_is_read(offset: int, ended: bool) -> None:
    text = offset_text(offset, ended=ended)
    assert offsets_in(text) == {offset}
    assert len(text) <= OFFSET_BYTES


@pytest.mark.parametrize(
    ("body", "offsets"),
    [
        (b"3,7,", {3, 7}),
        (b"3,7", {3, 7}),
        (b"", set()),
        (b"-1", set()),
        (b"3,x,\xff,+4, 5,6,", {3, 6}),
        (b"9" * OFFSET_BYTES + b",1,", {1}),
        (b"%d,%d,1," % (LARGEST + 1, LARGEST), {LARGEST, 1}),
    ],
)
def test_what_is_no_number_is_left_out(body: bytes, offsets: set[int]) -> None:
    assert offsets_in(body) == offsets
