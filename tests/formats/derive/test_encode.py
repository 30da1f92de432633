"""Columnar encode against construct's build, and as the inverse of decode."""

from __future__ import annotations

from typing import Any

import construct as c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.formats import consume_queue, dledger
from mqstore.formats.derive import Columns, Ragged, decode, encode, sizes
from mqstore.formats.message import MAGIC_V1, MAGIC_V2, MESSAGE
from tests.slices import examples

from .schemas import NESTED, records
from .test_decode import EXTREMES, each_schema, message


def columns_of(schema: c.Construct[Any, Any], drawn: list[bytes]) -> Columns:
    starts = np.cumsum([0, *map(len, drawn[:-1])])
    block = np.frombuffer(b"".join(drawn), np.uint8)
    return decode(schema, block, starts, starts + [len(record) for record in drawn])


@each_schema
@given(data=st.data())
@settings(max_examples=examples(15))
def test_builds_what_construct_builds(schema: c.Construct[Any, Any], data: st.DataObject) -> None:
    """Back to back, and at given places with everything else left alone."""
    drawn = data.draw(st.lists(records(schema), min_size=1, max_size=6))
    columns = columns_of(schema, drawn)
    assert columns.ok.all()
    encoded = encode(schema, columns)
    assert encoded.buffer.tobytes() == b"".join(drawn)
    assert encoded.sizes.tolist() == sizes(schema, columns).tolist() == list(map(len, drawn))
    gaps = data.draw(st.lists(st.integers(0, 9), min_size=len(drawn), max_size=len(drawn)))
    starts = encoded.starts + np.cumsum(gaps)
    out = np.full(int(starts[-1]) + len(drawn[-1]) + 3, 0xEE, np.uint8)
    expected = bytearray(out.tobytes())
    for start, record in zip(starts.tolist(), drawn, strict=True):
        expected[start : start + len(record)] = record
    placed = encode(schema, columns, starts, out)
    assert placed.buffer is out
    assert out.tobytes() == bytes(expected)


@each_schema
@given(data=st.data())
@settings(max_examples=examples(10))
def test_order_does_not_matter(schema: c.Construct[Any, Any], data: st.DataObject) -> None:
    drawn = data.draw(st.lists(records(schema), min_size=2, max_size=6))
    order = data.draw(st.permutations(range(len(drawn))))
    columns = columns_of(schema, drawn).take(np.array(order))
    assert encode(schema, columns).buffer.tobytes() == b"".join(drawn[i] for i in order)


@each_schema
def test_no_records(schema: c.Construct[Any, Any]) -> None:
    columns = decode(schema, np.empty(0, np.uint8), np.empty(0, np.int64))
    encoded = encode(schema, columns)
    assert (len(encoded.buffer), len(encoded.starts), len(encoded.sizes)) == (0, 0, 0)


def test_empty_and_longest_fields() -> None:
    assert encode(MESSAGE, columns_of(MESSAGE, EXTREMES)).buffer.tobytes() == b"".join(EXTREMES)


def fields(**changed: Any) -> dict[str, Any]:
    """Columns of two messages as a caller gives them: mostly one value for all."""
    columns: dict[str, Any] = {
        path: value
        for path, value in columns_of(MESSAGE, [message(), message()]).items()
        if path not in ("total_size", "body_length", "topic_length", "properties_length")
    }
    return columns | changed


def test_one_value_for_all() -> None:
    columns = fields(topic=b"T", queue_id=7, body=Ragged.of([b"one", b""]), body_crc=np.array([1, 2]))
    encoded = encode(MESSAGE, columns)
    expected = [
        message(topic=b"T", queue_id=7, body=b"one", body_crc=1),
        message(topic=b"T", queue_id=7, body=b"", body_crc=2),
    ]
    assert encoded.buffer.tobytes() == b"".join(expected)


def test_linked_fields_follow_from_the_strings() -> None:
    """What the columns say about lengths does not count."""
    columns = fields(body=Ragged.of([b"12", b"345"]), body_length=99, total_size=np.array([1, 2]))
    decoded = columns_of(MESSAGE, [message(body=b"12"), message(body=b"345")])
    assert encode(MESSAGE, columns).buffer.tobytes() == decoded.ragged("body").buffer.tobytes()


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"topic": b"t" * 128}, "topic_length"),
        ({"topic": b"t" * 32768, "magic_code": MAGIC_V2}, "topic_length"),
        ({"properties": b"p" * 32768}, "properties_length"),
        ({"queue_id": 1 << 31}, "queue_id"),
        ({"flag": np.array([0, -(1 << 31) - 1])}, "flag"),
        ({"magic_code": np.array([-1, MAGIC_V1])}, "magic_code"),
        ({"born_host.ip": bytes(16)}, "born_host.ip"),
        ({"store_host.ip": Ragged.of([bytes(4), bytes(5)])}, "store_host.ip"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_fit_is_refused(changed: dict[str, Any], named: str) -> None:
    """As construct does; nothing is cut off or wrapped around."""
    with pytest.raises(ValueError, match=named):
        encode(MESSAGE, fields(**changed))


def test_missing_fields_and_columns_of_different_length() -> None:
    columns = fields()
    del columns["body"]
    with pytest.raises(KeyError):
        encode(MESSAGE, columns)
    with pytest.raises(ValueError, match="different length"):
        encode(MESSAGE, fields(queue_id=np.zeros(3, np.int32)))
    with pytest.raises(ValueError, match="different length"):
        encode(consume_queue.UNIT, {"physical_offset": 1, "size": 2, "tags_code": 3})


def test_out_must_have_room() -> None:
    columns = fields()
    with pytest.raises(ValueError, match="bytes"):
        encode(MESSAGE, columns, np.array([0, 91]), np.zeros(181, np.uint8))
    encode(MESSAGE, columns, np.array([0, 91]), np.zeros(182, np.uint8))


def test_a_column_may_be_missing_where_no_record_has_it() -> None:
    """Conditions over fields that nobody gave hold of no record."""
    columns = {"kind": np.array([0, 0]), "head.flags": 0, "head.deep.a": 5, "head.deep.only": 1}
    columns |= {"end": 3}
    expected = NESTED.build(
        {"kind": 0, "head": {"flags": 0, "extra": None, "deep": {"a": 5, "only": 1}}}
        | {"late": None, "last": None, "end": 3}
    )
    assert encode(NESTED, columns).buffer.tobytes() == expected * 2


@given(drawn=st.lists(records(MESSAGE), min_size=1, max_size=4))
@settings(max_examples=examples(15))
def test_entries_around_messages(drawn: list[bytes]) -> None:
    """A DLedger entry around each record; both schemas on the same bytes."""
    numbers = dict.fromkeys(("magic", "index", "term", "pos", "channel", "chain_crc", "body_crc"), 1)
    encoded = encode(dledger.ENTRY, {**numbers, "body": Ragged.of(drawn)})
    entries = decode(dledger.ENTRY, encoded.buffer, encoded.starts)
    assert entries.ragged("body").tolist() == drawn
    inner = decode(MESSAGE, encoded.buffer, encoded.starts + dledger.HEADER_BYTES, entries.ends)
    assert inner.ok.all()
    assert inner.ends.tolist() == entries.ends.tolist()
