"""How a table of a configuration file is told: names of its columns, types of its fields."""

from __future__ import annotations

from typing import Any

import pytest

from mqstore.formats.json_table import DATA_VERSION, GROUP, QUEUE_ID, TOPIC, JsonField, JsonTable, Member
from mqstore.formats.kinds import KINDS

TABLES = [pytest.param(table, id=f"{kind.name} {table.member}") for kind in KINDS.values() for table in kind.tables]


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("readQueueNums", "read_queue_nums"),
        ("topic", "topic"),
        ("stateVersion", "state_version"),
        ("v2ReadOnly", "v2_read_only"),
        ("perm", "perm"),
    ],
)
def test_names_in_records(name: str, column: str) -> None:
    assert JsonField(name, "integer", "").column == column
    assert JsonField(name, "integer", "", "other").column == "other"


@pytest.mark.parametrize(
    ("kind", "fitting", "others"),
    [
        ("integer", [0, -1, 1 << 70], [True, 1.5, "1", None, [], {}]),
        ("string", ["", "a"], [1, None, True, [], {}]),
        ("boolean", [True, False], [0, 1, "true", None]),
        ("object", [{}, {"a": 1}], [[], "", None, 1]),
        ("array", [[], [1]], [{}, "", None, 1]),
    ],
)
def test_types(kind: str, fitting: list[Any], others: list[Any]) -> None:
    """true is no number, though Python says so."""
    field = JsonField("f", kind, "")
    assert all(field.fits(value) for value in fitting)
    assert not any(field.fits(value) for value in others)


@pytest.mark.parametrize("bits", [32, 64])
def test_numbers_in_texts_and_keys(bits: int) -> None:
    """One beyond an int or a long is none that a broker reads; nor are those of other alphabets."""
    field, end = JsonField("f", "integer", "", bits=bits), 1 << bits - 1
    assert all(field.holds(number) for number in (0, "0", "-1", str(end - 1), str(-end), -end))
    others = ("", "-", "--1", "+1", "1.5", "\N{ARABIC-INDIC DIGIT THREE}", str(end), str(-end - 1), end, "9" * 9999)
    assert not any(field.holds(number) for number in others)
    assert field.told == f"integer of {bits} bits"


def test_keys_and_columns() -> None:
    """Two fields of one key are two columns; a step between levels is none."""
    value = JsonField("offset", "integer", "")
    table = JsonTable("m", "r", "", ((TOPIC, GROUP), Member("inner"), QUEUE_ID), (), value)
    assert table.keys == (TOPIC, GROUP, QUEUE_ID)
    assert [field.column for field in table.columns] == ["topic", "group", "queue_id", "offset"]
    assert DATA_VERSION.keys == () and DATA_VERSION.columns == DATA_VERSION.fields


@pytest.mark.parametrize("table", TABLES)
def test_every_table_that_is_described(table: JsonTable) -> None:
    """Its columns have different names and a description, and a type that JSON has."""
    columns = [field.column for field in table.columns]
    assert len(set(columns)) == len(columns)
    assert not {"type", ""} & set(columns), "`type` is that of the record"
    assert table.record_type and table.doc
    for field in table.columns:
        assert field.doc, field.name
        assert not field.fits(None)
    assert not (table.fields and table.value), "an entry is an object, or a value"
