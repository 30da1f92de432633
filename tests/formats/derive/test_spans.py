"""Spans against construct."""

from __future__ import annotations

from typing import Any

import construct as c
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.formats.derive import spans
from mqstore.formats.message import MESSAGE
from tests.slices import examples

from .schemas import parse, records
from .test_decode import EXTREMES, each_schema


@each_schema
@given(data=st.data())
@settings(max_examples=examples(12))
def test_spans_are_the_fields(schema: c.Construct[Any, Any], data: st.DataObject) -> None:
    """Every byte once, in order, with the value that construct reads; nothing behind the record."""
    record = data.draw(records(schema))
    parsed = parse(schema, record)
    assert parsed is not None
    fields, size = parsed
    found = spans(schema, record)
    at = 0
    for span in found:
        assert span.offset == at
        assert span.length > 0
        at += span.length
    assert at == size
    shown = {span.path: span.value for span in found if span.path in fields}
    assert shown == {path: value for path, value in fields.items() if value != b""}
    assert {span.path for span in found if span.path and "#" not in span.path} <= set(fields)


@each_schema
@given(data=st.data())
@settings(max_examples=examples(10))
def test_spans_of_cut_records(schema: c.Construct[Any, Any], data: st.DataObject) -> None:
    """What is there is shown as in the whole record, the rest of the bytes as truncated."""
    record = data.draw(records(schema))
    whole = spans(schema, record)
    cut = data.draw(st.integers(0, len(record)))
    found = spans(schema, record[:cut])
    assert sum(span.length for span in found) == cut
    if parse(schema, record[:cut]) is not None and cut < len(record):
        return  # a string that takes all that is left
    kept = [span for span in found if span.path != "truncated"]
    assert kept == whole[: len(kept)]
    assert [span.path for span in found[len(kept) :]] in ([], ["truncated"])


@each_schema
@given(noise=st.binary(max_size=150))
@settings(max_examples=examples(12))
def test_spans_of_any_bytes(schema: c.Construct[Any, Any], noise: bytes) -> None:
    """Never more than there is, no exception."""
    found = spans(schema, noise)
    assert sum(span.length for span in found) <= len(noise)
    parsed = parse(schema, noise)
    if parsed is not None:
        assert sum(span.length for span in found) == parsed[1]


def test_spans_of_the_longest() -> None:
    for record in EXTREMES:
        assert sum(span.length for span in spans(MESSAGE, record)) == len(record)
