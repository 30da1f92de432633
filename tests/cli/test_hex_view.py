"""Annotated hex: every byte of a record once, in order, beside the fields of its schema."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mqstore.cli.file_kinds.chunks import RecordPiece
from mqstore.cli.hex_view import ROW_BYTES, HexView
from mqstore.formats.consume_queue import UNIT

_PLACE_CHARS = 16


def _bytes_shown(lines: list[str]) -> bytes:
    begin = _PLACE_CHARS + 2
    return b"".join(bytes.fromhex(line[begin : begin + 3 * ROW_BYTES]) for line in lines)


@given(st.binary(min_size=UNIT.sizeof(), max_size=60), st.integers(0, 10**15))
def test_every_byte_of_a_record_is_shown_once(data: bytes, position: int) -> None:
    """Bytes behind the record are, too, and said to be none of it."""
    title, *rows = HexView(colour=False, utc=True).lines(RecordPiece("unit", position, data, UNIT))
    assert title == f"-- unit, {len(data)} bytes"
    assert _bytes_shown(rows) == data
    assert int(rows[0][:_PLACE_CHARS]) == position
    assert ("not part of the record" in "".join(rows)) == (len(data) > UNIT.sizeof())


@given(st.binary(max_size=60))
def test_bytes_without_a_schema_have_their_letters(data: bytes) -> None:
    """What no terminal shows is a dot there: nothing of the bytes steers it."""
    _, *rows = HexView(colour=False, utc=True).lines(RecordPiece("?", 0, data, None))
    assert _bytes_shown(rows) == data
    assert "".join(rows).isprintable()


def test_fields_have_name_and_value() -> None:
    """In the order of the schema, each value once."""
    data = UNIT.build({"physical_offset": 4096, "size": 197, "tags_code": -5})
    rows = list(HexView(colour=False, utc=True).lines(RecordPiece("unit", 20, data, UNIT)))[1:]
    assert [row.split()[0] for row in rows] == ["20", "28", "32"]
    assert [word in row for word, row in zip(("4096", "197", "-5"), rows, strict=True)] == [True] * 3
