"""Columnar decode against construct, record by record."""

from __future__ import annotations

from typing import Any

import construct as c
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mqstore.formats import kernel
from mqstore.formats.derive import Columns, Ragged, decode
from mqstore.formats.message import MAGIC_V1, MAGIC_V2, MESSAGE
from tests.slices import examples, share

from . import schemas
from .schemas import SCHEMAS, names_of, parse, records

each_schema = pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """The native kernel, where there is one, takes few rows once it is loaded: it is, whatever ran before."""
    there = kernel.is_wanted()
    assert kernel.is_wanted(1) is there


def value_at(columns: Columns, path: str, i: int) -> Any:
    value = columns[path][i]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def agree(schema: c.Construct[Any, Any], data: bytes, starts: list[int], limits: Any) -> None:
    """decode says of each record what construct says of the bytes between its start and limit."""
    buffer = np.frombuffer(data, np.uint8)
    limit = None if limits is None else np.array(limits, np.int64)
    columns = decode(schema, buffer, np.array(starts, np.int64), limit)
    assert len(columns) == len(starts)
    names = set(names_of(schema))
    assert names <= set(columns)
    for i, start in enumerate(starts):
        end = len(data) if limits is None else min(limits[i], len(data))
        expected = parse(schema, data[start:end]) if start <= end else None
        assert bool(columns.ok[i]) == (expected is not None), (i, expected)
        if expected is None:
            continue
        fields, size = expected
        assert columns.ends[i] == start + size
        assert {path: value_at(columns, path, i) for path in fields} == fields
        for path in names:
            assert bool(columns.present(path)[i]) == (path in fields), path
            if path not in fields:
                assert not np.any(value_at(columns, path, i))
    # what is not ok is still safe to touch
    for path in columns:
        column = columns[path]
        assert len(column) == len(starts)
        if isinstance(column, Ragged):
            assert column.packed().tolist() == column.tolist()


@each_schema
@given(data=st.data())
@settings(max_examples=examples(15))
def test_records_of_all_shapes_in_one_block(schema: c.Construct[Any, Any], data: st.DataObject) -> None:
    """Records in any order, with and without gaps, some of them in one another's way."""
    drawn = data.draw(st.lists(records(schema), min_size=1, max_size=6))
    gaps = data.draw(st.lists(st.binary(max_size=4), min_size=len(drawn), max_size=len(drawn)))
    block, starts, limits = b"", [], []
    for record, gap in zip(drawn, gaps, strict=True):
        block += gap
        starts.append(len(block))
        block += record
        limits.append(len(block))
    order = data.draw(st.permutations(range(len(drawn))))
    agree(schema, block, [starts[i] for i in order], [limits[i] for i in order])
    agree(schema, block, [starts[i] for i in order], None)


@each_schema
@given(data=st.data())
@settings(max_examples=examples(25))
def test_damaged_and_cut_records(schema: c.Construct[Any, Any], data: st.DataObject) -> None:
    """Some bytes changed, the end cut off, limits before the end: ok where construct parses."""
    drawn = data.draw(st.lists(records(schema), min_size=1, max_size=4))
    block = bytearray(b"".join(drawn))
    starts = [sum(map(len, drawn[:i])) for i in range(len(drawn))]
    limits = [start + len(record) for start, record in zip(starts, drawn, strict=True)]
    if block:
        places = st.tuples(st.integers(0, len(block) - 1), st.integers(0, 255))
        for at, byte in data.draw(st.lists(places, max_size=4)):
            block[at] = byte
        del block[data.draw(st.integers(0, len(block))) :]
    moved = st.integers(-3, 3)
    limits = [max(0, limit + data.draw(moved)) for limit in limits]
    agree(schema, bytes(block), starts, limits)


@each_schema
@given(block=st.binary(max_size=200), starts=st.lists(st.integers(0, 220), max_size=8))
@settings(max_examples=examples(15))
@example(block=b"", starts=[0])
@example(block=b"", starts=[])
@example(block=b"\xff" * 130, starts=[0, 1, 200])
@example(block=b"\x7f" * 130, starts=[0, 5])
@example(block=bytes(130), starts=[0, 129, 130])
def test_any_bytes(schema: c.Construct[Any, Any], block: bytes, starts: list[int]) -> None:
    agree(schema, block, starts, None)
    agree(schema, block, starts, [len(block)] * len(starts))


def message(**fields: Any) -> bytes:
    """A record with these fields, others 0."""
    hosts = {
        "born_host": {"ip": bytes(16 if fields.get("sys_flag", 0) & 0x10 else 4), "port": 1},
        "store_host": {"ip": bytes(16 if fields.get("sys_flag", 0) & 0x20 else 4), "port": 2},
    }
    numbers = dict.fromkeys(
        (
            *("body_crc", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag"),
            *("born_timestamp", "store_timestamp", "reconsume_times"),
            "prepared_transaction_offset",
        ),
        0,
    )
    strings = dict.fromkeys(("body", "topic", "properties"), b"")
    given_ = {"magic_code": MAGIC_V1, **fields}
    return bytes(MESSAGE.build(numbers | strings | hosts | given_))


EXTREMES = [
    message(),
    message(topic=b"t" * 127, properties=b"p" * 32767, body=b"b" * 70_000),
    message(topic=b"t" * 128, magic_code=MAGIC_V2, properties=b"p"),
    message(topic=b"t" * 32767, magic_code=MAGIC_V2, properties=b"p" * 32767, sys_flag=0x30),
    message(topic=b"", magic_code=MAGIC_V2, sys_flag=0x10),
    message(sys_flag=0x20, queue_offset=2**63 - 1, physical_offset=-(2**63), flag=-1),
    message(sys_flag=-1, body=b"x"),
]


@pytest.mark.parametrize("chosen", [[0], [1, 0], [2, 3, 4, 5, 6], [3] * 5, list(range(7)) * 3])
def test_empty_and_longest_fields(chosen: list[int]) -> None:
    """127 bytes of topic in version 1, 32767 bytes of properties, empty everything."""
    drawn = [EXTREMES[i] for i in chosen]
    starts = [sum(map(len, drawn[:i])) for i in range(len(drawn))]
    agree(MESSAGE, b"".join(drawn), starts, None)
    limits = [start + len(record) - 1 for start, record in zip(starts, drawn, strict=True)]
    agree(MESSAGE, b"".join(drawn), starts, limits)


@pytest.mark.parametrize("size", [0, 1, 90, 127])
def test_lengths_below_zero(size: int) -> None:
    """A negative length is no length, whatever follows."""
    for record in (message(topic=b"t" * 5, body=bytes(9)), message(properties=b"abc")):
        for at in range(len(record)):
            spoiled = bytearray(record)
            spoiled[at] = 0xFF
            agree(MESSAGE, bytes(spoiled) + bytes(size), [0], None)


def test_a_length_as_large_as_a_number_can_be() -> None:
    """start + length must not wrap around."""
    for length in (2**63 - 1, 2**63 - 8, 2**62, -(2**63), -1):
        data = c.Int64sb.build(length) + bytes(20)
        columns = decode(schemas.WIDE, np.frombuffer(data, np.uint8), np.zeros(1, np.int64))
        assert not columns.ok[0], length


@pytest.mark.slow
@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_damaged_records_at_length(schema: c.Construct[Any, Any]) -> None:
    inner = test_damaged_and_cut_records.hypothesis.inner_test

    @given(data=st.data())
    @settings(max_examples=share(2_000), derandomize=False)
    def run(data: st.DataObject) -> None:
        inner(schema, data)

    run()
