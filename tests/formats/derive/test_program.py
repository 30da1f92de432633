"""A schema as a table for the native kernel: those of real layouts have one; it reads what construct reads."""

from __future__ import annotations

from typing import Any

import construct as c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.formats import dledger, kernel
from mqstore.formats.commit_log import DLEDGER, IN_ENTRY, IN_FRAME, PLAIN
from mqstore.formats.derive import Ragged
from mqstore.formats.derive.program import ChainRules, program_of
from mqstore.formats.hashing import crc31
from mqstore.formats.message import MESSAGE
from tests.slices import examples

from .schemas import ARRAYS, CONSTANT, NESTED, NOTHING, UNSIGNED, parse, records
from .test_decode import message, value_at

pytestmark = pytest.mark.skipif(not kernel.is_wanted(), reason=kernel.describe())


@pytest.mark.parametrize("schema", [MESSAGE, dledger.ENTRY], ids=["message", "entry"])
@given(data=st.data())
@settings(max_examples=examples(30))
def test_records_are_read_as_by_construct(schema: c.Construct[Any, Any], data: st.DataObject) -> None:
    program = program_of(schema)
    assert program is not None
    drawn = data.draw(st.lists(records(schema), min_size=1, max_size=4))
    starts = np.cumsum([0, *map(len, drawn)])
    buffer = np.frombuffer(b"".join(drawn), np.uint8)
    assert kernel.is_wanted()
    columns = program.decode(buffer, starts[:-1], starts[1:])
    assert columns.ok.all() and columns.ends.tolist() == starts[1:].tolist()
    for row, record in enumerate(drawn):
        parsed = parse(schema, record)
        assert parsed is not None
        assert {path: value_at(columns, path, row) for path in parsed[0]} == parsed[0]


@pytest.mark.parametrize(
    "schema",
    [
        ARRAYS,
        CONSTANT,
        UNSIGNED,
        c.Struct("a" / c.Float32b),
        c.Struct("a" / c.Int8ub, "b" / c.Bytes(c.this.a * 2)),
        c.Struct("a" / c.Int8ub, "b" / c.If(c.this.a == 1, c.Int8ub)),
        c.Struct("a" / c.Int8ub, "b" / c.IfThenElse(c.this.a > 1, c.Int8ub, c.Int16ub)),
        c.Struct("a" / c.Int8ub, "b" / c.Bytes(lambda context: min(context.a, 3))),
    ],
    ids=str,
)
def test_more_than_the_kernel_knows_has_no_table(schema: c.Construct[Any, Any]) -> None:
    """Numpy decodes it: nothing is guessed."""
    assert program_of(schema) is None


def test_columns_are_as_many_as_fields_need() -> None:
    """A number has one, bytes have two; a field that comes later has none."""
    program = program_of(MESSAGE, ChainRules(("body", "body_crc"), later=frozenset({"flag", "reconsume_times"})))
    assert program is not None
    assert set(program.later) == {"flag", "reconsume_times"}
    assert not {"flag", "reconsume_times"} & program.columns.keys()
    assert {"body", "properties", "born_host.ip", "store_host.ip"} <= program.strings
    taken = sum(2 if name in program.strings else 1 for name in program.columns)
    assert program.width == taken
    places = sorted(program.columns.values())
    assert places[0] == 0 and len(set(places)) == len(places)
    nothing = program_of(NOTHING)
    assert nothing is None or nothing.width == 2 * len(nothing.strings)
    assert program_of(NESTED) is None or program_of(NESTED) is program_of(NESTED), "made once"


def chained(bodies: list[bytes], base: int) -> tuple[bytes, list[int]]:
    """Records one behind the other that name their positions, and where each begins."""
    data, places = b"", []
    for body in bodies:
        places.append(len(data))
        data += message(body=body, body_crc=crc31(body), physical_offset=base + len(data))
    return data, places


@given(st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=6), st.integers(0, 1 << 40), st.data())
def test_a_chain_is_followed_to_the_first_that_breaks_a_rule(
    bodies: list[bytes], base: int, data: st.DataObject
) -> None:
    program = program_of(MESSAGE, IN_FRAME)
    assert program is not None and kernel.is_wanted()
    whole, places = chained(bodies, base)
    bad = data.draw(st.integers(0, len(bodies) - 1))
    flipped = data.draw(st.booleans())
    buffer = bytearray(whole)
    if flipped:
        buffer[places[bad] + PLAIN.magic_offset] ^= 0xFF
    stop = bad if flipped else len(bodies)
    columns, fits, end = program.follow(
        PLAIN.numbers, np.frombuffer(bytes(buffer), np.uint8), base, 0, crc=True, room=len(bodies) + 1
    )
    assert fits is not None and len(columns) == stop and fits.all()
    assert columns.starts.tolist() == places[:stop]
    assert end == [*places, len(whole)][stop]
    if stop:
        assert columns.ragged("body").tolist() == bodies[:stop]
        assert set(columns.ints("reconsume_times").tolist()) == {0}, "decoded when it is asked for"


def test_a_checksum_that_does_not_fit_is_noted_and_the_chain_goes_on() -> None:
    program = program_of(MESSAGE, IN_FRAME)
    assert program is not None and kernel.is_wanted()
    whole, places = chained([b"one", b"two", b"three"], 0)
    spoiled = whole.replace(b"two", b"twO")
    buffer = np.frombuffer(spoiled, np.uint8)
    columns, fits, _ = program.follow(PLAIN.numbers, buffer, 0, 0, crc=True, room=8)
    assert fits is not None and columns.starts.tolist() == places and fits.tolist() == [True, False, True]
    columns, fits, end = program.follow(PLAIN.numbers, buffer, 0, 0, crc=False, room=2)
    assert (len(columns), fits, end) == (2, None, places[2]), "no more than there is room for"
    assert isinstance(columns["body"], Ragged)
    assert program_of(MESSAGE, IN_ENTRY) is not None and DLEDGER.payload
