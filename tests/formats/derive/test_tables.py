"""Byte tables and lists of columns: as the schema reads real records."""

from __future__ import annotations

import re
from typing import Any

import construct as c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.formats.derive import Ragged, columns_of, decode, dtype_of, spans, table
from mqstore.formats.message import MESSAGE
from tests.slices import examples

from .schemas import FIXED_SCHEMAS, REAL_SCHEMAS, names_of, records
from .test_decode import each_schema


@each_schema
@given(data=st.data())
@settings(max_examples=examples(12))
def test_columns_of(schema: c.Construct[Any, Any], data: st.DataObject) -> None:
    """Names in byte order, each once; types wide enough; optional where a record may lack it."""
    described = columns_of(schema)
    by_name = {column.name: column for column in described}
    assert len(by_name) == len(described)
    assert list(by_name) == list(dict.fromkeys(names_of(schema))) or set(by_name) == set(names_of(schema))
    drawn = data.draw(st.lists(records(schema), min_size=1, max_size=3))
    for record in drawn:
        columns = decode(schema, np.frombuffer(record, np.uint8), np.zeros(1, np.int64))
        for name, column in by_name.items():
            found = columns[name]
            if isinstance(found, Ragged):
                assert column.type == "bytes"
            else:
                kind, width = column.type[0], int(column.type[1:])
                fits = np.iinfo(f"{kind}{width}")
                assert fits.min <= found.min() and found.max() <= fits.max
            if not columns.present(name)[0]:
                assert column.optional, name


@pytest.mark.parametrize("name", REAL_SCHEMAS)
def test_every_field_is_described(name: str) -> None:
    for column in columns_of(REAL_SCHEMAS[name]):
        assert column.doc, column.name
        assert not column.optional
    for row in table(REAL_SCHEMAS[name]):
        assert row.doc, row.name


@each_schema
@given(data=st.data())
@settings(max_examples=examples(12))
def test_table_tells_where_the_fields_are(schema: c.Construct[Any, Any], data: st.DataObject) -> None:
    """A row's offset is a sum of numbers, lengths `|field|` and differences `n?` of conditions."""
    record = data.draw(records(schema))
    rows = {row.name: row for row in table(schema)}
    assert {name for name in rows if not name.startswith("(")} == set(names_of(schema))
    places = {span.path: span for span in spans(schema, record)}
    for name, row in rows.items():
        if name not in places or row.offset == "…":
            continue
        low = high = 0
        for term in row.offset.split(" + "):
            if term.startswith("|"):
                span = places.get(term.strip("|"))
                low += span.length if span else 0
                high += span.length if span else 0
            elif term.endswith("?"):
                high += int(term[:-1])
            else:
                low += int(term)
                high += int(term)
        assert low <= places[name].offset <= high, (name, row.offset)
        if "?" not in row.offset:
            assert places[name].offset == low


def test_table_of_a_message() -> None:
    """As the specification prints it (1.2), for IPv4."""
    offsets = {row.name: row.offset for row in table(MESSAGE)}
    assert offsets["born_timestamp"] == "40"
    assert offsets["store_timestamp"] == "56 + 12?"
    assert offsets["body_length"] == "84 + 12? + 12?"
    assert offsets["topic_length"] == "88 + 12? + 12? + |body|"
    assert offsets["properties"] == "91 + 12? + 12? + |body| + 1? + |topic|"
    types = {row.name: row.type for row in table(MESSAGE)}
    assert types["topic_length"] == "i1 or i2"
    assert types["born_host.ip"] == "4 or 16"
    assert types["magic_code"] == "u4"


@pytest.mark.parametrize("name", FIXED_SCHEMAS)
def test_table_of_fixed_layouts(name: str) -> None:
    """Offsets and widths are those of the dtype."""
    dtype = dtype_of(FIXED_SCHEMAS[name])
    for row in table(FIXED_SCHEMAS[name]):
        assert dtype.fields is not None
        field, offset = dtype.fields[row.name][:2]
        assert row.offset == str(offset)
        if field.kind in "iu":
            assert row.type == f"{field.kind}{field.itemsize}"
        assert not re.search("[?|…]", row.offset)
